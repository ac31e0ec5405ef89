use super::*;

/// A log that holds all, and one that began at row 20 by a peer's checkpoint and has rows 20 to 29.
fn full_and_late(dir: &Path) -> (ResultsLog, ResultsLog) {
    let all = rows(30);
    let limits = Limits {
        max_bytes_per_stream: 100_000,
        ..SMALL
    };
    let full = ResultsLog::open(&dir.join("full"), limits).unwrap();
    append(&full, &all).unwrap();
    let late = ResultsLog::open(&dir.join("late"), limits).unwrap();
    late.reset(ROWS, Seq(20), all[19].digest).unwrap();
    append(&late, &all[20..]).unwrap();
    (full, late)
}

fn all(log: &ResultsLog) -> Vec<Row> {
    log.read(ROWS, log.first_seq(ROWS), 1_000, 1 << 20).unwrap()
}

#[test]
fn a_log_begun_in_the_midst_is_filled_from_a_peer_down_to_row_0() {
    let dir = tempfile::tempdir().unwrap();
    let (full, late) = full_and_late(dir.path());
    assert!(late.lacks_older(ROWS) && !full.lacks_older(ROWS));
    let mut pages = 0;
    while let Some(older) = full.before(ROWS, late.first_seq(ROWS)).unwrap() {
        assert!(late.prepend(ROWS, &older).unwrap());
        pages += 1;
    }
    assert!(pages > 1, "a page is a segment");
    assert_eq!(all(&late), rows(30));
    late.settle_older(ROWS, Seq(0)).unwrap();
    assert!(!late.lacks_older(ROWS));
}

#[test]
fn what_was_copied_and_what_is_missing_are_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (full, late) = full_and_late(dir.path());
    late.sync().unwrap();
    let older = full.before(ROWS, Seq(20)).unwrap().unwrap();
    late.prepend(ROWS, &older).unwrap();
    drop(late);
    let late = ResultsLog::open(&dir.path().join("late"), SMALL).unwrap();
    assert_eq!(late.first_seq(ROWS), older.rows[0].seq);
    assert_eq!(all(&late), rows(30)[older.rows[0].seq.0 as usize..]);
    assert!(late.lacks_older(ROWS));
}

#[test]
fn rows_that_do_not_lead_up_to_the_first_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (full, late) = full_and_late(dir.path());
    let good = full.before(ROWS, Seq(20)).unwrap().unwrap();
    let mut forged = good.clone();
    let mut digest = forged.base;
    forged.rows[0].json[8] ^= 1;
    for row in &mut forged.rows {
        digest = digest.chain(&row.json);
        row.digest = digest;
    }
    let refused = late.prepend(ROWS, &forged);
    assert!(matches!(refused, Err(ResultsError::Chain { .. })));
    let mut torn = good.clone();
    torn.rows[0].digest = Digest(1);
    assert!(late.prepend(ROWS, &torn).is_err());
    let mut short = good;
    short.rows.pop();
    let refused = late.prepend(ROWS, &short);
    assert!(matches!(refused, Err(ResultsError::Gap { .. })));
    assert_eq!(all(&late), rows(30)[20..]);
}

#[test]
fn older_rows_do_not_make_a_stream_larger_than_it_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let (full, late) = full_and_late(dir.path());
    drop(late);
    let small = Limits {
        max_bytes_per_stream: 1_500,
        ..SMALL
    };
    let late = ResultsLog::open(&dir.path().join("late"), small).unwrap();
    let older = full.before(ROWS, Seq(20)).unwrap().unwrap();
    assert!(!late.prepend(ROWS, &older).unwrap());
    assert_eq!(late.first_seq(ROWS), Seq(20));
}

#[test]
fn rows_that_retention_deleted_are_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    append(&log, &rows(100)).unwrap();
    assert!(log.retain(ROWS, Seq(100)).unwrap() > 0);
    assert!(log.first_seq(ROWS) > Seq(0) && !log.lacks_older(ROWS));
    assert_eq!(log.before(ROWS, log.first_seq(ROWS)).unwrap(), None);
}
