//! A published row, read from its text.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::exact::Exact;
use crate::moment::parse_utc;
use crate::order::{PIPELINE, WINDOW_MS};

/// Which window and group: ordered as rows are, by end, then group. All windows have one length, so the end names one.
pub type Key = (i64, String);

/// What a row says of its window and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// How many paid orders.
    pub orders: Exact,
    /// The sum of their amounts.
    pub revenue: Exact,
    /// Their average, to 20 significant digits.
    pub average: Exact,
    /// The least amount.
    pub lowest: Exact,
    /// The greatest amount.
    pub highest: Exact,
}

/// A row as it was seen: its text, and what the text says.
#[derive(Clone, Debug)]
pub struct SeenRow {
    /// The row's number.
    pub seq: u64,
    /// The window's end (milliseconds since 1970) and the group.
    pub key: Key,
    /// What the row says.
    pub values: Values,
    /// The row's bytes.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow<'a> {
    pipeline: String,
    seq: u64,
    revision: u64,
    start: String,
    end: String,
    group: RawGroup,
    #[serde(borrow)]
    values: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup {
    city: String,
}

impl SeenRow {
    /// Reads a row of the demo's pipeline.
    ///
    /// # Errors
    /// A text saying what is wrong with a row that no replica may publish.
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: RawRow<'_> =
            serde_json::from_str(text).map_err(|error| format!("not a row: {error}: {text}"))?;
        let time = |name: &str, value: &str| {
            parse_utc(value).ok_or_else(|| format!("row {}: {name} is {value:?}", raw.seq))
        };
        let (start, end) = (time("start", &raw.start)?, time("end", &raw.end)?);
        if end - start != WINDOW_MS || end % WINDOW_MS != 0 {
            return Err(format!(
                "row {}: no such window: {} to {}",
                raw.seq, raw.start, raw.end
            ));
        }
        if raw.pipeline != PIPELINE || raw.revision != 0 || raw.values.len() != 5 {
            return Err(format!(
                "row {}: wrong pipeline, revision or values: {text}",
                raw.seq
            ));
        }
        let value = |name: &str| {
            let raw_value = raw.values.get(name).map(|value| value.get());
            raw_value
                .and_then(Exact::parse)
                .ok_or_else(|| format!("row {}: value {name} is {raw_value:?}", raw.seq))
        };
        Ok(Self {
            seq: raw.seq,
            key: (end, raw.group.city),
            values: Values {
                orders: value("orders")?,
                revenue: value("revenue")?,
                average: value("average")?,
                lowest: value("lowest")?,
                highest: value("highest")?,
            },
            text: text.to_owned(),
        })
    }
}
