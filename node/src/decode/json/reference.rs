//! What a payload's cells are, said as simply as possible with `serde_json`: each field is looked
//! up by itself.
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::*;
use crate::definition::Key as Step;

/// The members of an object, in order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        json.deserialize_map(Collect)
    }
}

struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            // Half of a surrogate pair is no UTF-8: such a key is none of those that are looked for.
            fn visit_bytes<E>(self, key: &[u8]) -> Result<String, E> {
                Ok(String::from_utf8_lossy(key).into_owned())
            }

            fn visit_str<E>(self, key: &str) -> Result<String, E> {
                Ok(key.to_owned())
            }
        }
        json.deserialize_bytes(Bytes)
            .map(|key| Self(Cow::Owned(key)))
    }
}

/// State and cells, in the words of [`super::property::shown`].
pub fn decode(fields: &FieldSet, payload: &[u8]) -> (RecordState, Vec<String>) {
    let mark = b"\xef\xbb\xbf".as_slice();
    let payload = payload.strip_prefix(mark).unwrap_or(payload);
    let state = state(payload);
    let cells = fields.paths().iter().map(|path| {
        if state == RecordState::Decoded {
            cell(std::str::from_utf8(payload).unwrap(), path.keys())
        } else {
            "missing".to_owned()
        }
    });
    (state, cells.collect())
}

fn state(payload: &[u8]) -> RecordState {
    if payload.starts_with(b"\xff\xfe") || payload.starts_with(b"\xfe\xff") {
        return RecordState::ByteOrderMark;
    }
    let Ok(text) = std::str::from_utf8(payload) else {
        return RecordState::NotUtf8;
    };
    if text.trim_ascii().is_empty() {
        return RecordState::EmptyPayload;
    }
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return RecordState::NotJson;
    }
    if !text.trim_ascii().starts_with('{') {
        return RecordState::NotAnObject;
    }
    match serde_json::from_str::<Members<'_>>(text) {
        Ok(_) => RecordState::Decoded,
        Err(_) => RecordState::NotJson,
    }
}

/// The cell of the field `keys` of the object `text`.
fn cell(text: &str, keys: &[Step]) -> String {
    let missing = "missing".to_owned();
    let found = match &keys[0] {
        Step::Name(name) => serde_json::from_str(text)
            .ok()
            .and_then(|Members(members)| {
                let last = members.iter().rev().find(|(key, _)| key == name);
                last.map(|(_, value)| *value)
            }),
        Step::Index(at) => serde_json::from_str::<Vec<&RawValue>>(text)
            .ok()
            .and_then(|elements| elements.get(*at as usize).copied()),
    };
    let Some(value) = found.map(RawValue::get) else {
        return missing;
    };
    if keys.len() > 1 {
        return cell(value, &keys[1..]);
    }
    let bad = "bad".to_owned();
    match value.as_bytes()[0] {
        b'"' => serde_json::from_str::<String>(value).map_or(bad, |text| format!("'{text}'")),
        b'[' | b'{' => "nested".to_owned(),
        b'n' | b't' | b'f' => value.to_owned(),
        // What numbers are has tests of its own; this is about where they end.
        _ => match Decimal::parse_prefix(value.as_bytes()) {
            Some((Prefix::Exact(number) | Prefix::Rounded(number), _)) => number.to_string(),
            Some((Prefix::TooLarge, _)) | None => bad,
        },
    }
}
