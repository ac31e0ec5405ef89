//! Reads by time and group for queries. Every call is bounded in rows, in bytes given and in bytes looked at: a query
//! that matches nothing in a large log gives an empty page and a place to go on.

use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

use unisono_engine::row::{Row, Seq};
use unisono_engine::spec::Timestamp;

use super::error::ResultsError;
use super::index::Span;
use super::stream::Stream;

/// Bytes of rows in one page; the row that passes it is still in.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Rows looked at for one page.
const PAGE_LOOKED_AT: u64 = 1_000_000;

/// Which rows a query wants.
#[derive(Clone, Debug, Default)]
pub struct ScanFilter {
    /// Only windows that end after this.
    pub from: Option<Timestamp>,
    /// Only windows that start before this.
    pub to: Option<Timestamp>,
    /// Fields of the group and the value each must have: a text's characters, or the JSON of another scalar (`17`,
    /// `true`, `null`).
    pub groups: Vec<(String, String)>,
}

/// Rows found, and where to go on.
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// In the order of their numbers.
    pub rows: Vec<Row>,
    /// The row to look at next; `None` where all rows below the query's bound were looked at.
    pub next: Option<Seq>,
}

pub(super) fn scan(
    stream: &Stream,
    below: Seq,
    filter: &ScanFilter,
    after: Seq,
    limit: usize,
) -> Result<ScanPage, ResultsError> {
    let span = Span::new(
        filter.from.map_or(i64::MIN, |from| from.0),
        filter.to.map_or(i64::MAX, |to| to.0),
    );
    let mut page = ScanPage {
        rows: Vec::new(),
        next: None,
    };
    let (mut bytes, mut looked_at) = (0, 0);
    let limit = limit.max(1);
    stream.visit(after, below, span, |view| {
        let full = page.rows.len() >= limit || bytes >= PAGE_BYTES || looked_at >= PAGE_LOOKED_AT;
        if full {
            page.next = Some(view.seq);
            return false;
        }
        looked_at += 1;
        let wanted = span.overlaps(view.start.0, view.end.0)
            && group_matches(
                view.json.get(view.group.clone()).unwrap_or_default(),
                &filter.groups,
            );
        if wanted {
            bytes += view.json.len();
            page.rows.push(view.to_row());
        }
        true
    })?;
    Ok(page)
}

fn group_matches(group: &[u8], wanted: &[(String, String)]) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let Ok(fields) = serde_json::from_slice::<BTreeMap<Cow<'_, str>, &RawValue>>(group) else {
        return false;
    };
    wanted.iter().all(|(name, value)| {
        fields
            .get(name.as_str())
            .is_some_and(|field| field_text(field.get()) == value.as_str())
    })
}

fn field_text(json: &str) -> Cow<'_, str> {
    if !json.starts_with('"') {
        return Cow::Borrowed(json);
    }
    serde_json::from_str::<String>(json).map_or(Cow::Borrowed(json), Cow::Owned)
}
