//! One stream's segments: one appender, many readers. Locks are held for the index alone, never while a file is read or
//! written, so a slow query cannot hold up the appender.

mod older;
mod trim;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use unisono_engine::row::{Digest, Row, Seq, StreamId};

use super::durable::Mark;
use super::error::ResultsError;
use super::record::{self, MAX_JSON};
use super::segment::{self, Chunk, HEADER, Loaded, Segment, Span};
use super::{Appended, Position};

/// Invariant: the segments follow each other without a gap, and the last one takes the next row. `next` and `digest` are
/// those behind its last row. An empty list is a stream that no row or reset has begun.
#[derive(Debug, Default)]
struct State {
    segments: Vec<Segment>,
    next: Seq,
    digest: Digest,
}

#[derive(Debug)]
pub(super) struct Stream {
    id: StreamId,
    dir: PathBuf,
    segment_bytes: u64,
    /// Held through every change. Readers only take `state`.
    writer: Mutex<()>,
    /// Rows before the first were never here, though peers may have them.
    lacks_older: AtomicBool,
    state: RwLock<State>,
}

/// What [`Stream::unsynced`] found.
pub(super) struct Unsynced {
    pub(super) files: Vec<(Arc<PathBuf>, Arc<File>)>,
    pub(super) mark: Mark,
}

impl Stream {
    /// An unbegun stream.
    pub(super) fn new(id: StreamId, dir: PathBuf, segment_bytes: u64) -> Self {
        Self {
            id,
            dir,
            segment_bytes,
            writer: Mutex::default(),
            lacks_older: AtomicBool::new(false),
            state: RwLock::default(),
        }
    }

    /// Reads the stream that lies in `dir`.
    pub(super) fn load(
        id: StreamId,
        dir: PathBuf,
        segment_bytes: u64,
        mark: Option<Mark>,
    ) -> Result<Self, ResultsError> {
        let stream = Self::new(id, dir, segment_bytes);
        let mut state = State::default();
        let mut names = segment_files(&stream.dir)?.into_iter();
        for (first, path) in names.by_ref() {
            let file_bytes = std::fs::metadata(&path)
                .map_err(ResultsError::io("look at", &path))?
                .len();
            let durable = Mark::covers(mark, first, file_bytes);
            let begun = !state.segments.is_empty();
            if begun && first != state.next {
                let what = format!(
                    "row {} should come first, the file before is gone",
                    state.next.0
                );
                return Err(ResultsError::corrupt(&path, 0, what));
            }
            let base = state.digest;
            match Segment::load(path.clone(), first, durable)? {
                Loaded::Segment {
                    segment,
                    digest,
                    cut,
                } => {
                    if begun && segment.base() != base {
                        return Err(ResultsError::corrupt(
                            &path,
                            16,
                            "its digest does not follow",
                        ));
                    }
                    state.next = segment.next();
                    state.digest = digest;
                    state.segments.push(segment);
                    if cut {
                        break;
                    }
                }
                Loaded::Nothing => {
                    remove_file(&path)?;
                    break;
                }
            }
        }
        // What a cut end was followed by is not on disk for sure either: a power loss keeps later writes and loses earlier ones.
        for (_, path) in names {
            remove_file(&path)?;
        }
        let held = mark.is_none_or(|mark| {
            state
                .segments
                .iter()
                .any(|segment| segment.first() >= mark.segment)
        });
        if !held {
            let path = stream
                .dir
                .join(segment::file_name(mark.map_or(state.next, |m| m.segment)));
            return Err(ResultsError::corrupt(&path, 0, "the file is gone"));
        }
        *stream.write() = state;
        stream.look_for_older_mark();
        Ok(stream)
    }

    /// Whether a row or a reset has begun it.
    pub(super) fn is_begun(&self) -> bool {
        !self.read().segments.is_empty()
    }

    /// Where it begins and ends.
    pub(super) fn position(&self) -> Position {
        let state = self.read();
        let first = state.segments.first().map_or(state.next, Segment::first);
        let bytes = state.segments.iter().map(Segment::len).sum();
        Position {
            first,
            next: state.next,
            digest: state.digest,
            bytes,
        }
    }

