#![allow(clippy::unwrap_used)]

mod older;
mod opening;

use std::fs;
use std::path::PathBuf;

use unisono_engine::spec::Timestamp;

use super::*;

const ROWS: StreamId = StreamId {
    incarnation: Incarnation(4),
    kind: StreamKind::Rows,
};
const SMALL: Limits = Limits {
    max_bytes_per_stream: 2_000,
    segment_bytes: 1_000,
};

/// Row `seq` of a stream of one-second windows, two groups each, after a row with `digest`.
fn row(seq: u64, digest: Digest) -> Row {
    let start = i64::try_from(seq / 2).unwrap() * 1000;
    let city = if seq.is_multiple_of(2) {
        "Köln"
    } else {
        "Rom"
    };
    let group = format!(r#"{{"city":"{city}","port":{}}}"#, seq % 2);
    let json = format!(
        r#"{{"seq":{seq},"group":{group},"values":{{"n":{}}}}}"#,
        seq * seq
    );
    let at = json.find(&group).unwrap();
    Row {
        seq: Seq(seq),
        start: Timestamp(start),
        end: Timestamp(start + 1000),
        digest: digest.chain(json.as_bytes()),
        group: at..at + group.len(),
        json: json.into_bytes(),
    }
}

fn rows(below: u64) -> Vec<Row> {
    let mut digest = Digest::default();
    let chained = (0..below).map(|seq| {
        let row = row(seq, digest);
        digest = row.digest;
        row
    });
    chained.collect()
}

fn append(log: &ResultsLog, rows: &[Row]) -> Result<Appended, ResultsError> {
    log.append_rows(ROWS, rows.iter().map(RowRef::from))
}

fn open(dir: &Path) -> ResultsLog {
    ResultsLog::open(dir, SMALL).unwrap()
}

/// A log of 100 rows, appended three at a time, in segments of about eight.
fn filled(dir: &Path) -> ResultsLog {
    let log = open(dir);
    for part in rows(100).chunks(3) {
        append(&log, part).unwrap();
    }
    log
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir.join("4/rows"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    paths.sort();
    paths
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn all(log: &ResultsLog) -> Vec<Row> {
    log.read(ROWS, log.first_seq(ROWS), usize::MAX, usize::MAX)
        .unwrap()
}

fn seqs(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.seq.0).collect()
}

#[test]
fn a_reopened_log_holds_the_same_rows_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    assert_eq!(all(&log), rows(100));
    drop(log);
    let log = open(dir.path());
    assert_eq!(all(&log), rows(100));
    let end = Position {
        first: Seq(0),
        next: Seq(100),
        digest: rows(100)[99].digest,
        bytes: 0,
    };
    assert_eq!(
        Position {
            bytes: 0,
            ..log.position(ROWS)
        },
        end
    );
    assert_eq!(log.streams(), [ROWS]);
    append(&log, &rows(103)[100..]).unwrap();
    assert_eq!(all(&log), rows(103));
}

#[test]
fn the_bytes_of_rows_to_come_are_those_of_their_files_in_proportion() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let all = log.position(ROWS).bytes;
    assert_eq!(log.bytes_from(ROWS, Seq(0)), all);
    assert_eq!(log.bytes_from(ROWS, Seq(100)), 0);
    let each: Vec<u64> = (0..=100)
        .map(|seq| log.bytes_from(ROWS, Seq(seq)))
        .collect();
    assert!(each.windows(2).all(|pair| pair[0] > pair[1]), "{each:?}");
    assert!(each[50].abs_diff(all / 2) < all / 10, "{each:?}");
}

