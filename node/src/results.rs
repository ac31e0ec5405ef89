//! The results log of a node: each stream's rows, by number, in append-only segment files.
//!
//! ```text
//! results/<incarnation>/<rows|dead_letters>/<first seq, 20 digits>.seg    rows
//! results/<incarnation>/<rows|dead_letters>/<first seq, 20 digits>.idx    where they lie, once the segment is full
//! results/durable          how far each stream is on disk for sure
//! ```
//!
//! Replicas that began a stream at the same row hold the same bytes in the same files. Replaying a tick whose rows exist
//! compares instead of writing, which is a free check of this replica against its former self.
//!
//! Appends are written to the files at once and never synced; [`ResultsLog::sync`] does that before a checkpoint names the
//! rows. So what a crash can tear lies beyond the last sync and is computed again; it is cut off at the first record whose
//! checksum is wrong. Damage before that point is an error: no one would compute those rows again. A start looks at the
//! indexes of full segments and reads the rest; a row of a full segment is checked when it is read.

mod durable;
mod error;
mod index;
mod ongoing;
mod record;
mod scan;
mod segment;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use unisono_engine::row::{Digest, Incarnation, Row, Seq, StreamId, StreamKind};

use durable::{Mark, Marks, stream_dir, sync_dir};
use index::Span;
use ongoing::Ongoing;
use stream::Stream;

use crate::threads::{lock, read, write};

pub use error::ResultsError;
use error::SYNC;
pub use record::RowRef;
pub use scan::{ScanFilter, ScanPage};
pub use stream::Appender;

/// How much a results log keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A stream above this size loses its oldest published segments. It is no limit for what is not yet published.
    pub max_bytes_per_stream: u64,
    /// A segment takes no further row that would make it larger. The same on all replicas.
    pub segment_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes_per_stream: 1 << 30,
            segment_bytes: 16 << 20,
        }
    }
}

/// What an append did with its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// New rows.
    pub written: u64,
    /// Rows that existed, with the same bytes.
    pub compared: u64,
    /// Rows older than all that is held, which could not be compared.
    pub gone: u64,
}

/// Rows that come before those held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OlderRows {
    /// The digest before the first of them.
    pub base: Digest,
    /// Consecutive rows.
    pub rows: Vec<Row>,
}

/// Where a stream begins and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The oldest row held; `next` where none is.
    pub first: Seq,
    /// The row that comes next.
    pub next: Seq,
    /// The digest before `next`.
    pub digest: Digest,
    /// Bytes on disk.
    pub bytes: u64,
}

/// All streams' rows. Cheap to clone; the clones are one log.
#[derive(Clone, Debug)]
pub struct ResultsLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    limits: Limits,
    streams: RwLock<BTreeMap<StreamId, Arc<Stream>>>,
    /// Rows that are being appended.
    ongoing: Ongoing,
    /// Taken before any stream's own lock.
    durable: Mutex<Durable>,
}

#[derive(Debug)]
struct Durable {
    marks: Marks,
    /// A sync failed: the kernel may have dropped the pages, so a later success would prove nothing.
    failed: bool,
}

