//! Loading a checkpoint: the same state, or a clear refusal.

use unisono_engine::row::Incarnation;
use unisono_engine::{CHECKPOINT_VERSION, FeedEngine, RestoreError};
use xxhash_rust::xxh3::xxh3_128;

use crate::timeline::{PIPELINE, Player, grouped, lag, plain};

fn checkpoint() -> Vec<u8> {
    let mut player = Player::new(grouped(), &["p0", "p1"]);
    player.play("p0@1:a=1.5 p0@3:b=9999999999999999999999999999 p0@3:b=1e-30 p1@x tick@5:p1");
    player.engine.checkpoint()
}

#[test]
fn a_restored_engine_is_the_same() {
    let bytes = checkpoint();
    let engine = FeedEngine::restore(&bytes, vec![(PIPELINE, grouped())]).unwrap();
    assert_eq!(engine.checkpoint(), bytes);
    assert_eq!(engine.stats(PIPELINE).unwrap().open_groups, 2);
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let bytes = checkpoint();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        for damaged in [&damaged[..], &bytes[..at]] {
            let result = FeedEngine::restore(damaged, vec![(PIPELINE, grouped())]);
            assert!(matches!(result, Err(RestoreError::Damaged { .. })), "{at}");
        }
    }
}

#[test]
fn damage_under_a_right_checksum_is_no_panic() {
    let bytes = checkpoint();
    let content = bytes.len() - 16;
    for at in 10..content {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes[..content].to_vec();
            damaged[at] = value;
            damaged.extend_from_slice(&xxh3_128(&damaged.clone()).to_be_bytes());
            if let Ok(mut engine) = FeedEngine::restore(&damaged, vec![(PIPELINE, grouped())]) {
                let _ = engine.stats(PIPELINE);
                let _ = engine.finish();
            }
        }
    }
}

#[test]
fn a_newer_version_is_refused_with_the_versions_named() {
    let bytes = checkpoint();
    let mut newer = bytes[..bytes.len() - 16].to_vec();
    newer[8..10].copy_from_slice(&(CHECKPOINT_VERSION + 1).to_be_bytes());
    newer.extend_from_slice(&xxh3_128(&newer.clone()).to_be_bytes());
    let error = FeedEngine::restore(&newer, vec![(PIPELINE, grouped())]).unwrap_err();
    let text = "the checkpoint has version 2, this program reads versions up to 1; upgrade it";
    assert_eq!(error.to_string(), text);
}

#[test]
fn other_definitions_are_refused() {
    let bytes = checkpoint();
    let other = Incarnation(8);
    for (specs, incarnation) in [
        (vec![], 7),
        (vec![(PIPELINE, lag(grouped(), 1))], 7),
        (vec![(other, grouped())], 7),
        (vec![(PIPELINE, grouped()), (other, plain())], 8),
    ] {
        let error = FeedEngine::restore(&bytes, specs).unwrap_err();
        assert_eq!(error, RestoreError::OtherSpec { incarnation });
    }
}
