//! Which files a directory has, which of them are known, and which known ones are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use unisono_replication::rt;

use super::content::{self, Likeness};
use super::{FileLaneError, Listed, Stamp, failed, list_matching, open_file};
use crate::config::FilesSource;
use crate::source::{FileId, Found, FoundLane, KnownLane, SourceError, SourceSurvey};

/// A file is gone when it was for so long: whoever wrote to it may not have noticed yet.
const GONE: Duration = Duration::from_secs(3);

/// Surveys the files of one source.
#[derive(Debug)]
pub struct FilesSurvey {
    source: FilesSource,
    /// Files that were read to their end and then went, since when, and their size.
    pub(super) going: BTreeMap<String, (Instant, u64)>,
    /// What files were found to be that no reader has open, as long as nothing changes.
    pub(super) recognised: BTreeMap<FileId, Recognised>,
}

#[derive(Clone, Debug)]
pub(super) struct Recognised {
    stamp: Stamp,
    /// How many lanes were known.
    known: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// The file of a lane that is not open here.
    Lane(String),
    /// That of a retired one; it has nothing that was not taken in.
    Retired,
    /// It is to be read.
    New(FoundLane),
}

impl FilesSurvey {
    /// A survey that has not looked yet.
    #[must_use]
    pub fn new(source: FilesSource) -> Self {
        Self {
            source,
            going: BTreeMap::new(),
            recognised: BTreeMap::new(),
        }
    }

    fn list(&self) -> Result<Vec<Listed>, SourceError> {
        list_matching(&self.source.path, &self.source.pattern).map_err(unavailable)
    }

    /// What a file is that no reader has open.
    fn recognise(&mut self, file: &Listed, known: &[KnownLane]) -> Result<What, FileLaneError> {
        if let Some(before) = self.recognised.get(&file.id)
            && (before.stamp, before.known) == (file.stamp, known.len())
        {
            return Ok(before.what.clone());
        }
        let what = compare(file, known)?;
        let recognised = Recognised {
            stamp: file.stamp,
            known: known.len(),
            what: what.clone(),
        };
        self.recognised.insert(file.id, recognised);
        Ok(what)
    }

    /// Which of those that went have been away for long enough.
    fn gone(&mut self, going: BTreeMap<String, u64>) -> Vec<String> {
        let now = rt::now();
        let since = |(name, size): (String, u64)| {
            let before = self.going.get(&name).filter(|(_, known)| *known == size);
            let since = before.map_or(now, |(since, _)| *since);
            (name, (since, size))
        };
        self.going = going.into_iter().map(since).collect();
        let long = self
            .going
            .iter()
            .filter(|(_, (since, _))| now.duration_since(*since) >= GONE);
        long.map(|(name, _)| name.clone()).collect()
    }
}

impl SourceSurvey for FilesSurvey {
    /// Files have no times, and `check` says so first.
    fn stamps(&mut self) -> Result<(), SourceError> {
        Err(SourceError::Unavailable(
            "its records are lines of files, which have no append time: name a field that holds the time".into(),
        ))
    }

    fn begin(&mut self) -> Result<Vec<FoundLane>, SourceError> {
        let files = self.list()?;
        let lanes = files.iter().map(|file| new_lane(file, 0));
        lanes.collect::<Result<_, _>>().map_err(unavailable)
    }

    fn look(&mut self, known: &[KnownLane]) -> Result<Found, SourceError> {
        let files = self.list()?;
        let mut found = Found::default();
        let live = || known.iter().filter(|lane| !lane.retired);
        let open: BTreeSet<FileId> = live().filter_map(|lane| Some(lane.file?.id)).collect();
        let mut elsewhere = BTreeSet::new();
        for file in files.iter().filter(|file| !open.contains(&file.id)) {
            // If it is not the lane's file, the lane's reader says so.
            if live().any(|lane| lane.file.is_none() && lane.trail.name == file.name) {
                continue;
            }
            match self.recognise(file, known) {
                Ok(What::Lane(name)) => drop(elsewhere.insert(name)),
                Ok(What::Retired) => {}
                Ok(What::New(lane)) => found.new.push(lane),
                Err(error) => found.troubles.push(error.to_string()),
            }
        }
        let ids: BTreeSet<FileId> = files.iter().map(|file| file.id).collect();
        self.recognised.retain(|id, _| ids.contains(id));
        let mut going = BTreeMap::new();
        for lane in live() {
            let name = &lane.trail.name;
            let named = files.iter().find(|file| file.name == *name);
            let went = match &lane.file {
                Some(open) if open.has_more => false,
                Some(open) => {
                    !ids.contains(&open.id) || named.is_some_and(|named| named.id != open.id)
                }
                None => named.is_none() && !elsewhere.contains(name),
            };
            if went {
                going.insert(name.clone(), lane.file.map_or(0, |file| file.size));
            }
        }
        // A directory without any file may be a disk that is not there.
        if files.is_empty() {
            going.clear();
        }
        found.gone = self.gone(going);
        Ok(found)
    }
}

/// Compares a file with all lanes that it can be: retired ones, and those that are not open here.
fn compare(file: &Listed, known: &[KnownLane]) -> Result<What, FileLaneError> {
    let opened = open_file(&file.path)?;
    // Of a lane that nothing was read of nothing is known.
    let closed = known
        .iter()
        .filter(|lane| lane.file.is_none() && lane.trail.next > lane.trail.marks.start);
    // The last first: a file that went on after its lane was retired is a lane again.
    for lane in closed.rev() {
        let likeness = content::compare(&opened, &lane.trail).map_err(failed(&file.path))?;
        if likeness != Likeness::Same {
            continue;
        }
        return Ok(match lane.retired {
            false => What::Lane(lane.trail.name.clone()),
            true if file.stamp.size <= lane.trail.next.unsigned_abs() => What::Retired,
            true => What::New(new_lane(file, lane.trail.next)?),
        });
    }
    Ok(What::New(new_lane(file, 0)?))
}

fn new_lane(file: &Listed, start: i64) -> Result<FoundLane, FileLaneError> {
    let opened = open_file(&file.path)?;
    Ok(FoundLane {
        name: file.name.clone(),
        start,
        identity: content::identity(&opened).map_err(failed(&file.path))?,
    })
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn unavailable(error: FileLaneError) -> SourceError {
    SourceError::Unavailable(error.to_string())
}
