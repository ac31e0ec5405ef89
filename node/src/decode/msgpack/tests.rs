#![allow(clippy::unwrap_used)]

use super::*;
use crate::decode::json::JsonDecoder;
use crate::decode::json::property::{Random, shown};
use crate::decode::json::tests::fields;

fn decode(names: &[&str], payload: &[u8]) -> (RecordState, Vec<String>) {
    let fields = fields(names);
    let mut decoder = MessagePackDecoder::new(&fields);
    let first = shown(&decoder.decode(7, None, Some(payload)), &fields);
    // The memory of one record must not show in the next.
    assert_eq!(
        shown(&decoder.decode(7, None, Some(payload)), &fields),
        first
    );
    first
}

/// One value under the key `a`.
fn value(bytes: &[u8]) -> String {
    let payload = [b"\x81\xa1a", bytes].concat();
    let (state, cells) = decode(&["a"], &payload);
    assert_eq!(state, RecordState::Decoded, "{bytes:x?}");
    cells[0].clone()
}

fn state(bytes: &[u8]) -> RecordState {
    decode(&["a"], bytes).0
}

#[test]
fn each_kind_of_value_is_read() {
    for (bytes, expected) in [
        (&b"\xc0"[..], "null"),
        (b"\xc3", "true"),
        (b"\x7f", "127"),
        (b"\xe0", "-32"),
        (b"\xcc\xff", "255"),
        (b"\xd1\x80\x00", "-32768"),
        (
            b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
            "18446744073709551615",
        ),
        (b"\xd3\x80\0\0\0\0\0\0\0", "-9223372036854775808"),
        (b"\xa2hi", "'hi'"),
        (b"\xd9\x03\xe2\x82\xac", "'\u{20ac}'"),
        (b"\xda\x00\x01x", "'x'"),
        (b"\x91\x01", "nested"),
        (b"\x80", "nested"),
        (b"\xc4\x02\x00\x01", "nested"),
        (b"\xd4\x05\x00", "nested"),
        // Half of a character: a text of an older writer.
        (b"\xa1\xe2", "bad"),
    ] {
        assert_eq!(value(bytes), expected, "{bytes:x?}");
    }
}

#[test]
fn a_float_is_what_its_shortest_text_says() {
    let double = |float: f64| value(&[&b"\xcb"[..], &float.to_be_bytes()].concat());
    assert_eq!(double(0.1), "0.1");
    assert_eq!(double(-1234.5), "-1234.5");
    assert_eq!(double(1e20), "100000000000000000000");
    assert_eq!(double(-0.0), "0");
    assert_eq!(double(1e-40), "0");
    for unusable in [1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(double(unusable), "bad", "{unusable}");
    }
    assert_eq!(
        value(&[&b"\xca"[..], &0.1_f32.to_be_bytes()].concat()),
        "0.1"
    );
}

#[test]
fn an_instant_is_a_text_of_rfc_3339() {
    let extension = |bytes: &[u8]| value(bytes);
    assert_eq!(
        extension(b"\xd6\xff\x00\x00\x00\x01"),
        "'1970-01-01T00:00:01Z'"
    );
    // 500,000,000 ns and 2^32 s.
    let both = (500_000_000_u64 << 34) | (1 << 32);
    let bytes = [&b"\xd7\xff"[..], &both.to_be_bytes()].concat();
    assert_eq!(extension(&bytes), "'2106-02-07T06:28:16.5Z'");
    let wide = |seconds: i64, nanos: u32| {
        let body = [&nanos.to_be_bytes()[..], &seconds.to_be_bytes()].concat();
        extension(&[&b"\xc7\x0c\xff"[..], &body].concat())
    };
    assert_eq!(wide(-1, 999_999_999), "'1969-12-31T23:59:59.999999999Z'");
    assert_eq!(wide(FIRST_SECOND, 0), "'0000-01-01T00:00:00Z'");
    assert_eq!(wide(FIRST_SECOND - 1, 0), "bad");
    assert_eq!(wide(0, 1_000_000_000), "bad");
    assert_eq!(wide(i64::MAX, 0), "bad");
}

#[test]
fn what_is_no_map_is_a_dead_letter() {
    assert_eq!(state(b""), RecordState::EmptyPayload);
    assert_eq!(state(b"\x80"), RecordState::Decoded);
    for other in [&b"\x01"[..], b"\xa1x", b"\x92\x01\x91\xc0", b"\xc0"] {
        assert_eq!(state(other), RecordState::NotAnObject, "{other:x?}");
    }
    let broken = [
        &b"\xc1"[..],
        // The end is missing, or something follows it.
        b"\x81\xa1a",
        b"\x81\xa2a",
        b"\x80\x80",
        b"\x01\x01",
        b"\x81\xa1a\xdf\xff\xff\xff\xff",
        b"{\"a\":1}",
        // A key that is a map.
        b"\x81\x80\x01",
    ];
    for broken in broken {
        assert_eq!(state(broken), RecordState::BadFormat, "{broken:x?}");
    }
    let nested = |depth: usize| [&b"\x81\xa1b"[..], &vec![0x91; depth], b"\x01"].concat();
    assert_eq!(state(&nested(MOST_DEPTH - 1)), RecordState::Decoded);
    assert_eq!(state(&nested(MOST_DEPTH)), RecordState::TooDeep);
}

