//! What the commands that ask a running node have in common.

use std::io::{ErrorKind, Write};

use tokio::runtime::Runtime;
use unisono_api::client::ClientError;

use super::error::CliError;

/// Where a node answers if nothing else is said.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:8101";

/// A runtime for requests.
pub(super) fn runtime() -> Result<Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| {
        CliError::failure(format!("cannot start a runtime: {error}"))
            .hint("look at the limits of open files and memory")
    })
}

/// A failed request as a person reads it. What the node calls a bad request is wrong usage.
pub(super) fn node_error(error: ClientError) -> CliError {
    let text = error.to_string();
    match error {
        ClientError::Address { .. } => {
            CliError::usage(text).hint(format!("give --url an address such as {DEFAULT_URL}"))
        }
        ClientError::Unreachable { .. } => CliError::failure(text)
            .hint("start the node, or name another one of the cluster with --url"),
        ClientError::Refused {
            status: 400 | 404,
            detail,
        } => CliError::usage(detail.message).hint(detail.hint),
        ClientError::Refused { detail, .. } => CliError::failure(detail.message).hint(detail.hint),
        ClientError::Foreign { .. } => CliError::failure(text)
            .hint("look at what runs there, and whether it has this program's version"),
    }
}

/// Writes to standard output. Who closes the pipe early has seen enough.
pub(super) fn print(text: &[u8]) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::failure(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// The table's columns side by side, two spaces between them, no spaces at a line's end.
pub(super) fn aligned(table: &[Vec<String>]) -> String {
    let columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        table
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let mut text = String::new();
    for row in table {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
