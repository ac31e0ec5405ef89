#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::Path;

use super::*;
use crate::source::files::{FilesSurvey, content};
use crate::source::{KnownLane, SourceSurvey};

/// A directory, its reader, and what was read of each lane.
struct Fixture {
    dir: tempfile::TempDir,
    reader: FilesReader,
    trails: Vec<(usize, LaneTrail)>,
}

fn source(dir: &Path) -> FilesSource {
    FilesSource {
        dir: "d".to_owned(),
        pattern: "*.ndjson".to_owned(),
        path: dir.to_owned(),
    }
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = Self {
            reader: FilesReader::new(source(dir.path())),
            dir,
            trails: Vec::new(),
        };
        for (name, text) in files {
            fixture.append(name, text);
            let file = fs::File::open(fixture.path(name)).unwrap();
            let identity = content::identity(&file).unwrap();
            fixture.open(LaneTrail::new(name, 0, &identity)).unwrap();
        }
        fixture
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = fs::File::options();
        let mut file = file
            .create(true)
            .append(true)
            .open(self.path(name))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn open(&mut self, trail: LaneTrail) -> Result<(), SourceError> {
        let names: Vec<_> = self
            .trails
            .iter()
            .map(|(_, trail)| trail.name.clone())
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let handle = self.reader.open(&trail, &names)?;
        self.trails.push((handle, trail));
        Ok(())
    }

    /// Reads a lane on; gives where its new lines start and end.
    fn fill(&mut self, lane: usize) -> Result<Vec<(i64, i64)>, SourceError> {
        let mut block = Block::default();
        let (handle, trail) = &mut self.trails[lane];
        let count = self.reader.fill(*handle, trail, &mut block, 1 << 20)?;
        assert_eq!(count, block.len());
        trail.pass(&mut block);
        let found = block.records();
        Ok(found.map(|record| (record.offset, record.next)).collect())
    }

    fn at_end(&mut self, lane: usize) -> Option<i64> {
        self.reader.at_end(self.trails[lane].0)
    }

    fn known(&self) -> Vec<KnownLane> {
        let known = self.trails.iter().map(|(handle, trail)| KnownLane {
            trail: trail.clone(),
            retired: false,
            file: self.reader.file(*handle),
        });
        known.collect()
    }
}

#[test]
fn a_directory_is_read_lane_by_lane() {
    let mut fixture = Fixture::new(&[("b.ndjson", "{}\n{}\n{"), ("a.ndjson", "")]);
    assert_eq!(fixture.at_end(0), None, "nothing was handed over yet");
    assert_eq!(fixture.fill(0).unwrap(), [(0, 3), (3, 6)]);
    assert_eq!(
        fixture.at_end(0),
        Some(6),
        "an unfinished line is not there yet"
    );
    fixture.append("b.ndjson", "}\n");
    assert_eq!(fixture.at_end(0), None);
    assert_eq!(fixture.fill(0).unwrap(), [(6, 9)]);
    assert_eq!(fixture.fill(1).unwrap(), []);
    assert_eq!(fixture.at_end(1), Some(0));
}

#[test]
fn a_file_that_is_not_there_is_waited_for_and_another_one_is_refused() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n")]);
    fixture.fill(0).unwrap();
    let trail = fixture.trails.remove(0).1;
    let moved = fixture.path("elsewhere");
    fs::create_dir(&moved).unwrap();
    fs::rename(fixture.path("a.ndjson"), moved.join("a")).unwrap();
    let missing = fixture.open(trail.clone()).unwrap_err();
    assert!(matches!(&missing, SourceError::Unavailable(reason) if reason.contains("is gone")));
    fixture.append("a.ndjson", "[]\n{}\n");
    let other = fixture.open(trail.clone()).unwrap_err();
    assert!(matches!(&other, SourceError::Lane { message, .. } if message.contains("rewritten")));
    fs::rename(moved.join("a"), fixture.path("a.ndjson")).unwrap();
    fixture.append("a.ndjson", "{}\n");
    fixture.open(trail).unwrap();
    assert_eq!(fixture.fill(0).unwrap(), [(3, 6)]);
}

#[test]
fn a_copy_that_is_not_whole_yet_is_waited_for() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n{}\n")]);
    let trail = fixture.trails.remove(0).1;
    fs::write(fixture.path("a.ndjson"), "{}\n").unwrap();
    let error = fixture.open(trail.clone()).unwrap_err();
    assert!(matches!(&error, SourceError::Unavailable(reason) if reason.contains("not whole")));
    fixture.append("a.ndjson", "{}\n");
    fixture.open(trail).unwrap();
}

#[test]
fn a_renamed_file_is_found_again_after_a_restart_and_not_among_other_lanes() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n"), ("b.ndjson", "{}\n")]);
    fixture.fill(0).unwrap();
    fixture.fill(1).unwrap();
    fs::rename(fixture.path("a.ndjson"), fixture.path("a.ndjson.1")).unwrap();
    fixture.append("a.ndjson.1", "{}\n");
    let trail = fixture.trails[0].1.clone();
    assert_eq!(fixture.fill(0).unwrap(), [(3, 6)], "as long as it is open");
    fixture.trails[0].1 = trail.clone();
    fixture.open(trail.clone()).unwrap();
    assert_eq!(fixture.fill(2).unwrap(), [(3, 6)]);
    fs::remove_file(fixture.path("a.ndjson.1")).unwrap();
    assert!(fixture.open(trail).is_err(), "b is another lane's");
}

