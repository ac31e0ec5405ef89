//! A feed that was begun later and has caught up becomes part of another: its pipelines' rows and the
//! other's are those of two feeds apart.

use unisono_engine::JoinError;
use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::row::{Incarnation, Row, StreamKind};
use unisono_engine::spec::{Column, Expr, Function, LaneId, PipelineSpec, TimeSource};

use crate::harness::{Batch, Engine, Parts, StreamOutput};
use crate::properties::{Case, Random, case};
use crate::timeline::{GROUP, PIPELINE, TIME, VALUE, plain, window};

const LATER: Incarnation = Incarnation(40);

/// Where a feed decodes time, group and value.
type Layout = [Column; 3];

const OURS: Layout = [TIME, GROUP, VALUE];
const OTHER: Layout = [VALUE, TIME, GROUP];

/// The definition with its columns at another layout's places.
fn laid_out(mut spec: PipelineSpec, [time, group, value]: Layout) -> PipelineSpec {
    if let TimeSource::Field { column, .. } = &mut spec.time {
        *column = time;
    }
    for of in &mut spec.group_by {
        of.column = group;
    }
    for of in &mut spec.values {
        if let Function::Sum(column) = &mut of.function {
            *column = value;
        }
    }
    if let Some(Expr::Compare { left, .. }) = &mut spec.filter {
        **left = Expr::Column(value);
    }
    spec
}

fn batches(case: &Case, [time, group, value]: Layout) -> Vec<Batch> {
    let batch = |lane: &Vec<_>| {
        let mut batch = Batch::default();
        for (offset, event) in lane.iter().enumerate() {
            let event: &crate::properties::Event = event;
            batch.push(offset as i64, RecordState::Decoded, b"{}");
            batch.set_number(time, Decimal::from_i64(event.second));
            batch.set_text(group, &format!("g{}", event.group));
            batch.set_number(value, Decimal::from_i64(event.value));
        }
        batch
    };
    case.lanes.iter().map(batch).collect()
}

/// A feed, which of its lanes is which of the case's, and what has come out of it.
struct Feed {
    engine: Engine,
    batches: Vec<Batch>,
    order: Vec<usize>,
    taken: Vec<usize>,
    outputs: Vec<StreamOutput>,
}

impl Feed {
    fn new(case: &Case, layout: Layout, order: Vec<usize>) -> Self {
        let mut engine = Engine::default();
        for lane in &order {
            engine.add_lane(format!("l/{lane}"));
        }
        Self {
            engine,
            batches: batches(case, layout),
            taken: vec![0; order.len()],
            order,
            outputs: Vec::new(),
        }
    }

    /// A tick that takes in each of the case's lanes up to a cut.
    fn tick(&mut self, cuts: &[usize]) {
        self.engine.begin(None);
        for (id, &lane) in (0..).zip(&self.order) {
            let range = self.taken[lane]..cuts[lane];
            self.engine.absorb(LaneId(id), &self.batches[lane], range);
            self.taken[lane] = cuts[lane];
        }
        self.outputs.extend(self.engine.close(&[]));
    }

    fn finish(&mut self) {
        self.outputs.extend(self.engine.finish());
    }

    fn of(&self, incarnation: Incarnation, kind: StreamKind) -> Vec<Row> {
        let outputs = self.outputs.iter();
        outputs
            .filter(|output| output.stream.incarnation == incarnation && output.stream.kind == kind)
            .flat_map(|output| output.rows.clone())
            .collect()
    }

    /// The dead letters without their numbers: within a tick those follow the order of lanes.
    fn letters(&self, incarnation: Incarnation) -> Vec<String> {
        let letters = self.of(incarnation, StreamKind::DeadLetters).into_iter();
        let mut letters: Vec<String> = letters
            .map(|letter| {
                let json = String::from_utf8(letter.json).unwrap();
                json.replacen(&format!("\"seq\":{}", letter.seq.0), "", 1)
            })
            .collect();
        letters.sort();
        letters
    }
}

/// The next cuts, at most `most` records further on each lane.
fn further(case: &Case, cuts: &[usize], random: &mut Random, most: u64) -> Vec<usize> {
    let lanes = case.lanes.iter().zip(cuts);
    lanes
        .map(|(lane, cut)| (cut + random.below(most + 1) as usize).min(lane.len()))
        .collect()
}

