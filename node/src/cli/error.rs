//! What a command ends with when it fails: one line, details, a hint, and an exit code.

use std::fmt;
use std::process::ExitCode;

use crate::config::ConfigErrors;

/// Exit code for wrong usage or config: the same command fails again, do not restart it.
pub const EXIT_USAGE: u8 = 64;
/// Exit code for a failure at work: restarting can help.
pub const EXIT_FAILURE: u8 = 1;

/// A failed command, as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    exit_code: u8,
    primary: String,
    details: Vec<String>,
    hint: Option<String>,
}

impl CliError {
    /// Wrong usage or config: exit code 64.
    #[must_use]
    pub fn usage(primary: impl Into<String>) -> Self {
        Self::new(EXIT_USAGE, primary.into())
    }

    /// A failure at work: exit code 1.
    #[must_use]
    pub fn failure(primary: impl Into<String>) -> Self {
        Self::new(EXIT_FAILURE, primary.into())
    }

    fn new(exit_code: u8, primary: String) -> Self {
        Self {
            exit_code,
            primary,
            details: Vec::new(),
            hint: None,
        }
    }

    /// Adds a line that says more.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// 64 or 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Prints the error on standard error; gives the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        eprintln!("{self}");
        ExitCode::from(self.exit_code)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.primary)?;
        for detail in &self.details {
            write!(f, "\n  {detail}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CliError {}

impl From<ConfigErrors> for CliError {
    fn from(errors: ConfigErrors) -> Self {
        let count = errors.problems.len();
        let primary = match count {
            1 => "the config has a problem".to_owned(),
            _ => format!("the config has {count} problems"),
        };
        errors
            .problems
            .iter()
            .fold(Self::usage(primary), |error, problem| {
                error.detail(problem.to_string())
            })
    }
}