impl ResultsLog {
    /// Opens the log in the directory `dir`, creating it if needed. A torn end is cut off.
    ///
    /// # Errors
    /// [`ResultsError::Io`], or [`ResultsError::Corrupt`] where rows that were synced cannot be read.
    pub fn open(dir: &Path, limits: Limits) -> Result<Self, ResultsError> {
        std::fs::create_dir_all(dir).map_err(ResultsError::io("create", dir))?;
        let marks = Marks::open(dir)?;
        let mut streams = BTreeMap::new();
        let found = incarnations(dir)?.into_iter().flat_map(|incarnation| {
            [StreamKind::Rows, StreamKind::DeadLetters].map(|kind| StreamId { incarnation, kind })
        });
        // A stream with a mark but without a directory is damage, which loading it tells.
        let ids: BTreeSet<StreamId> = found.chain(marks.streams()).collect();
        for id in ids {
            let mark = marks.get(id);
            let stream = Stream::load(id, stream_dir(dir, id), limits.segment_bytes, mark)?;
            if stream.is_begun() {
                streams.insert(id, Arc::new(stream));
            }
        }
        let durable = Mutex::new(Durable {
            marks,
            failed: false,
        });
        let inner = Inner {
            dir: dir.to_path_buf(),
            limits,
            streams: RwLock::new(streams),
            ongoing: Ongoing::default(),
            durable,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Appends rows whose numbers follow each other. Rows that exist are compared instead.
    ///
    /// # Errors
    /// [`ResultsError::Diverged`] where an existing row has other bytes, [`ResultsError::Gap`] where rows are missing
    /// before these, [`ResultsError::Chain`] where a new row's digest does not continue the stream's, or
    /// [`ResultsError::Io`]. Rows before the fault may have been written; they are right.
    pub fn append_rows<'a>(
        &self,
        stream: StreamId,
        rows: impl IntoIterator<Item = RowRef<'a>>,
    ) -> Result<Appended, ResultsError> {
        let _write = self.inner.ongoing.begin();
        self.append_with(stream, |appender| {
            rows.into_iter().try_for_each(|row| appender.push(&row))
        })
    }

    /// Appends the rows that `fill` pushes one by one; each is borrowed for the call alone, so that one buffer is enough to
    /// render them all.
    ///
    /// # Errors
    /// As [`Self::append_rows`], or `fill`'s own.
    pub fn append_with<E: From<ResultsError>>(
        &self,
        stream: StreamId,
        fill: impl FnOnce(&mut Appender<'_>) -> Result<(), E>,
    ) -> Result<Appended, E> {
        let stream = self.stream_or_new(stream);
        let mut appender = stream.appender();
        fill(&mut appender)?;
        Ok(appender.finish()?)
    }

    /// For how long rows have been on their way to the disk, those that take longest; they may hang.
    #[must_use]
    pub fn writing(&self) -> Option<Duration> {
        self.inner.ongoing.longest()
    }

    /// The number of the next row; 0 for a stream that is not held.
    #[must_use]
    pub fn next_seq(&self, stream: StreamId) -> Seq {
        self.position(stream).next
    }

    /// The number of the oldest row held; equal to the next one where none is.
    #[must_use]
    pub fn first_seq(&self, stream: StreamId) -> Seq {
        self.position(stream).first
    }

    /// The digest up to and with the last row.
    #[must_use]
    pub fn digest(&self, stream: StreamId) -> Digest {
        self.position(stream).digest
    }

    /// Begin, end, digest and size, all of one moment.
    #[must_use]
    pub fn position(&self, stream: StreamId) -> Position {
        self.stream(stream)
            .map_or_else(Position::default, |stream| stream.position())
    }

    /// About how many bytes the rows from `seq` on take.
    #[must_use]
    pub fn bytes_from(&self, stream: StreamId, seq: Seq) -> u64 {
        self.stream(stream)
            .map_or(0, |stream| stream.bytes_from(seq))
    }

    /// The digest before row `seq`; `None` where the rows held do not tell.
    ///
    /// # Errors
    /// [`ResultsError::Io`] or [`ResultsError::Corrupt`].
    pub fn digest_before(&self, id: StreamId, seq: Seq) -> Result<Option<Digest>, ResultsError> {
        match self.stream(id) {
            Some(stream) => stream.digest_before(seq),
            None => Ok((seq == Seq(0)).then(Digest::default)),
        }
    }

    /// Makes `next` the stream's next row and `digest` the digest before it, after a peer's checkpoint was installed.
    /// The rows below `next` stay if they lead up to this digest; rows from `next` on always go, for replay gives them again.
    ///
    /// # Errors
    /// [`ResultsError::Io`] or [`ResultsError::Corrupt`].
    pub fn reset(&self, id: StreamId, next: Seq, digest: Digest) -> Result<(), ResultsError> {
        let mut durable = lock(&self.inner.durable);
        // First of all, or a crash in between would take the rows that are cut here for damage.
        if durable.marks.remove(id) {
            durable.marks.save()?;
        }
        self.stream_or_new(id).reset(next, digest)
    }

    /// Removes a stream with all of its rows, whose pipeline is no more. Only when no checkpoint that may be used again
    /// knows it: replayed ticks would find nothing to follow.
    ///
    /// # Errors
    /// [`ResultsError::Io`].
    pub fn remove(&self, id: StreamId) -> Result<(), ResultsError> {
        let mut durable = lock(&self.inner.durable);
        // First of all, or a crash in between would take its lack for damage.
        if durable.marks.remove(id) {
            durable.marks.save()?;
        }
        write(&self.inner.streams).remove(&id);
        let dir = stream_dir(&self.inner.dir, id);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ResultsError::io("remove", &dir)(error));
            }
            _ => {}
        }
        // Fails while the pipeline's other stream is there.
        if let Some(parent) = dir.parent() {
            let _ = std::fs::remove_dir(parent);
        }
        Ok(())
    }

    /// Puts all rows appended so far on disk. Call it before a checkpoint names them.
    ///
    /// # Errors
    /// [`ResultsError::Io`]; if it was `fsync` that failed, every further call fails too, until the log is opened again.
    pub fn sync(&self) -> Result<(), ResultsError> {
        let mut durable = lock(&self.inner.durable);
        if durable.failed {
            let earlier = std::io::Error::other("an earlier sync failed");
            return Err(ResultsError::io(SYNC, &self.inner.dir)(earlier));
        }
        let result = self.sync_all(&mut durable.marks);
        // Without a file handle left, or without space, nothing is lost: it is tried again.
        durable.failed = result.as_ref().is_err_and(ResultsError::is_of_sync);
        result
    }

    fn sync_all(&self, marks: &mut Marks) -> Result<(), ResultsError> {
        for stream in self.all_streams() {
            let before = marks.get(stream.id());
            let Some(unsynced) = stream.unsynced(before) else {
                continue;
            };
            for (path, file) in &unsynced.files {
                file.sync_data().map_err(ResultsError::io(SYNC, path))?;
            }
            if before.is_none_or(|mark: Mark| mark.segment != unsynced.mark.segment) {
                sync_dir(stream.dir())?;
            }
            if before.is_none() {
                sync_dir(stream.dir().parent().unwrap_or(&self.inner.dir))?;
                sync_dir(&self.inner.dir)?;
            }
            marks.set(stream.id(), unsynced.mark);
        }
        marks.save()
    }

    /// Rows from number `from` on, at most `max_rows` and about `max_bytes` of JSON, but at least one if there is one.
    ///
    /// # Errors
    /// [`ResultsError::Gone`] where `from` is older than what is held, [`ResultsError::Io`], [`ResultsError::Corrupt`].
    pub fn read(
        &self,
        id: StreamId,
        from: Seq,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Vec<Row>, ResultsError> {
        let Some(stream) = self.stream(id) else {
            return Ok(Vec::new());
        };
        let Position { first, next, .. } = stream.position();
        let mut rows = Vec::new();
        let mut bytes = 0;
        if max_rows > 0 && from >= first {
            stream.visit(from, next, Span::ALL, |view| {
                bytes += view.json.len();
                let takes = rows.is_empty() || bytes <= max_bytes;
                if takes {
                    rows.push(view.to_row());
                }
                takes && rows.len() < max_rows
            })?;
        }
        // Looked at twice: retention may have removed the row in between.
        let found = rows.first().map_or(from, |row| row.seq);
        if from < first || found != from {
            let first = self.first_seq(id);
            return Err(ResultsError::Gone {
                stream: id,
                first,
                asked: from,
            });
        }
        Ok(rows)
    }

    /// Rows below `below` that match `filter`, from number `after` on (0, or the last page's `next`): windows that end
    /// after `from` and start before `to`. At most `limit` rows and 8 MiB.
    ///
    /// # Errors
    /// [`ResultsError::Io`] or [`ResultsError::Corrupt`].
    pub fn scan(
        &self,
        id: StreamId,
        below: Seq,
        filter: &ScanFilter,
        after: Seq,
        limit: usize,
    ) -> Result<ScanPage, ResultsError> {
        match self.stream(id) {
            Some(stream) => scan::scan(&stream, below, filter, after, limit),
            None => Ok(ScanPage {
                rows: Vec::new(),
                next: None,
            }),
        }
    }

    /// Deletes the stream's oldest segments while it is over its size and their rows are all below `published_below`.
    /// Returns how many.
    ///
    /// # Errors
    /// [`ResultsError::Io`].
    pub fn retain(&self, id: StreamId, published_below: Seq) -> Result<u64, ResultsError> {
        let max_bytes = self.inner.limits.max_bytes_per_stream;
        self.stream(id)
            .map_or(Ok(0), |stream| stream.retain(published_below, max_bytes))
    }

    /// Whether the rows before the first one held were never here, because a peer's checkpoint began the stream there.
    #[must_use]
    pub fn lacks_older(&self, id: StreamId) -> bool {
        self.stream(id).is_some_and(|stream| stream.lacks_older())
    }

    /// Notes that no older rows than `first` will come: all are here, or no one has them any more. Nothing happens if the
    /// stream begins elsewhere by now.
    ///
    /// # Errors
    /// [`ResultsError::Io`].
    pub fn settle_older(&self, id: StreamId, first: Seq) -> Result<(), ResultsError> {
        self.stream(id)
            .map_or(Ok(()), |stream| stream.settle_older(first))
    }

    /// The rows before row `below`, as many as its file holds, for a peer that lacks them; `None` where row `below - 1` is
    /// not held.
    ///
    /// # Errors
    /// [`ResultsError::Io`] or [`ResultsError::Corrupt`].
    pub fn before(&self, id: StreamId, below: Seq) -> Result<Option<OlderRows>, ResultsError> {
        self.stream(id)
            .map_or(Ok(None), |stream| stream.before(below))
    }

    /// Puts rows that lead up to the first row held before it, durably. `false` if the stream would be larger than it may.
    ///
    /// # Errors
    /// [`ResultsError::Gap`] or [`ResultsError::Chain`] where they do not lead up to it: nothing has changed then, and
    /// another peer may have the right ones. [`ResultsError::Io`].
    pub fn prepend(&self, id: StreamId, older: &OlderRows) -> Result<bool, ResultsError> {
        let max_bytes = self.inner.limits.max_bytes_per_stream;
        self.stream(id)
            .map_or(Ok(false), |stream| stream.prepend(older, max_bytes))
    }

    /// The streams that are held, in order.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamId> {
        self.all_streams()
            .iter()
            .filter(|it| it.is_begun())
            .map(|it| it.id())
            .collect()
    }

    fn all_streams(&self) -> Vec<Arc<Stream>> {
        let streams = read(&self.inner.streams);
        streams.values().cloned().collect()
    }

    fn stream(&self, id: StreamId) -> Option<Arc<Stream>> {
        let streams = read(&self.inner.streams);
        streams.get(&id).cloned()
    }

    fn stream_or_new(&self, id: StreamId) -> Arc<Stream> {
        if let Some(stream) = self.stream(id) {
            return stream;
        }
        let mut streams = write(&self.inner.streams);
        let inner = &self.inner;
        let new = || Stream::new(id, stream_dir(&inner.dir, id), inner.limits.segment_bytes);
        Arc::clone(streams.entry(id).or_insert_with(|| Arc::new(new())))
    }
}

fn incarnations(dir: &Path) -> Result<Vec<Incarnation>, ResultsError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(ResultsError::io("list", dir))? {
        let entry = entry.map_err(ResultsError::io("list", dir))?;
        found.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .map(Incarnation),
        );
    }
    found.sort();
    Ok(found)
}
