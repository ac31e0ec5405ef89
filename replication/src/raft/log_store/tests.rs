#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::thread::JoinHandle;

use openraft::EntryPayload;
use openraft::vote::RaftLeaderIdExt;

use super::*;
use crate::identity::number_of;
use crate::raft::types::Payload;

const NUMBER: u16 = 7;

/// A log on a disk of its own, and its writer.
struct Disk {
    dir: tempfile::TempDir,
}

struct Open {
    log: LogStore,
    writer: JoinHandle<()>,
    fatal: watch::Receiver<Option<String>>,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("raft.redb")
    }

    fn try_open(&self, number: u16) -> Result<Open, StartError> {
        let (sender, fatal) = watch::channel(None);
        let (log, writer) = LogStore::open(self.dir.path(), number, sender)?;
        Ok(Open { log, writer, fatal })
    }

    fn open(&self) -> Open {
        self.try_open(NUMBER).unwrap()
    }
}

impl Open {
    /// As a process that ends by plan.
    fn close(self) {
        self.log.close();
        self.writer.join().unwrap();
        assert_eq!(*self.fatal.borrow(), None);
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
            let expected = entry(held.log_id.committed_leader_id().term, held.log_id.index);
            assert_eq!(*held, expected);
            format!(
                "{}:{}",
                held.log_id.index,
                expected.log_id.committed_leader_id().term
            )
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
async fn a_file_that_is_in_use_or_anothers_is_refused() {
    let disk = Disk::new();
    let open = disk.open();
    let refused = disk.try_open(NUMBER).err().unwrap();
    assert!(matches!(refused, StartError::InUse { .. }), "{refused}");
    open.close();
    let refused = disk.try_open(8).err().unwrap().to_string();
    let file = disk.file().display().to_string();
    assert_eq!(
        refused,
        format!(
            "{file} belongs to replica 7, but the configuration says 8; correct the number or the folder"
        )
    );
}

#[tokio::test]
async fn a_file_of_another_version_is_refused_and_not_touched() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..3).await;
    open.close();
    for other in [1_u32, 3] {
        let database = Database::open(disk.file()).unwrap();
        let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
        let transaction = database.begin_write().unwrap();
        let bytes = encode(&other).unwrap();
        transaction
            .open_table(meta)
            .unwrap()
            .insert("format", bytes.as_slice())
            .unwrap();
        transaction.commit().unwrap();
        drop(database);
        let refused = disk.try_open(NUMBER).err().unwrap();
        assert!(
            matches!(refused, StartError::OtherVersion { found, reads: 2, .. } if found == other),
            "{refused}"
        );
        assert!(
            refused.to_string().contains("wipe the data directories"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_torn_or_foreign_file_is_refused_with_what_to_do() {
    let disk = Disk::new();
    let mut open = disk.open();
    open.append(1, 0..500).await;
    open.close();
    let whole = std::fs::read(disk.file()).unwrap();
    let foreign = b"this is no database".repeat(1_000);
    for bytes in [&whole[..whole.len() / 3], &whole[..100], &foreign] {
        std::fs::write(disk.file(), bytes).unwrap();
        let refused = disk.try_open(NUMBER).err().unwrap();
        assert!(matches!(refused, StartError::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains("rejoins as a new learner"));
    }
    std::fs::write(disk.file(), &whole).unwrap();
    disk.open().close();
}

#[tokio::test]
async fn after_the_end_a_reader_is_told_so_and_the_file_is_free() {
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