#[test]
fn files_are_the_same_however_the_rows_are_split_into_appends() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(one.path());
    append(&open(other.path()), &rows(100)).unwrap();
    let content = |dir: &Path| -> Vec<_> {
        segments(dir)
            .iter()
            .map(|path| {
                (
                    path.file_name().unwrap().to_owned(),
                    fs::read(path).unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(content(one.path()), content(other.path()));
    assert!(content(one.path()).len() > 5);
    assert!(
        content(one.path())
            .iter()
            .all(|(_, bytes)| bytes.len() <= 1_000)
    );
}

#[test]
fn a_stream_that_is_not_held_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    assert_eq!(log.position(ROWS), Position::default());
    assert!(log.read(ROWS, Seq(0), 10, 10).unwrap().is_empty());
    assert!(log.streams().is_empty());
}

#[test]
fn a_torn_end_is_cut_at_the_last_whole_record() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let last = segments(dir.path()).pop().unwrap();
    let whole = fs::read(&last).unwrap();
    let tear = |length: usize| {
        fs::write(&last, &whole[..length]).unwrap();
        let log = open(dir.path());
        let held = usize::try_from(log.next_seq(ROWS).0).unwrap();
        assert_eq!(all(&log), rows(100)[..held], "torn at {length}");
        append(&log, &rows(100)).unwrap();
        assert_eq!(all(&log), rows(100), "torn at {length}");
        held
    };
    assert_eq!(tear(whole.len()), 100);
    assert_eq!(tear(whole.len() - 1), 99);
    for length in 0..whole.len() {
        tear(length);
    }
}

#[test]
fn zeros_that_a_power_loss_left_behind_the_synced_rows_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, &rows(20)).unwrap();
    log.sync().unwrap();
    let synced = segments(dir.path());
    append(&log, &rows(40)[20..]).unwrap();
    drop(log);
    // A later segment reached the disk, the one before it did not.
    let lost = &segments(dir.path())[synced.len()];
    let length = fs::metadata(lost).unwrap().len();
    fs::write(lost, vec![0; usize::try_from(length).unwrap()]).unwrap();
    let log = open(dir.path());
    assert!((20..40).contains(&log.next_seq(ROWS).0));
    append(&log, &rows(40)).unwrap();
    assert_eq!(all(&log), rows(40));
}

#[test]
fn a_bit_that_flips_under_a_reader_is_an_error_and_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    flip(&segments(dir.path())[0], segment::HEADER + 70);
    let error = log.read(ROWS, Seq(0), 10, 1 << 20).unwrap_err();
    assert!(
        matches!(error, ResultsError::Corrupt { offset: 40, .. }),
        "{error}"
    );
}

#[test]
fn rows_that_exist_are_compared_and_another_byte_is_divergence() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let again = append(&log, &rows(102)[90..]).unwrap();
    assert_eq!(
        again,
        Appended {
            written: 2,
            compared: 10,
            gone: 0
        }
    );
    let mut wrong = rows(102)[50..53].to_vec();
    wrong[1].json[3] ^= 1;
    let error = append(&log, &wrong).unwrap_err();
    assert!(
        matches!(
            error,
            ResultsError::Diverged {
                stream: ROWS,
                seq: Seq(51),
                computed
            } if computed == wrong[1].digest
        ),
        "{error}"
    );
    assert_eq!(all(&log), rows(102));
}

#[test]
fn a_gap_before_or_within_the_rows_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let mut holed = rows(105)[100..].to_vec();
    holed.remove(2);
    for wrong in [rows(105)[101..].to_vec(), holed] {
        let error = append(&log, &wrong).unwrap_err();
        assert!(matches!(error, ResultsError::Gap { .. }), "{error}");
    }
    assert_eq!(log.next_seq(ROWS), Seq(100));
}

#[test]
fn a_digest_that_does_not_continue_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let error = append(&log, &[row(100, Digest(1))]).unwrap_err();
    assert!(
        matches!(error, ResultsError::Chain { seq: Seq(100), .. }),
        "{error}"
    );
}

#[test]
fn retention_deletes_whole_segments_whose_rows_are_all_published() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let before = segments(dir.path()).len();
    assert_eq!(
        log.retain(ROWS, Seq(5)).unwrap(),
        0,
        "the first segment has a row that waits"
    );
    assert_eq!(log.retain(ROWS, Seq(20)).unwrap(), 2);
    let first = log.first_seq(ROWS);
    assert!(first <= Seq(20) && segments(dir.path()).len() == before - 2);
    let error = log.read(ROWS, Seq(0), 1, 1).unwrap_err();
    assert!(
        matches!(error, ResultsError::Gone { asked: Seq(0), .. }),
        "{error}"
    );
    log.retain(ROWS, Seq(100)).unwrap();
    let position = log.position(ROWS);
    assert!(
        position.bytes <= 2_000 && position.bytes > 1_000,
        "{position:?}"
    );
    log.sync().unwrap();
    drop(log);
    let log = open(dir.path());
    assert_eq!(log.position(ROWS), position);
    let again = append(&log, &rows(100)).unwrap();
    assert_eq!((again.written, again.gone), (0, position.first.0));
}

#[test]
fn reset_keeps_the_rows_that_lead_up_to_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    log.sync().unwrap();
    for next in [100, 95, 64, 63, 1] {
        log.reset(
            ROWS,
            Seq(next),
            rows(100)[usize::try_from(next).unwrap() - 1].digest,
        )
        .unwrap();
        assert_eq!(all(&log), rows(next));
        assert_eq!(all(&open(dir.path())), rows(next));
        log.sync().unwrap();
        assert_eq!(all(&open(dir.path())), rows(next));
    }
    append(&log, &rows(100)[1..]).unwrap();
    assert_eq!(all(&log), rows(100));
    log.reset(ROWS, Seq(0), Digest::default()).unwrap();
    assert_eq!(
        log.position(ROWS),
        Position {
            bytes: 40,
            ..Position::default()
        }
    );
}

