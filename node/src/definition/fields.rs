//! Names of fields in records, and the set of fields that are decoded.

use std::fmt;

use unisono_engine::spec::{Column, PipelineSpec};

/// One step of the way to a field.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(untagged)]
pub enum Key {
    /// The key of an object.
    Name(String),
    /// The place in an array, from 0 to [`Key::MAX_INDEX`].
    Index(u32),
}

impl Key {
    /// The decoder keeps a step for each place up to it.
    pub const MAX_INDEX: u32 = 99;

    /// A place in an array; `None` beyond the largest.
    #[must_use]
    pub fn index(at: u32) -> Option<Self> {
        (at <= Self::MAX_INDEX).then_some(Self::Index(at))
    }
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// The way to a field of a record.
///
/// Written `a.b` it is the key `b` of the object under the key `a`; written `"a.b"`, in double
/// quotes, it is the one key `a.b`. Both forms mix: `zones."eu.example".hits`. A `""` within quotes
/// is one quote. `a[0]` is the first element of the array under `a`; `a['b']` is `a.b`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath {
    keys: Vec<Key>,
}

/// Why a text is no field name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    /// Nothing between, before or after the dots.
    #[error(
        "an empty key in field name {text:?}; write a.b for a nested key, \"a.b\" in double quotes \
         for one key"
    )]
    Empty {
        /// As written.
        text: String,
    },
    /// A character that needs quotes.
    #[error(
        "field name {text:?} holds {found:?}; put the key in double quotes, or name a plain field"
    )]
    NeedsQuotes {
        /// As written.
        text: String,
        /// The character.
        found: char,
    },
    /// A quote without its end.
    #[error("a quote without an end in field name {text:?}")]
    OpenQuote {
        /// As written.
        text: String,
    },
}

impl FieldPath {
    /// A path of these keys, outermost first; `None` without any, or where the first is no name.
    #[must_use]
    pub fn of_keys(keys: Vec<Key>) -> Option<Self> {
        match keys.first() {
            Some(Key::Name(_)) => Some(Self { keys }),
            _ => None,
        }
    }

    /// Reads a field name as written in a definition.
    ///
    /// # Errors
    /// Why the text is no field name.
    pub fn parse(text: &str) -> Result<Self, FieldPathError> {
        let mut keys = Vec::new();
        let mut rest = text.trim();
        loop {
            let (key, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted_key(quoted).ok_or_else(|| FieldPathError::OpenQuote {
                    text: text.to_owned(),
                })?,
                None => plain_key(rest),
            };
            if key.is_empty() && !rest.starts_with('"') {
                return Err(match after.chars().next() {
                    Some(found) if found != '.' => FieldPathError::NeedsQuotes {
                        text: text.to_owned(),
                        found,
                    },
                    _ => FieldPathError::Empty {
                        text: text.to_owned(),
                    },
                });
            }
            keys.push(Key::Name(key));
            let mut after = after;
            while let Some(inner) = after.strip_prefix('[') {
                let (key, behind) =
                    subscript(inner).ok_or_else(|| FieldPathError::NeedsQuotes {
                        text: text.to_owned(),
                        found: '[',
                    })?;
                keys.push(key);
                after = behind;
            }
            match after.chars().next() {
                None => return Ok(Self { keys }),
                Some('.') => rest = &after[1..],
                Some(found) => {
                    return Err(FieldPathError::NeedsQuotes {
                        text: text.to_owned(),
                        found,
                    });
                }
            }
        }
    }

    /// The keys, outermost first; at least one.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The name of this field in a row's group: its keys joined by dots, without quotes.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = String::new();
        for (at, key) in self.keys.iter().enumerate() {
            match key {
                Key::Name(name) if at == 0 => label.push_str(name),
                Key::Name(name) => label = label + "." + name,
                Key::Index(index) => label += &format!("[{index}]"),
            }
        }
        label
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.keys.iter().enumerate() {
            let key = match key {
                Key::Index(index) => {
                    write!(f, "[{index}]")?;
                    continue;
                }
                Key::Name(name) => name,
            };
            if at > 0 {
                f.write_str(".")?;
            }
            if !key.is_empty() && key.chars().all(is_plain) {
                f.write_str(key)?;
            } else {
                write!(f, "\"{}\"", key.replace('"', "\"\""))?;
            }
        }
        Ok(())
    }
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '@' | '#' | '$')
}