#[test]
fn a_file_that_was_replaced_goes_on_if_it_is_the_same_only_longer() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n")]);
    fixture.fill(0).unwrap();
    fixture.append("copy", "{}\n{}\n");
    fs::rename(fixture.path("copy"), fixture.path("a.ndjson")).unwrap();
    assert_eq!(fixture.fill(0).unwrap(), [(3, 6)]);
    fixture.append("copy", "[]\n{}\n{}\n");
    fs::rename(fixture.path("copy"), fixture.path("a.ndjson")).unwrap();
    let error = fixture.fill(0).unwrap_err();
    assert!(matches!(error, SourceError::Lane { .. }), "{error}");
}

#[test]
fn nothing_is_at_its_end_while_the_directory_is_away() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n"), ("b.ndjson", "{}\n")]);
    for lane in [0, 1] {
        fixture.fill(lane).unwrap();
    }
    assert_eq!(fixture.fill(0).unwrap(), []);
    assert_eq!(fixture.at_end(0), Some(3));
    let inner = fixture.path("away");
    fs::create_dir(&inner).unwrap();
    for name in ["a.ndjson", "b.ndjson"] {
        fs::rename(fixture.path(name), inner.join(name)).unwrap();
    }
    assert_eq!(fixture.fill(0).unwrap(), []);
    assert_eq!(fixture.at_end(0), None, "an empty directory says nothing");
    fs::rename(inner.join("b.ndjson"), fixture.path("b.ndjson")).unwrap();
    fixture.reader.lanes[0].as_mut().unwrap().searched = None;
    assert_eq!(fixture.fill(0).unwrap(), []);
    assert_eq!(
        fixture.at_end(0),
        Some(3),
        "the others are there, it is gone"
    );
    fs::rename(inner.join("a.ndjson"), fixture.path("a.ndjson")).unwrap();
    assert_eq!(fixture.fill(0).unwrap(), []);
    assert_eq!(fixture.at_end(0), Some(3));
}

fn new_lanes(survey: &mut FilesSurvey, known: &[KnownLane]) -> Vec<(String, i64)> {
    let found = survey.look(known).unwrap();
    let lanes = found.new.into_iter();
    lanes.map(|lane| (lane.name, lane.start)).collect()
}

#[test]
fn no_file_is_read_twice_whatever_it_is_called() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n"), ("b.ndjson", "[]\n")]);
    for lane in [0, 1] {
        fixture.fill(lane).unwrap();
    }
    let mut survey = FilesSurvey::new(source(fixture.dir.path()));
    let mut known = fixture.known();
    assert_eq!(new_lanes(&mut survey, &known), []);
    fs::rename(fixture.path("a.ndjson"), fixture.path("a1.ndjson")).unwrap();
    assert_eq!(new_lanes(&mut survey, &known), [], "open");
    known[0].file = None;
    assert_eq!(new_lanes(&mut survey, &known), [], "not open");
    known[0].retired = true;
    survey.recognised.clear();
    assert_eq!(new_lanes(&mut survey, &known), [], "retired");
    let one = |name: &str, start| vec![(name.to_owned(), start)];
    fixture.append("a1.ndjson", "{}\n");
    assert_eq!(
        new_lanes(&mut survey, &known),
        one("a1.ndjson", 3),
        "it went on"
    );
    fs::write(fixture.path("a1.ndjson"), "()\n{}\n{}\n").unwrap();
    assert_eq!(
        new_lanes(&mut survey, &known),
        one("a1.ndjson", 0),
        "another one"
    );
}

#[test]
fn a_file_is_gone_when_it_was_read_to_its_end_and_others_are_there() {
    let mut fixture = Fixture::new(&[("a.ndjson", "{}\n"), ("b.ndjson", "[]\n[")]);
    fixture.fill(0).unwrap();
    fixture.fill(1).unwrap();
    let gone = |fixture: &Fixture, known: &[KnownLane]| {
        let mut survey = FilesSurvey::new(source(fixture.dir.path()));
        survey.look(known).unwrap();
        // As if it had been so for long.
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let going = survey.going.values_mut();
        going.for_each(|(since, _)| *since = long_ago);
        survey.look(known).unwrap().gone
    };
    let known = fixture.known();
    assert!(gone(&fixture, &known).is_empty());
    fs::remove_file(fixture.path("a.ndjson")).unwrap();
    assert_eq!(gone(&fixture, &fixture.known()), ["a.ndjson"]);
    let closed = |mut known: Vec<KnownLane>| {
        known.iter_mut().for_each(|lane| lane.file = None);
        known
    };
    assert_eq!(gone(&fixture, &closed(fixture.known())), ["a.ndjson"]);
    fs::rename(fixture.path("b.ndjson"), fixture.path("b.old")).unwrap();
    assert!(
        gone(&fixture, &fixture.known()).is_empty(),
        "a disk that is not there"
    );
    fixture.append("c.ndjson", "()\n");
    assert_eq!(
        gone(&fixture, &fixture.known()),
        ["a.ndjson"],
        "b has a line that is not finished"
    );
    fixture.append("b.old", "]\n");
    fixture.fill(1).unwrap();
    assert_eq!(gone(&fixture, &fixture.known()), ["a.ndjson", "b.ndjson"]);
}