#[test]
fn reset_beyond_the_end_or_to_another_digest_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    log.sync().unwrap();
    for (next, digest) in [
        (120, rows(120)[119].digest),
        (50, Digest(3)),
        (7, Digest(4)),
    ] {
        log.reset(ROWS, Seq(next), digest).unwrap();
        let begun = Position {
            first: Seq(next),
            next: Seq(next),
            digest,
            bytes: 40,
        };
        assert_eq!(log.position(ROWS), begun);
        assert_eq!(open(dir.path()).position(ROWS), begun);
        append(&log, &[row(next, digest)]).unwrap();
        assert_eq!(seqs(&all(&open(dir.path()))), [next]);
    }
}

#[test]
fn a_reader_in_the_midst_of_a_query_is_not_disturbed_by_a_reset() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let chunk = log.stream(ROWS).unwrap();
    let mut seen = Vec::new();
    chunk
        .visit(Seq(0), Seq(100), Span::ALL, |view| {
            if view.seq == Seq(2) {
                log.reset(ROWS, Seq(1), rows(1)[0].digest).unwrap();
            }
            seen.push(view.seq.0);
            true
        })
        .unwrap();
    assert!(seen.len() > 3 && seen.is_sorted());
}

#[test]
fn a_read_is_bounded_in_rows_and_bytes_but_gives_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    assert_eq!(
        seqs(&log.read(ROWS, Seq(40), 3, 1 << 20).unwrap()),
        [40, 41, 42]
    );
    assert_eq!(seqs(&log.read(ROWS, Seq(40), 3, 1).unwrap()), [40]);
    assert_eq!(seqs(&log.read(ROWS, Seq(99), 3, 1 << 20).unwrap()), [99]);
    assert!(log.read(ROWS, Seq(100), 3, 1 << 20).unwrap().is_empty());
}

#[test]
fn a_scan_gives_windows_that_end_after_from_and_start_before_to() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let check = |from: Option<i64>, to: Option<i64>, expected: &[u64]| {
        let (from, to) = (from.map(Timestamp), to.map(Timestamp));
        let filter = ScanFilter {
            from,
            to,
            groups: Vec::new(),
        };
        let page = log.scan(ROWS, Seq(100), &filter, Seq(0), 1000).unwrap();
        assert_eq!((seqs(&page.rows).as_slice(), page.next), (expected, None));
    };
    check(Some(20_000), Some(21_000), &[40, 41]);
    check(Some(19_999), Some(20_001), &[38, 39, 40, 41]);
    check(None, Some(1000), &[0, 1]);
    check(Some(49_500), None, &[98, 99]);
    check(Some(50_000), None, &[]);
}

#[test]
fn a_scan_takes_rows_of_the_group_and_below_the_bound_only() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let check = |groups: &[(&str, &str)], expected: &[u64]| {
        let groups = groups
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let filter = ScanFilter {
            groups: groups.collect(),
            ..ScanFilter::default()
        };
        let page = log.scan(ROWS, Seq(5), &filter, Seq(0), 1000).unwrap();
        assert_eq!((seqs(&page.rows).as_slice(), page.next), (expected, None));
    };
    check(&[("city", "Köln")], &[0, 2, 4]);
    check(&[("city", "Rom"), ("port", "1")], &[1, 3]);
    check(&[("city", "Rom"), ("port", "0")], &[]);
    check(&[("town", "Rom")], &[]);
}

#[test]
fn pages_join_without_gap_or_overlap_while_rows_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, &rows(30)).unwrap();
    let filter = ScanFilter {
        groups: vec![("port".into(), "0".into())],
        ..ScanFilter::default()
    };
    let (mut seen, mut after, mut below) = (Vec::new(), Some(Seq(0)), 30);
    while let Some(from) = after {
        let page = log.scan(ROWS, Seq(below), &filter, from, 4).unwrap();
        seen.extend(seqs(&page.rows));
        after = page.next;
        if below == 30 {
            below = 61;
            append(&log, &rows(61)[30..]).unwrap();
        }
    }
    assert_eq!(seen, (0..=60).step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_names_the_file_and_the_remedy() {
    let full = ResultsError::io("write to", Path::new("/data/results/4/rows/x.seg"))(
        std::io::Error::from(std::io::ErrorKind::StorageFull),
    );
    let text = full.to_string();
    assert!(text.contains("/data/results/4/rows/x.seg"), "{text}");
    assert!(text.ends_with("free space, then restart"), "{text}");
}
