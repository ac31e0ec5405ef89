//! A directory of files as a source.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{FileLane, FileLaneError, list_files};
use crate::config::FilesSource;
use crate::signal::Signal;
use crate::source::{Block, SourceError, SourceReader};

/// How often files are looked at while nothing new is there.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Files that have been quiet for so long are looked at less often: a look at nothing is most of what an idle replica does.
const QUIET: Duration = Duration::from_secs(1);
const LOOK_INTERVAL_QUIET: Duration = Duration::from_millis(20);

/// Reads the files of one source; lanes are named by file name.
#[derive(Debug)]
pub struct FilesReader {
    source: FilesSource,
    lanes: Vec<FileLane>,
    signal: Arc<Signal>,
    /// When something new was read.
    read: Instant,
}

impl FilesReader {
    /// A reader that has opened nothing yet. Raising the signal ends its waiting.
    #[must_use]
    pub fn new(source: FilesSource, signal: Arc<Signal>) -> Self {
        Self {
            source,
            signal,
            read: Instant::now(),
            lanes: Vec::new(),
        }
    }

    fn path_of(&self, lane: &str) -> PathBuf {
        self.source.path.join(lane)
    }

    fn lane(&mut self, lane: usize) -> Result<&mut FileLane, SourceError> {
        let missing = || SourceError::Unavailable(format!("lane number {lane} is not open"));
        self.lanes.get_mut(lane).ok_or_else(missing)
    }
}

impl SourceReader for FilesReader {
    fn lanes(&mut self) -> Result<Vec<String>, SourceError> {
        let files = list_files(&self.source.path, &self.source.pattern)
            .map_err(|error| SourceError::Unavailable(error.to_string()))?;
        let names = files.iter().filter_map(|file| file.file_name());
        Ok(names
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn start(&mut self, _lane: &str) -> Result<i64, SourceError> {
        Ok(0)
    }

    fn open(&mut self, lane: &str, offset: i64) -> Result<usize, SourceError> {
        let from = u64::try_from(offset).map_err(|_| SourceError::Lane {
            lane: lane.to_owned(),
            message: format!("offset {offset} is negative"),
        })?;
        let opened = FileLane::open(&self.path_of(lane), from).map_err(|e| fault(lane, e))?;
        self.lanes.push(opened);
        Ok(self.lanes.len() - 1)
    }

    fn fill(
        &mut self,
        lane: usize,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError> {
        let lane = self.lane(lane)?;
        let read = lane.read(block, max_bytes);
        let read = read.map_err(|error| fault(&label(lane), error))?;
        if read > 0 {
            self.read = Instant::now();
        }
        Ok(read)
    }

    fn wait(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let interval = match self.read.elapsed() < QUIET {
            true => LOOK_INTERVAL,
            false => LOOK_INTERVAL_QUIET,
        };
        while !self.lanes.iter().any(FileLane::has_more) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.signal.wait(left.min(interval)) {
                return;
            }
        }
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        let lane = self.lanes.get(lane)?;
        // An unfinished line is not there yet: the end is where it starts.
        lane.is_read()
            .then(|| i64::try_from(lane.position()).ok())
            .flatten()
    }
}

fn label(lane: &FileLane) -> String {
    lane.path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn fault(lane: &str, error: FileLaneError) -> SourceError {
    match error {
        FileLaneError::Io { .. } => SourceError::Unavailable(error.to_string()),
        FileLaneError::Truncated { .. }
        | FileLaneError::Rotated { .. }
        | FileLaneError::NotALineStart { .. } => SourceError::Lane {
            lane: lane.to_owned(),
            message: error.to_string(),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn reader(dir: &std::path::Path) -> FilesReader {
        let (path, dir) = (dir.to_owned(), "d".to_owned());
        let pattern = "*.ndjson".to_owned();
        FilesReader::new(FilesSource { dir, pattern, path }, Arc::default())
    }

    fn poll(reader: &mut FilesReader, lane: usize) -> Result<Vec<(i64, i64)>, SourceError> {
        let mut block = Block::default();
        let count = reader.fill(lane, &mut block, 1 << 20)?;
        assert_eq!(count, block.len());
        let found = block.records();
        Ok(found.map(|record| (record.offset, record.next)).collect())
    }

    #[test]
    fn a_directory_is_read_lane_by_lane() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("b.ndjson"), "{}\n{}\n{").unwrap();
        std::fs::write(dir.path().join("a.ndjson"), "").unwrap();
        let mut reader = reader(dir.path());
        assert_eq!(reader.lanes().unwrap(), ["a.ndjson", "b.ndjson"]);
        let lane = reader.open("b.ndjson", 0).unwrap();
        assert_eq!(reader.at_end(lane), None, "nothing was handed over yet");
        assert_eq!(poll(&mut reader, lane).unwrap(), [(0, 3), (3, 6)]);
        assert_eq!(
            reader.at_end(lane),
            Some(6),
            "an unfinished line is not there yet"
        );
        let mut file = std::fs::File::options()
            .append(true)
            .open(dir.path().join("b.ndjson"))
            .unwrap();
        file.write_all(b"}\n").unwrap();
        assert_eq!(reader.at_end(lane), None);
        assert_eq!(poll(&mut reader, lane).unwrap(), [(6, 9)]);
        let again = reader.open("b.ndjson", 3).unwrap();
        assert_eq!(poll(&mut reader, again).unwrap(), [(3, 6), (6, 9)]);
    }

    #[test]
    fn a_faulty_lane_stops_its_feed_and_a_missing_directory_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.ndjson"), "{}\n").unwrap();
        let mut files = reader(dir.path());
        assert!(matches!(
            files.open("a.ndjson", 10),
            Err(SourceError::Lane { .. })
        ));
        assert!(matches!(
            files.open("none.ndjson", 0),
            Err(SourceError::Unavailable(_))
        ));
        let mut missing = reader(&dir.path().join("none"));
        assert!(matches!(missing.lanes(), Err(SourceError::Unavailable(_))));
    }
}
