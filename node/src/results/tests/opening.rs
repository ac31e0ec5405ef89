//! What a start reads, and what it does about files that are not what they were.
use super::*;

/// A log of 100 rows that are all on disk.
fn synced(dir: &Path) -> Vec<PathBuf> {
    let log = filled(dir);
    log.sync().unwrap();
    segments(dir)
}

/// Bytes of the record of row 0, and a place within row 1.
fn second_record() -> (usize, usize) {
    let record = record::encoded_len(&RowRef::from(&rows(1)[0]));
    let at = segment::HEADER + usize::try_from(record).unwrap();
    (at, at + 60)
}

fn open_error(dir: &Path) -> ResultsError {
    ResultsLog::open(dir, SMALL).unwrap_err()
}

/// It names the file, a place near the damage, and what to do.
fn check_damage(error: &ResultsError, path: &Path) {
    let ResultsError::Corrupt {
        path: named,
        offset,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(named, path);
    assert!(
        offset.abs_diff(second_record().0 as u64) < 10 || *offset < second_record().0 as u64,
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("move this node's data directory away"),
        "{text}"
    );
}

#[test]
fn a_flipped_bit_in_synced_rows_of_a_full_segment_is_an_error_where_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    for path in [&paths[0], &paths[4]] {
        flip(path, second_record().1);
        // The start does not read it.
        let log = open(dir.path());
        assert_eq!(log.next_seq(ROWS), Seq(100));
        let error = log.read(ROWS, Seq(0), 1000, 1 << 20).unwrap_err();
        check_damage(&error, path);
        flip(path, second_record().1);
    }
}

#[test]
fn a_flipped_bit_in_synced_rows_of_the_last_segment_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    let last = &paths[paths.len() - 1];
    flip(last, second_record().1);
    check_damage(&open_error(dir.path()), last);
}

#[test]
fn a_full_segment_that_is_gone_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    fs::remove_file(&paths[2]).unwrap();
    let error = open_error(dir.path());
    assert!(matches!(error, ResultsError::Corrupt { .. }), "{error}");
}

#[test]
fn a_damaged_torn_missing_or_foreign_index_is_made_again_from_its_segment() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    let index = paths[3].with_extension("idx");
    let whole = fs::read(&index).unwrap();
    let check = |what: &str| {
        let log = open(dir.path());
        assert_eq!(all(&log), rows(100), "{what}");
        assert_eq!(fs::read(&index).unwrap(), whole, "{what}");
    };
    check("untouched");
    for byte in 0..whole.len() {
        flip(&index, byte);
        check("flipped");
    }
    for length in [0, 7, 8, 50, whole.len() - 1] {
        fs::write(&index, &whole[..length]).unwrap();
        check("torn");
    }
    fs::copy(paths[2].with_extension("idx"), &index).unwrap();
    check("another's");
    fs::remove_file(&index).unwrap();
    check("missing");
    // Where the index is gone, the segment is read, and damage in it found.
    fs::remove_file(&index).unwrap();
    flip(&paths[3], second_record().1);
    check_damage(&open_error(dir.path()), &paths[3]);
}

#[test]
fn the_index_of_rows_that_were_replaced_is_not_used_for_those_that_took_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    let stale = fs::read(paths[0].with_extension("idx")).unwrap();
    let log = open(dir.path());
    log.reset(ROWS, Seq(0), Digest(9)).unwrap();
    let mut digest = Digest(9);
    let others: Vec<Row> = (0..100)
        .map(|seq| {
            let row = row(seq, digest);
            digest = row.digest;
            row
        })
        .collect();
    append(&log, &others).unwrap();
    log.sync().unwrap();
    assert_ne!(
        fs::read(paths[0].with_extension("idx")).unwrap(),
        stale,
        "replaced"
    );
    // A power loss may bring the old one back.
    fs::write(paths[0].with_extension("idx"), stale).unwrap();
    assert_eq!(all(&open(dir.path())), others);
}

