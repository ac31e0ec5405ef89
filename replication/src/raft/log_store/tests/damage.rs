//! What a crash leaves is mended; what a disk changed is refused.

use super::*;

/// A log of several files, with a record of each kind in the last one.
async fn log(disk: &Disk) -> String {
    let mut open = disk.open();
    open.fill(1, 2, large).await;
    let last = open.log.shared().lock().last.unwrap();
    let next = last.index + 1;
    open.append(1, next..next + 3).await;
    open.log
        .truncate_after(Some(log_id(1, next + 1)))
        .await
        .unwrap();
    open.append(2, next + 2..next + 4).await;
    open.log.save_committed(Some(last)).await.unwrap();
    open.log.purge(log_id(1, 0)).await.unwrap();
    let vote = Vote::new_committed(2, open.log.node_id());
    open.log.save_vote(&vote).await.unwrap();
    let text = open.text();
    open.close();
    text
}

/// Whether the log is refused as damaged, with its place and what to do.
fn is_refused(disk: &Disk, what: &str) {
    let refused = match disk.try_open(NUMBER) {
        Ok(open) => panic!("{what}: taken for whole: {}", open.text().len()),
        Err(refused) => refused,
    };
    let text = refused.to_string();
    let folder = disk.folder().display().to_string();
    assert!(
        matches!(refused, StartError::Damaged { .. })
            && text.starts_with(&format!("{folder} is damaged: "))
            && text.contains("rejoins as a new learner"),
        "{what}: {text}"
    );
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_refused() {
    let disk = Disk::new();
    log(&disk).await;
    let whole = disk.files();
    assert!(whole.len() >= 3);
    let tail = whole.keys().next_back().unwrap().clone();
    assert!(whole[&tail].len() > 300);
    for (path, bytes) in &whole {
        // The last file is the one in which an end in the middle of a record is mended: there each bit of each byte.
        for at in 0..bytes.len() {
            let bits = if *path == tail {
                0..8
            } else {
                at % 8..at % 8 + 1
            };
            for bit in bits {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                fs::write(path, &changed).unwrap();
                is_refused(&disk, &format!("{}: bit {bit} of {at}", path.display()));
                assert!(fs::read(path).unwrap() == changed, "it was cut");
            }
        }
        fs::write(path, bytes).unwrap();
    }
    disk.open().close();
}

#[tokio::test]
async fn a_torn_tail_is_cut_off_and_the_rest_is_there() {
    let disk = Disk::new();
    let text = log(&disk).await;
    let whole = disk.files();
    let (tail, bytes) = whole.iter().next_back().unwrap();
    let mut held = 0;
    for length in (0..bytes.len()).step_by(3) {
        for zeros in [0, 100] {
            disk.restore(&whole);
            let mut torn = bytes[..length].to_vec();
            torn.resize(length + zeros, 0);
            // Zeros that are not from the disk belong to a record that is there in part.
            if zeros > 0 && !is_boundary(&disk, tail, &bytes[..length]) {
                continue;
            }
            fs::write(tail, &torn).unwrap();
            let mut open = disk.open();
            let now = open.text();
            let known = now.split(' ').count();
            assert!(known + 1 >= held, "{length}: {now}");
            held = held.max(known);
            let next = open.log.shared().lock().next_index();
            open.append(9, next..next + 2).await;
            open.close();
            let open = disk.open();
            assert_eq!(open.text(), format!("{now} {next}:9 {}:9", next + 1));
            open.close();
        }
    }
    disk.restore(&whole);
    let open = disk.open();
    assert_eq!(open.text(), text);
    open.close();
}

/// Whether the last file ends with a whole record.
fn is_boundary(disk: &Disk, tail: &Path, bytes: &[u8]) -> bool {
    fs::write(tail, bytes).unwrap();
    disk.open().close();
    fs::read(tail).is_ok_and(|now| now.len() == bytes.len())
}

#[tokio::test]
async fn a_file_that_is_missing_or_cut_before_the_end_is_refused() {
    let disk = Disk::new();
    log(&disk).await;
    let whole = disk.files();
    let paths: Vec<&PathBuf> = whole.keys().collect();
    let (_, closed) = paths.split_last().unwrap();
    for path in closed {
        fs::remove_file(path).unwrap();
        is_refused(&disk, "missing");
        let bytes = &whole[*path];
        for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
            fs::write(path, &bytes[..length]).unwrap();
            is_refused(&disk, "cut");
        }
        disk.restore(&whole);
    }
    let foreign = b"this is no log".repeat(1_000);
    for path in paths {
        fs::write(path, &foreign).unwrap();
        is_refused(&disk, "foreign");
        disk.restore(&whole);
    }
    disk.open().close();
}

#[tokio::test]
async fn a_log_of_another_version_is_refused_and_not_touched() {
    let disk = Disk::new();
    log(&disk).await;
    let whole = disk.files();
    let (path, bytes) = whole.iter().next().unwrap();
    for other in [2_u32, 4] {
        let mut changed = bytes.clone();
        changed[4..8].copy_from_slice(&other.to_be_bytes());
        let sum = crc32fast::hash(&changed[4..12]);
        changed[12..16].copy_from_slice(&sum.to_be_bytes());
        fs::write(path, &changed).unwrap();
        let files = disk.files();
        let refused = disk.refused();
        assert!(
            matches!(refused, StartError::OtherVersion { found, reads: 3, .. } if found == other),
            "{refused}"
        );
        assert!(
            refused.to_string().contains("wipe the data directories"),
            "{refused}"
        );
        assert!(disk.files() == files);
    }
}

#[test]
fn the_log_of_an_earlier_version_is_refused_with_what_to_do() {
    let disk = Disk::new();
    let earlier = disk.dir.path().join("raft.redb");
    fs::write(&earlier, "redb").unwrap();
    let refused = disk.refused();
    assert_eq!(
        refused.to_string(),
        format!(
            "{} is the log of an earlier version, this Unisono reads format 3: run the version that wrote it, or wipe \
             the data directories of all replicas (while all are stopped) and let them read the sources again",
            earlier.display()
        )
    );
    assert!(!disk.folder().exists());
}
