//! Reads one table of a config file. What is asked for is known; what is left over is a typo.

use std::time::Duration;

use toml::{Table, Value};

use super::problem::ConfigProblem;
use super::{place, units};
use crate::likeness::nearest;

/// One table of a file while it is read. Every accessor notes its key as known, takes the value
/// out, and reports a value of the wrong type; [`Section::finish`] reports the keys that nobody
/// asked for.
pub struct Section<'p> {
    file: String,
    path: String,
    table: Table,
    known: Vec<&'static str>,
    problems: &'p mut Vec<ConfigProblem>,
}

impl<'p> Section<'p> {
    /// Starts to read `table`, which lies at `path` (empty for the file itself).
    pub fn new(file: &str, path: &str, table: Table, problems: &'p mut Vec<ConfigProblem>) -> Self {
        Self {
            file: file.to_owned(),
            path: path.to_owned(),
            table,
            known: Vec::new(),
            problems,
        }
    }

    /// The full path of `key`.
    pub fn path_of(&self, key: &str) -> String {
        place::join(&self.path, key)
    }

    /// Reports a problem with `key`.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        let key = if key.is_empty() {
            self.path.clone()
        } else {
            self.path_of(key)
        };
        self.problems
            .push(ConfigProblem::new(&self.file, &key, message));
    }

    /// Whether the table has `key` and nobody has taken it yet.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The file as the user named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Where problems are collected.
    pub fn problems(&mut self) -> &mut Vec<ConfigProblem> {
        self.problems
    }

    /// A text that stays to be taken.
    pub fn peek_string(&self, key: &str) -> Option<String> {
        self.table
            .get(key)
            .and_then(Value::as_str)
            .map(str::to_owned)
    }

    /// A list of texts that stays to be taken; what is no text is left out.
    pub fn peek_strings(&self, key: &str) -> Vec<String> {
        let items = self
            .table
            .get(key)
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    }

    /// Takes the value of `key`, of whatever type.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// Takes a text.
    pub fn string(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => self.wrong_type(key, "a text in quotes", &other),
        }
    }

    /// Takes a text that has to be there.
    pub fn required_string(&mut self, key: &'static str, example: &str) -> Option<String> {
        self.require(key, example);
        self.string(key)
    }

    /// Takes a whole number within `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<i64> {
        match self.take(key)? {
            Value::Integer(number) if range.contains(&number) => Some(number),
            Value::Integer(number) => {
                let (low, high) = range.into_inner();
                self.problem(
                    key,
                    format!("{number} is out of range; write {low} to {high}"),
                );
                None
            }
            other => self.wrong_type(key, "a whole number", &other),
        }
    }

    /// Takes a duration.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.parsed(key, units::parse_duration)
    }

    /// Takes a duration in milliseconds, which may be negative.
    pub fn duration_ms(&mut self, key: &'static str) -> Option<i64> {
        self.parsed(key, units::parse_duration_ms)
    }

    /// Takes a duration that is not negative, in milliseconds.
    pub fn positive_ms(&mut self, key: &'static str) -> Option<i64> {
        self.parsed(key, |text| match units::parse_duration_ms(text)? {
            millis if millis < 0 => Err(format!("\"{text}\" is negative; write 0 or more")),
            millis => Ok(millis),
        })
    }

    /// Takes a byte size.
    pub fn bytes(&mut self, key: &'static str) -> Option<u64> {
        self.parsed(key, units::parse_bytes)
    }

    /// Takes a text and reads it with `parse`.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.string(key)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(message) => {
                self.problem(key, message);
                None
            }
        }
    }

    /// Takes a list of texts.
    pub fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        let items = match self.take(key)? {
            Value::Array(items) => items,
            other => return self.wrong_type(key, "a list of texts", &other),
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::String(text) => texts.push(text),
                other => return self.wrong_type(key, "a list of texts", &other),
            }
        }
        Some(texts)
    }

    /// Takes a text, or a list of texts.
    pub fn one_or_more(&mut self, key: &'static str) -> Option<Vec<String>> {
        match self.table.get(key) {
            Some(Value::String(_)) => self.string(key).map(|text| vec![text]),
            _ => self.strings(key),
        }
    }

    /// Takes a table, to be read as a section of its own.
    pub fn table(&mut self, key: &'static str) -> Option<Table> {
        match self.take(key)? {
            Value::Table(table) => Some(table),
            other => self.wrong_type(key, "a table", &other),
        }
    }

    /// Takes a list of tables.
    pub fn tables(&mut self, key: &'static str) -> Vec<Table> {
        let items = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                let _: Option<()> =
                    self.wrong_type(key, &format!("a list: write [[{key}]]"), &other);
                return Vec::new();
            }
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::Table(table) => tables.push(table),
                other => {
                    let _: Option<()> = self.wrong_type(key, "a list of tables", &other);
                }
            }
        }
        tables
    }

    /// The section of the table at `key`.
    pub fn section(&mut self, key: &str, table: Table) -> Section<'_> {
        let path = self.path_of(key);
        Section::new(&self.file, &path, table, self.problems)
    }

    /// Reports `key` as missing if the table lacks it.
    pub fn require(&mut self, key: &'static str, example: &str) {
        if !self.has(key) {
            self.problem(key, format!("is missing; write {example}"));
        }
    }

    /// Refuses a key that the design knows and this version does not.
    pub fn not_supported(&mut self, keys: &[&'static str]) {
        for key in keys {
            if self.table.remove(*key).is_some() {
                self.problem(key, "not supported yet; remove it");
            }
        }
    }

    /// Takes what is left, where the keys are the user's own.
    pub fn take_all(&mut self) -> Table {
        std::mem::take(&mut self.table)
    }

    /// Reports a value of the wrong type. The value itself is not shown: it can be a secret.
    pub fn wrong_type<T>(&mut self, key: &str, wanted: &str, found: &Value) -> Option<T> {
        self.problem(
            key,
            format!("is {}, but must be {wanted}", type_name(found)),
        );
        None
    }

    /// Reports every key that nobody asked for, with the known key nearest to it.
    pub fn finish(mut self) {
        let unknown: Vec<String> = self.table.keys().cloned().collect();
        for key in unknown {
            let message = match nearest(&key, self.known.iter().copied()) {
                Some(near) => format!("unknown key; did you mean {near}?"),
                None => format!("unknown key; known here: {}", self.known.join(", ")),
            };
            self.problem(&key, message);
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number with a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// Parses a file's text. The message names line and column, never the text, in which a secret can
/// stand.
pub fn parse_toml(text: &str) -> Result<Table, String> {
    toml::from_str::<Table>(text).map_err(|error| {
        let at = error
            .span()
            .map_or(text.len(), |span| span.start)
            .min(text.len());
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        format!(
            "not TOML at line {line}, column {column}: {}",
            error.message().replace('\n', ", ")
        )
    })
}
