//! What a record costs without its reading: from blocks in memory to rows, on one thread, in CPU seconds per million
//! events. The events and the pipeline are those on which the peers are measured: 238 bytes, 1,000 groups, 4 lanes.
//!
//! `cargo bench -p unisono-tests --bench fold`; `UNISONO_BENCH_EVENTS` (default 2,000,000) and `UNISONO_BENCH_ROUNDS`
//! (default 5) change the load. Settling (closing windows and merging panes) and writing rows are counted apart.
#![allow(clippy::unwrap_used)]

use unisono::decode::json::JsonDecoder;
use unisono::definition::{FieldPath, FieldSet, PipelineDefinition};
use unisono::source::Block;
use unisono_engine::record::Stamp;
use unisono_engine::row::Incarnation;
use unisono_engine::spec::{
    CloseSpec, Column, CompareOp, Expr, Function, GroupColumn, PipelineSpec, TimeFormat,
    TimeSource, ValueSpec, WindowSpec,
};
use unisono_engine::{FeedEngine, LaneEngine, TickEnd};
use unisono_tests::bench::{Events, Table, figure, median, setting};

const LANES: usize = 4;
/// Records of a lane in one tick: about 8 MiB.
const PER_TICK: usize = 30_000;
const COLUMNS: [&str; 3] = ["event_time", "event_type", "ad_id"];

fn main() {
    let events = setting("UNISONO_BENCH_EVENTS", 2_000_000).unwrap();
    let rounds = setting("UNISONO_BENCH_ROUNDS", 5).unwrap();
    let mut ticks = blocks(events);
    let mut table = Table::new(&[
        "window",
        "fingerprint",
        "decode and fold",
        "settle",
        "write",
        "rows",
        "µs a row",
        "fold to tumbling",
    ]);
    let windows = [
        ("10 s", 10_000, 10_000),
        ("10 s / 1 s", 10_000, 1000),
        ("60 s / 1 s", 60_000, 1000),
        ("10 s / 100 ms", 10_000, 100),
        ("10 s / 10 ms", 10_000, 10),
    ];
    let mut measured: Vec<Vec<Cost>> = vec![Vec::new(); windows.len()];
    for _ in 0..rounds {
        for (at, &(_, size, slide)) in windows.iter().enumerate() {
            measured[at].push(run(&mut ticks, spec(size, slide)));
        }
    }
    let per_million = |costs: &[Cost], of: fn(&Cost) -> u64| -> Vec<f64> {
        costs
            .iter()
            .map(|cost| of(cost) as f64 / 1e3 / events as f64)
            .collect()
    };
    let tumbling = median(&per_million(&measured[0], |cost| cost.fold));
    for (&(name, ..), costs) in windows.iter().zip(&measured) {
        let fold = per_million(costs, |cost| cost.fold);
        table.line(&[
            name.to_owned(),
            figure(&per_million(costs, |cost| cost.seal), 3),
            figure(&fold, 3),
            figure(&per_million(costs, |cost| cost.settle), 3),
            figure(&per_million(costs, |cost| cost.write), 3),
            costs[0].rows.to_string(),
            write_of_a_row(costs),
            format!("{:.2}", median(&fold) / tumbling),
        ]);
    }
    println!(
        "CPU seconds per million events, median of {rounds} rounds (least to most), {events} events"
    );
    table.print();
    expressions(&mut ticks, events, rounds);
}

/// What expressions cost beside the plain filter and the plain field that they stand for.
fn expressions(ticks: &mut [Vec<Block>], events: u64, rounds: u64) {
    let three = "event_type = 'view' and event_time > 0 and ad_id <> ''";
    let cases = [
        ("event_type = 'view'", "count()"),
        (three, "count()"),
        ("event_type = 'view'", "sum(event_time)"),
        ("event_type = 'view'", "sum(event_time * event_time)"),
        (
            "event_type = 'view'",
            "sum(event_time) where event_time > 0",
        ),
    ];
    let mut measured: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (costs, (filter, value)) in measured.iter_mut().zip(cases) {
            let cost = run(ticks, defined(filter, value));
            costs.push(cost.fold as f64 / 1e3 / events as f64);
        }
    }
    let mut table = Table::new(&["where", "value", "decode and fold"]);
    for ((filter, value), costs) in cases.iter().zip(&measured) {
        table.line(&[(*filter).to_owned(), (*value).to_owned(), figure(costs, 3)]);
    }
    table.print();
}

fn defined(filter: &str, value: &str) -> (FieldSet, PipelineSpec) {
    let text = format!(
        "name = 'views'\nsources = ['s']\ntime = {{ field = 'event_time', format = 'ms' }}\nwhere = \"{filter}\"\n\
         group_by = ['ad_id']\nwindow = {{ size = '10s' }}\nclose = {{ lag = '500ms' }}\nvalues = {{ v = \"{value}\" }}"
    );
    let defined = PipelineDefinition::parse("views.toml", &text).unwrap();
    (defined.fields, defined.spec)
}

