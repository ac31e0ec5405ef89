//! Each kind of value, against what is worked out from the plain list of events.

use std::collections::{BTreeMap, BTreeSet};

use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::spec::{Function, PipelineSpec, Spread};

use crate::harness::Batch;
use crate::properties::{Case, Event, Random, case, counted, rows_split};
use crate::timeline::{GROUP, PIPELINE, Player, VALUE, check, plain, value, window};

fn number(text: &str) -> Decimal {
    Decimal::parse(text.as_bytes()).unwrap()
}

fn one(name: &str, function: Function) -> PipelineSpec {
    PipelineSpec {
        values: vec![value(name, function)],
        ..plain()
    }
}

#[test]
fn the_least_and_the_largest_text_count_where_there_is_no_number() {
    let both = PipelineSpec {
        values: vec![
            value("min", Function::Min(VALUE)),
            value("max", Function::Max(VALUE)),
        ],
        ..plain()
    };
    let texts = "p0@1=2026-01-02T00:00 p1@2=2025-12-31T23:59 p0@3=2026-01-01T00:00 tick finish";
    let expected = "[0,10) min=2025-12-31T23=59 max=2026-01-02T00=00";
    check(both.clone(), texts, expected);
    let mixed = "p0@1=a p1@2=7 p0@3=NaN p1@4=true p0@5=-2 tick finish";
    check(both.clone(), mixed, "[0,10) min=-2 max=7");
    let mut player = Player::new(both, &["p0"]);
    player.play("p0@1=a p0@2=7 p0@3=true p0@4=bad tick");
    // A text is none; a boolean has no place in the order.
    assert_eq!(player.engine.stats(PIPELINE).unwrap().bad_fields, 2);
}

#[test]
fn first_and_last_go_by_event_time_over_lanes() {
    let timeline = "p0@5=five p1@1=one p0@3=3 p1@1=two p0@9=z p1@9=y tick finish";
    check(one("v", Function::First(VALUE)), timeline, "[0,10) v=one");
    check(one("v", Function::Last(VALUE)), timeline, "[0,10) v=y");
}

#[test]
fn a_counter_grows_through_resets_over_panes_and_lanes() {
    let timeline = "p0@1=100 p1@3=110 p0@9=130 p1@12=5 p0@14=20 tick finish";
    let rate = PipelineSpec {
        window: window(20, 10),
        ..one("r", Function::Rate(VALUE))
    };
    // 100, 110, 130; in the second window 5 and 20 after them: a reset.
    let expected = "[-10,10) r=1.5; [0,20) r=2.5; [10,30) r=0.75";
    check(rate, timeline, expected);
    let grown = one("i", Function::Increase(VALUE));
    check(grown, timeline, "[0,10) i=30; [10,20) i=15");
}

#[test]
fn numbers_that_were_rounded_are_counted_once_a_field() {
    let sums = PipelineSpec {
        values: vec![
            value("sum", Function::Sum(VALUE)),
            value("min", Function::Min(VALUE)),
        ],
        ..plain()
    };
    let mut player = Player::new(sums, &["p0"]);
    let mut batch = Batch::default();
    for rounded in [VALUE, GROUP] {
        batch.push(0, RecordState::Decoded, b"{}");
        batch.set_number(crate::timeline::TIME, Decimal::from_i64(1));
        batch.last().set_rounded(rounded, number("1e-30"));
    }
    let lane = unisono_engine::spec::LaneId(0);
    player.engine.begin(None);
    player.engine.absorb(lane, &batch, 0..2);
    player.engine.close(&[]);
    // The group's field is used by nothing.
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!((stats.rounded_fields, stats.bad_fields), (1, 0));
}

/// All kinds over the integers of the cases.
fn all_kinds(seed: u64) -> Case {
    let mut case = case(seed);
    case.spec.values = vec![
        value("dev", Function::Spread(VALUE, Spread::Deviation)),
        value("var", Function::Spread(VALUE, Spread::PopulationVariance)),
        value("least", Function::Quantile(VALUE, Decimal::ZERO)),
        value(
            "some",
            Function::Quantiles(VALUE, vec![number("0.3"), number("0.9")]),
        ),
        value("users", Function::Distinct(VALUE)),
        value("top", Function::Top(VALUE, 2)),
        value(
            "by",
            Function::Histogram(VALUE, vec![number("0"), number("2.5")]),
        ),
        value("first", Function::First(VALUE)),
        value("last", Function::Last(VALUE)),
        value("grown", Function::Increase(VALUE)),
        value("rate", Function::Rate(VALUE)),
    ];
    case
}

#[test]
fn ticks_interleaving_and_restarts_decide_no_value() {
    for seed in 0..40 {
        let case = all_kinds(seed);
        let mut random = Random(seed + 5000);
        let whole = rows_split(&case, &mut random, 1_000_000);
        for most in [1, 20] {
            let split = rows_split(&case, &mut random, most);
            assert_eq!(split, whole, "seed {seed}, most {most}");
        }
    }
}

