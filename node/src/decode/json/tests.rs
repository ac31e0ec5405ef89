#![allow(clippy::unwrap_used)]

use super::property::shown;
use super::*;
use crate::definition::FieldPath;

pub fn fields(names: &[&str]) -> FieldSet {
    let mut set = FieldSet::new();
    for name in names {
        set.insert(FieldPath::parse(name).unwrap());
    }
    set
}

/// Decodes one payload, by the walk, and by what an earlier decoding of it taught; gives its state
/// and its cells as text.
fn decode(names: &[&str], payload: &[u8]) -> (RecordState, Vec<String>) {
    let fields = fields(names);
    let mut decoder = JsonDecoder::new(&fields);
    let walked = shown(&decoder.decode(7, None, Some(payload)), &fields);
    decoder.decode(7, None, Some(payload));
    let record = decoder.decode(7, None, Some(payload));
    let behind_mark = payload.strip_prefix(BYTE_ORDER_MARK).unwrap_or(payload);
    assert_eq!((record.offset, record.payload), (7, behind_mark));
    assert_eq!(shown(&record, &fields), walked);
    walked
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
            "1.5", "'x'", "true", "null", "nested", "nested", "false", "missing",
        ],
    );
}

#[test]
fn a_dot_nests_and_a_quoted_dot_does_not() {
    let payload = r#"{"a.b":1,"a":{"b":2,"c":{"d":3}},"id.orig_h":"h"}"#;
    check(
        &["\"a.b\"", "a.b", "a.c.d", "a.c.x", "\"id.orig_h\"", "a"],
        payload,
        &["1", "2", "3", "missing", "'h'", "nested"],
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
    check(
        &["a"],
        r#"{"a":"\b\f\n\r\t\/\\"}"#,
        &["'\u{8}\u{c}\n\r\t/\\'"],
    );
    check(&["a", "b"], r#"{"a":"\ud83d","b":1}"#, &["bad", "1"]);
    check(&["a"], r#"{"\u0061":1}"#, &["1"]);
}

#[test]
fn half_a_surrogate_pair_in_a_key_is_a_key_that_nobody_uses() {
    let payload = r#"{"a":{"b":1,"\udc00":2,"b":3},"c":4}"#;
    check(&["a.b", "c"], payload, &["3", "4"]);
    check(&["c"], payload, &["4"]);
    check(
        &["a.b", "c"],
        r#"{"a":{"\udc00":2},"a":{"b":5},"c":4}"#,
        &["5", "4"],
    );
    check(&["a"], r#"{"a":1,"\ud800":2}"#, &["1"]);
    check(&["a"], r#"{"\udfff":{"x":"\ud800"},"a":1}"#, &["1"]);
    let (state, _) = decode(&["a"], br#"[{"\ud800":2}]"#);
    assert_eq!(state, RecordState::NotAnObject);
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
    check(&["a.b"], r#"{"a":{"b":1},"a":[]}"#, &["missing"]);
    check(
        &["a", "a.b"],
        r#"{"a":{"b":1},"a":2,"a":{}}"#,
        &["nested", "missing"],
    );
}

#[test]
fn what_is_no_object_of_json_has_its_own_state() {
    let cases: [(&[u8], RecordState); 24] = [
        (b"", RecordState::EmptyPayload),
        (b" \r", RecordState::EmptyPayload),
        (b"\x0c", RecordState::EmptyPayload),
        (b"\xff\xfe{\0}\0", RecordState::ByteOrderMark),
        (b"\xfe\xff\0{\0}", RecordState::ByteOrderMark),
        (b"\xef\xbb\xbf\xff", RecordState::NotUtf8),
        (b"\xef\xbb\xbf \r", RecordState::EmptyPayload),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", RecordState::NotJson),
        (b"{\"a\":\"\xff\"}", RecordState::NotUtf8),
        (b"{\"a\":tru, \xff", RecordState::NotUtf8),
        (b"hello", RecordState::NotJson),
        (b"{\"a\":1", RecordState::NotJson),
        (b"{\"a\":1}}", RecordState::NotJson),
        (b"{\"a\":1,}", RecordState::NotJson),
        (b"{\"a\":01}", RecordState::NotJson),
        (b"{\"b\":NaN}", RecordState::NotJson),
        (b"{\"b\":\"\t\"}", RecordState::NotJson),
        (b"{'a':1}", RecordState::NotJson),
        (b"{\"a\":1} {\"a\":2}", RecordState::NotJson),
        (b"\x0c{}", RecordState::NotJson),
        (b"[1,2", RecordState::NotJson),
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
    let mut decoder = JsonDecoder::new(&fields(&["a"]));
    decoder.decode(2, None, Some(b"{\"a\":1}"));
    let record = decoder.decode(3, Some(Timestamp(5)), None);
    assert_eq!(record.state, RecordState::NullPayload);
    assert_eq!(record.append_time, Some(Timestamp(5)));
    assert_eq!(
        record.cell(Column(0)),
        unisono_engine::record::Cell::Missing
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let fields = fields(&["a"]);
    let mut decoder = JsonDecoder::new(&fields);
    for payload in [&b"\xef\xbb\xbf{\"a\":\"x\"}"[..], b"{\"a\":\"x\"}"] {
        let record = decoder.decode(0, None, Some(payload));
        assert_eq!(record.payload, b"{\"a\":\"x\"}");
        let expected = (RecordState::Decoded, vec!["'x'".to_owned()]);
        assert_eq!(shown(&record, &fields), expected);
    }
}

#[test]
fn what_nests_too_deep_has_its_own_state() {
    let arrays = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let inside = |inner: String| format!("{{\"x\":{inner},\"a\":1}}");
    check(&["a"], &inside(arrays(MOST_DEPTH - 1)), &["1"]);
    check(
        &["x", "a"],
        &inside(arrays(MOST_DEPTH - 1)),
        &["nested", "1"],
    );
    let objects = "{\"k\":".repeat(MOST_DEPTH);
    for deep in [
        inside(arrays(MOST_DEPTH)),
        inside(arrays(100_000)),
        inside("[".repeat(100_000)),
        arrays(MOST_DEPTH + 1),
        format!("{objects}{{}}"),
    ] {
        let (state, cells) = decode(&["a"], deep.as_bytes());
        assert_eq!(
            (state, cells),
            (RecordState::TooDeep, vec!["missing".to_owned()])
        );
    }
    let (state, _) = decode(&["a"], arrays(MOST_DEPTH).as_bytes());
    assert_eq!(state, RecordState::NotAnObject);
    // What was too deep says nothing of the record behind it.
    let fields = fields(&["a"]);
    let mut decoder = JsonDecoder::new(&fields);
    decoder.decode(0, None, Some(inside(arrays(MOST_DEPTH)).as_bytes()));
    assert_eq!(
        decoder.decode(1, None, Some(b"{")).state,
        RecordState::NotJson
    );
}

#[test]
fn used_paths_may_be_deeper_than_contexts_are() {
    let depth = 300;
    let path = vec!["k"; depth].join(".");
    let inside = |value: &str| format!("{}{value}{}", "{\"k\":".repeat(depth), "}".repeat(depth));
    check(&[&path, "a"], &inside("7"), &["7", "missing"]);
    check(&[&path, "a"], &inside("\"\\u00e4\""), &["'ä'", "missing"]);
    check(&[&path], &inside("[{\"k\":1}]"), &["nested"]);
}

/// Documents that were met before, in any order, leave the walk nothing to do.
#[test]
fn known_shapes_are_followed_without_a_walk() {
    let mut decoder = JsonDecoder::new(&fields(&["t", "a.b"]));
    let payloads = [
        &br#"{"t":1,"x":"y","a":{"b":2},"z":[1,2,3]}"#[..],
        br#"{"t":1,"x":"y","a":{"b":2}}"#,
        br#"{"t":1,"a":{"b":2},"z":[1,2,3]}"#,
    ];
    for payload in payloads.iter().cycle().take(30) {
        decoder.decode(0, None, Some(payload));
    }
    let known = decoder.shapes.len();
    assert_eq!(known, 7);
    for (number, payload) in [
        &br#"{"t":-1e5,"x":"some \u0061","a":{"b":null},"z":[true,2.5,3,4,5,6]}"#[..],
        br#"{"t":"now","a":{"b":"c"}}"#,
        br#"{"t":false,"a":{"b":""},"z":[1]}"#,
    ]
    .iter()
    .enumerate()
    {
        let record = decoder.decode(0, None, Some(payload));
        assert_eq!(record.state, RecordState::Decoded, "{number}");
        assert_eq!(decoder.shapes.len(), known, "{number}");
    }
}

/// Keys and nestings that never come again fill the memory once, not with each payload; what does
/// repeat is learned anew after it was forgotten.
#[test]
fn shapes_that_never_repeat_are_bounded_and_forgotten() {
    let keys = |number: usize| format!(r#""k{number}":1,"{}":2"#, "x".repeat(number % 99));
    let nestings = |number: usize| {
        let opened = |bit: &usize| ["[", "{\"x\":"][number >> bit & 1];
        let closed = |bit: usize| ["]", "}"][number >> bit & 1];
        let (open, close): (String, String) = (
            (0..12).rev().map(|bit| opened(&bit)).collect(),
            (0..12).map(closed).collect(),
        );
        format!(r#""x":{open}0{close}"#)
    };
    never_repeating(keys);
    never_repeating(nestings);
}

fn never_repeating(members: impl Fn(usize) -> String) {
    let fields = fields(&["t"]);
    let mut decoder = JsonDecoder::new(&fields);
    let mut most = 0;
    for number in 0..20_000 {
        let payload = format!(r#"{{"t":{number},{}}}"#, members(number));
        let record = decoder.decode(0, None, Some(payload.as_bytes()));
        let expected = (RecordState::Decoded, vec![number.to_string()]);
        assert_eq!(shown(&record, &fields), expected);
        most = most.max(decoder.shapes.len());
    }
    assert!(most > 100 && most <= shape::MAX_EDGES, "{most}");
    let payload = br#"{"u":[{"w":[{"z":1}]}],"t":2,"v":3}"#;
    for _ in 0..shape::LAST_PATIENCE {
        if decoder.shapes.follows_from_start(payload) {
            return;
        }
        decoder.decode(0, None, Some(payload));
    }
    panic!("the new shape was never learned");
}
