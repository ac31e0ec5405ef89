#![allow(clippy::unwrap_used)]

mod damage;
mod failure;

use std::collections::BTreeMap;
use std::fs;

use openraft::EntryPayload;
use openraft::vote::RaftLeaderIdExt;

use super::writer::Files;
use super::*;
use crate::identity::number_of;
use crate::raft::types::Payload;

const NUMBER: u16 = 7;

/// A log on a disk of its own.
struct Disk {
    dir: tempfile::TempDir,
    file_bytes: usize,
}

struct Open {
    log: LogStore,
    fatal: watch::Receiver<Option<String>>,
}

impl Disk {
    fn new() -> Self {
        Self::with_files_of(2_048)
    }

    fn with_files_of(file_bytes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, file_bytes }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What each file of the log holds, in order.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(self.folder()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|extension| extension == "wal"))
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }

    fn restore(&self, files: &BTreeMap<PathBuf, Vec<u8>>) {
        for path in self.files().keys() {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in files {
            fs::write(path, bytes).unwrap();
        }
    }

    fn try_open(&self, number: u16) -> Result<Open, StartError> {
        let (sender, fatal) = watch::channel(None);
        let log = LogStore::open_with(self.dir.path(), number, self.file_bytes, sender)?;
        Ok(Open { log, fatal })
    }

    fn open(&self) -> Open {
        self.try_open(NUMBER).unwrap()
    }

    fn refused(&self) -> StartError {
        self.try_open(NUMBER).err().unwrap()
    }
}

impl Open {
    /// As a process that ends by plan.
    fn close(self) {
        self.log.end();
        assert_eq!(*self.fatal.borrow(), None);
    }

    /// Appends entries of which nine fill a file, each as a group of its own: a group goes to one file.
    async fn fill(&mut self, term: u64, files: usize, make: fn(u64, u64) -> Entry) {
        let first = self.log.shared().lock().next_index();
        for index in (first..).take(files * 9) {
            let large = make(term, index);
            self.log.append([large], IOFlushed::noop()).await.unwrap();
            drop(self.log.shared().wait());
        }
    }

    async fn append(&mut self, term: u64, indexes: Range<u64>) {
        let entries: Vec<Entry> = indexes.map(|index| entry(term, index)).collect();
        self.log.append(entries, IOFlushed::noop()).await.unwrap();
    }

    /// `index:term` of all entries that are held.
    fn text(&self) -> String {
        let first = self.log.purged().map_or(0, |purged| purged + 1);
        let entries = self.log.read_all(first..u64::MAX).unwrap();
        let words = entries.iter().map(|held| {
            let (term, index) = (held.log_id.leader_id.term, held.log_id.index);
            assert!(
                [entry, large, huge]
                    .iter()
                    .any(|make| *held == make(term, index))
            );
            format!("{index}:{term}")
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

fn log_id(term: u64, index: u64) -> LogId {
    let leader = openraft::impls::leader_id_std::LeaderId::<u64, u64>::new_committed(term, 1);
    LogId::new(leader, index)
}

fn entry(term: u64, index: u64) -> Entry {
    let text = format!("entry {index} of term {term}");
    Entry {
        log_id: log_id(term, index),
        payload: EntryPayload::Normal(Payload(text.into_bytes().into())),
    }
}

/// Nine of them fill a small file.
fn large(term: u64, index: u64) -> Entry {
    sized(term, index, 250)
}

/// Nine of them fill a file of the size that is used in earnest.
fn huge(term: u64, index: u64) -> Entry {
    sized(term, index, 500 << 10)
}

fn sized(term: u64, index: u64, bytes: usize) -> Entry {
    let text = format!("entry {index} of term {term} ").repeat(bytes / 10);
    Entry {
        log_id: log_id(term, index),
        payload: EntryPayload::Normal(Payload(text.as_bytes()[..bytes].into())),
    }
}

#[tokio::test]
async fn entries_marks_and_identity_are_there_after_a_restart() {
    let disk = Disk::new();
    let mut open = disk.open();
    assert!(open.log.is_fresh());
    let node_id = open.log.node_id();
    assert_eq!(number_of(node_id), NUMBER);
    let vote = Vote::new_committed(2, node_id);
    open.log.save_vote(&vote).await.unwrap();
    open.append(1, 0..3).await;
    open.append(2, 3..5).await;
    open.log.save_committed(Some(log_id(2, 3))).await.unwrap();
    open.close();
    let mut open = disk.open();
    assert!(!open.log.is_fresh());
    assert_eq!(open.log.node_id(), node_id);
    assert_eq!(open.log.read_vote().await.unwrap(), Some(vote));
    let committed = open.log.read_committed().await.unwrap();
    assert_eq!(committed, Some(log_id(2, 3)));
    let state = open.log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(2, 4)));
    assert_eq!(state.last_purged_log_id, None);
    assert_eq!(open.text(), "0:1 1:1 2:1 3:2 4:2");
    open.close();
}

#[tokio::test]
async fn a_committed_mark_never_lies_beyond_the_entries_on_the_disk() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..3).await;
    // A majority of others has what this disk does not have yet.
    open.log.save_committed(Some(log_id(1, 7))).await.unwrap();
    open.close();
    let mut open = disk.open();
    assert_eq!(open.log.read_committed().await.unwrap(), None);
    open.append(1, 3..9).await;
    open.log.save_committed(Some(log_id(1, 7))).await.unwrap();
    open.close();
    let mut open = disk.open();
    assert_eq!(open.log.read_committed().await.unwrap(), Some(log_id(1, 7)));
    open.close();
}

