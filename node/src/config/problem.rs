//! What is wrong in a config file, and what to do about it.

use std::fmt;

/// One problem in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file as the user named it.
    pub file: String,
    /// The key with its tables, as `cluster.tick_interval`; empty where the whole file is meant.
    pub key: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, key, message } = self;
        if key.is_empty() {
            write!(f, "{file}: {message}")
        } else {
            write!(f, "{file}: {key}: {message}")
        }
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
        let problem = ConfigProblem {
            file: file.to_owned(),
            key: String::new(),
            message: message.into(),
        };
        Self {
            problems: vec![problem],
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