/// What a row must hold, but for what is not exact.
fn exact(events: &[Event], size_ms: i64) -> String {
    let values: Vec<i64> = events.iter().map(|event| event.value).collect();
    let distinct: BTreeSet<i64> = values.iter().copied().collect();
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    values
        .iter()
        .for_each(|value| *counts.entry(*value).or_default() += 1);
    let mut top: Vec<(i64, i64)> = counts.into_iter().map(|(value, n)| (-n, value)).collect();
    top.sort_unstable();
    let top: Vec<String> = top
        .iter()
        .take(2)
        .map(|(n, value)| format!("{{\"value\":{value},\"count\":{}}}", -n))
        .collect();
    let within = |low: f64, high: f64| {
        let is_within = |value: &&i64| low < **value as f64 && **value as f64 <= high;
        values.iter().filter(is_within).count()
    };
    let by = format!(
        "[{{\"le\":0,\"count\":{}}},{{\"le\":2.5,\"count\":{}}},{{\"le\":null,\"count\":{}}}]",
        within(f64::MIN, 0.0),
        within(0.0, 2.5),
        within(2.5, f64::MAX)
    );
    let first = events.iter().map(|event| (event.second, event.value)).min();
    let last = events
        .iter()
        .map(|event| (-event.second, event.value))
        .min();
    let mut samples: BTreeMap<i64, i64> = BTreeMap::new();
    for event in events {
        let sample = samples.entry(event.second).or_insert(event.value);
        *sample = (*sample).max(event.value);
    }
    let samples: Vec<i64> = samples.into_values().collect();
    let steps = samples.windows(2);
    let grown: i64 = steps
        .map(|pair| {
            if pair[1] >= pair[0] {
                pair[1] - pair[0]
            } else {
                pair[1]
            }
        })
        .sum();
    let (grown, rate) = if samples.len() < 2 {
        ("null".to_owned(), "null".to_owned())
    } else {
        // A quotient with few digits, or twenty of them.
        (grown.to_string(), quotient(grown, size_ms / 1000))
    };
    format!(
        "\"users\":{},\"top\":[{}],\"by\":{by},\"first\":{},\"last\":{},\"grown\":{grown},\"rate\":{rate}",
        distinct.len(),
        top.join(","),
        first.unwrap().1,
        last.unwrap().1
    )
}

/// Twenty digits of a quotient, by long division.
fn quotient(number: i64, by: i64) -> String {
    let (sign, number) = if number < 0 {
        ("-", -number)
    } else {
        ("", number)
    };
    let mut digits = (number / by).to_string();
    let whole = digits.len();
    let mut rest = number % by;
    let mut significant = if number / by == 0 { 0 } else { whole };
    while rest > 0 && significant < 21 {
        rest *= 10;
        digits.push(char::from(b'0' + u8::try_from(rest / by).unwrap()));
        if significant > 0 || rest / by > 0 {
            significant += 1;
        }
        rest %= by;
    }
    if significant == 21 {
        // All that do not end are periodic: never a tie.
        let up = digits.pop().unwrap() >= '5';
        let nines = digits.len() - digits.trim_end_matches('9').len();
        if up && nines > 0 {
            digits.truncate(digits.len() - nines);
        }
        let last = digits.pop().unwrap();
        digits.push(char::from(last as u8 + u8::from(up)));
    }
    let (whole, fraction) = digits.split_at(whole);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{dot}{fraction}")
}

/// Variances by floats, which small integers allow; quantiles by sorting.
fn check_inexact(json: &serde_json::Value, events: &[Event]) {
    let mut values: Vec<f64> = events.iter().map(|event| event.value as f64).collect();
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let distances: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let near = |name: &str, expected: f64| {
        let found = json[name].as_f64().unwrap();
        assert!(
            (found - expected).abs() < 1e-12,
            "{name}: {found} {expected}"
        );
    };
    near("var", distances / n);
    if values.len() > 1 {
        near("dev", (distances / (n - 1.0)).sqrt());
    } else {
        assert!(json["dev"].is_null());
    }
    assert_eq!(json["least"].as_f64().unwrap(), values[0]);
    for (at, tenths) in [3, 9].into_iter().enumerate() {
        let rank = (values.len() * tenths).div_ceil(10).max(1);
        let (found, expected) = (json["some"][at].as_f64().unwrap(), values[rank - 1]);
        assert!(
            (found - expected).abs() <= expected.abs() * 0.01,
            "{found} {expected}"
        );
    }
}

#[test]
fn values_are_those_of_the_plain_list() {
    for seed in 0..60 {
        let case = all_kinds(seed);
        let rows = rows_split(&case, &mut Random(seed + 1), 7);
        let windows = counted(&case);
        let mut found = 0;
        for row in &rows {
            let json = std::str::from_utf8(&row.json).unwrap();
            let parsed: serde_json::Value = serde_json::from_str(json).unwrap();
            let group = parsed["group"]["g"].as_str().unwrap_or("g0");
            let group = group[1..].parse().unwrap();
            let Some(events) = windows.get(&(row.end.0, group)) else {
                assert_eq!(parsed["values"]["users"], 0, "an empty window");
                continue;
            };
            found += 1;
            let exact = exact(events, row.end.0 - row.start.0);
            assert!(json.contains(&exact), "seed {seed}:\n{json}\n{exact}");
            check_inexact(&parsed["values"], events);
        }
        assert_eq!(found, windows.len(), "seed {seed}");
    }
}
