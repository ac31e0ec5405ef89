#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use unisono_replication::command::{
    Command, CreateFeed, FeedTick, LaneEmpty, LaneEntry, LaneMove, SourceEntry, Ticks,
};
use unisono_replication::machine::Machine;

use super::*;

fn header(index: u64) -> Header {
    Header {
        index,
        term: 2,
        raft: vec![1, 2],
        machine: machine(),
        feeds: BTreeMap::from([(FeedId(3), index), (FeedId(5), index + 2)]),
        made_at: index + 2,
    }
}

/// A feed whose only lane has come some way; the format of all else is pinned with the commands that make it.
fn machine() -> Machine {
    let mut machine = Machine::default();
    let lane = LaneEntry {
        source: 0,
        name: "7".to_owned(),
        start: 11,
        identity: "topic".to_owned(),
    };
    let source = SourceEntry {
        name: "orders".to_owned(),
        definition: "{}".to_owned(),
    };
    let create = CreateFeed {
        term: 1,
        sources: vec![source],
        lanes: vec![lane],
    };
    machine.apply(3, 1, &Command::CreateFeed(create));
    let tick = FeedTick {
        feed: FeedId(3),
        base: 3,
        agreed_ms: 1000,
        clock_ms: 1001,
        alone: true,
        moves: vec![LaneMove {
            lane: 0,
            cut: 9000,
            fingerprint: 99,
        }],
        empty: vec![LaneEmpty {
            lane: 0,
            empty_to: 9002,
        }],
        at_end: vec![0],
    };
    let feeds = vec![tick];
    machine.apply(4, 1, &Command::Ticks(Ticks { term: 1, feeds }));
    assert_eq!(machine.feeds()[&FeedId(3)].lanes[0].hole.to, 9002);
    machine
}

fn heads() -> Vec<Head> {
    let head = |stream, next| Head {
        stream: StreamKey {
            incarnation: 9,
            stream,
        },
        next,
        digest: 77,
    };
    vec![head(Stream::Rows, 4), head(Stream::DeadLetters, 0)]
}

/// Parts of several lengths: none, some bytes, some chunks.
fn parts() -> Vec<(PartId, Vec<u8>)> {
    let bytes = |length: usize| (0..length).map(|at| (at * 7) as u8).collect();
    vec![
        (PartId::Heads(FeedId(3)), encode_heads(&heads())),
        (PartId::Feed(FeedId(3)), bytes(100)),
        (PartId::Lane(FeedId(3), 0), bytes(0)),
        (PartId::Lane(FeedId(3), 1), bytes(2 * frame::CHUNK)),
        (PartId::Feed(FeedId(5)), bytes(frame::CHUNK + 1)),
    ]
}

fn save(store: &CheckpointStore, index: u64, parts: &[(PartId, Vec<u8>)]) -> StoredCheckpoint {
    let mut checkpoint = store.begin(header(index)).unwrap();
    for (id, bytes) in parts {
        checkpoint
            .part(*id, |part| {
                bytes.chunks(999).try_for_each(|some| part.write_all(some))
            })
            .unwrap();
    }
    store.finish(checkpoint).unwrap()
}

/// A checkpoint of one small part.
fn save_small(store: &CheckpointStore, index: u64) {
    save(store, index, &parts()[..2]);
}

fn store() -> (tempfile::TempDir, CheckpointStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path().join("checkpoints")).unwrap();
    (dir, store)
}

fn loaded_index(store: &CheckpointStore) -> u64 {
    store.load().unwrap().unwrap().header().index
}

fn newest_file(store: &CheckpointStore) -> PathBuf {
    store.files("checkpoint").unwrap().pop().unwrap()
}

fn read_all(reader: &mut CheckpointReader) -> Vec<(PartId, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((id, mut part)) = reader.next_part().unwrap() {
        let mut bytes = Vec::new();
        part.read_to_end(&mut bytes).unwrap();
        found.push((id, bytes));
    }
    found
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(name)
}

#[test]
fn parts_are_read_as_they_were_written_and_may_be_passed_over() {
    let (_dir, store) = store();
    let stored = save(&store, 8, &parts());
    assert_eq!(read_all(&mut stored.reader().unwrap()), parts());
    let mut reader = stored.reader().unwrap();
    let mut ids = Vec::new();
    while let Some((id, mut part)) = reader.next_part().unwrap() {
        // Some of each, so that the rest is passed over.
        let _ = part.read(&mut [0; 10]).unwrap();
        ids.push(id);
    }
    assert_eq!(ids, parts().iter().map(|part| part.0).collect::<Vec<_>>());
    let found = reader.header();
    assert_eq!((found.index, found.term, &found.raft), (8, 2, &vec![1, 2]));
    let bytes = encode_heads(&heads());
    assert_eq!(read_heads(&mut bytes.as_slice()).unwrap(), heads());
}

#[test]
fn a_file_does_not_depend_on_the_pieces_in_which_its_parts_came() {
    let (_dir, store) = store();
    save(&store, 8, &parts());
    let one = fs::read(newest_file(&store)).unwrap();
    let mut whole = CheckpointWriter::begin(Vec::new(), &header(8)).unwrap();
    for (id, bytes) in parts() {
        whole.part(id, |part| part.write_all(&bytes)).unwrap();
    }
    assert!(one == whole.finish().unwrap());
}

#[test]
fn the_newest_is_loaded_and_two_are_kept() {
    let (_dir, store) = store();
    assert!(store.load().unwrap().is_none() && store.current().is_none());
    for index in [5, 900, 70] {
        save_small(&store, index);
    }
    assert_eq!(store.current().unwrap().header().index, 900);
    assert_eq!(loaded_index(&store), 900);
    assert_eq!(store.files("checkpoint").unwrap().len(), 2);
}