/// A case and the definition of a pipeline that is added later.
fn with_a_later_one(seed: u64) -> (Case, PipelineSpec) {
    let mut case = case(seed);
    case.spec.close.idle_ms = None;
    let mut later = crate::properties::case(seed + 5000).spec;
    later.name = "later".into();
    later.close.idle_ms = None;
    (case, later)
}

/// The elder feed and the younger one, which has caught up with it in ticks of its own.
fn caught_up(seed: u64, case: &Case, later: &PipelineSpec, random: &mut Random) -> (Feed, Feed) {
    let lanes = case.lanes.len();
    let mut elder = Feed::new(case, OTHER, (0..lanes).collect());
    let spec = laid_out(case.spec.clone(), OTHER);
    elder.engine.add_pipeline(PIPELINE, spec);
    let mut younger = Feed::new(case, OURS, (0..lanes).rev().collect());
    younger.engine.add_pipeline(LATER, later.clone());
    let mut cuts = vec![0; lanes];
    for _ in 0..seed % 30 {
        cuts = further(case, &cuts, random, 6);
        elder.tick(&cuts);
    }
    for _ in 0..3 {
        let near = further(case, &younger.taken, random, 50);
        let near: Vec<usize> = near.iter().zip(&cuts).map(|(&a, &b)| a.min(b)).collect();
        younger.tick(&near);
    }
    younger.tick(&cuts);
    (elder, younger)
}

fn specs(case: &Case, later: &PipelineSpec) -> Vec<(Incarnation, PipelineSpec)> {
    let spec = laid_out(case.spec.clone(), OURS);
    vec![(LATER, later.clone()), (PIPELINE, spec)]
}

/// Plays the rest of the case, in the same ticks for all feeds.
fn play_on(case: &Case, feeds: &mut [&mut Feed], mut random: Random) {
    let mut cuts = feeds[0].taken.clone();
    while cuts
        .iter()
        .zip(&case.lanes)
        .any(|(&cut, lane)| cut < lane.len())
    {
        cuts = further(case, &cuts, &mut random, 9);
        feeds.iter_mut().for_each(|feed| feed.tick(&cuts));
    }
    feeds.iter_mut().for_each(|feed| feed.finish());
}

/// Joins the younger feed to the elder one.
fn joined(elder: Feed, younger: Feed, case: &Case, later: &PipelineSpec) -> Feed {
    let engine = elder.engine.join(younger.engine, specs(case, later));
    let outputs = [elder.outputs, younger.outputs].concat();
    Feed {
        engine: engine.unwrap(),
        batches: batches(case, OURS),
        outputs,
        order: elder.order,
        taken: elder.taken,
    }
}

#[test]
fn joined_feeds_give_the_rows_that_they_give_apart() {
    let (mut rows, mut letters) = (0, 0);
    for seed in 0..150 {
        let (case, later) = with_a_later_one(seed);
        let start = || caught_up(seed, &case, &later, &mut Random(seed + 1));
        let (mut elder, mut younger) = start();
        play_on(&case, &mut [&mut elder, &mut younger], Random(seed + 2));
        let (stays, comes) = start();
        let mut joint = joined(stays, comes, &case, &later);
        play_on(&case, &mut [&mut joint], Random(seed + 2));
        for (apart, incarnation) in [(&elder, PIPELINE), (&younger, LATER)] {
            let expected = apart.of(incarnation, StreamKind::Rows);
            assert_eq!(joint.of(incarnation, StreamKind::Rows), expected, "{seed}");
            let lost = apart.letters(incarnation);
            assert_eq!(joint.letters(incarnation), lost, "{seed}");
            let stats = |feed: &Feed| feed.engine.stats(incarnation).unwrap();
            let (ours, theirs) = (stats(&joint), stats(apart));
            assert_eq!(ours.row_digest, theirs.row_digest, "{seed}");
            assert_eq!(ours.counted, theirs.counted, "{seed}");
            rows += expected.len();
            letters += lost.len();
        }
    }
    assert!(
        rows > 1000 && letters > 1000,
        "{rows} rows, {letters} letters"
    );
}

#[test]
fn a_restart_after_the_join_changes_nothing() {
    for seed in 0..30 {
        let (case, later) = with_a_later_one(seed);
        let play = |restores: bool| -> (Vec<StreamOutput>, Parts) {
            let (elder, younger) = caught_up(seed, &case, &later, &mut Random(seed + 1));
            let mut joint = joined(elder, younger, &case, &later);
            if restores {
                let parts = joint.engine.checkpoint();
                joint.engine = Engine::restore(&parts, specs(&case, &later)).unwrap();
            }
            play_on(&case, &mut [&mut joint], Random(seed + 2));
            (joint.outputs, joint.engine.checkpoint())
        };
        assert_eq!(play(true), play(false), "seed {seed}");
    }
}

