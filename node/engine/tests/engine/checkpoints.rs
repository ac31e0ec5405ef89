//! Loading a checkpoint: the same state, or a clear refusal.

use unisono_engine::row::Incarnation;
use unisono_engine::spec::PipelineSpec;
use unisono_engine::{PART_VERSION, RestoreError};
use xxhash_rust::xxh3::xxh3_128;

use unisono_engine::decimal::Decimal;
use unisono_engine::spec::{Function, GroupColumn, Spread};

use crate::golden;
use crate::harness::{Engine, Parts};
use crate::timeline::{GROUP, PIPELINE, Player, TIME, VALUE, grouped, plain, value, window};

fn checkpoint() -> Parts {
    let mut player = Player::new(grouped(), &["p0", "p1"]);
    player.play("p0@1:a=1.5 p0@3:b=9999999999999999999999999999 p0@3:b=1e-30 p1@x tick@5:p1");
    player.engine.checkpoint()
}

fn restore(parts: &Parts) -> Result<Engine, RestoreError> {
    Engine::restore(parts, vec![(PIPELINE, grouped())])
}

/// The parts with each part changed in turn.
fn changed(parts: &Parts, change: impl Fn(&[u8]) -> Vec<u8>) -> impl Iterator<Item = Parts> {
    (0..parts.len()).map(move |part| {
        let mut parts = parts.clone();
        parts[part] = change(&parts[part]);
        parts
    })
}

fn with_checksum(content: &[u8]) -> Vec<u8> {
    [content, &xxh3_128(content).to_be_bytes()].concat()
}

#[test]
fn a_restored_engine_is_the_same() {
    let parts = checkpoint();
    let mut engine = restore(&parts).unwrap();
    assert_eq!(engine.checkpoint(), parts);
    assert_eq!(engine.stats(PIPELINE).unwrap().open_groups, 2);
    assert_eq!(engine.stats(PIPELINE).unwrap().open_windows, 1);
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let parts = checkpoint();
    let longest = parts.iter().map(Vec::len).max().unwrap();
    for at in 0..longest {
        let flip = |part: &[u8]| {
            let mut damaged = part.to_vec();
            let at = at % damaged.len();
            damaged[at] ^= 1 << (at % 8);
            damaged
        };
        let cut = |part: &[u8]| part[..at % part.len()].to_vec();
        for damaged in changed(&parts, flip).chain(changed(&parts, cut)) {
            let result = restore(&damaged).map(drop);
            assert!(matches!(result, Err(RestoreError::Damaged { .. })), "{at}");
        }
    }
}

#[test]
fn damage_under_a_right_checksum_is_no_panic() {
    let parts = checkpoint();
    for part in 0..parts.len() {
        let content = parts[part].len() - 16;
        for at in 10..content {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = parts.clone();
                damaged[part][at] = value;
                damaged[part] = with_checksum(&damaged[part][..content]);
                if let Ok(mut engine) = restore(&damaged) {
                    let _ = engine.stats(PIPELINE);
                    let _ = engine.finish();
                }
            }
        }
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let parts = checkpoint();
    let swapped = vec![parts[0].clone(), parts[2].clone(), parts[1].clone()];
    let twice = vec![parts[0].clone(), parts[0].clone(), parts[2].clone()];
    for wrong in [swapped, twice] {
        let result = restore(&wrong).map(drop);
        assert!(matches!(result, Err(RestoreError::Damaged { .. })));
    }
}

#[test]
fn another_version_is_refused_with_the_versions_named() {
    for version in [PART_VERSION - 1, PART_VERSION + 1] {
        let other = |part: &[u8]| {
            let mut content = part[..part.len() - 16].to_vec();
            content[8..10].copy_from_slice(&version.to_be_bytes());
            with_checksum(&content)
        };
        for parts in changed(&checkpoint(), other) {
            let error = restore(&parts).map(drop).unwrap_err();
            let text = format!(
                "the checkpoint has engine format {version}, this program reads {PART_VERSION}:"
            );
            assert!(error.to_string().starts_with(&text), "{error}");
        }
    }
}

#[test]
fn other_definitions_are_refused() {
    let parts = checkpoint();
    let other = Incarnation(8);
    let fewer_values = PipelineSpec {
        values: vec![grouped().values.remove(0)],
        ..grouped()
    };
    for (specs, incarnation) in [
        (vec![], 7),
        (vec![(PIPELINE, plain())], 7),
        (vec![(PIPELINE, fewer_values)], 7),
        (vec![(other, grouped())], 7),
        (vec![(PIPELINE, grouped()), (other, plain())], 8),
    ] {
        let error = Engine::restore(&parts, specs).map(drop).unwrap_err();
        let found =
            matches!(error, RestoreError::OtherSpec { incarnation: found } if found == incarnation);
        assert!(found, "{error}");
    }
}

/// Two fields in the group, overlapping windows, and values of every kind.
fn every_kind() -> PipelineSpec {
    let time = GroupColumn {
        name: "t".into(),
        column: TIME,
    };
    PipelineSpec {
        group_by: [grouped().group_by, vec![time]].concat(),
        window: window(20, 10),
        values: vec![
            value("all", Function::CountAll),
            value("some", Function::Count(GROUP)),
            value("sum", Function::Sum(VALUE)),
            value("avg", Function::Avg(VALUE)),
            value("min", Function::Min(VALUE)),
            value("max", Function::Max(VALUE)),
            value("dev", Function::Spread(VALUE, Spread::Deviation)),
            value(
                "half",
                Function::Quantile(VALUE, Decimal::from_parts(5, 1).unwrap()),
            ),
            value("users", Function::Distinct(VALUE)),
            value("top", Function::Top(VALUE, 3)),
            value(
                "by",
                Function::Histogram(VALUE, vec![Decimal::ZERO, Decimal::from_i64(4)]),
            ),
            value("first", Function::First(VALUE)),
            value("last", Function::Last(VALUE)),
            value("grown", Function::Increase(VALUE)),
            value("rate", Function::Rate(VALUE)),
        ],
        ..plain()
    }
}

#[test]
fn parts_are_read_from_and_written_to_the_golden_bytes() {
    let mut player = Player::new(every_kind(), &["p0", "p1"]);
    // A window closes; then groups of every kind, sums of 128 and of 256 bits, late records and such
    // that cannot be used.
    player.play("p0@1:a=1 p1@2:a=2 p0@12:a=1.5 p1@13:a=-2 tick@15:p1 p0!not_json p1!null_payload");
    player.play("p0@3:a=1 p0@x p0@14:null=null p0@14:true=1 p0@14:false=bad p0@14:bad=7 p0@14=8");
    player.play("p1@15:0=0.1 p1@15:-12.50=3 p1@15:123456789012345678=-1e-30 p1@15:-0.001=4");
    player.play(
        "p1@15:\u{e4}\0b=5 p0@15:w=9999999999999999999999999999 p0@15:w=1e-30 tick@16:p0 -p1",
    );
    assert!(player.results().contains("[-10,10)"));
    let parts = player.engine.checkpoint();
    let names = ["engine-feed-part", "engine-lane-part", "engine-lane-part-2"];
    let golden = names.iter().zip(&parts);
    let golden: Parts = golden
        .map(|(name, part)| golden::bytes(name, part))
        .collect();
    let mut engine = Engine::restore(&golden, vec![(PIPELINE, every_kind())]).unwrap();
    assert_eq!(engine.checkpoint(), parts);
}
