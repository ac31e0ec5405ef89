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
    let mut lane = FileLane::open(&fixture.path()).unwrap();
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
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    next(&mut lane);
    let mut block = Block::default();
    lane.finish(&mut block);
    lane.finish(&mut block);
    assert_eq!(shown(&block), [(2, "b".to_owned())], "once");
}

/// The trail of a reader that read the file's lines as they are now.
fn trail(fixture: &Fixture) -> LaneTrail {
    let identity = content::identity(&File::open(fixture.path()).unwrap()).unwrap();
    let mut trail = LaneTrail::new("lane.ndjson", 0, &identity);
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    trail.pass(&mut read(&mut lane, usize::MAX).unwrap());
    trail
}

#[test]
fn reading_goes_on_where_the_trail_ends_if_it_is_the_file_that_left_it() {
    let fixture = Fixture::new("one\nt");
    let trail = trail(&fixture);
    fixture.append("wo\n");
    let mut lane = FileLane::resume(&fixture.path(), &trail).unwrap();
    assert_eq!(next(&mut lane), [(4, "two".to_owned())]);
    std::fs::write(fixture.path(), "eno\ntwo\n").unwrap();
    let error = FileLane::resume(&fixture.path(), &trail).unwrap_err();
    assert!(matches!(error, FileLaneError::Rewritten { .. }), "{error}");
}

#[test]
fn a_block_is_bounded_by_what_its_lines_weigh() {
    for line in ["0123456789\n", "\n"] {
        let fixture = Fixture::new(&line.repeat(10_000));
        let mut lane = FileLane::open(&fixture.path()).unwrap();
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
    let whole = trail(&fixture);
    let mut lane = FileLane::open(&fixture.path()).unwrap();
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
    let error = FileLane::resume(&fixture.path(), &whole).unwrap_err();
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
fn a_file_that_was_replaced_is_an_error_and_one_that_was_renamed_is_read_on() {
    let fixture = Fixture::new("one\n");
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    next(&mut lane);
    let renamed = fixture.dir.path().join("lane.1");
    std::fs::rename(fixture.path(), &renamed).unwrap();
    let mut file = File::options().append(true).open(&renamed).unwrap();
    file.write_all(b"two\n").unwrap();
    fixture.append("one\nother\n");
    assert_eq!(next(&mut lane), [(4, "two".to_owned())]);
    assert!(lane.away);
    std::fs::rename(fixture.path(), &renamed).unwrap();
    fixture.append("three\n");
    let error = read(&mut lane, 100).unwrap_err();
    assert!(
        matches!(error, FileLaneError::Replaced { position: 8, .. }),
        "{error}"
    );
}

/// Writes over the file's bytes from `at` on; its length stays, unless they are more.
fn write_over(fixture: &Fixture, at: u64, text: &str) {
    use std::os::unix::fs::FileExt;
    let file = File::options().write(true).open(fixture.path()).unwrap();
    file.write_all_at(text.as_bytes(), at).unwrap();
}

#[test]
fn a_file_that_was_rewritten_is_an_error_before_a_line_of_it_is_given() {
    // Truncated and written anew, longer than it was.
    let fixture = Fixture::new("one\ntwo\n");
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    next(&mut lane);
    std::fs::write(fixture.path(), "neo\nowt\neerht\n").unwrap();
    let mut block = Block::default();
    let error = lane.read(&mut block, usize::MAX).unwrap_err();
    assert!(matches!(error, FileLaneError::Rewritten { .. }), "{error}");
    assert!(block.is_empty());

    // Written over in place with a line more, its beginning as before.
    let fixture = Fixture::new(&"0123456789\n".repeat(1000));
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    next(&mut lane);
    write_over(&fixture, 10_995, "x3456\nmore\n");
    let error = read(&mut lane, usize::MAX).unwrap_err();
    assert!(matches!(error, FileLaneError::Rewritten { .. }), "{error}");

    // In the middle, with the same length: its edges say nothing.
    let fixture = Fixture::new(&"0123456789\n".repeat(1000));
    let trail = trail(&fixture);
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    next(&mut lane);
    assert!(lane.settle_doubt(&trail).is_ok());
    write_over(&fixture, 5500, "x");
    assert_eq!(next(&mut lane), []);
    let error = lane.settle_doubt(&trail).unwrap_err();
    assert!(matches!(error, FileLaneError::Rewritten { .. }), "{error}");

    // Touched, but not changed.
    let mut lane = FileLane::open(&fixture.path()).unwrap();
    next(&mut lane);
    write_over(&fixture, 5500, "x");
    assert_eq!(next(&mut lane), []);
    write_over(&fixture, 5500, "0");
    assert!(lane.settle_doubt(&trail).is_ok());
}

#[test]
fn a_compressed_file_is_refused() {
    for head in ["\u{1f}\u{8b}", "\u{28}\u{b5}\u{2f}\u{fd}"] {
        let fixture = Fixture::new("");
        let bytes: Vec<u8> = head
            .chars()
            .map(|byte| u8::try_from(byte).unwrap())
            .collect();
        std::fs::write(fixture.path(), [&bytes[..], b"\n\n"].concat()).unwrap();
        let mut lane = FileLane::open(&fixture.path()).unwrap();
        let mut block = Block::default();
        let error = lane.read(&mut block, usize::MAX).unwrap_err();
        assert!(error.to_string().contains("is compressed"), "{error}");
        assert!(block.is_empty());
    }
}

#[test]
fn files_are_listed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b.ndjson", "a.ndjson", "a.txt"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    std::fs::create_dir(dir.path().join("c.ndjson")).unwrap();
    let files = list_matching(dir.path(), "*.ndjson").unwrap();
    let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["a.ndjson", "b.ndjson"]);
    let error = list(&dir.path().join("none")).map(drop).unwrap_err();
    assert!(error.to_string().contains("none: No such file"), "{error}");
}
