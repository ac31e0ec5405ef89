//! Properties passed on to the Kafka client. Some of them are secrets.

use std::collections::BTreeMap;
use std::fmt;

/// Names and values for the Kafka client. Its `Debug` shows names alone: a value can be a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: BTreeMap<String, String>,
}

impl Properties {
    /// Takes the entries as they are; which names are allowed is checked where they are read.
    #[must_use]
    pub fn new(entries: BTreeMap<String, String>) -> Self {
        Self { entries }
    }

    /// Names and values, ordered by name. Values must not be logged.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value under `name`. It must not be logged.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries.keys().map(|name| (name, "***")))
            .finish()
    }
}
