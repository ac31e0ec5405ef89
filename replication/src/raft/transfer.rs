//! A checkpoint on its way from one node to another: made, sent, received and written piece by piece, so that neither
//! side holds more than some pieces of it. A transfer that breaks off leaves nothing and is begun anew. Its head is the
//! sender's vote and the checkpoint's place in the log, its pieces are what the node's checkpoint writes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::{mpsc, watch};

use crate::link::{PIECE_BYTES, Pieces};
use crate::rt::{self, Handle};
use crate::snapshots::{ReceivedFile, WriteSnapshot};

/// Pieces that wait to be sent.
const PIECES: usize = 4;
/// A transfer that makes no progress for so long is given up. At its end the peer loads what it was sent.
const STALLED: Duration = Duration::from_secs(300);

/// What openraft takes for a snapshot's data.
pub(crate) enum SnapshotData {
    /// On disk here; asked for when it is to be sent.
    Kept,
    /// To be sent.
    Outgoing(WriteSnapshot),
    /// Sent by a peer.
    Received(ReceivedFile),
}

/// The pieces of a checkpoint, made while they are sent, and how many of them were taken.
pub(crate) fn outgoing(
    write: WriteSnapshot,
) -> (mpsc::Receiver<io::Result<Vec<u8>>>, watch::Receiver<u64>) {
    let (sender, receiver) = mpsc::channel(PIECES);
    let (taken, progress) = watch::channel(0);
    let mut pump = Pump {
        sender,
        taken,
        piece: Vec::with_capacity(PIECE_BYTES),
        runtime: Handle::current(),
    };
    rt::spawn_blocking(move || {
        let written = write(&mut pump).and_then(|()| pump.send());
        if let Err(error) = written {
            tracing::warn!(%error, "a checkpoint was not sent to its end");
            // The peer sees pieces without an end; whoever asked for the transfer has hung up, or begins anew.
            let _ = pump.runtime.block_on(pump.sender.send(Err(error)));
        }
    });
    (receiver, progress)
}

/// Returns when a transfer makes no progress.
pub(crate) async fn stalled(mut progress: watch::Receiver<u64>) {
    while let Ok(Ok(())) = rt::timeout(STALLED, progress.changed()).await {}
    if progress.has_changed().is_err() {
        // All was sent: the peer takes it in.
        rt::sleep(STALLED).await;
    }
}

struct Pump {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    taken: watch::Sender<u64>,
    piece: Vec<u8>,
    runtime: Handle,
}

impl Pump {
    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let sent = self.runtime.block_on(self.sender.send(Ok(piece)));
        self.taken.send_modify(|taken| *taken += 1);
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the transfer was given up"))
    }
}

impl Write for Pump {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() >= PIECE_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The folder for what peers send, empty: what a transfer that broke off left is removed.
pub(crate) fn prepare(dir: &Path) -> io::Result<PathBuf> {
    let dir = dir.join("incoming");
    match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Receives what [`outgoing`] sent, into a file in `dir`.
pub(crate) async fn receive<S: AsyncRead + Unpin>(
    mut pieces: Pieces<'_, S>,
    dir: &Path,
) -> io::Result<ReceivedFile> {
    static TRANSFERS: AtomicU64 = AtomicU64::new(0);
    let number = TRANSFERS.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("{number}.incoming"));
    let new = path.clone();
    let mut file = rt::blocking(move || File::create(new)).await??;
    let received = ReceivedFile::new(path);
    while let Some(piece) = pieces.next().await? {
        let piece = piece.to_vec();
        let written = rt::blocking(move || file.write_all(&piece).map(|()| file));
        file = written.await??;
    }
    Ok(received)
}
