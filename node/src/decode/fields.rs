//! The used fields as a tree of keys, and the pass over a payload that fills their cells.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use unisono_engine::decimal::Decimal;
use unisono_engine::record::{RecordBatch, RecordState};
use unisono_engine::spec::Column;

use crate::config::FieldSet;

/// The keys of one object that lead to used fields.
#[derive(Clone, Debug, Default)]
pub struct FieldTree {
    children: Vec<Child>,
}

/// One key: a used field, or an object on the way to one, or both.
#[derive(Clone, Debug)]
struct Child {
    key: Box<str>,
    column: Option<Column>,
    inner: FieldTree,
}

impl FieldTree {
    /// The tree of all of `fields`.
    pub fn new(fields: &FieldSet) -> Self {
        let mut root = Self::default();
        for (index, path) in fields.paths().iter().enumerate() {
            root.insert(path.keys(), Column(index));
        }
        root
    }

    fn insert(&mut self, keys: &[String], column: Column) {
        let Some((key, rest)) = keys.split_first() else {
            return;
        };
        let known = self.children.iter().position(|child| *child.key == **key);
        let at = known.unwrap_or_else(|| {
            let child = Child {
                key: key.as_str().into(),
                column: None,
                inner: Self::default(),
            };
            self.children.push(child);
            self.children.len() - 1
        });
        if rest.is_empty() {
            self.children[at].column = Some(column);
        } else {
            self.children[at].inner.insert(rest, column);
        }
    }

    /// Fills the cells of `batch`'s last record from `text`.
    ///
    /// # Errors
    /// The text is not JSON, or not an object.
    pub fn read(&self, text: &str, batch: &mut RecordBatch) -> Result<(), RecordState> {
        let mut json = serde_json::Deserializer::from_str(text);
        if !text.trim_ascii_start().starts_with('{') {
            let any = IgnoredAny::deserialize(&mut json).and_then(|_| json.end());
            return Err(any.map_or(RecordState::NotJson, |()| RecordState::NotAnObject));
        }
        let object = Object { tree: self, batch };
        object
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|_| RecordState::NotJson)
    }

    /// Sets every cell below this key to missing: the same key came before, and the last one
    /// counts.
    fn clear(&self, batch: &mut RecordBatch) {
        for child in &self.children {
            if let Some(column) = child.column {
                batch.set_missing(column);
            }
            child.inner.clear(batch);
        }
    }
}

/// One object of the payload.
struct Object<'a> {
    tree: &'a FieldTree,
    batch: &'a mut RecordBatch,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(Key(self.tree))? {
            match child {
                Some(child) => child.fill(map.next_value::<&RawValue>()?.get(), self.batch),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A key of an object: the child that it leads to, if it is used.
struct Key<'a>(&'a FieldTree);

impl<'a, 'de> DeserializeSeed<'de> for Key<'a> {
    type Value = Option<&'a Child>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Option<&'a Child>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    // Few fields are used: comparing lengths first, this beats a hash map.
    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().find(|child| *child.key == *key))
    }
}

impl Child {
    /// Fills this key's cells from its value, whose syntax has been checked.
    fn fill(&self, raw: &str, batch: &mut RecordBatch) {
        if let Some(column) = self.column {
            fill_cell(column, raw, batch);
        }
        if !self.inner.children.is_empty() {
            self.inner.clear(batch);
            if raw.starts_with('{') {
                let mut json = serde_json::Deserializer::from_str(raw);
                let inner = Object {
                    tree: &self.inner,
                    batch,
                };
                // The skipping pass accepts a key with half of a surrogate pair, reading it does
                // not.
                if inner.deserialize(&mut json).is_err() {
                    self.inner.clear(batch);
                }
            }
        }
    }
}

fn fill_cell(column: Column, raw: &str, batch: &mut RecordBatch) {
    match raw.as_bytes().first() {
        Some(b'"') => match text_of(raw) {
            Some(text) => batch.set_text(column, &text),
            None => batch.set_bad(column),
        },
        Some(b'n') => batch.set_null(column),
        Some(b't') => batch.set_bool(column, true),
        Some(b'f') => batch.set_bool(column, false),
        Some(b'-' | b'0'..=b'9') => match Decimal::parse(raw.as_bytes()) {
            Ok(number) => batch.set_number(column, number),
            Err(_) => batch.set_bad(column),
        },
        _ => batch.set_bad(column),
    }
}

/// What a string literal says; `None` if it holds half of a surrogate pair.
fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}
