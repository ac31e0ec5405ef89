//! What is wrong in a config file, and what to do about it.

use std::fmt;

/// One problem in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file as the user named it.
    pub file: String,
    /// The line of the key, from 1, or of the table that lacks it; where it is known.
    pub line: Option<usize>,
    /// The key with its tables, as `cluster.tick_interval` or `source "orders": kafka.topic`; empty where the whole
    /// file is meant.
    pub key: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl ConfigProblem {
    /// A problem with the key at that path, whose line is not known yet.
    #[must_use]
    pub fn new(file: &str, key: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            key: key.to_owned(),
            message: message.into(),
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.message)
    }
}

/// All problems of a config, in the order of the files' keys; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// At least one.
    pub problems: Vec<ConfigProblem>,
}

impl ConfigErrors {
    /// One problem that concerns a whole file.
    #[must_use]
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            problems: vec![ConfigProblem::new(file, "", message)],
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
