//! What the process says about itself: log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable that sets the log level where the command line does not.
pub const LOG_VARIABLE: &str = "UNISONO_LOG";
/// Raft's library warns of every peer that does not answer, again and again, and calls its own shutdown an error. What
/// people must know, the program says itself: who leads, and why it cannot go on.
const DEFAULT_FILTER: &str = "info,openraft=off";

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be read: wrong usage.
    #[error(
        "log level {filter:?} cannot be used: {reason}; give error, warn, info, debug or trace, \
         or a list such as info,unisono=debug"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The process has logging already: a fault of the program.
    #[error("logging is set up already")]
    SetTwice,
}

/// Sends log lines to standard error, filtered by `filter`, else by [`LOG_VARIABLE`], else `info`.
///
/// # Errors
/// [`TelemetryError`].
pub fn init(filter: Option<&str>) -> Result<(), TelemetryError> {
    let from_environment = std::env::var(LOG_VARIABLE)
        .ok()
        .filter(|text| !text.is_empty());
    let filter = filter
        .or(from_environment.as_deref())
        .unwrap_or(DEFAULT_FILTER);
    tracing_subscriber::fmt()
        .compact()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(parse_filter(filter)?)
        .finish()
        .try_init()
        .map_err(|_| TelemetryError::SetTwice)
}

fn parse_filter(filter: &str) -> Result<EnvFilter, TelemetryError> {
    // A lone word that is no level would be taken for the name of a module, and silence everything.
    let is_word = filter.chars().all(|c| c.is_ascii_alphabetic());
    let is_level = filter
        .parse::<tracing::level_filters::LevelFilter>()
        .is_ok();
    if filter.is_empty() || (is_word && !is_level) {
        let reason = "there is no such level".to_owned();
        return Err(TelemetryError::Filter {
            filter: filter.to_owned(),
            reason,
        });
    }
    EnvFilter::try_new(filter).map_err(|error| TelemetryError::Filter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_does_not_exist_is_refused() {
        for right in [
            "info",
            "WARN",
            "off",
            "debug,openraft=warn",
            "unisono::fetch=trace",
        ] {
            assert!(parse_filter(right).is_ok(), "{right}");
        }
        for wrong in ["", "verbose", "unisono=loud"] {
            assert!(parse_filter(wrong).is_err(), "{wrong}");
        }
    }
}
