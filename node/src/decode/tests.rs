#![allow(clippy::unwrap_used)]

use unisono_engine::record::Cell;
use unisono_engine::spec::Column;

use super::*;
use crate::config::FieldPath;

fn fields(names: &[&str]) -> FieldSet {
    let mut set = FieldSet::new();
    for name in names {
        set.insert(FieldPath::parse(name).unwrap());
    }
    set
}

/// Decodes one payload; gives its state and its cells as text.
fn decode(names: &[&str], payload: &[u8]) -> (RecordState, Vec<String>) {
    let decoder = Decoder::new(&fields(names));
    let mut batch = decoder.new_batch();
    decoder.decode_into(&mut batch, 7, None, Some(payload));
    assert_eq!(
        (batch.len(), batch.meta(0).offset, batch.payload(0)),
        (1, 7, payload)
    );
    let cells = (0..names.len()).map(|index| match batch.cell(0, Column(index)) {
        Cell::Missing => "missing".to_owned(),
        Cell::Null => "null".to_owned(),
        Cell::Bool(value) => value.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => format!("'{text}'"),
        Cell::Bad => "bad".to_owned(),
    });
    (batch.meta(0).state, cells.collect())
}

#[track_caller]
fn check(names: &[&str], payload: &str, expected: &[&str]) {
    let (state, cells) = decode(names, payload.as_bytes());
    assert_eq!(state, RecordState::Decoded, "{payload}");
    assert_eq!(cells, expected, "{payload}");
}

#[test]
fn cells_hold_what_the_payload_says() {
    let payload = r#" {"a":1.50,"b":"x","c":true,"d":null,"e":[1],"f":{"x":1},"g":false} "#;
    check(
        &["a", "b", "c", "d", "e", "f", "g", "h"],
        payload,
        &[
            "1.5", "'x'", "true", "null", "bad", "bad", "false", "missing",
        ],
    );
}

#[test]
fn a_dot_nests_and_a_quoted_dot_does_not() {
    let payload = r#"{"a.b":1,"a":{"b":2,"c":{"d":3}},"id.orig_h":"h"}"#;
    check(
        &["\"a.b\"", "a.b", "a.c.d", "a.c.x", "\"id.orig_h\"", "a"],
        payload,
        &["1", "2", "3", "missing", "'h'", "bad"],
    );
}

#[test]
fn numbers_are_exact_and_too_large_ones_spoil_no_other_field() {
    check(
        &["n", "m"],
        r#"{"n":327267367867168100000,"m":1}"#,
        &["327267367867168100000", "1"],
    );
    check(
        &["n"],
        r#"{"n":2882429806056571125}"#,
        &["2882429806056571125"],
    );
    check(&["n", "m"], r#"{"n":1e999,"m":0.1}"#, &["bad", "0.1"]);
    check(&["n", "m"], r#"{"n":-0.0,"m":"NaN"}"#, &["0", "'NaN'"]);
}

#[test]
fn texts_are_unescaped_and_half_a_surrogate_pair_is_a_bad_field() {
    check(&["a"], r#"{"a":"\u00e4\n\"\ud83d\ude00"}"#, &["'ä\n\"😀'"]);
    check(&["a", "b"], r#"{"a":"\ud83d","b":1}"#, &["bad", "1"]);
    check(&["a"], r#"{"\u0061":1}"#, &["1"]);
}

#[test]
fn of_a_key_that_stands_twice_the_last_one_counts() {
    check(&["a"], r#"{"a":1,"a":"x"}"#, &["'x'"]);
    check(&["a"], r#"{"a":1,"a":null}"#, &["null"]);
    check(
        &["a.b", "a.c"],
        r#"{"a":{"b":1,"c":2},"a":{"c":3}}"#,
        &["missing", "3"],
    );
    check(&["a.b"], r#"{"a":{"b":1},"a":5}"#, &["missing"]);
}

#[test]
fn what_is_no_object_of_json_has_its_own_state() {
    let cases: [(&[u8], RecordState); 16] = [
        (b"", RecordState::EmptyPayload),
        (b" \r", RecordState::EmptyPayload),
        (b"\xef\xbb\xbf{}", RecordState::ByteOrderMark),
        (b"{\"a\":\"\xff\"}", RecordState::NotUtf8),
        (b"hello", RecordState::NotJson),
        (b"{\"a\":1", RecordState::NotJson),
        (b"{\"a\":1}}", RecordState::NotJson),
        (b"{\"a\":1,}", RecordState::NotJson),
        (b"{\"a\":01}", RecordState::NotJson),
        (b"{\"b\":NaN}", RecordState::NotJson),
        (b"{\"b\":\"\t\"}", RecordState::NotJson),
        (b"{'a':1}", RecordState::NotJson),
        (b"{\"a\":1} {\"a\":2}", RecordState::NotJson),
        (b"[1,2]", RecordState::NotAnObject),
        (b"17", RecordState::NotAnObject),
        (b"null", RecordState::NotAnObject),
    ];
    for (payload, expected) in cases {
        let (state, cells) = decode(&["a"], payload);
        assert_eq!(state, expected, "{}", String::from_utf8_lossy(payload));
        assert_eq!(cells, ["missing"], "{}", String::from_utf8_lossy(payload));
    }
}

#[test]
fn a_tombstone_is_a_record_of_its_own_kind() {
    let decoder = Decoder::new(&fields(&["a"]));
    let mut batch = decoder.new_batch();
    decoder.decode_into(&mut batch, 3, Some(Timestamp(5)), None);
    assert_eq!(batch.meta(0).state, RecordState::NullPayload);
    assert_eq!(batch.meta(0).append_time, Some(Timestamp(5)));
}

#[test]
fn the_depth_of_unused_parts_exhausts_no_stack() {
    let deep = format!(
        "{{\"x\":{}{},\"a\":1}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    check(&["a"], &deep, &["1"]);
    check(&["x", "a"], &deep, &["bad", "1"]);
    let (state, _) = decode(
        &["a"],
        format!("{{\"x\":{}", "[".repeat(100_000)).as_bytes(),
    );
    assert_eq!(state, RecordState::NotJson);
}
