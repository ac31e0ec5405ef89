//! A directory of files as a source.

use std::time::{Duration, Instant};

use unisono_replication::rt;

use super::{FileLane, FileLaneError, list};
use crate::config::{FilesSource, matches_pattern};
use crate::source::{Block, LaneTrail, OpenFile, SourceError, SourceReader};

/// How often files are looked at while nothing new is there.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Files that have been quiet for so long are looked at less often: a look at nothing is most of what an idle replica does.
const QUIET: Duration = Duration::from_secs(1);
const LOOK_INTERVAL_QUIET: Duration = Duration::from_millis(20);
/// How often the directory is searched for a file that is not under its name.
const SEARCH: Duration = Duration::from_secs(1);

/// Reads the files of one source; lanes are named by file name.
#[derive(Debug)]
pub struct FilesReader {
    source: FilesSource,
    lanes: Vec<Option<Lane>>,
    /// When something new was read.
    read: Instant,
}

#[derive(Debug)]
struct Lane {
    name: String,
    file: FileLane,
    /// When it was last searched for.
    searched: Option<Instant>,
    /// It has no name in the directory any more, though others have: its end is its end.
    gone: bool,
}

impl FilesReader {
    /// A reader that has opened nothing yet.
    #[must_use]
    pub fn new(source: FilesSource) -> Self {
        Self {
            source,
            read: rt::now(),
            lanes: Vec::new(),
        }
    }

    /// The lane's file under its name, or under another one if it was renamed.
    fn find(&self, trail: &LaneTrail, names: &[&str]) -> Result<FileLane, FileLaneError> {
        let path = self.source.path.join(&trail.name);
        let error = match FileLane::resume(&path, trail) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let missing = matches!(&error, FileLaneError::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound);
        let other = matches!(
            &error,
            FileLaneError::Truncated { .. } | FileLaneError::Rewritten { .. }
        );
        // Of a file that nothing was read of nothing is known.
        if (missing || other) && trail.next > trail.marks.start {
            for file in list(&self.source.path)? {
                let of_other_lane = names.contains(&file.name.as_str());
                if of_other_lane || file.stamp.size < trail.next.unsigned_abs() {
                    continue;
                }
                if let Ok(found) = FileLane::resume(&file.path, trail) {
                    return Ok(found);
                }
            }
        }
        if missing {
            let position = trail.next;
            return Err(FileLaneError::Missing { path, position });
        }
        Err(error)
    }
}

impl Lane {
    /// Reads on; a file that another one has replaced goes on in that if it is the same, only longer.
    fn fill(
        &mut self,
        trail: &LaneTrail,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, FileLaneError> {
        let read = self.file.read(block, max_bytes);
        if let Err(error) = self.file.settle_doubt(trail) {
            // What was read just now may be of what has changed.
            block.clear();
            return Err(error);
        }
        match read {
            Err(FileLaneError::Replaced { path, .. }) if block.is_empty() => {
                self.file = FileLane::resume(&path, trail)?;
                self.file.read(block, max_bytes)
            }
            // Its turn comes again.
            Err(FileLaneError::Replaced { .. }) => Ok(block.len()),
            read => read,
        }
    }

    /// Looks for a file that has left its name: under which one it goes on, or whether it is gone.
    fn follow(&mut self, source: &FilesSource) {
        if !self.file.away {
            self.gone = false;
            return;
        }
        if self.searched.is_some_and(|at| rt::since(at) < SEARCH) {
            return;
        }
        self.searched = Some(rt::now());
        // A directory that cannot be listed says nothing, and an empty one may be a disk that is not there.
        let files = list(&source.path).unwrap_or_default();
        let is_it = |file: &&super::Listed| file.id == self.file.id;
        if let Some(found) = files.iter().find(is_it) {
            let (lane, now) = (&self.name, found.path.display().to_string());
            tracing::info!(lane, now, "file was renamed; it is read on");
            self.file.path.clone_from(&found.path);
        }
        self.gone = files
            .iter()
            .any(|file| matches_pattern(&source.pattern, &file.name));
    }
}

impl SourceReader for FilesReader {
    fn open(&mut self, trail: &LaneTrail, names: &[&str]) -> Result<usize, SourceError> {
        let file = self.find(trail, names).map_err(|e| fault(&trail.name, e))?;
        self.lanes.push(Some(Lane {
            name: trail.name.clone(),
            file,
            searched: None,
            gone: false,
        }));
        Ok(self.lanes.len() - 1)
    }

    fn close(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            *lane = None;
        }
    }

    fn fill(
        &mut self,
        lane: usize,
        trail: &LaneTrail,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<usize, SourceError> {
        let Some(Some(lane)) = self.lanes.get_mut(lane) else {
            let reason = format!("lane {} is not open", trail.name);
            return Err(SourceError::Unavailable(reason));
        };
        let read = lane.fill(trail, block, max_bytes);
        let read = read.map_err(|error| fault(&trail.name, error))?;
        lane.follow(&self.source);
        if read > 0 {
            self.read = rt::now();
        }
        Ok(read)
    }

    fn pause(&mut self) -> Duration {
        let mut open = self.lanes.iter().flatten();
        match rt::since(self.read) < QUIET {
            _ if open.any(|lane| lane.file.has_more()) => Duration::ZERO,
            true => LOOK_INTERVAL,
            false => LOOK_INTERVAL_QUIET,
        }
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        let lane = self.lanes.get(lane)?.as_ref()?;
        let seen = !lane.file.away || lane.gone;
        // An unfinished line is not there yet: the end is where it starts.
        (seen && lane.file.is_read())
            .then(|| i64::try_from(lane.file.position()).ok())
            .flatten()
    }

    fn log_end(&self, lane: usize) -> Option<i64> {
        let lane = self.lanes.get(lane)?.as_ref()?;
        // Of a file that is not where it was, nobody knows whether it grows.
        let seen = !lane.file.away || lane.gone;
        let size = lane.file.open_file().filter(|_| seen)?.size;
        i64::try_from(size).ok()
    }

    fn file(&self, lane: usize) -> Option<OpenFile> {
        self.lanes.get(lane)?.as_ref()?.file.open_file()
    }
}

fn fault(lane: &str, error: FileLaneError) -> SourceError {
    match error {
        FileLaneError::Io { .. }
        | FileLaneError::Missing { .. }
        | FileLaneError::NotWhole { .. } => SourceError::Unavailable(error.to_string()),
        FileLaneError::Truncated { .. }
        | FileLaneError::Rewritten { .. }
        | FileLaneError::Compressed { .. }
        | FileLaneError::Replaced { .. } => SourceError::Lane {
            lane: lane.to_owned(),
            message: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
