//! Rows as NDJSON, CSV or a table.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Deserialize;
use serde_json::value::RawValue;
use unisono_engine::row::Row;
use unisono_engine::spec::PipelineSpec;

use super::Format;
use crate::cli::table::{Align, Table};

/// Writes rows in the chosen format.
pub enum RowWriter<W: Write> {
    Ndjson(W),
    Csv {
        out: W,
        columns: Columns,
        headed: bool,
    },
    Table {
        table: Table<W>,
        columns: Columns,
    },
}

/// The names of a row's columns besides start and end.
pub struct Columns {
    group: Vec<String>,
    values: Vec<String>,
}

/// What a row's JSON says, numbers in their own digits.
#[derive(Deserialize)]
struct RowFields<'a> {
    #[serde(borrow)]
    start: Cow<'a, str>,
    #[serde(borrow)]
    end: Cow<'a, str>,
    #[serde(borrow)]
    group: BTreeMap<Cow<'a, str>, &'a RawValue>,
    #[serde(borrow)]
    values: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

impl Columns {
    fn of(spec: &PipelineSpec) -> Self {
        Self {
            group: spec
                .group_by
                .iter()
                .map(|group| group.name.clone())
                .collect(),
            values: spec.values.iter().map(|value| value.name.clone()).collect(),
        }
    }

    fn headers(&self) -> Vec<(String, Align)> {
        let left = ["start".to_owned(), "end".to_owned()]
            .into_iter()
            .chain(self.group.clone());
        left.map(|name| (name, Align::Left))
            .chain(self.values.iter().map(|name| (name.clone(), Align::Right)))
            .collect()
    }

    /// The row's cells; what is null is written as `null`.
    fn cells(&self, row: &Row, null: &str) -> io::Result<Vec<String>> {
        let fields: RowFields<'_> = serde_json::from_slice(&row.json)?;
        let of = |map: &BTreeMap<Cow<'_, str>, &RawValue>, name: &String| {
            map.get(name.as_str())
                .map_or_else(|| null.to_owned(), |raw| text_of(raw.get(), null))
        };
        let mut cells = vec![fields.start.into_owned(), fields.end.into_owned()];
        cells.extend(self.group.iter().map(|name| of(&fields.group, name)));
        cells.extend(self.values.iter().map(|name| of(&fields.values, name)));
        Ok(cells)
    }
}

fn text_of(raw: &str, null: &str) -> String {
    match raw {
        "null" => null.to_owned(),
        text if text.starts_with('"') => {
            serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
        }
        other => other.to_owned(),
    }
}

impl<W: Write> RowWriter<W> {
    /// A writer of the rows of `spec` to `out`.
    pub fn new(out: W, format: Format, spec: &PipelineSpec) -> Self {
        let columns = Columns::of(spec);
        match format {
            Format::Ndjson => Self::Ndjson(out),
            Format::Csv => Self::Csv {
                out,
                columns,
                headed: false,
            },
            Format::Table => Self::Table {
                table: Table::new(out, columns.headers()),
                columns,
            },
        }
    }

    /// Writes one row.
    pub fn write(&mut self, row: &Row) -> io::Result<()> {
        match self {
            Self::Ndjson(out) => {
                out.write_all(&row.json)?;
                out.write_all(b"\n")
            }
            Self::Csv {
                out,
                columns,
                headed,
            } => {
                write_header(out, columns, headed)?;
                write_csv(out, &columns.cells(row, "")?)
            }
            Self::Table { table, columns } => table.push(&columns.cells(row, "null")?),
        }
    }

    /// Writes what is still held back.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Ndjson(out) => out.flush(),
            Self::Csv {
                out,
                columns,
                headed,
            } => {
                write_header(out, columns, headed)?;
                out.flush()
            }
            Self::Table { table, .. } => table.finish(),
        }
    }
}

fn write_header(out: &mut impl Write, columns: &Columns, headed: &mut bool) -> io::Result<()> {
    if std::mem::replace(headed, true) {
        return Ok(());
    }
    let names: Vec<String> = columns
        .headers()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    write_csv(out, &names)
}

fn write_csv(out: &mut impl Write, cells: &[String]) -> io::Result<()> {
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        if cell.contains([',', '"', '\n', '\r']) {
            write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            out.write_all(cell.as_bytes())?;
        }
    }
    out.write_all(b"\r\n")
}
