//! How far each stream is known to be on disk: what lies below must be readable after any crash, what lies above is
//! computed again from the last checkpoint, so a torn end there is no damage.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use unisono_engine::row::{Incarnation, Seq, StreamId, StreamKind};

use super::error::{ResultsError, SYNC};

const FILE: &str = "durable";
const TITLE: &str = "unisono results durable ";
const VERSION: char = '1';

/// A position in a stream: all of its earlier segments and this many bytes of the one that begins with `segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) segment: Seq,
    pub(super) bytes: u64,
}

impl Mark {
    /// How many of the first bytes of the segment that begins with `first` are on disk.
    pub(super) fn covers(mark: Option<Self>, first: Seq, file_bytes: u64) -> u64 {
        match mark {
            Some(mark) if first < mark.segment => file_bytes,
            Some(mark) if first == mark.segment => mark.bytes,
            _ => 0,
        }
    }
}

/// All streams' marks, as the file holds them.
#[derive(Debug)]
pub(super) struct Marks {
    path: PathBuf,
    marks: BTreeMap<StreamId, Mark>,
    /// They are not what the file holds.
    unsaved: bool,
}

impl Marks {
    /// Reads the marks of the results directory `dir`; none where there is no file yet.
    pub(super) fn open(dir: &Path) -> Result<Self, ResultsError> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(ResultsError::io("read", &path)(error)),
        };
        let version = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix(TITLE));
        if let Some(found) = version.filter(|&found| found != VERSION.to_string()) {
            let (found, reads) = (found.to_owned(), VERSION);
            return Err(ResultsError::Version { path, found, reads });
        }
        let marks = if text.is_empty() {
            Some(BTreeMap::new())
        } else {
            parse(&text)
        };
        match marks {
            Some(marks) => Ok(Self {
                path,
                marks,
                unsaved: false,
            }),
            None => Err(ResultsError::corrupt(
                &path,
                0,
                "its checksum or form is not right",
            )),
        }
    }

    /// The streams that have a mark.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.marks.keys().copied().collect()
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<Mark> {
        self.marks.get(&stream).copied()
    }

    pub(super) fn set(&mut self, stream: StreamId, mark: Mark) {
        self.marks.insert(stream, mark);
        self.unsaved = true;
    }

    /// Forgets a stream's mark: nothing of it has to be readable after a crash any more.
    pub(super) fn remove(&mut self, stream: StreamId) -> bool {
        let known = self.marks.remove(&stream).is_some();
        self.unsaved |= known;
        known
    }

    /// Puts the marks on disk, all or none, if they are not there. What failed is tried again the next time.
    pub(super) fn save(&mut self) -> Result<(), ResultsError> {
        if !self.unsaved {
            return Ok(());
        }
        let temporary = self.path.with_extension("tmp");
        let mut file = File::create(&temporary).map_err(ResultsError::io("create", &temporary))?;
        file.write_all(render(&self.marks).as_bytes())
            .map_err(ResultsError::io("write to", &temporary))?;
        file.sync_data()
            .map_err(ResultsError::io(SYNC, &temporary))?;
        std::fs::rename(&temporary, &self.path).map_err(ResultsError::io("replace", &self.path))?;
        sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        self.unsaved = false;
        Ok(())
    }
}

/// Puts a directory's entries on disk.
pub(super) fn sync_dir(dir: &Path) -> Result<(), ResultsError> {
    let opened = File::open(dir).map_err(ResultsError::io("open", dir))?;
    opened.sync_all().map_err(ResultsError::io(SYNC, dir))
}

/// The directory of a stream below the results directory.
pub(super) fn stream_dir(dir: &Path, stream: StreamId) -> PathBuf {
    dir.join(stream.incarnation.0.to_string())
        .join(kind_name(stream.kind))
}

fn kind_name(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::Rows => "rows",
        StreamKind::DeadLetters => "dead_letters",
    }
}

fn render(marks: &BTreeMap<StreamId, Mark>) -> String {
    let mut text = format!("{TITLE}{VERSION}\n");
    for (stream, mark) in marks {
        let (incarnation, kind) = (stream.incarnation.0, kind_name(stream.kind));
        text.push_str(&format!(
            "{incarnation} {kind} {} {}\n",
            mark.segment.0, mark.bytes
        ));
    }
    let checksum = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("crc32 {checksum:08x}\n"));
    text
}

fn parse(text: &str) -> Option<BTreeMap<StreamId, Mark>> {
    let mut marks = BTreeMap::new();
    let lines = text
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("crc32"));
    for line in lines {
        let mut words = line.split(' ');
        let incarnation = Incarnation(words.next()?.parse().ok()?);
        let kind = match words.next()? {
            "rows" => StreamKind::Rows,
            "dead_letters" => StreamKind::DeadLetters,
            _ => return None,
        };
        let segment = Seq(words.next()?.parse().ok()?);
        let bytes = words.next()?.parse().ok()?;
        marks.insert(StreamId { incarnation, kind }, Mark { segment, bytes });
    }
    // Whatever was changed, the text that these marks give is another one.
    (render(&marks) == text).then_some(marks)
}
