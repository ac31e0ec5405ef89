//! A disk that fails.

use std::process::Command;

use super::*;

const DIR: &str = "UNISONO_TEST_LOG_DIR";
const CHILD: &str = "raft::log_store::tests::failure::writes_until_the_disk_is_full";

#[tokio::test]
async fn a_file_that_cannot_be_begun_is_fatal_and_nothing_is_acknowledged_any_more() {
    let disk = Disk::new();
    let mut open = disk.open();
    fs::remove_dir_all(disk.folder()).unwrap();
    let mut acknowledged = 0;
    while open.fatal.borrow().is_none() {
        assert!(acknowledged < 20);
        acknowledged += 1;
        let next = open.log.shared().lock().next_index();
        open.log
            .append([large(1, next)], IOFlushed::noop())
            .await
            .unwrap();
        drop(open.log.shared().wait());
    }
    fails(&mut open, "No such file").await;
    let ended = open.log.clone();
    open.log.end();
    assert_eq!(ended.close(), ());
}

#[tokio::test]
async fn a_file_that_cannot_be_removed_is_fatal_with_the_next_write() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.fill(1, 3, large).await;
    fs::remove_file(disk.files().keys().next().unwrap()).unwrap();
    open.log.purge(log_id(1, 20)).await.unwrap();
    drop(open.log.shared().wait());
    for index in 27..30 {
        open.append(1, index..index + 1).await;
        drop(open.log.shared().wait());
    }
    fails(&mut open, "No such file").await;
}

/// What follows the first failure.
async fn fails(open: &mut Open, why: &str) {
    let fatal = open.fatal.borrow().clone().unwrap();
    let (folder, advice) = (open.log.folder().display(), "free space or repair the disk");
    assert!(
        fatal.starts_with(&format!("cannot write {folder}")) && fatal.contains(advice),
        "{fatal}"
    );
    assert!(fatal.contains(why), "{fatal}");
    let written = open.log.shared().lock().written;
    let vote = Vote::new_committed(9, open.log.node_id());
    let refused = open.log.save_vote(&vote).await.unwrap_err().to_string();
    assert!(refused.ends_with("failed before"), "{refused}");
    assert_ne!(open.log.read_vote().await.unwrap(), Some(vote));
    let next = open.log.shared().lock().next_index();
    open.append(9, next..next + 1).await;
    assert_eq!(open.log.shared().lock().written, written);
}

/// A limit for the size of files is a full disk, as far as a write can see.
#[test]
fn a_full_disk_is_fatal_and_nothing_is_acknowledged_any_more() {
    let disk = Disk::with_files_of(FILE_BYTES);
    disk.open().close();
    let test = std::env::current_exe().unwrap();
    let limited = "ulimit -f 2500; trap '' XFSZ; exec \"$@\"";
    let ended = Command::new("sh")
        .args(["-c", limited, "sh"])
        .arg(test)
        .args(["--exact", CHILD, "--ignored", "--nocapture"])
        .env(DIR, disk.dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        ended.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    // What it knows to be written, and no more than the one that it could not be told of.
    let acknowledged: u64 = fs::read_to_string(disk.dir.path().join("acknowledged"))
        .unwrap()
        .parse()
        .unwrap();
    let open = disk.open();
    let held = open.text().split(' ').count() as u64;
    assert!(
        (acknowledged..=acknowledged + 1).contains(&held),
        "{held} of {acknowledged}"
    );
    open.close();
}

/// In a process of its own, which the test above starts.
#[tokio::test]
#[ignore = "started by another test, in a process of its own"]
async fn writes_until_the_disk_is_full() {
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let (sender, fatal) = watch::channel(None);
    let log = LogStore::open(&dir, NUMBER, sender).unwrap();
    let mut open = Open { log, fatal };
    let mut index = 0;
    while open.fatal.borrow().is_none() {
        assert!(index < 10);
        let entries = [huge(1, index)];
        open.log.append(entries, IOFlushed::noop()).await.unwrap();
        drop(open.log.shared().wait());
        index += 1;
    }
    let acknowledged = open.log.shared().lock().written;
    assert!(acknowledged < index && acknowledged > 0, "{acknowledged}");
    fs::write(dir.join("acknowledged"), acknowledged.to_string()).unwrap();
    fails(&mut open, "too large").await;
}