#[tokio::test]
async fn what_is_truncated_is_gone_and_its_place_is_taken_anew() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..6).await;
    open.log.truncate_after(Some(log_id(1, 2))).await.unwrap();
    assert_eq!(open.text(), "0:1 1:1 2:1");
    open.append(3, 3..5).await;
    assert_eq!(open.text(), "0:1 1:1 2:1 3:3 4:3");
    open.close();
    let mut open = disk.open();
    assert_eq!(open.text(), "0:1 1:1 2:1 3:3 4:3");
    open.log.truncate_after(None).await.unwrap();
    assert_eq!(open.text(), "");
    let state = open.log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, None);
    open.close();
}

#[tokio::test]
async fn what_is_purged_is_gone_and_the_end_stays_known() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..6).await;
    open.log.purge(log_id(1, 3)).await.unwrap();
    assert_eq!(open.text(), "4:1 5:1");
    open.log.purge(log_id(1, 5)).await.unwrap();
    open.close();
    let mut open = disk.open();
    assert_eq!((open.text().as_str(), open.log.purged()), ("", Some(5)));
    let state = open.log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(1, 5)));
    open.append(2, 6..8).await;
    assert_eq!(open.text(), "6:2 7:2");
    open.close();
}

#[tokio::test]
async fn a_purge_beyond_the_end_follows_a_peers_checkpoint() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..3).await;
    open.log.purge(log_id(4, 100)).await.unwrap();
    assert_eq!(open.text(), "");
    open.append(4, 101..103).await;
    open.close();
    let open = disk.open();
    assert_eq!(open.text(), "101:4 102:4");
    open.close();
}

#[tokio::test]
async fn one_read_is_bounded_in_bytes_and_the_next_goes_on() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..10).await;
    open.close();
    // From the disk, and from memory.
    let mut open = disk.open();
    open.append(1, 10..20).await;
    for start in [0, 10] {
        let one = open.log.read(start..start + 10, 1).unwrap();
        assert_eq!(one, [entry(1, start)], "at least one");
        let all = open.log.read(start..start + 10, usize::MAX).unwrap();
        assert_eq!(all.len(), 10);
    }
    open.close();
}

#[tokio::test]
async fn a_log_that_is_in_use_or_anothers_is_refused() {
    let disk = Disk::new();
    let open = disk.open();
    let refused = disk.refused();
    assert!(matches!(refused, StartError::InUse { .. }), "{refused}");
    open.close();
    let refused = disk.try_open(8).err().unwrap().to_string();
    let folder = disk.folder().display().to_string();
    assert_eq!(
        refused,
        format!(
            "{folder} belongs to replica 7, but the configuration says 8; correct the number or the folder"
        )
    );
    disk.open().close();
}

#[tokio::test]
async fn after_the_end_a_reader_is_told_so_and_the_files_are_free() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..3).await;
    open.close();
    let open = disk.open();
    let reader = open.log.clone();
    open.close();
    let ended = reader.read(0..3, usize::MAX).unwrap_err();
    assert_eq!(ended.to_string(), "the raft log is closed");
    disk.open().close();
}

#[tokio::test]
async fn files_go_when_all_in_them_is_purged_and_the_rest_is_there_after_a_restart() {
    let disk = Disk::new();
    let mut open = disk.open();
    let vote = Vote::new_committed(3, open.log.node_id());
    open.log.save_vote(&vote).await.unwrap();
    open.fill(1, 3, large).await;
    let before = disk.files();
    assert!(before.len() >= 4, "{}", before.len());
    let all = open.text();
    open.log.purge(log_id(1, 19)).await.unwrap();
    drop(open.log.shared().wait());
    // The files are removed by the writing thread after it said that it was done.
    open.log.save_vote(&vote).await.unwrap();
    let kept = all.split_once(" 20:1").unwrap().1;
    assert_eq!(open.text(), format!("20:1{kept}"));
    open.close();
    assert!(disk.files().len() <= before.len() - 2);
    let mut open = disk.open();
    assert_eq!(open.text(), format!("20:1{kept}"));
    assert_eq!(open.log.read_vote().await.unwrap(), Some(vote));
    open.close();
}

#[tokio::test]
async fn a_truncation_reaches_back_into_closed_files() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.fill(1, 3, large).await;
    open.log.truncate_after(Some(log_id(1, 4))).await.unwrap();
    open.append(2, 5..7).await;
    assert_eq!(open.text(), "0:1 1:1 2:1 3:1 4:1 5:2 6:2");
    open.close();
    let mut open = disk.open();
    assert_eq!(open.text(), "0:1 1:1 2:1 3:1 4:1 5:2 6:2");
    // The files in the middle hold only what was truncated.
    open.log.purge(log_id(2, 5)).await.unwrap();
    open.close();
    let open = disk.open();
    assert_eq!(open.text(), "6:2");
    assert_eq!(disk.files().len(), 1);
    open.close();
}

