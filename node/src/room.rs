//! How much memory the state of all feeds may take on this node, and the files that it goes to beyond.
//!
//! The files have no names: they end with the process, and are not trusted after a restart, for a checkpoint has all state
//! itself. So nothing is synced. No row depends on any of this: replicas may have different budgets.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use unisono_engine::spill::{Room, SpillFile, SpilledBytes, spill};
use unisono_engine::{FeedEngine, LaneEngine};

/// The least budget: below, what each lane and pipeline takes by itself would be most of it.
pub const LEAST_BUDGET: u64 = 1 << 20;

/// The node's budget, and what became of it.
#[derive(Debug)]
pub struct StateRoom {
    /// Bytes of state of all feeds in memory; `None`: as many as there are.
    limit: Option<usize>,
    dir: PathBuf,
    held: AtomicUsize,
    counts: Arc<StateCounts>,
}

/// What is told of it.
#[derive(Debug, Default)]
pub struct StateCounts {
    /// Bytes on disk now.
    pub on_disk: AtomicU64,
    /// How often state went to disk.
    pub spills: AtomicU64,
    /// Bytes that went there.
    pub written: AtomicU64,
    /// Bytes that were read back: for windows that closed, checkpoints and queries.
    pub read: AtomicU64,
}

impl StateRoom {
    /// A budget of so many bytes, whose files are made in `dir`.
    #[must_use]
    pub fn new(limit: Option<u64>, dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            dir: dir.to_owned(),
            held: AtomicUsize::new(0),
            counts: Arc::default(),
        })
    }

    /// The part of one feed, which holds nothing yet.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> FeedRoom {
        FeedRoom {
            node: Arc::clone(self),
            held: 0,
        }
    }

    /// The budget, if there is one.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Bytes of state that all feeds hold, about.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// What became of it.
    #[must_use]
    pub fn counts(&self) -> &StateCounts {
        &self.counts
    }
}

/// What a feed holds of the budget, until it is dropped.
#[derive(Debug)]
pub struct FeedRoom {
    node: Arc<StateRoom>,
    held: usize,
}

impl FeedRoom {
    /// Another part, which holds nothing yet.
    pub fn another(&self) -> Self {
        self.node.share()
    }

    /// Puts state of a feed on disk if all feeds together hold more than there is room for. `engine` is what of the feed
    /// belongs to no lane, if it is there. To be called between two ticks.
    ///
    /// # Errors
    /// It cannot be put there; nothing is lost by that.
    pub fn keep_within(
        &mut self,
        engine: Option<&mut FeedEngine>,
        lanes: &mut [&mut LaneEngine],
    ) -> io::Result<()> {
        let Some(limit) = self.node.limit else {
            return Ok(());
        };
        let kept = engine
            .as_ref()
            .map_or(0, |engine| engine.about_kept_bytes());
        let own = about(lanes) + kept;
        let all = self.hold(own);
        if all <= limit {
            return Ok(());
        }
        if let Some(engine) = engine {
            engine.forget_kept();
        }
        // Each feed by what it holds: down to half of the budget, so that it is not soon full again.
        let part = |of: usize| (own as u128 * of as u128 / all as u128) as usize;
        let room = Room {
            limit: part(limit),
            keep: part(limit / 2),
            least: own / 8,
        };
        let mut create = || -> io::Result<Box<dyn SpillFile>> { Ok(Box::new(self.node.create()?)) };
        let spilled = spill(lanes, 0, room, &mut create)
            .map_err(|error| io::Error::new(error.kind(), self.node.told(&error)))?;
        if let Some(spilled) = spilled {
            let counts = &self.node.counts;
            counts.spills.fetch_add(1, Ordering::Relaxed);
            counts.written.fetch_add(spilled.bytes, Ordering::Relaxed);
        }
        self.hold(about(lanes));
        Ok(())
    }

    /// Holds so many bytes from now on; gives what all feeds hold.
    fn hold(&mut self, bytes: usize) -> usize {
        let all = &self.node.held;
        let before = std::mem::replace(&mut self.held, bytes);
        all.fetch_add(bytes, Ordering::Relaxed);
        all.fetch_sub(before, Ordering::Relaxed) - before
    }
}

impl Drop for FeedRoom {
    fn drop(&mut self) {
        self.hold(0);
    }
}

fn about(lanes: &mut [&mut LaneEngine]) -> usize {
    lanes.iter_mut().map(|lane| lane.about_bytes()).sum()
}

impl StateRoom {
    fn create(&self) -> io::Result<StateFile> {
        Ok(StateFile {
            file: tempfile::tempfile_in(&self.dir)?,
            bytes: 0,
            counts: Arc::clone(&self.counts),
        })
    }

    fn told(&self, error: &io::Error) -> String {
        let dir = self.dir.display();
        format!(
            "state for which there is no memory cannot be put on disk in {dir}: {error}; free space there, or raise \
             state_memory"
        )
    }
}

/// A file without a name.
#[derive(Debug)]
struct StateFile {
    file: File,
    bytes: u64,
    counts: Arc<StateCounts>,
}

impl Write for StateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        let on_disk = &self.counts.on_disk;
        on_disk.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SpillFile for StateFile {
    fn finish(self: Box<Self>) -> io::Result<Arc<dyn SpilledBytes>> {
        Ok(Arc::new(*self))
    }
}

impl SpilledBytes for StateFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, at)?;
        self.counts.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        let on_disk = &self.counts.on_disk;
        on_disk.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_feeds_hold_is_counted_together_until_they_are_dropped() {
        let node = StateRoom::new(Some(100), Path::new("."));
        let (mut one, mut other) = (node.share(), node.share());
        assert_eq!(one.hold(60), 60);
        assert_eq!(other.hold(50), 110);
        assert_eq!(one.hold(10), 60);
        drop(other);
        assert_eq!(node.held(), 10);
        drop(one);
        assert_eq!(node.held(), 0);
    }

    #[test]
    fn a_file_counts_while_somebody_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let node = StateRoom::new(Some(100), dir.path());
        let mut file = node.create().unwrap();
        file.write_all(b"0123456789").unwrap();
        let bytes = Box::new(file).finish().unwrap();
        let mut read = [0; 4];
        assert_eq!(bytes.read_at(8, &mut read).unwrap(), 2);
        assert_eq!(&read[..2], b"89");
        let on_disk = || node.counts().on_disk.load(Ordering::Relaxed);
        assert_eq!(on_disk(), 10);
        // It has no name.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        drop(bytes);
        assert_eq!(on_disk(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_made_says_where_and_what_to_do() {
        let node = StateRoom::new(Some(0), Path::new("/nowhere/at/all"));
        let error = node.create().unwrap_err();
        let told = node.told(&error);
        assert!(told.contains("in /nowhere/at/all:") && told.contains("raise state_memory"));
    }
}
