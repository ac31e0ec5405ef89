//! What rows and checkpoints take of memory while they are written, opened, sent and taken in: not what they take on disk.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use unisono::checkpoint::{
    CheckpointReader, CheckpointStore, Head, Header, PartId, encode_heads, take,
};
use unisono::ids::key_of;
use unisono::results::{Limits, Position, ResultsError, ResultsLog, RowRef};
use unisono::snapshots::NodeSnapshots;
use unisono_engine::row::{Digest, Incarnation, Seq, StreamId, StreamKind};
use unisono_engine::spec::Timestamp;
use unisono_replication::Snapshots;
use unisono_replication::command::FeedId;
use unisono_replication::machine::Machine;
use unisono_replication::rt::mpsc::channel;

/// More than a few blocks and chunks, far less than what is written.
const MOST: u64 = 12 << 20;
const ROWS: u64 = 1_000_000;
const STREAM: StreamId = StreamId {
    incarnation: Incarnation(4),
    kind: StreamKind::Rows,
};
/// What is measured is the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Bytes by which the process grew at most while `run` ran.
fn peak<T>(run: impl FnOnce() -> T) -> (T, u64) {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let begin = Instant::now();
    let made = run();
    let grew = status("VmHWM").saturating_sub(before);
    println!("{} KiB more at most, {:?}", grew >> 10, begin.elapsed());
    (made, grew)
}

#[test]
fn what_is_held_whole_is_noticed() {
    let _alone = ALONE.lock().unwrap();
    let (held, grew) = peak(|| vec![1_u8; 64 << 20]);
    assert!(grew > MOST && held.len() > grew as usize / 2, "{grew}");
}

/// Bytes that the process has read.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find(|line| line.starts_with("rchar")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn open(dir: &Path) -> ResultsLog {
    ResultsLog::open(&dir.join("results"), Limits::default()).unwrap()
}

/// One tick of rows, each rendered into the same buffer.
fn append(log: &ResultsLog) {
    let mut json = Vec::new();
    let mut digest = Digest::default();
    let appended = log.append_with::<ResultsError>(STREAM, |appender| {
        for seq in 0..ROWS {
            json.clear();
            write!(json, r#"{{"start":"2026-01-01T00:00:00Z","end":"2026-01-01T00:00:10Z","group":{{"n":{seq}}},"values":{{"count":1}},"seq":{seq}}}"#).unwrap();
            digest = digest.chain(&json);
            appender.push(&RowRef {
                seq: Seq(seq),
                start: Timestamp(0),
                end: Timestamp(10_000),
                digest,
                group: 0..0,
                json: &json,
            })?;
        }
        Ok(())
    });
    let appended = appended.unwrap();
    assert_eq!(appended.written + appended.compared, ROWS);
}

#[test]
fn a_million_rows_of_one_tick_are_written_compared_and_opened_within_some_megabytes() {
    let _alone = ALONE.lock().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let ((), grew) = peak(|| append(&log));
    assert!(grew < MOST, "writing: {grew}");
    let ((), grew) = peak(|| append(&log));
    assert!(grew < MOST, "comparing: {grew}");
    log.sync().unwrap();
    let Position { bytes, .. } = log.position(STREAM);
    assert!(bytes > 150 << 20, "{bytes}");
    drop(log);
    let before = bytes_read();
    let begin = Instant::now();
    let log = open(dir.path());
    let read = bytes_read() - before;
    println!(
        "a start read {} of {} KiB, {:?}",
        read >> 10,
        bytes >> 10,
        begin.elapsed()
    );
    assert!(read < 18 << 20, "a start read {read} of {bytes}");
    assert_eq!(log.next_seq(STREAM), Seq(ROWS));
}

/// A checkpoint with a large lane.
fn checkpoint(store: &CheckpointStore, results: &ResultsLog) {
    let Position { next, digest, .. } = results.position(STREAM);
    let head = Head {
        stream: key_of(STREAM),
        next: next.0,
        digest: digest.0,
    };
    let mut checkpoint = store
        .begin(Header {
            index: 7,
            term: 1,
            raft: vec![1],
            machine: Machine::default(),
            feeds: BTreeMap::from([(FeedId(1), 7)]),
            made_at: 7,
        })
        .unwrap();
    let feed = FeedId(1);
    checkpoint
        .part(PartId::Heads(feed), |part| {
            part.write_all(&encode_heads(&[head]))
        })
        .unwrap();
    checkpoint
        .part(PartId::Lane(feed, 0), |part| {
            (0..1_000_000_u64).try_for_each(|group| part.write_all(&[group as u8; 100]))
        })
        .unwrap();
    store.finish(checkpoint).unwrap();
}

#[test]
fn a_checkpoint_with_its_rows_is_written_sent_and_taken_within_some_megabytes() {
    let _alone = ALONE.lock().unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [(results, store), (peers_results, peers_store)] = dirs.each_ref().map(|dir| {
        let store = CheckpointStore::open(dir.path().join("checkpoints")).unwrap();
        (open(dir.path()), store)
    });
    append(&results);
    let ((), grew) = peak(|| checkpoint(&store, &results));
    assert!(grew < MOST, "writing: {grew}");
    let sent = dirs[1].path().join("sent");
    let ((), grew) = peak(|| {
        let node = NodeSnapshots::new(store.clone(), results.clone(), channel().0, channel().0, 0);
        let stored = node.current().unwrap().unwrap();
        let mut file = io::BufWriter::new(File::create(&sent).unwrap());
        (stored.data)(&mut file).unwrap();
        file.flush().unwrap();
    });
    assert!(grew < MOST, "sending: {grew}");
    assert!(sent.metadata().unwrap().len() > 250 << 20);
    let (taken, grew) = peak(|| {
        CheckpointReader::open(&sent).unwrap().verify().unwrap();
        let mut parcel = CheckpointReader::open(&sent).unwrap();
        take(&mut parcel, &peers_store, &peers_results).unwrap()
    });
    assert!(grew < MOST, "taking: {grew}");
    assert_eq!(taken.header().index, 7);
    assert_eq!(
        peers_results.position(STREAM),
        results.position(STREAM),
        "the same rows"
    );
    let (loaded, grew) = peak(|| peers_store.load().unwrap().unwrap());
    assert!(grew < MOST, "loading: {grew}");
    assert_eq!(loaded.header().index, 7);
}
