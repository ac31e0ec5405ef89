//! The time to decode an event of 238 bytes into cells: by remembered shapes, by the walk alone, and by `serde_json` into
//! a struct that borrows what it can. `cargo bench -p unisono-tests --bench decode`.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use serde_json::value::RawValue;
use unisono::decode::json::JsonDecoder;
use unisono::definition::{FieldPath, FieldSet};
use unisono_engine::record::RecordState;
use unisono_engine::record::{Cell, Record};
use unisono_engine::spec::Column;

const EVENTS: usize = 5_000;
const ROUNDS: usize = 300;

/// Events of one kind, and the fields that are read.
struct Load {
    name: &'static str,
    fields: &'static [&'static str],
    events: Vec<Vec<u8>>,
}

fn main() {
    for load in [advertising(), orders(), optional(), strangers()] {
        let bytes: usize = load.events.iter().map(Vec::len).sum();
        let columns = load.fields.len();
        println!(
            "{}: {} bytes an event, {columns} fields read; ns an event, the least of {ROUNDS} rounds",
            load.name,
            bytes / EVENTS
        );
        let mut fields = FieldSet::new();
        for name in load.fields {
            fields.insert(FieldPath::parse(name).unwrap());
        }
        let mut by_shape = JsonDecoder::new(&fields);
        let mut walk = JsonDecoder::without_memory(&fields);
        report("by shape", &load, |event| {
            read(&by_shape.decode(0, None, Some(event)), columns)
        });
        report("walk alone", &load, |event| {
            read(&walk.decode(0, None, Some(event)), columns)
        });
        report("serde_json, RawValue", &load, |event| {
            serde_json::from_slice::<&RawValue>(event)
                .unwrap()
                .get()
                .len()
        });
    }
}

/// Looks at all cells, as whoever folds the record would.
fn read(record: &Record<'_>, columns: usize) -> usize {
    assert_eq!(record.state, RecordState::Decoded);
    (0..columns)
        .map(|column| match record.cell(Column(column)) {
            Cell::Text(text) => text.len(),
            Cell::Number(number) => number.scale() as usize,
            _ => 1,
        })
        .sum()
}

/// The least time of many short rounds: what else runs on the machine only adds to it.
fn report(name: &str, load: &Load, mut decode: impl FnMut(&[u8]) -> usize) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for event in &load.events {
                black_box(decode(black_box(event)));
            }
            start.elapsed().as_secs_f64() * 1e9 / EVENTS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "  {name:<20} {:6.1} (median {:.1})",
        times[0],
        times[ROUNDS / 2]
    );
}

/// A number for `index` that looks random.
fn mixed(index: usize, salt: u64) -> u64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

fn uuid(a: u64, b: u64) -> String {
    let (a, b) = (format!("{a:016x}"), format!("{b:016x}"));
    format!(
        "{}-{}-{}-{}-{}",
        &a[..8],
        &a[8..12],
        &a[12..],
        &b[..4],
        &b[4..]
    )
}

/// Seven fields, most of them texts: an event of the Yahoo streaming benchmark.
fn advertising() -> Load {
    let event = |index| {
        let drawn = usize::try_from(mixed(index, 1) >> 32).unwrap();
        format!(
            r#"{{"user_id":"{}","page_id":"{}","ad_id":"{}","ad_type":"{}","event_type":"{}","event_time":{},"ip_address":"1.2.3.4"}}"#,
            uuid(mixed(index, 2), mixed(index, 3)),
            uuid(mixed(index, 4), mixed(index, 5)),
            uuid(mixed(index % 1_000, 6), 6),
            ["banner", "modal", "sponsored-search", "mail", "mobile"][drawn % 5],
            ["view", "click", "purchase"][drawn % 3],
            1_700_000_000_000 + index / 50,
        )
        .into_bytes()
    };
    Load {
        name: "advertising",
        fields: &["ad_id", "event_type", "event_time"],
        events: (0..EVENTS).map(event).collect(),
    }
}

/// The event of the benchmark `throughput`.
fn orders() -> Load {
    let event = |index: usize| {
        let status = if index.is_multiple_of(3) {
            "open"
        } else {
            "paid"
        };
        let city = ["Taipei", "Oslo", "Lagos", "Quito", "Perth"][index % 5];
        let mut text = format!(
            r#"{{"order_id":{index},"created_at":{},"city":"{city}","status":"{status}","amount":{}.{:02},"channel":"web","note":""#,
            1_700_000_000_000 + index / 100,
            index % 900,
            index % 100
        );
        text.push_str(&"x".repeat(236 - text.len()));
        text.push_str("\"}");
        text.into_bytes()
    };
    Load {
        name: "orders",
        fields: &["created_at", "city", "status", "amount"],
        events: (0..EVENTS).map(event).collect(),
    }
}

/// Twelve fields, six of them missing by chance, an object and an array of any length.
fn optional() -> Load {
    let event = |index| {
        let drawn = mixed(index, 7);
        let mut text = format!(
            r#"{{"time":{},"user":{{"id":{},"tier":"gold"}}"#,
            1_700_000_000_000 + index,
            drawn % 1_000_000
        );
        for (bit, key) in [
            "device", "browser", "referrer", "campaign", "locale", "region",
        ]
        .iter()
        .enumerate()
        {
            if drawn >> (20 + bit) & 1 == 1 {
                text.push_str(&format!(r#","{key}":"{:x}""#, mixed(index, 8) >> (bit * 4)));
            }
        }
        let items = vec!["17.5"; (drawn >> 40) as usize % 5].join(",");
        text.push_str(&format!(
            r#","items":[{items}],"paid":true,"total":{}.{}}}"#,
            drawn % 977,
            drawn % 89 + 10
        ));
        text.into_bytes()
    };
    Load {
        name: "optional fields",
        fields: &["time", "user.id", "campaign", "total"],
        events: (0..EVENTS).map(event).collect(),
    }
}

/// Keys that never come again beside two that do.
fn strangers() -> Load {
    let event = |index| {
        format!(
            r#"{{"time":{},"counts":{{"{}":1,"{:x}":2,"{:x}":3}},"total":6}}"#,
            1_700_000_000_000 + index,
            uuid(mixed(index, 9), mixed(index, 10)),
            mixed(index, 11),
            mixed(index, 12)
        )
        .into_bytes()
    };
    Load {
        name: "keys that never repeat",
        fields: &["time", "total"],
        events: (0..EVENTS).map(event).collect(),
    }
}