#[test]
fn rows_from_a_borrowed_buffer_are_written_as_rows_from_memory_are() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(one.path());
    let log = open(other.path());
    let mut buffer = Vec::new();
    let appended = log.append_with::<ResultsError>(ROWS, |appender| {
        for row in rows(100) {
            buffer.clone_from(&row.json);
            let borrowed = RowRef {
                json: &buffer,
                ..RowRef::from(&row)
            };
            appender.push(&borrowed)?;
        }
        Ok(())
    });
    assert_eq!(appended.unwrap().written, 100);
    for (one, other) in segments(one.path()).iter().zip(segments(other.path())) {
        assert_eq!(fs::read(one).unwrap(), fs::read(other).unwrap());
    }
    let again = log.append_rows(ROWS, rows(100).iter().map(RowRef::from));
    assert_eq!(again.unwrap().compared, 100);
}

#[test]
fn exported_rows_are_imported_and_no_flipped_bit_or_missing_byte_passes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = filled(one.path());
    let mut bytes = Vec::new();
    from.export(ROWS, Seq(37), Seq(90), &mut bytes).unwrap();
    let to = open(other.path());
    to.import(ROWS, &mut bytes.as_slice()).unwrap();
    assert_eq!(all(&to), rows(90)[37..]);
    assert!(to.lacks_older(ROWS));
    for at in (32..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(to.import(ROWS, &mut damaged.as_slice()).is_err(), "{at}");
        assert!(to.import(ROWS, &mut &bytes[..at]).is_err(), "{at}");
    }
    let beyond = from.export(ROWS, Seq(90), Seq(101), &mut Vec::new());
    assert!(beyond.is_err());
}

/// `tests/golden` of the workspace.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(name)
}

#[test]
fn a_segment_and_its_index_are_those_of_the_golden_files() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    for (path, name) in [
        (paths[1].clone(), "segment_v1.seg"),
        (paths[1].with_extension("idx"), "segment_v1.idx"),
    ] {
        if std::env::var_os("UNISONO_WRITE_GOLDEN").is_some() {
            fs::copy(&path, golden(name)).unwrap();
        }
        let pinned = fs::read(golden(name)).unwrap();
        assert!(fs::read(&path).unwrap() == pinned, "{name} has changed");
    }
    assert!(paths[1].ends_with("00000000000000000008.seg"), "{paths:?}");
    // Read back from the golden file alone.
    let alone = tempfile::tempdir().unwrap();
    let stream = alone.path().join("4/rows");
    fs::create_dir_all(&stream).unwrap();
    fs::copy(
        golden("segment_v1.seg"),
        stream.join(paths[1].file_name().unwrap()),
    )
    .unwrap();
    let log = open(alone.path());
    let Position { first, next, .. } = log.position(ROWS);
    let (first, next) = (first.0 as usize, next.0 as usize);
    assert!(first == 8 && next > 10);
    assert_eq!(all(&log), rows(100)[first..next]);
}

#[test]
fn another_version_is_refused_by_name_and_neither_cut_nor_changed() {
    let dir = tempfile::tempdir().unwrap();
    let paths = synced(dir.path());
    let check = |path: &Path, text: &str| {
        let before = fs::read(path).unwrap();
        let error = open_error(dir.path());
        assert!(matches!(error, ResultsError::Version { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(text) && said.contains("run the program that wrote it"));
        assert_eq!(fs::read(path).unwrap(), before);
    };
    let last = &paths[paths.len() - 1];
    let whole = fs::read(last).unwrap();
    let mut newer = whole.clone();
    newer[7] = b'2';
    fs::write(last, newer).unwrap();
    check(last, "format version 2, this program reads version 1");
    fs::write(last, whole).unwrap();
    let marks = dir.path().join("durable");
    let text = fs::read_to_string(&marks).unwrap();
    fs::write(&marks, text.replace("durable 1", "durable 7")).unwrap();
    check(&marks, "format version 7, this program reads version 1");
}

#[test]
fn a_sync_that_could_not_begin_is_made_good_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let log = filled(dir.path());
    let in_the_way = dir.path().join("durable.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        let error = log.sync().unwrap_err();
        assert!(error.to_string().contains("durable.tmp"), "{error}");
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    log.sync().unwrap();
    drop(log);
    // What is known to be on disk is checked: the marks are there.
    let path = segments(dir.path()).pop().unwrap();
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(
        open_error(dir.path()),
        ResultsError::Corrupt { .. }
    ));
}