#[tokio::test]
async fn what_left_the_memory_is_read_while_others_append_and_purge() {
    let disk = Disk::with_files_of(FILE_BYTES);
    let mut open = disk.open();
    open.fill(1, 8, huge).await;
    let first = open.log.shared().lock().cache_start();
    assert!(first > 30, "the memory is bounded: {first}");
    let reader = open.log.clone();
    let (started, starts) = std::sync::mpsc::channel();
    let reading = thread::spawn(move || {
        let mut next = 0;
        let mut skipped = false;
        while next < 72 {
            let read = reader.read(next..72, 1 << 20).unwrap();
            let Some(first) = read.first() else { break };
            skipped |= first.log_id.index != next;
            for held in &read {
                assert!(*held == huge(1, held.log_id.index));
                next = held.log_id.index + 1;
            }
            started.send(()).ok();
        }
        (next, skipped)
    });
    starts.recv().unwrap();
    open.log.purge(log_id(1, 40)).await.unwrap();
    open.fill(2, 1, huge).await;
    let (next, skipped) = reading.join().unwrap();
    assert_eq!(next, 72);
    assert!(skipped || open.log.purged() == Some(40));
    open.close();
}

fn syncs(log: &LogStore) -> u64 {
    let core = log.shared().core.lock().unwrap();
    let Files::Real(wal) = &core.as_ref().unwrap().files else {
        unreachable!("it is not simulated");
    };
    wal.flush_metrics().sync_batch_count
}

/// Whoever wrote it may have been killed before the sync.
#[tokio::test]
async fn what_a_start_finds_is_synced_before_raft_sees_it() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..3).await;
    open.close();
    let open = disk.open();
    assert_eq!(syncs(&open.log), 1);
    open.close();
}

#[tokio::test]
async fn a_slow_disk_makes_larger_groups_and_nobody_waits_for_it() {
    let disk = Disk::new();
    let mut open = disk.open();
    let shared = Arc::clone(open.log.shared());
    // As if a group were being written.
    shared.lock().busy = true;
    for index in 0..500 {
        open.append(1, index..index + 1).await;
    }
    let log = open.log.clone();
    let voter = tokio::spawn(async move {
        let vote = Vote::new_committed(1, log.node_id());
        log.clone().save_vote(&vote).await
    });
    tokio::task::yield_now().await;
    assert_eq!(shared.lock().waiting.len(), 501);
    assert!(
        !voter.is_finished(),
        "a vote is answered when it is durable"
    );
    assert_eq!(shared.lock().written, 0);
    let before = syncs(&open.log);
    shared.write(Some(thread::current().id()));
    drop(shared.wait());
    assert_eq!(shared.lock().written, 500);
    // It is counted after those who waited were told; and so is that of the file that may be begun behind it.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while syncs(&open.log) == before && std::time::Instant::now() < deadline {
        thread::yield_now();
    }
    let synced = syncs(&open.log) - before;
    assert!((1..=2).contains(&synced), "one for all: {synced}");
    voter.await.unwrap().unwrap();
    open.close();
}

#[test]
fn the_bytes_of_a_file() {
    use chunked_wal::WALRecord;
    use codeq::{Decode, Encode};
    use record::{Framed, Marks, Types};

    let vote = Vote::new_committed(3, 7 << 48 | 1);
    let marks = Marks {
        node_id: 7 << 48 | 1,
        vote: Some(vote),
        last: Some(log_id(3, 300)),
        purged: Some(log_id(2, 200)),
        committed: Some(log_id(3, 299)),
    };
    let mut written = Vec::new();
    let mut file = vec![WALRecord::<Types>::Checkpoint(marks)];
    for record in [
        Record::Entry(entry(3, 301)),
        Record::Truncated(Some(log_id(3, 300))),
        Record::Truncated(None),
        Record::Purged(log_id(3, 250)),
        Record::Vote(vote),
        Record::Committed(log_id(3, 300)),
    ] {
        file.push(WALRecord::Action(Framed(encode(&record).unwrap())));
    }
    for record in &file {
        record.encode(&mut written).unwrap();
    }
    let bytes = crate::golden::bytes("raft-log", &written);
    let mut left = bytes.as_slice();
    for record in &file {
        let read = WALRecord::<Types>::decode(&mut left).unwrap();
        let mut again = Vec::new();
        read.encode(&mut again).unwrap();
        let mut expected = Vec::new();
        record.encode(&mut expected).unwrap();
        assert_eq!(again, expected);
        if let WALRecord::Action(framed) = read {
            let record = framed.record().unwrap();
            assert_eq!(encode(&record).unwrap(), framed.0);
        }
    }
    assert!(left.is_empty());
    assert_eq!(bytes, written);
}
