//! A page of open windows: bounded in rows and bytes, with a place to go on.

use bytes::Bytes;
use unisono_api::{OpenPlace, OpenQuery};
use unisono_engine::row::RowRef;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of rows in one page; the row that passes it is still in.
const BYTES: usize = 8 << 20;

/// Takes rows in the order of their windows' ends, then of their groups.
pub(super) struct Page {
    rows: Vec<Bytes>,
    bytes: usize,
    limit: usize,
    /// Rows up to this one were given before. New groups may have come before it since; a window that has closed since is no
    /// more.
    after: Option<OpenPlace>,
    last: Option<OpenPlace>,
    has_more: bool,
}

impl Page {
    pub(super) fn new(query: &OpenQuery) -> Self {
        Self {
            rows: Vec::new(),
            bytes: 0,
            limit: query.limit,
            after: query.after,
            last: None,
            has_more: false,
        }
    }

    /// Whether more rows are wanted.
    pub(super) fn take(&mut self, row: &RowRef<'_>) -> bool {
        let group = || xxh3_64(row.json.get(row.group.clone()).unwrap_or_default());
        if let Some(after) = self.after {
            if row.end.0 <= after.end {
                if row.end.0 == after.end && group() == after.group {
                    self.after = None;
                }
                return true;
            }
            self.after = None;
        }
        if self.rows.len() >= self.limit || self.bytes >= BYTES {
            self.has_more = true;
            return false;
        }
        self.bytes += row.json.len();
        self.rows.push(Bytes::copy_from_slice(row.json));
        self.last = Some(OpenPlace {
            end: row.end.0,
            group: group(),
        });
        true
    }

    /// The rows, and the place of the last one if there are more.
    pub(super) fn end(self) -> (Vec<Bytes>, Option<OpenPlace>) {
        (self.rows, self.last.filter(|_| self.has_more))
    }
}

#[cfg(test)]
mod tests {
    use unisono_engine::row::{Digest, Seq};
    use unisono_engine::spec::Timestamp;

    use super::*;

    /// Three windows of three groups each, with rows of this size.
    fn page(size: usize, query: OpenQuery) -> (Vec<Bytes>, Option<OpenPlace>) {
        let mut page = Page::new(&query);
        let mut goes_on = true;
        for (end, group) in (1..=3).flat_map(|end| ["a", "b", "c"].map(|group| (end, group))) {
            let json = format!("{group}{end}{}", ".".repeat(size));
            goes_on = goes_on
                && page.take(&RowRef {
                    seq: Seq(0),
                    start: Timestamp(0),
                    end: Timestamp(end),
                    digest: Digest::default(),
                    json: json.as_bytes(),
                    group: 0..1,
                });
        }
        page.end()
    }

    fn all(size: usize, limit: usize) -> (Vec<String>, usize) {
        let (mut names, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let (rows, next) = page(size, OpenQuery { limit, after });
            let name = |row: &Bytes| String::from_utf8_lossy(&row[..2]).into_owned();
            names.extend(rows.iter().map(name));
            pages += 1;
            after = next;
            if after.is_none() {
                return (names, pages);
            }
        }
    }

    #[test]
    fn pages_of_any_size_give_each_row_once() {
        let expected = ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "b3", "c3"];
        for (limit, pages) in [(1, 9), (2, 5), (3, 3), (9, 1), (10_000, 1)] {
            assert_eq!(all(0, limit), (expected.map(String::from).to_vec(), pages));
        }
    }

    #[test]
    fn a_page_is_bounded_in_bytes() {
        let (names, pages) = all(5 << 20, 10_000);
        assert_eq!((names.len(), pages), (9, 5));
    }

    #[test]
    fn a_window_that_has_closed_since_is_no_place_to_stay() {
        let after = Some(OpenPlace { end: 0, group: 9 });
        let (rows, next) = page(0, OpenQuery { limit: 10, after });
        assert_eq!((rows.len(), next), (9, None));
    }
}
