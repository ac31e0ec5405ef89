//! One stream's segments: one appender, many readers. Locks are held for the index alone, never while a file is read or
//! written, so a slow query cannot hold up the appender.

mod append;
mod older;
mod trim;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use unisono_engine::row::{Digest, Seq, StreamId};

use super::Position;
use super::durable::Mark;
use super::error::ResultsError;
use super::index::{self, Index, Span};
use super::record::RowRef;
use super::segment::{self, Chunk, Loaded, Segment};

use crate::threads::{lock, read, write};

pub use append::Appender;

/// Invariant: the segments follow each other without a gap, and the last one takes the next row. `next` and `digest` are
/// those behind its last row. An empty list is a stream that no row or reset has begun.
#[derive(Debug, Default)]
struct State {
    segments: Vec<Segment>,
    next: Seq,
    digest: Digest,
}

impl State {
    /// Adds a segment that was found on disk.
    fn add(&mut self, segment: Segment) -> Result<(), ResultsError> {
        let begun = !self.segments.is_empty();
        if begun && segment.first() != self.next {
            let next = self.next.0;
            let what = format!("row {next} should come first, the file before is gone");
            return Err(ResultsError::corrupt(segment.path(), 0, what));
        }
        if begun && segment.base() != self.digest {
            let what = "its digest does not follow";
            return Err(ResultsError::corrupt(segment.path(), 16, what));
        }
        (self.next, self.digest) = (segment.next(), segment.digest());
        self.segments.push(segment);
        Ok(())
    }
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

/// Where the next row is written.
struct Tail {
    file: Arc<File>,
    path: Arc<PathBuf>,
    end: u64,
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

    /// Opens the stream that lies in `dir`: by their indexes the segments that are on disk for sure and full, by reading
    /// them those that are not.
    pub(super) fn load(
        id: StreamId,
        dir: PathBuf,
        segment_bytes: u64,
        mark: Option<Mark>,
    ) -> Result<Self, ResultsError> {
        let stream = Self::new(id, dir, segment_bytes);
        let mut state = State::default();
        let mut names = segment_files(&stream.dir)?.into_iter().peekable();
        while let Some((first, path)) = names.next() {
            let behind = names.peek().map(|(_, path)| path.as_path());
            let Some((segment, cut)) = load_segment(path, first, behind, mark)? else {
                break;
            };
            state.add(segment)?;
            if cut {
                break;
            }
        }
        // What a cut end was followed by is not on disk for sure either: a power loss keeps later writes and loses earlier ones.
        for (_, path) in names {
            remove_segment(&path)?;
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

    /// About how many bytes the rows from `from` on take.
    pub(super) fn bytes_from(&self, from: Seq) -> u64 {
        let state = self.read();
        let behind = state.segments.iter().rev();
        let behind = behind.take_while(|segment| segment.next() > from);
        behind
            .map(|segment| {
                let rows = segment.next().0 - segment.first().0;
                let wanted = segment.next().0 - segment.first().max(from).0;
                let bytes = u128::from(segment.len()) * u128::from(wanted);
                u64::try_from(bytes / u128::from(rows.max(1))).unwrap_or(u64::MAX)
            })
            .sum()
    }

    /// Gives the records of rows `from..below` that may overlap `span` to `visit`, in order, until that returns `false`.
    /// Returns the bytes read. Rows that retention removed are passed over.
    pub(super) fn visit(
        &self,
        from: Seq,
        below: Seq,
        span: Span,
        mut visit: impl FnMut(RowRef<'_>) -> bool,
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
        lock(&self.writer)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        read(&self.state)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        write(&self.state)
    }
}

/// The segment at `path`, and whether a torn end was cut off; `None` if nothing of it had reached the disk.
fn load_segment(
    path: PathBuf,
    first: Seq,
    behind: Option<&Path>,
    mark: Option<Mark>,
) -> Result<Option<(Segment, bool)>, ResultsError> {
    let sealed = behind.filter(|_| mark.is_some_and(|mark| first < mark.segment));
    if let Some(segment) = sealed.and_then(|behind| Segment::sealed(&path, first, behind)) {
        return Ok(Some((segment, false)));
    }
    let file_bytes = std::fs::metadata(&path)
        .map_err(ResultsError::io("look at", &path))?
        .len();
    let durable = Mark::covers(mark, first, file_bytes);
    match Segment::load(path.clone(), first, durable)? {
        Loaded::Segment { segment, cut } => {
            if sealed.is_some() {
                segment.seal();
            }
            Ok(Some((segment, cut)))
        }
        Loaded::Nothing => {
            remove_segment(&path)?;
            Ok(None)
        }
    }
}

/// Removes a segment and its index.
fn remove_segment(path: &Path) -> Result<(), ResultsError> {
    Index::remove(path).map_err(ResultsError::io("remove the index of", path))?;
    remove_file(path)
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
        let is_index = path.extension().is_some_and(|end| end == index::EXTENSION);
        if name == older::LACKS_OLDER || is_index {
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