#[test]
fn feeds_of_other_lanes_and_pipelines_without_a_definition_are_refused() {
    let feed = |lanes: &[&str], incarnation| {
        let mut engine = Engine::default();
        for lane in lanes {
            engine.add_lane((*lane).to_owned());
        }
        engine.add_pipeline(incarnation, plain());
        engine
    };
    let both = || vec![(PIPELINE, plain()), (LATER, plain())];
    for (own, other) in [
        (&["a"][..], &["b"][..]),
        (&["a"], &["a", "b"]),
        (&["a", "b"], &["a"]),
    ] {
        let refused = feed(own, PIPELINE).join(feed(other, LATER), both());
        assert!(matches!(refused, Err(JoinError::Lane { .. })));
    }
    let mut changed = both();
    changed[1].1.window = window(60, 60);
    changed[1].1.values.pop();
    let mut unknown = both();
    unknown.push((Incarnation(41), plain()));
    for specs in [both()[..1].to_vec(), unknown, changed] {
        let refused = feed(&["a"], PIPELINE).join(feed(&["a"], LATER), specs);
        assert!(matches!(refused, Err(JoinError::State(_))));
    }
}

#[test]
fn a_pipeline_that_is_removed_leaves_the_other_as_if_it_had_never_been_there() {
    let mut rows = 0;
    for seed in 0..100 {
        let (case, later) = with_a_later_one(seed);
        let start = || caught_up(seed, &case, &later, &mut Random(seed + 1));
        let (mut elder, younger) = start();
        play_on(&case, &mut [&mut elder], Random(seed + 2));
        let (stays, comes) = start();
        let mut joint = joined(stays, comes, &case, &later);
        // In the midst, with windows open; those that stay are decoded in another way from then on.
        let cuts = further(&case, &joint.taken, &mut Random(seed + 2), 9);
        joint.tick(&cuts);
        let spec = laid_out(case.spec.clone(), OTHER);
        let rest = joint.engine.without(LATER, vec![(PIPELINE, spec)]);
        let mut rest = Feed {
            engine: rest.unwrap(),
            batches: batches(&case, OTHER),
            ..joint
        };
        let mut random = Random(seed + 2);
        further(&case, &younger.taken, &mut random, 9);
        play_on(&case, &mut [&mut rest], random);
        let expected = elder.of(PIPELINE, StreamKind::Rows);
        assert_eq!(rest.of(PIPELINE, StreamKind::Rows), expected, "{seed}");
        assert_eq!(rest.engine.stats(LATER), None);
        let alone = elder.engine.checkpoint();
        assert_eq!(
            rest.engine.checkpoint(),
            alone,
            "{seed}: nothing of it is left"
        );
        rows += expected.len();
    }
    assert!(rows > 1000, "{rows} rows");
}

#[test]
fn a_feed_that_began_after_a_lane_was_retired_lacks_it_and_joins() {
    let mut batch = Batch::default();
    for second in [1, 5] {
        batch.push(second, RecordState::Decoded, b"{}");
        batch.set_number(TIME, Decimal::from_i64(second));
    }
    let mut stays = Engine::default();
    let gone = stays.add_lane("a".to_owned());
    stays.add_pipeline(PIPELINE, plain());
    stays.begin(None);
    stays.absorb(gone, &batch, 0..1);
    stays.close(&[]);
    stays.retire_lane(gone);
    // The name is used again.
    stays.add_lane("a".to_owned());
    let mut comes = Engine::default();
    comes.add_lane("a".to_owned());
    comes.add_pipeline(LATER, plain());
    let both = vec![(PIPELINE, plain()), (LATER, plain())];
    let mut joint = stays.join(comes, both).unwrap();
    joint.begin(None);
    joint.absorb(LaneId(1), &batch, 1..2);
    joint.close(&[]);
    let counted = |of: &Engine, incarnation| of.stats(incarnation).unwrap().counted;
    joint.finish();
    assert_eq!(counted(&joint, PIPELINE), 2);
    assert_eq!(counted(&joint, LATER), 1);
}
