//! Rows as NDJSON, CSV or a table. Numbers keep their own digits.

use std::fmt;
use std::io::{self, Write};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::CliError;
use super::table::{Align, Table};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    Ndjson,
    /// Columns for a person.
    Table,
    /// Comma-separated values with a header.
    Csv,
}

/// Writes rows in the chosen format.
pub struct RowPrinter<W> {
    format: Format,
    state: State<W>,
}

enum State<W> {
    /// No row was seen: its columns are not known.
    Waiting(Option<W>),
    Lines(W),
    Table(Table<W>),
}

#[derive(Deserialize)]
struct RowFields<'a> {
    start: String,
    end: String,
    #[serde(borrow)]
    group: Fields<'a>,
    #[serde(borrow)]
    values: Fields<'a>,
}

/// An object's fields in their own order, which is that of the pipeline's definition.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl RowFields<'_> {
    fn parse(line: &[u8]) -> io::Result<RowFields<'_>> {
        serde_json::from_slice(line).map_err(|error| {
            let what = format!("the node gave a row that has no columns: {error}");
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    fn columns(&self) -> Vec<(String, Align)> {
        let names = |fields: &Fields<'_>| fields.0.iter().map(|(name, _)| name.clone()).collect();
        columns(names(&self.group), names(&self.values))
    }

    /// The cells' texts; `None` is null.
    fn cells(self) -> Vec<Option<String>> {
        let fields = self.group.0.iter().chain(&self.values.0);
        let texts = fields.map(|(_, raw)| text_of(raw.get()));
        let times = [self.start, self.end].into_iter().map(Some);
        times.chain(texts).collect()
    }
}

/// The columns of rows with these fields, no two with one name: where a name is taken, it is written as in the row's
/// JSON, `group.n` and `values.n`.
pub fn columns(group: Vec<String>, values: Vec<String>) -> Vec<(String, Align)> {
    const TIMES: [&str; 2] = ["start", "end"];
    let taken =
        |name: &String, others: &[String]| TIMES.contains(&name.as_str()) || others.contains(name);
    let named = |fields: &[String], others: &[String], place: &str, align| -> Vec<_> {
        let name = |field: &String| match taken(field, others) {
            true => format!("{place}.{field}"),
            false => field.clone(),
        };
        fields.iter().map(|field| (name(field), align)).collect()
    };
    let mut columns: Vec<_> = TIMES.map(|name| (name.to_owned(), Align::Left)).into();
    columns.extend(named(&group, &values, "group", Align::Left));
    columns.extend(named(&values, &group, "values", Align::Right));
    for at in 1..columns.len() {
        // A field that is itself called group.n.
        while columns[..at].iter().any(|(name, _)| *name == columns[at].0) {
            columns[at].0.push('_');
        }
    }
    columns
}

fn text_of(raw: &str) -> Option<String> {
    match raw {
        "null" => None,
        text if text.starts_with('"') => {
            Some(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()))
        }
        other => Some(other.to_owned()),
    }
}

impl<W: Write> RowPrinter<W> {
    /// A printer that takes its columns from the first row.
    pub fn new(out: W, format: Format) -> Self {
        Self {
            format,
            state: State::Waiting(Some(out)),
        }
    }

    /// A printer whose columns are known, so that they are named even if there is no row.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn with_columns(out: W, format: Format, columns: Vec<(String, Align)>) -> io::Result<Self> {
        let state = begin(format, out, || Ok(columns))?;
        Ok(Self { format, state })
    }

    /// Writes one row, given as its JSON.
    ///
    /// # Errors
    /// It cannot be written, or is no row.
    pub fn print(&mut self, line: &[u8]) -> io::Result<()> {
        if let State::Waiting(out) = &mut self.state
            && let Some(out) = out.take()
        {
            self.state = begin(self.format, out, || Ok(RowFields::parse(line)?.columns()))?;
        }
        match &mut self.state {
            State::Waiting(_) => Ok(()),
            State::Lines(out) if self.format == Format::Ndjson => {
                out.write_all(line)?;
                out.write_all(b"\n")
            }
            State::Lines(out) => write_csv(out, RowFields::parse(line)?.cells()),
            State::Table(table) => {
                let cells = RowFields::parse(line)?.cells().into_iter();
                let shown = cells.map(|cell| cell.unwrap_or_else(|| "null".to_owned()));
                table.push(&shown.collect::<Vec<_>>())
            }
        }
    }

    /// Writes what is still held back.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Waiting(_) => Ok(()),
            State::Lines(out) => out.flush(),
            State::Table(table) => table.finish(),
        }
    }
}