#[test]
fn one_that_is_held_is_read_after_newer_ones_took_its_place() {
    let (_dir, store) = store();
    let held = save(&store, 1, &parts());
    for index in 2..6 {
        save_small(&store, index);
    }
    assert_eq!(read_all(&mut held.reader().unwrap()), parts());
}

#[test]
fn one_that_is_given_up_leaves_nothing_and_what_a_crash_left_is_removed() {
    let (dir, store) = store();
    save_small(&store, 1);
    let mut checkpoint = store.begin(header(2)).unwrap();
    let failed = checkpoint.part(PartId::Feed(FeedId(3)), |_| Err(io::Error::other("no")));
    assert!(failed.is_err());
    assert_eq!(store.files("unfinished").unwrap().len(), 1);
    drop(checkpoint);
    assert_eq!(store.files("unfinished").unwrap().len(), 0);
    let folder = dir.path().join("checkpoints");
    fs::write(folder.join("00000000000000000003.unfinished"), b"UNIS").unwrap();
    let store = CheckpointStore::open(folder).unwrap();
    assert_eq!(store.files("unfinished").unwrap().len(), 0);
    assert_eq!(loaded_index(&store), 1);
}

#[test]
fn any_flipped_bit_and_any_torn_write_is_refused_and_the_one_before_is_used() {
    let (_dir, store) = store();
    save_small(&store, 1);
    save_small(&store, 2);
    let newest = newest_file(&store);
    let whole = fs::read(&newest).unwrap();
    let version = frame::MAGIC.len()..frame::PREFACE;
    for at in (0..whole.len()).filter(|at| !version.contains(at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&newest, bytes).unwrap();
        assert_eq!(loaded_index(&store), 1, "byte {at}");
    }
    for length in 0..whole.len() {
        fs::write(&newest, &whole[..length]).unwrap();
        assert_eq!(loaded_index(&store), 1, "length {length}");
    }
    let doubled = [whole.clone(), whole.clone()].concat();
    fs::write(&newest, doubled).unwrap();
    assert_eq!(loaded_index(&store), 1);
    fs::write(&newest, whole).unwrap();
    assert_eq!(loaded_index(&store), 2);
}

#[test]
fn a_part_that_is_missing_or_moved_is_noticed() {
    let (_dir, store) = store();
    save_small(&store, 1);
    save(&store, 2, &parts()[1..3]);
    let newest = newest_file(&store);
    let whole = fs::read(&newest).unwrap();
    let one = frame::frame_len(postcard::to_stdvec(&parts()[1].0).unwrap().len())
        + frame::frame_len(100)
        + frame::frame_len(8);
    let other =
        frame::frame_len(postcard::to_stdvec(&parts()[2].0).unwrap().len()) + frame::frame_len(8);
    let end = whole.len() - frame::END;
    let (before, parts) = whole[..end].split_at(end - one - other);
    let (first, second) = parts.split_at(one);
    for changed in [
        [before, second, first].concat(),
        [before, first].concat(),
        [before, first, second, second].concat(),
    ] {
        let mut file = fs::File::create(&newest).unwrap();
        file.write_all(&changed).unwrap();
        file.write_all(&whole[end..]).unwrap();
        assert_eq!(loaded_index(&store), 1);
    }
}

#[test]
fn every_other_version_is_refused_by_name() {
    let (_dir, store) = store();
    save_small(&store, 1);
    save_small(&store, 2);
    let newest = newest_file(&store);
    let mut bytes = fs::read(&newest).unwrap();
    bytes[frame::MAGIC.len()] = 7;
    fs::write(&newest, bytes).unwrap();
    let said = store.load().unwrap_err().to_string();
    let expected = "it has format version 7, this program reads version 6: upgrade this node";
    assert_eq!(said, format!("{}: {expected}", newest.display()));
}

#[test]
fn a_checkpoint_of_the_version_before_is_refused_with_what_to_do() {
    let (_dir, store) = store();
    save_small(&store, 1);
    let newest = newest_file(&store).with_file_name("00000000000000000017.checkpoint");
    fs::copy(golden("checkpoint_v5.bin"), &newest).unwrap();
    let said = store.load().unwrap_err().to_string();
    assert!(
        said.starts_with(&newest.display().to_string())
            && said.contains("it has format version 5, this program reads version 6")
            && said.contains("run the program that wrote it, or move this node's data directory"),
        "{said}"
    );
    assert!(newest.exists(), "it is left as it is");
}

#[test]
fn a_checkpoint_is_that_of_the_golden_file() {
    let (_dir, store) = store();
    let mut pinned = parts();
    pinned.truncate(3);
    pinned.push((PartId::Rows(heads()[1].stream), vec![7; 10]));
    save(&store, 17, &pinned);
    let file = newest_file(&store);
    if std::env::var_os("UNISONO_WRITE_GOLDEN").is_some() {
        fs::copy(&file, golden("checkpoint_v6.bin")).unwrap();
    }
    let bytes = fs::read(golden("checkpoint_v6.bin")).unwrap();
    assert!(
        fs::read(&file).unwrap() == bytes,
        "the format has changed: give it a new version"
    );
    let mut reader = CheckpointReader::open(&golden("checkpoint_v6.bin")).unwrap();
    assert_eq!(reader.header().index, 17);
    assert_eq!(read_all(&mut reader), pinned);
}
