//! `unisono query`: published rows of a pipeline, from any node.

use std::io::{self, BufWriter, IsTerminal, Write};

use unisono_api::MAX_LIMIT;
use unisono_api::client::{Client, RowsRequest};

use super::error::CliError;
use super::remote::{DEFAULT_URL, node_error, runtime};
use super::rows::{Format, RowPrinter, Stop};

/// Arguments of `unisono query`.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryArgs {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The HTTP address of any node.
    #[arg(long, default_value = DEFAULT_URL)]
    pub url: String,
    /// Only windows that end after this: RFC 3339, or milliseconds since 1970.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Only windows that start before this: RFC 3339, or milliseconds since 1970.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Only rows with this value in a field of the group; can be given for several fields.
    #[arg(long = "group", value_name = "FIELD=VALUE", value_parser = parse_group)]
    pub groups: Vec<(String, String)>,
    /// At most so many rows, the oldest first; all if it is not given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// How rows are written: a table on a terminal, else ndjson.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
}

/// Asks a node for rows, page by page, and writes them to the standard output; how many to the standard error.
///
/// # Errors
/// Exit code 64 for an unknown pipeline or a parameter that the node refuses, 1 where it does not answer or the output
/// cannot be written.
pub fn query(args: &QueryArgs) -> Result<(), CliError> {
    let client = Client::new(&args.url).map_err(node_error)?;
    let stdout = io::stdout();
    let default = if stdout.is_terminal() {
        Format::Table
    } else {
        Format::Ndjson
    };
    let out = BufWriter::new(stdout.lock());
    let mut printer = RowPrinter::new(out, args.format.unwrap_or(default));
    match copy_rows(args, &client, &mut printer) {
        Ok(Copied { rows, published }) => {
            eprintln!("{rows} rows; published below seq {published}");
            Ok(())
        }
        // Who closes the pipe has seen enough.
        Err(Stop::OutputClosed) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

struct Copied {
    rows: u64,
    published: u64,
}

fn copy_rows<W: Write>(
    args: &QueryArgs,
    client: &Client,
    printer: &mut RowPrinter<W>,
) -> Result<Copied, Stop> {
    let runtime = runtime()?;
    let mut request = RowsRequest {
        from: args.from.clone(),
        to: args.to.clone(),
        groups: args.groups.clone(),
        ..RowsRequest::default()
    };
    let mut rows = 0;
    loop {
        let wanted = args
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(rows));
        request.limit = Some(usize::try_from(wanted).unwrap_or(usize::MAX).min(MAX_LIMIT));
        let page = runtime
            .block_on(client.windows(&args.pipeline, &request))
            .map_err(node_error)?;
        for line in page.lines() {
            printer.print(line)?;
            rows += 1;
        }
        request.cursor = page.next_cursor;
        let reached = args.limit.is_some_and(|limit| rows >= limit);
        if request.cursor.is_none() || reached {
            printer.finish()?;
            return Ok(Copied {
                rows,
                published: page.published,
            });
        }
    }
}

fn parse_group(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((field, value)) if !field.is_empty() => Ok((field.to_owned(), value.to_owned())),
        _ => Err("give FIELD=VALUE, such as city=Oslo".to_owned()),
    }
}