#[test]
fn the_last_of_equal_keys_counts_and_keys_that_are_no_texts_are_passed_over() {
    let names = ["a", "a.b", "a[1]"];
    let (_, cells) = decode(&names, b"\x82\xa1a\x81\xa1b\x01\xa1a\x92\x05\x06");
    assert_eq!(cells, ["nested", "missing", "6"]);
    let (_, cells) = decode(&names, b"\x83\x01\x02\xc4\x01a\x03\xa1a\x04");
    assert_eq!(cells, ["4", "missing", "missing"]);
}

#[test]
fn values_one_behind_the_other_are_told_apart() {
    assert_eq!(length(b"\x81\xa1a\x92\x01\x02\x80"), Length::Whole(6));
    for end in 0..6 {
        assert_eq!(length(&b"\x81\xa1a\x92\x01\x02"[..end]), Length::Beyond);
    }
    assert_eq!(length(b"\x91\xc1"), Length::Broken);
}

/// Any object, at most so deep.
fn object(random: &mut Random, depth: usize) -> serde_json::Value {
    let count = random.below(4);
    let keys = (0..count).map(|_| (*random.pick(&["a", "b", "c"])).to_owned());
    let keys: Vec<String> = keys.collect();
    let members = keys.into_iter().map(|key| (key, any_value(random, depth)));
    serde_json::Value::Object(members.collect())
}

fn any_value(random: &mut Random, depth: usize) -> serde_json::Value {
    use serde_json::Value;
    let kinds = if depth == 0 { 6 } else { 8 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => Value::from(random.below(2) == 0),
        2 => Value::from(i64::MIN + i64::try_from(random.below(1000)).unwrap()),
        3 => Value::from(u64::MAX - random.below(1000) as u64),
        4 => Value::from(f64::from(i32::try_from(random.below(100_000)).unwrap()) / 7.0),
        5 => Value::from("\u{e9}\"x".repeat(random.below(20))),
        6 => (0..random.below(18))
            .map(|_| any_value(random, depth - 1))
            .collect(),
        _ => object(random, depth - 1),
    }
}

/// Writes as widely as it can.
fn pack(value: &serde_json::Value, out: &mut Vec<u8>) {
    use serde_json::Value;
    let head = |out: &mut Vec<u8>, head: u8, len: usize| {
        out.push(head);
        out.extend(u32::try_from(len).unwrap().to_be_bytes());
    };
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(0xc2 + u8::from(*value)),
        Value::Number(number) => {
            if let Some(number) = number.as_u64() {
                out.push(0xcf);
                out.extend(number.to_be_bytes());
            } else if let Some(number) = number.as_i64() {
                out.push(0xd3);
                out.extend(number.to_be_bytes());
            } else {
                out.push(0xcb);
                out.extend(number.as_f64().unwrap().to_be_bytes());
            }
        }
        Value::String(text) => {
            head(out, 0xdb, text.len());
            out.extend(text.as_bytes());
        }
        Value::Array(values) => {
            head(out, 0xdd, values.len());
            values.iter().for_each(|value| pack(value, out));
        }
        Value::Object(members) => {
            head(out, 0xdf, members.len());
            for (key, value) in members {
                pack(&Value::from(key.as_str()), out);
                pack(value, out);
            }
        }
    }
}

#[test]
fn a_document_has_the_same_cells_as_in_json() {
    let names = [
        "a", "b", "a.b", "a.b.c", "a[0]", "a[2].b", "b[1][0]", "c.a[3]",
    ];
    let fields = fields(&names);
    let mut random = Random(88);
    for _ in 0..3000 {
        let document = object(&mut random, 4);
        let mut packed = Vec::new();
        pack(&document, &mut packed);
        assert_eq!(length(&packed), Length::Whole(packed.len()));
        let text = document.to_string();
        let mut json = JsonDecoder::new(&fields);
        let expected = shown(&json.decode(7, None, Some(text.as_bytes())), &fields);
        assert_eq!(decode(&names, &packed), expected, "{text}");
    }
}

#[test]
fn no_bytes_stop_it() {
    let mut random = Random(89);
    for _ in 0..20_000 {
        let count = random.below(60);
        let bytes: Vec<u8> = (0..count)
            .map(|_| random.below(256).to_le_bytes()[0])
            .collect();
        for begin in [&b""[..], b"\x84\xa1a", b"\x81\xa1a\xdf"] {
            let payload = [begin, &bytes].concat();
            let found = state(&payload);
            let is_whole = length(&payload) == Length::Whole(payload.len());
            assert!(is_whole || found != RecordState::Decoded, "{payload:x?}");
        }
    }
}
