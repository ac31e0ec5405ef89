//! A directory of files as a source.

use std::path::PathBuf;
use std::time::Duration;

use super::files::{FileLane, FileLaneError, list_files};
use super::{RawRecord, SourceError, SourceReader};
use crate::config::FilesSource;

/// A file that is at its end is looked at again after so long: one `read` and two `stat`s each time.
const LOOK: Duration = Duration::from_millis(5);

pub(super) struct FilesReader {
    directory: PathBuf,
    pattern: String,
    lanes: Vec<FileLane>,
}

impl FilesReader {
    pub(super) fn new(config: &FilesSource) -> Self {
        Self {
            directory: config.path.clone(),
            pattern: config.pattern.clone(),
            lanes: Vec::new(),
        }
    }
}

impl SourceReader for FilesReader {
    fn lanes(&mut self) -> Result<Vec<String>, SourceError> {
        let files = list_files(&self.directory, &self.pattern).map_err(of_source)?;
        let name = |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(files.iter().filter_map(name).collect())
    }

    fn start(&mut self, _lane: &str) -> Result<i64, SourceError> {
        Ok(0)
    }

    fn open(&mut self, lane: &str, offset: i64) -> Result<usize, SourceError> {
        let position = u64::try_from(offset).unwrap_or(0);
        let opened = FileLane::open(&self.directory.join(lane), position);
        self.lanes.push(opened.map_err(|error| of_lane(lane, error))?);
        Ok(self.lanes.len() - 1)
    }

    fn poll(
        &mut self,
        lane: usize,
        max_bytes: usize,
        on_record: &mut dyn FnMut(RawRecord<'_>),
    ) -> Result<usize, SourceError> {
        let lane = &mut self.lanes[lane];
        let chunk = lane.read(max_bytes).map_err(|error| {
            let name = lane.path().file_name().unwrap_or_default().to_string_lossy();
            of_lane(&name, error)
        })?;
        let mut count = 0;
        for line in chunk.lines() {
            on_record(RawRecord {
                offset: line.offset,
                next: line.end,
                append_time_ms: None,
                payload: Some(line.payload),
            });
            count += 1;
        }
        Ok(count)
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::sleep(timeout.min(LOOK));
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        let lane = self.lanes.get(lane)?;
        lane.at_end().then(|| position(lane.position()))
    }
}

fn position(bytes: u64) -> i64 {
    // A file of 8 EiB does not exist.
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn of_source(error: FileLaneError) -> SourceError {
    SourceError::Unavailable(error.to_string())
}

fn of_lane(lane: &str, error: FileLaneError) -> SourceError {
    match error {
        FileLaneError::Io { .. } => SourceError::Unavailable(error.to_string()),
        FileLaneError::Truncated { .. }
        | FileLaneError::Rotated { .. }
        | FileLaneError::NotALineStart { .. } => {
            SourceError::Lane { lane: lane.to_owned(), message: error.to_string() }
        }
    }
}