fn plain_key(text: &str) -> (String, &str) {
    let end = text.find(|c| !is_plain(c)).unwrap_or(text.len());
    (text[..end].to_owned(), &text[end..])
}

/// What stands behind `[`, up to its `]`: a number, or a key in single quotes.
fn subscript(text: &str) -> Option<(Key, &str)> {
    if let Some(quoted) = text.strip_prefix('\'') {
        let (name, rest) = quoted.split_once('\'')?;
        return Some((Key::from(name), rest.strip_prefix(']')?));
    }
    let (digits, rest) = text.split_once(']')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let index = is_number.then(|| digits.parse().ok()).flatten()?;
    Some((Key::index(index)?, rest))
}

fn quoted_key(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        key.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                key.push('"');
                rest = after;
            }
            None => return Some((key, rest)),
        }
    }
}

/// The fields that are decoded, each once; its place is its [`Column`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    paths: Vec<FieldPath>,
}

impl FieldSet {
    /// A set without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The column of `path`, which is added if the set lacks it.
    pub fn insert(&mut self, path: FieldPath) -> Column {
        if let Some(column) = self.column(&path) {
            return column;
        }
        self.paths.push(path);
        Column(self.paths.len() - 1)
    }

    /// The column of `path`, if the set has it.
    #[must_use]
    pub fn column(&self, path: &FieldPath) -> Option<Column> {
        self.paths
            .iter()
            .position(|known| known == path)
            .map(Column)
    }

    /// The fields in the order of their columns.
    #[must_use]
    pub fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// Number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether no field is decoded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// All fields of all sets, in the order in which they first occur.
    #[must_use]
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a FieldSet>) -> Self {
        let mut union = Self::new();
        for path in sets.into_iter().flat_map(|set| &set.paths) {
            union.insert(path.clone());
        }
        union
    }
}

/// The same pipeline with the columns of `onto` in place of those of `from`; `None` if `onto` lacks
/// a field of `from`.
#[must_use]
pub fn remap(spec: &PipelineSpec, from: &FieldSet, onto: &FieldSet) -> Option<PipelineSpec> {
    let columns: Option<Vec<Column>> = from.paths.iter().map(|path| onto.column(path)).collect();
    let columns = columns?;
    let mut spec = spec.clone();
    spec.move_columns(&mut |column| match column.derived() {
        Some(_) => Some(column),
        None => columns.get(column.0).copied(),
    })?;
    Some(spec)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let keys = FieldPath::parse(text).unwrap().keys.into_iter();
        keys.map(|key| match key {
            Key::Name(name) => name,
            Key::Index(index) => format!("#{index}"),
        })
        .collect()
    }

    #[test]
    fn a_dot_nests_and_quotes_make_one_key() {
        assert_eq!(keys("a.b"), ["a", "b"]);
        assert_eq!(keys("\"a.b\""), ["a.b"]);
        assert_eq!(
            keys("zones.\"eu.example\".hits"),
            ["zones", "eu.example", "hits"]
        );
        assert_eq!(keys("\"say \"\"hi\"\"\""), ["say \"hi\""]);
        assert_eq!(keys("items[0].price"), ["items", "#0", "price"]);
        assert_eq!(keys("a['b.c'][12][3]"), ["a", "b.c", "#12", "#3"]);
        assert_eq!(keys("_path"), ["_path"]);
        assert_eq!(keys("@timestamp"), ["@timestamp"]);
        assert_eq!(keys("\"\""), [""]);
    }

    #[test]
    fn what_is_no_field_name_is_refused() {
        for text in [
            "", "a.", ".a", "a..b", "a b", "upper(a)", "\"a", "a-b", "\"a\"b", "a[", "a[]", "a[x]",
            "a[100]", "a[-1]", "a['b]", "[0]",
        ] {
            assert!(FieldPath::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_field_name_is_shown_as_it_can_be_written() {
        for text in [
            "a.b",
            "\"a.b\"",
            "zones.\"eu.example\".hits",
            "\"say \"\"hi\"\"\"",
            "\"\"",
            "items[0].\"unit price\"",
        ] {
            assert_eq!(FieldPath::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_union_keeps_the_columns_of_its_first_set() {
        let set = |texts: &[&str]| {
            let mut set = FieldSet::new();
            for text in texts {
                set.insert(FieldPath::parse(text).unwrap());
            }
            set
        };
        let union = FieldSet::union([&set(&["ts", "rtt"]), &set(&["city", "ts"])]);
        assert_eq!(union, set(&["ts", "rtt", "city"]));
    }
}
