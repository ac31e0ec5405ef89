//! The keys of rows that go to a sink.

use std::borrow::Cow;

use unisono_engine::row::Row;

/// Whether the definition's rows may be corrected later.
pub(super) fn is_revised(canonical: &str) -> bool {
    // A text that holds this has its quotes escaped.
    canonical.contains("\"revise_ms\":")
}

/// The key of a row: its group. Where rows are corrected, the window too: a compacted topic keeps the last of each
/// key, and that is to be the last revision of each row. A dead letter's is empty.
pub(super) fn of_row(row: &Row, is_revised: bool) -> Cow<'_, [u8]> {
    let group = row.json.get(row.group.clone()).unwrap_or_default();
    if !is_revised || group.is_empty() {
        return Cow::Borrowed(group);
    }
    let times: &[u8] = b"\"start\":\"";
    let head = row.json.get(..row.group.start).unwrap_or_default();
    let found = head.windows(times.len()).rposition(|part| part == times);
    let window = found.and_then(|at| row.json.get(at..row.group.end));
    match window {
        None => Cow::Borrowed(group),
        Some(window) => Cow::Owned([b"{", window, b"}"].concat()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use unisono_engine::row::{Digest, Seq};
    use unisono_engine::spec::Timestamp;

    fn row(json: &str, group: &str) -> Row {
        let start = json.find(group).unwrap();
        Row {
            seq: Seq(1),
            start: Timestamp(0),
            end: Timestamp(60_000),
            digest: Digest(0),
            json: json.as_bytes().to_vec(),
            group: start..start + group.len(),
        }
    }

    #[test]
    fn all_revisions_of_a_row_have_one_key_of_their_own() {
        let text = |revision: &str, minute: u8| {
            format!(
                r#"{{"pipeline":"p","seq":7,"revision":{revision},"start":"1970-01-01T00:0{minute}:00Z","end":"1970-01-01T00:10:00Z","group":{{"g":"a"}},"values":{{"n":1}}}}"#
            )
        };
        let key = |revision: &str, minute, is_revised| {
            let row = row(&text(revision, minute), r#"{"g":"a"}"#);
            String::from_utf8(of_row(&row, is_revised).into_owned()).unwrap()
        };
        assert_eq!(key("0", 1, false), r#"{"g":"a"}"#);
        let expected =
            r#"{"start":"1970-01-01T00:01:00Z","end":"1970-01-01T00:10:00Z","group":{"g":"a"}}"#;
        assert_eq!(key("0", 1, true), expected);
        assert_eq!(key("1,\"withdrawn\":true", 1, true), expected);
        assert_ne!(key("0", 2, true), expected);
    }

    #[test]
    fn a_dead_letter_has_no_key() {
        let mut letter = row(r#"{"pipeline":"p","seq":0,"lane":"a"}"#, "{");
        letter.group = 0..0;
        assert!(of_row(&letter, true).is_empty());
    }
}