    /// Appends the rows that are new and compares the others with what is held.
    pub(super) fn append(&self, rows: &[Row]) -> Result<Appended, ResultsError> {
        let _writer = self.lock_writer();
        let Position {
            first,
            next,
            digest,
            ..
        } = self.position();
        self.check_numbers(rows, next)?;
        let known = rows.partition_point(|row| row.seq < next);
        let gone = rows.partition_point(|row| row.seq < first);
        self.compare(&rows[gone..known])?;
        self.write_rows(&rows[known..], digest)?;
        let compared = (known - gone) as u64;
        Ok(Appended {
            written: (rows.len() - known) as u64,
            compared,
            gone: gone as u64,
        })
    }

    fn check_numbers(&self, rows: &[Row], next: Seq) -> Result<(), ResultsError> {
        let mut expected = rows.first().map_or(next, |row| row.seq.min(next));
        for row in rows {
            if row.seq != expected {
                return Err(ResultsError::Gap {
                    stream: self.id,
                    next: expected,
                    offered: row.seq,
                });
            }
            expected = Seq(expected.0 + 1);
        }
        Ok(())
    }

    fn compare(&self, rows: &[Row]) -> Result<(), ResultsError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let mut rest = rows;
        let mut diverged = None;
        let below = Seq(last.seq.0 + 1);
        self.visit(first.seq, below, Span::ALL, |view| {
            match rest.split_first() {
                Some((row, behind)) if row.seq == view.seq => {
                    rest = behind;
                    let same = row.json == view.json
                        && row.digest == view.digest
                        && row.group == view.group
                        && (row.start, row.end) == (view.start, view.end);
                    diverged = (!same).then_some(row.seq);
                    same
                }
                _ => false,
            }
        })?;
        // A row that is not found below `next` is as wrong as one with other bytes.
        match diverged.or(rest.first().map(|row| row.seq)) {
            Some(seq) => Err(ResultsError::Diverged {
                stream: self.id,
                seq,
            }),
            None => Ok(()),
        }
    }

    fn write_rows(&self, rows: &[Row], mut digest: Digest) -> Result<(), ResultsError> {
        let mut from = 0;
        let mut bytes = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            self.check_row(row, digest)?;
            let length = record::encoded_len(row);
            let (file_bytes, is_empty) = self.active_len();
            let full = file_bytes + bytes.len() as u64 + length > self.segment_bytes;
            if full && !(is_empty && bytes.is_empty()) {
                self.flush(&rows[from..at], &bytes)?;
                (from, bytes) = (at, Vec::new());
                self.begin_segment(row.seq, digest)?;
            } else if file_bytes == 0 {
                self.begin_segment(row.seq, digest)?;
            }
            record::encode(row, &mut bytes);
            digest = row.digest;
        }
        self.flush(&rows[from..], &bytes)
    }

    fn check_row(&self, row: &Row, before: Digest) -> Result<(), ResultsError> {
        let (stream, seq) = (self.id, row.seq);
        if row.json.len() > MAX_JSON {
            let bytes = row.json.len();
            return Err(ResultsError::TooLarge {
                stream,
                seq,
                bytes,
                limit: MAX_JSON,
            });
        }
        // A group outside of the row would be cut off as damage after a restart.
        let group_lies_inside = row.json.get(row.group.clone()).is_some();
        if !group_lies_inside || row.digest != before.chain(&row.json) {
            return Err(ResultsError::Chain { stream, seq });
        }
        Ok(())
    }

    /// Length of the segment that takes the next row, and whether it has no row; 0 where there is none.
    fn active_len(&self) -> (u64, bool) {
        let state = self.read();
        state
            .segments
            .last()
            .map_or((0, true), |last| (last.len(), last.len() == HEADER as u64))
    }

    fn begin_segment(&self, first: Seq, base: Digest) -> Result<(), ResultsError> {
        std::fs::create_dir_all(&self.dir).map_err(ResultsError::io("create", &self.dir))?;
        let segment = Segment::create(&self.dir, first, base)?;
        let mut state = self.write();
        (state.next, state.digest) = (first, base);
        state.segments.push(segment);
        Ok(())
    }

    /// Writes the encoded `rows` behind the last segment's end, then shows them to readers.
    fn flush(&self, rows: &[Row], bytes: &[u8]) -> Result<(), ResultsError> {
        use std::os::unix::fs::FileExt;
        let active = self
            .read()
            .segments
            .last()
            .map(|last| (Arc::clone(last.file()), Arc::clone(last.path()), last.len()));
        let (Some((file, path, end)), Some(last_row)) = (active, rows.last()) else {
            return Ok(());
        };
        if let Err(error) = file.write_all_at(bytes, end) {
            // Best effort: what a full disk took of the write is cut off at the next start anyway.
            let _ = file.set_len(end);
            return Err(ResultsError::io("write to", &path)(error));
        }
        let mut state = self.write();
        if let Some(segment) = state.segments.last_mut() {
            for row in rows {
                segment.note(row.seq, row.start.0, row.end.0, record::encoded_len(row));
            }
        }
        (state.next, state.digest) = (Seq(last_row.seq.0 + 1), last_row.digest);
        Ok(())
    }

    /// Gives the records of rows `from..below` that may overlap `span` to `visit`, in order, until that returns `false`.
    /// Returns the bytes read. Rows that retention removed are passed over.
    pub(super) fn visit(
        &self,
        from: Seq,
        below: Seq,
        span: Span,
        mut visit: impl FnMut(record::RecordView<'_>) -> bool,
    ) -> Result<u64, ResultsError> {
        let mut from = from;
        let mut goes_on = true;
        let mut bytes = 0;
        while goes_on {
            let Some(chunk) = self.chunk(from, span).filter(|chunk| chunk.first < below) else {
                break;
            };
            chunk.visit(|view| {
                if view.seq >= from {
                    goes_on = view.seq < below && visit(view);
                }
                goes_on
            })?;
            bytes += chunk.byte_len();
            from = chunk.next;
        }
        Ok(bytes)
    }

    fn chunk(&self, from: Seq, span: Span) -> Option<Chunk> {
        let state = self.read();
        let at = state
            .segments
            .partition_point(|segment| segment.next() <= from);
        state.segments[at..]
            .iter()
            .find_map(|segment| segment.chunk(from, span))
    }

    /// The digest before row `seq`; `None` where the rows held do not tell.
    pub(super) fn digest_before(&self, seq: Seq) -> Result<Option<Digest>, ResultsError> {
        let known = {
            let state = self.read();
            let begin = state.segments.iter().find(|segment| segment.first() == seq);
            match begin {
                Some(segment) => Some(segment.base()),
                None if seq == state.next => Some(state.digest),
                None => None,
            }
        };
        let (None, Some(last)) = (known, seq.0.checked_sub(1)) else {
            return Ok(known);
        };
        let mut found = None;
        self.visit(Seq(last), seq, Span::ALL, |view| {
            found = (view.seq.0 == last).then_some(view.digest);
            false
        })?;
        Ok(found)
    }

    /// The files with rows beyond `mark`, and the mark to set once they are on disk.
    pub(super) fn unsynced(&self, mark: Option<Mark>) -> Option<Unsynced> {
        let state = self.read();
        let last = state.segments.last()?;
        let new_mark = Mark {
            segment: last.first(),
            bytes: last.len(),
        };
        if mark == Some(new_mark) {
            return None;
        }
        let dirty = state
            .segments
            .iter()
            .filter(|segment| Mark::covers(mark, segment.first(), segment.len()) < segment.len());
        let files = dirty.map(|segment| (Arc::clone(segment.path()), Arc::clone(segment.file())));
        Some(Unsynced {
            files: files.collect(),
            mark: new_mark,
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    // A panic of another thread leaves the index as it was before or after one change: each is a single assignment
    // behind the file's.
    fn lock_writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove_file(path: &Path) -> Result<(), ResultsError> {
    std::fs::remove_file(path).map_err(ResultsError::io("remove", path))
}

/// The segments' files in `dir`, in order; what an interrupted reset left is removed.
fn segment_files(dir: &Path) -> Result<Vec<(Seq, PathBuf)>, ResultsError> {
    let mut files = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(ResultsError::io("list", dir)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(ResultsError::io("list", dir))?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == older::LACKS_OLDER {
            continue;
        }
        if name.ends_with(".tmp") {
            remove_file(&path)?;
        } else if let Some(first) = segment::parse_file_name(&name) {
            files.push((first, path));
        } else {
            tracing::warn!(file = %path.display(), "ignored a file that is no results segment");
        }
    }
    files.sort();
    Ok(files)
}
