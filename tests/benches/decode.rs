//! The time to decode a flat event of 233 bytes of which two fields are used: `cargo bench -p unisono-tests --bench decode`.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use unisono::decode::Decoder;
use unisono::definition::{FieldPath, FieldSet};

const RECORDS: u32 = 1_000_000;
const ROUNDS: usize = 5;

fn main() {
    let payload = format!(
        r#"{{"order_id":"{}","ts":"2026-01-01T00:00:00.123Z","city":"Taipei","channel":"web","status":"paid","amount":12.50,"items":3,"user":{{"id":123456,"tier":"gold"}},"note":"{}","rejected":false}}"#,
        "0123456789abcdef", "left at the door, ring twice please"
    );
    let mut fields = FieldSet::new();
    for name in ["ts", "amount"] {
        fields.insert(FieldPath::parse(name).unwrap());
    }
    let decoder = Decoder::new(&fields);
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| round(&decoder, payload.as_bytes()))
        .collect();
    times.sort_unstable();
    let median = times[ROUNDS / 2];
    println!(
        "{} bytes, {median:?} a record, median of {ROUNDS} rounds",
        payload.len()
    );
}

fn round(decoder: &Decoder, payload: &[u8]) -> std::time::Duration {
    let start = Instant::now();
    let mut batch = decoder.new_batch();
    for offset in 0..RECORDS {
        if batch.len() == 1_000 {
            batch = decoder.new_batch();
        }
        decoder.decode_into(&mut batch, i64::from(offset), None, Some(payload));
    }
    start.elapsed() / RECORDS
}