/// Microseconds that merging and writing a row take: of a window of many panes it must not take more than of one of few.
fn write_of_a_row(costs: &[Cost]) -> String {
    let with_rows = costs.iter().filter(|cost| cost.rows > 0);
    let of = |cost: &Cost| cost.write as f64 / 1e3 / cost.rows as f64;
    let costs: Vec<f64> = with_rows.map(of).collect();
    match costs.is_empty() {
        true => "no row".to_owned(),
        false => format!("{:.2}", median(&costs)),
    }
}

/// Nanoseconds of CPU.
#[derive(Clone, Copy, Default)]
struct Cost {
    seal: u64,
    fold: u64,
    settle: u64,
    write: u64,
    rows: u64,
}

/// CPU time of this thread in nanoseconds.
fn cpu() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// For each tick a block of each lane.
fn blocks(events: u64) -> Vec<Vec<Block>> {
    let mut source = Events::default();
    let mut ticks = Vec::new();
    let mut left = events;
    let mut offset = 0;
    while left > 0 {
        let mut lanes: Vec<Block> = (0..LANES).map(|_| Block::default()).collect();
        let count = left.min((PER_TICK * LANES) as u64);
        for at in 0..count {
            let lane = &mut lanes[at as usize % LANES];
            lane.push(
                offset,
                offset + 1,
                Stamp::None,
                Some(source.next_event().as_bytes()),
            );
            offset += 1;
        }
        left -= count;
        ticks.push(lanes);
    }
    ticks
}

fn spec(size: i64, slide: i64) -> (FieldSet, PipelineSpec) {
    let mut fields = FieldSet::new();
    for name in COLUMNS {
        fields.insert(FieldPath::parse(name).unwrap());
    }
    let spec = PipelineSpec {
        name: "views".into(),
        time: TimeSource::Field {
            column: Column(0),
            format: TimeFormat::Millis,
            zone: None,
        },
        filter: Some(Expr::Compare {
            left: Box::new(Expr::Column(Column(1))),
            op: CompareOp::Eq,
            right: Box::new(Expr::Text("view".into())),
        }),
        group_by: vec![GroupColumn {
            name: "ad_id".into(),
            column: Column(2),
        }],
        window: WindowSpec::new(size, slide, 0).unwrap(),
        close: CloseSpec {
            lag_ms: 500,
            ..CloseSpec::default()
        },
        values: vec![ValueSpec {
            name: "n".into(),
            function: Function::CountAll,
        }],
        max_future_ms: None,
        derived: Vec::new(),
        having: None,
        late: unisono_engine::spec::LateSpec::Drop,
        group_bytes: 1024,
        dedup: None,
    };
    (fields, spec)
}

fn run(ticks: &mut [Vec<Block>], (fields, spec): (FieldSet, PipelineSpec)) -> Cost {
    let mut feed = FeedEngine::new();
    feed.add_pipeline(Incarnation(1), spec, &mut []);
    let mut lanes: Vec<LaneEngine> = (0..LANES)
        .map(|at| feed.add_lane(format!("events/{at}")).1)
        .collect();
    let decoder = |_| JsonDecoder::new(&fields);
    let mut decoders: Vec<JsonDecoder> = (0..LANES).map(decoder).collect();
    let mut cost = Cost::default();
    let mut fingerprints = [0; LANES];
    for blocks in ticks {
        let began = cpu();
        for (block, fingerprint) in blocks.iter_mut().zip(&mut fingerprints) {
            *fingerprint = block.seal(*fingerprint);
        }
        let sealed = cpu();
        for (at, block) in blocks.iter().enumerate() {
            lanes[at].begin(None);
            for raw in block.records() {
                lanes[at].absorb(&decoders[at].decode(raw.offset, None, raw.payload));
            }
        }
        let folded = cpu();
        let end = TickEnd {
            agreed: None,
            at_end: &[],
        };
        let settled = feed.settle(&mut lanes.iter_mut().collect::<Vec<_>>(), end);
        let settled_at = cpu();
        feed.write(settled, &mut |_, row| {
            cost.rows += u64::from(!row.json.is_empty())
        })
        .unwrap();
        cost.write += cpu() - settled_at;
        cost.settle += settled_at - folded;
        cost.fold += folded - sealed;
        cost.seal += sealed - began;
    }
    let counted = feed.stats(Incarnation(1)).unwrap();
    assert!(counted.counted > 0 && counted.dead_letters.total() == 0);
    cost
}
