//! How the records of a pipeline's sources are written: part of the definition, for it decides rows.

use serde::{Deserialize, Serialize};
use unisono_engine::expr::regular_expression;

/// Largest record in bytes that a definition may allow, and what it allows if it says nothing: larger ones
/// are not even read whole from files.
pub const MOST_RECORD_BYTES: usize = 16 << 20;
/// More columns than any table of events has.
const MOST_COLUMNS: usize = 1000;

/// How a payload becomes fields. Feeds read the same for all of their pipelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// How records are written.
    pub format: Format,
    /// A larger record is a dead letter; at most [`MOST_RECORD_BYTES`].
    pub record_bytes: usize,
}

impl Default for Decoding {
    fn default() -> Self {
        Self {
            format: Format::default(),
            record_bytes: MOST_RECORD_BYTES,
        }
    }
}

/// How records are written. Serialized, it is part of the canonical text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON.
    Json {
        /// A record may hold an array of documents, each of which counts for itself.
        array: bool,
    },
    /// Texts with a layout.
    Text(TextFormat),
    /// Maps of MessagePack. They have no lines, so files of them are no lanes.
    MessagePack,
}

impl Default for Format {
    fn default() -> Self {
        Self::Json { array: false }
    }
}

/// Records that are texts: their values have no types of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextFormat {
    /// Where fields stand.
    pub layout: Layout,
    /// What stands for null.
    pub nulls: Vec<String>,
    /// Names of fields that stay texts, whatever they look like.
    pub texts: Vec<String>,
}

/// Where the fields of a text stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Layout {
    /// One behind the other, as in CSV and TSV.
    Separated {
        /// What stands between them: ASCII.
        delimiter: char,
        /// What a field may stand in: ASCII.
        quote: Option<char>,
        /// The names, in order.
        columns: Vec<String>,
    },
    /// `key=value`, with spaces between.
    Logfmt,
    /// Where the named groups of a regular expression match.
    Regex {
        /// The expression.
        pattern: String,
    },
}

impl Format {
    /// The names that its fields can have; `None`: any.
    #[must_use]
    pub fn names(&self) -> Option<Vec<String>> {
        let Self::Text(text) = self else { return None };
        match &text.layout {
            Layout::Logfmt => None,
            Layout::Separated { columns, .. } => Some(columns.clone()),
            Layout::Regex { pattern } => {
                let regex = regular_expression(pattern).ok()?;
                let names = regex.capture_names().flatten();
                Some(names.map(str::to_owned).collect())
            }
        }
    }

    /// What is wrong with it: the key, and a sentence about it.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Self::Text(text) = self else {
            return Ok(());
        };
        match &text.layout {
            Layout::Logfmt => {}
            Layout::Separated {
                delimiter,
                quote,
                columns,
            } => check_separated(*delimiter, *quote, columns)?,
            Layout::Regex { pattern } => {
                let regex = regular_expression(pattern).map_err(|error| ("pattern", error))?;
                if regex.capture_names().flatten().next().is_none() {
                    let message = "names no group; write, say, ^(?<time>\\S+) (?<status>\\d+)";
                    return Err(("pattern", message.to_owned()));
                }
            }
        }
        if let Some(names) = self.names()
            && let Some(unknown) = text.texts.iter().find(|text| !names.contains(text))
        {
            let known = names.join(", ");
            return Err((
                "text",
                format!("\"{unknown}\" is no field; known here: {known}"),
            ));
        }
        Ok(())
    }
}

fn check_separated(
    delimiter: char,
    quote: Option<char>,
    columns: &[String],
) -> Result<(), (&'static str, String)> {
    let is_usable = |char: char| char.is_ascii() && !matches!(char, '\n' | '\r' | '\0');
    if !is_usable(delimiter) {
        let message =
            format!("{delimiter:?} cannot stand between fields; write an ASCII character");
        return Err(("delimiter", message));
    }
    if let Some(quote) = quote
        && (!is_usable(quote) || quote == delimiter)
    {
        let message =
            format!("{quote:?} cannot be a quote; write an ASCII character that is no delimiter");
        return Err(("quote", message));
    }
    if columns.is_empty() || columns.len() > MOST_COLUMNS {
        let message = format!("must be the names of 1 to {MOST_COLUMNS} columns, in their order");
        return Err(("columns", message));
    }
    for (at, name) in columns.iter().enumerate() {
        if columns[..at].contains(name) {
            return Err(("columns", format!("\"{name}\" is named twice")));
        }
    }
    Ok(())
}
