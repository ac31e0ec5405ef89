#![allow(clippy::unwrap_used)]

use std::io::Write;

use super::*;

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let fixture = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fixture.append(text);
        fixture
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("lane.ndjson")
    }

    fn append(&self, text: &str) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.path())
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

/// The next lines with their offsets.
fn next(lane: &mut FileLane) -> Vec<(i64, String)> {
    let mut block = Block::default();
    lane.read(&mut block, usize::MAX).unwrap();
    shown(&block)
}

fn shown(block: &Block) -> Vec<(i64, String)> {
    let text = |payload: Option<&[u8]>| String::from_utf8(payload.unwrap().to_vec()).unwrap();
    block
        .records()
        .map(|record| (record.offset, text(record.payload)))
        .collect()
}

fn read(lane: &mut FileLane, max_weight: usize) -> Result<Block, FileLaneError> {
    let mut block = Block::default();
    lane.read(&mut block, max_weight).map(|_| block)
}

#[test]
fn a_line_is_given_once_it_is_complete() {
    let fixture = Fixture::new("a\nb");
    let mut lane = FileLane::open(&fixture.path(), 0).unwrap();
    assert_eq!(next(&mut lane), [(0, "a".to_owned())]);
    assert!(lane.at_end());
    assert_eq!(lane.position(), 2);
    fixture.append("c");
    assert_eq!(next(&mut lane), []);
    fixture.append("d\ne\n");
    assert_eq!(
        next(&mut lane),
        [(2, "bcd".to_owned()), (6, "e".to_owned())]
    );
}

#[test]
fn an_unfinished_last_line_counts_where_nobody_writes_any_more() {
    let fixture = Fixture::new("a\nb");
    let mut lane = FileLane::open(&fixture.path(), 0).unwrap();
    next(&mut lane);
    let mut block = Block::default();
    lane.finish(&mut block);
    lane.finish(&mut block);
    assert_eq!(shown(&block), [(2, "b".to_owned())], "once");
}

#[test]
fn reading_goes_on_at_a_lines_end_and_nowhere_else() {
    let fixture = Fixture::new("one\ntwo\n");
    let mut lane = FileLane::open(&fixture.path(), 4).unwrap();
    assert_eq!(next(&mut lane), [(4, "two".to_owned())]);
    let error = FileLane::open(&fixture.path(), 5).unwrap_err();
    assert!(
        matches!(error, FileLaneError::NotALineStart { offset: 5, .. }),
        "{error}"
    );
}

#[test]
fn a_block_is_bounded_by_what_its_lines_weigh() {
    for line in ["0123456789\n", "\n"] {
        let fixture = Fixture::new(&line.repeat(10_000));
        let mut lane = FileLane::open(&fixture.path(), 0).unwrap();
        let mut lines = 0;
        while !lane.at_end() {
            let block = read(&mut lane, 1000).unwrap();
            assert!(block.weight() <= 1050, "{}", block.weight());
            assert_eq!(lane.is_read(), lines + block.len() == 10_000);
            lines += block.len();
        }
        assert_eq!(lines, 10_000);
    }
}

#[test]
fn a_file_that_was_cut_short_is_an_error() {
    let fixture = Fixture::new("one\ntwo\n");
    let mut lane = FileLane::open(&fixture.path(), 0).unwrap();
    next(&mut lane);
    File::options()
        .write(true)
        .open(fixture.path())
        .unwrap()
        .set_len(4)
        .unwrap();
    let error = read(&mut lane, 100).unwrap_err();
    assert!(
        matches!(
            error,
            FileLaneError::Truncated {
                size: 4,
                position: 8,
                ..
            }
        ),
        "{error}"
    );
    let error = FileLane::open(&fixture.path(), 8).unwrap_err();
    assert!(
        matches!(
            error,
            FileLaneError::Truncated {
                size: 4,
                position: 8,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_file_that_was_replaced_or_removed_is_an_error() {
    let fixture = Fixture::new("one\n");
    let mut lane = FileLane::open(&fixture.path(), 0).unwrap();
    next(&mut lane);
    std::fs::rename(fixture.path(), fixture.dir.path().join("lane.1")).unwrap();
    let error = read(&mut lane, 100).unwrap_err();
    assert!(
        matches!(error, FileLaneError::Rotated { position: 4, .. }),
        "{error}"
    );
    fixture.append("one\ntwo\n");
    let error = read(&mut lane, 100).unwrap_err();
    assert!(
        matches!(error, FileLaneError::Rotated { position: 4, .. }),
        "{error}"
    );
}

#[test]
fn files_are_listed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b.ndjson", "a.ndjson", "a.txt"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    std::fs::create_dir(dir.path().join("c.ndjson")).unwrap();
    let files = list_files(dir.path(), "*.ndjson").unwrap();
    assert_eq!(
        files,
        [dir.path().join("a.ndjson"), dir.path().join("b.ndjson")]
    );
    let error = list_files(&dir.path().join("none"), "*").unwrap_err();
    assert!(error.to_string().contains("none: No such file"), "{error}");
}
