//! What a peer is sent: a checkpoint with the rows that were not published at its index.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use unisono_engine::row::{Digest, Seq};
use unisono_replication::command::FeedId;

use super::{
    CheckpointReader, CheckpointStore, CheckpointWriter, PartId, StoredCheckpoint,
    UnfinishedCheckpoint, encode_heads, read_heads,
};
use crate::ids::stream_of;
use crate::results::ResultsLog;

/// Writes what a peer is sent: the checkpoint's parts, or those of one feed, then the rows that were not published at its
/// index.
///
/// # Errors
/// It cannot be read, or not be written.
pub fn send(
    checkpoint: &StoredCheckpoint,
    results: &ResultsLog,
    only: Option<FeedId>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let header = checkpoint.header();
    let mut reader = checkpoint.reader()?;
    let mut parcel = CheckpointWriter::begin(out, header)?;
    let mut heads = Vec::new();
    while let Some((id, mut part)) = reader.next_part()? {
        if only.is_some() && id.feed() != only {
            continue;
        }
        match id {
            PartId::Heads(_) => {
                let feeds = read_heads(&mut part)?;
                parcel.part(id, |out| out.write_all(&encode_heads(&feeds)))?;
                heads.extend(feeds);
            }
            PartId::Feed(_) | PartId::Lane(..) => {
                parcel.part(id, |out| io::copy(&mut part, out).map(drop))?;
            }
            // Those that were on the way when this node took the checkpoint are sent from the results log.
            PartId::Rows(_) => {}
        }
    }
    for head in heads {
        let id = stream_of(head.stream);
        // Those that were published since and removed are left out.
        let published = header.machine.frontier(head.stream);
        let from = Seq(published.max(results.first_seq(id).0));
        let known = results.digest_before(id, from).map_err(io::Error::other)?;
        if from.0 < head.next && known.is_some() {
            parcel.part(PartId::Rows(head.stream), |out| {
                results.export(id, from, Seq(head.next), out)
            })?;
        }
    }
    parcel.finish()?;
    Ok(())
}

/// Takes what [`send`] wrote: the rows into the results log, the rest into a checkpoint of this node's own.
///
/// # Errors
/// It cannot be read, or not be written.
pub fn take(
    parcel: &mut CheckpointReader,
    store: &CheckpointStore,
    results: &ResultsLog,
) -> io::Result<StoredCheckpoint> {
    let mut checkpoint = store.begin(parcel.header().clone())?;
    take_rows(parcel, results, &mut checkpoint)?;
    store.finish(checkpoint)
}

/// The same into a checkpoint that has other parts too. The rows are durable when this returns.
///
/// # Errors
/// As there.
pub fn take_rows(
    parcel: &mut CheckpointReader,
    results: &ResultsLog,
    checkpoint: &mut UnfinishedCheckpoint,
) -> io::Result<()> {
    let mut without_rows = BTreeMap::new();
    while let Some((id, mut part)) = parcel.next_part()? {
        match id {
            PartId::Heads(_) => {
                let heads = read_heads(&mut part)?;
                checkpoint.part(id, |out| out.write_all(&encode_heads(&heads)))?;
                without_rows.extend(heads.into_iter().map(|head| (head.stream, head)));
            }
            PartId::Feed(_) | PartId::Lane(..) => {
                checkpoint.part(id, |out| io::copy(&mut part, out).map(drop))?;
            }
            PartId::Rows(stream) => {
                let rows: &mut dyn Read = &mut part;
                results.import(stream_of(stream), rows)?;
                without_rows.remove(&stream);
            }
        }
    }
    // What is here below stays if it is the same; what is above is computed again when its ticks are replayed.
    for head in without_rows.values() {
        let digest = Digest(head.digest);
        let reset = results.reset(stream_of(head.stream), Seq(head.next), digest);
        reset.map_err(io::Error::other)?;
    }
    results.sync().map_err(io::Error::other)
}

/// Copies the parts of what a peer sent, but for its rows.
///
/// # Errors
/// It cannot be read, or not be written.
pub fn copy_parts(from: &mut CheckpointReader, to: &mut UnfinishedCheckpoint) -> io::Result<()> {
    while let Some((id, mut part)) = from.next_part()? {
        if id.feed().is_some() {
            to.part(id, |out| io::copy(&mut part, out).map(drop))?;
        }
    }
    Ok(())
}

/// Copies the parts of some feeds from one checkpoint to another.
///
/// # Errors
/// It cannot be read, or not be written.
pub fn copy(
    from: &StoredCheckpoint,
    to: &mut UnfinishedCheckpoint,
    wanted: impl Fn(FeedId) -> bool,
) -> io::Result<()> {
    let mut reader = from.reader()?;
    while let Some((id, mut part)) = reader.next_part()? {
        if id.feed().is_some_and(&wanted) {
            to.part(id, |out| io::copy(&mut part, out).map(drop))?;
        }
    }
    Ok(())
}
