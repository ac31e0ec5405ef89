//! A checkpoint on its way from one node to another: made, sent, received and written piece by piece, so that neither
//! side holds more than some pieces of it. A transfer that breaks off leaves nothing and is begun anew.
//!
//! ```text
//! magic "unisonS1" | u32 length of the head | head: vote and place in the log | what the node's checkpoint writes
//! ```

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::{StreamExt, stream};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use super::types::{SnapshotMeta, Vote, decode, encode};
use crate::snapshots::{ReceivedFile, WriteSnapshot};

const MAGIC: &[u8; 8] = b"unisonS1";
/// The largest head: a vote and a membership.
const HEAD: usize = 1 << 20;
/// Bytes of a piece.
const PIECE: usize = 64 * 1024;
/// Pieces that wait to be sent.
const PIECES: usize = 4;
/// A transfer that makes no progress for so long is given up. At its end the peer loads what it was sent.
const STALLED: Duration = Duration::from_secs(300);
/// A sender that is silent for so long is gone.
const SILENT: Duration = Duration::from_secs(60);

/// What openraft takes for a snapshot's data.
pub(crate) enum SnapshotData {
    /// On disk here; asked for when it is to be sent.
    Kept,
    /// To be sent.
    Outgoing(WriteSnapshot),
    /// Sent by a peer.
    Received(ReceivedFile),
}

/// The body of a request, made while it is sent, and how many pieces of it were taken.
pub(crate) fn outgoing(
    vote: &Vote,
    meta: &SnapshotMeta,
    write: WriteSnapshot,
) -> io::Result<(reqwest::Body, watch::Receiver<u64>)> {
    let head = encode(&(vote, meta))?;
    let length = u32::try_from(head.len()).map_err(io::Error::other)?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let (taken, progress) = watch::channel(0);
    let mut pump = Pump {
        sender,
        taken,
        piece: [&MAGIC[..], &length.to_le_bytes(), &head].concat(),
    };
    tokio::task::spawn_blocking(move || {
        let written = write(&mut pump).and_then(|()| pump.send());
        if let Err(error) = written {
            tracing::warn!(%error, "a checkpoint was not sent to its end");
            // The peer sees a body without its end; whoever asked for the transfer has hung up, or begins anew.
            let _ = pump.sender.blocking_send(Err(error));
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece: io::Result<Bytes> = receiver.recv().await?;
        Some((piece, receiver))
    });
    Ok((reqwest::Body::wrap_stream(pieces), progress))
}

/// Returns when a transfer makes no progress.
pub(crate) async fn stalled(mut progress: watch::Receiver<u64>) {
    while let Ok(Ok(())) = tokio::time::timeout(STALLED, progress.changed()).await {}
    if progress.has_changed().is_err() {
        // All was sent: the peer takes it in.
        tokio::time::sleep(STALLED).await;
    }
}

struct Pump {
    sender: mpsc::Sender<io::Result<Bytes>>,
    taken: watch::Sender<u64>,
    piece: Vec<u8>,
}

impl Pump {
    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        self.taken.send_modify(|taken| *taken += 1);
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the transfer was given up"))
    }
}

impl Write for Pump {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The head may be larger than a piece.
        let taken = bytes.len().min(PIECE.saturating_sub(self.piece.len()));
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() >= PIECE {
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
pub(crate) async fn receive(
    body: Body,
    dir: &Path,
) -> io::Result<(Vote, SnapshotMeta, ReceivedFile)> {
    static TRANSFERS: AtomicU64 = AtomicU64::new(0);
    let number = TRANSFERS.fetch_add(1, Ordering::Relaxed);
    let mut body = body.into_data_stream();
    let mut begin = Vec::new();
    let head = loop {
        if let Some(length) = head_length(&begin)? {
            break length;
        }
        let piece = next(&mut body).await?.ok_or_else(cut_short)?;
        begin.extend_from_slice(&piece);
    };
    let (vote, meta) = decode(&begin[MAGIC.len() + 4..head])?;
    let path = dir.join(format!("{number}.incoming"));
    let mut file = File::create(&path).await?;
    let received = ReceivedFile::new(path);
    file.write_all(&begin[head..]).await?;
    while let Some(piece) = next(&mut body).await? {
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok((vote, meta, received))
}

/// Where the head ends, once all of it is there.
fn head_length(begin: &[u8]) -> io::Result<Option<usize>> {
    let known = begin.len().min(MAGIC.len());
    if begin[..known] != MAGIC[..known] {
        let reason = "no checkpoint of this version's transfer: run the same version on all nodes";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let length = begin.get(MAGIC.len()..).and_then(<[u8]>::first_chunk::<4>);
    let Some(length) = length else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > HEAD {
        let reason = "the head of a checkpoint's transfer is damaged";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let end = MAGIC.len() + 4 + length;
    Ok((begin.len() >= end).then_some(end))
}

async fn next(body: &mut BodyDataStream) -> io::Result<Option<Bytes>> {
    match tokio::time::timeout(SILENT, body.next()).await {
        Ok(piece) => piece.transpose().map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn cut_short() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