fn begin<W: Write>(
    format: Format,
    mut out: W,
    columns: impl FnOnce() -> io::Result<Vec<(String, Align)>>,
) -> io::Result<State<W>> {
    match format {
        Format::Ndjson => Ok(State::Lines(out)),
        Format::Csv => {
            write_csv(&mut out, columns()?.into_iter().map(|(name, _)| Some(name)))?;
            Ok(State::Lines(out))
        }
        Format::Table => Ok(State::Table(Table::new(out, columns()?))),
    }
}

/// Null is nothing between two commas, a text without characters is a pair of quotes.
fn write_csv(
    out: &mut impl Write,
    cells: impl IntoIterator<Item = Option<String>>,
) -> io::Result<()> {
    let quoted = cells.into_iter().map(|cell| match cell {
        None => String::new(),
        Some(cell) if cell.is_empty() || cell.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", cell.replace('"', "\"\""))
        }
        Some(cell) => cell,
    });
    let line = quoted.collect::<Vec<_>>().join(",");
    write!(out, "{line}\r\n")
}

/// Why printing ends early.
pub enum Stop {
    /// Who reads has seen enough.
    OutputClosed,
    /// It cannot go on.
    Failed(CliError),
}

impl From<CliError> for Stop {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            io::ErrorKind::InvalidData => {
                Self::Failed(CliError::failure(error.to_string()).hint("use --format ndjson"))
            }
            _ => Self::Failed(CliError::failure(format!("cannot write rows: {error}"))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ROWS: [&str; 2] = [
        r#"{"seq":0,"start":"s","end":"e","group":{"z":"a,\"b\"","a":null},"values":{"n":1.10,"b":9223372036854775808}}"#,
        r#"{"seq":1,"start":"s","end":"e","group":{"z":7,"a":"x"},"values":{"n":null,"b":0}}"#,
    ];

    fn check(format: Format, expected: &str) {
        let mut out = Vec::new();
        let mut printer = RowPrinter::new(&mut out, format);
        for row in ROWS {
            printer.print(row.as_bytes()).unwrap();
        }
        printer.finish().unwrap();
        drop(printer);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn columns_keep_the_definitions_order_and_numbers_their_digits() {
        check(Format::Ndjson, &ROWS.map(|row| format!("{row}\n")).concat());
        let csv = "start,end,z,a,n,b\r\n\
                   s,e,\"a,\"\"b\"\"\",,1.10,9223372036854775808\r\n\
                   s,e,7,x,,0\r\n";
        check(Format::Csv, csv);
        let table = "\
start  end  z      a        n                    b
s      e    a,\"b\"  null  1.10  9223372036854775808
s      e    7      x     null                    0
";
        check(Format::Table, table);
    }

    #[test]
    fn csv_tells_null_from_an_empty_text_and_has_no_two_equal_columns() {
        let row = r#"{"start":"s","end":"e","group":{"n":"","end":null,"values.n":1},"values":{"n":2,"m":null}}"#;
        let mut out = Vec::new();
        let mut printer = RowPrinter::new(&mut out, Format::Csv);
        printer.print(row.as_bytes()).unwrap();
        printer.finish().unwrap();
        drop(printer);
        let expected = "start,end,group.n,group.end,values.n,values.n_,m\r\ns,e,\"\",,1,2,\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_row_without_columns_is_told_and_no_panic() {
        let mut printer = RowPrinter::new(Vec::new(), Format::Csv);
        let error = printer.print(b"[]").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
