//! Rows as a table for a person: columns as wide as they need to be.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// Rows that are looked at before widths are settled; later ones may stand out.
const LOOK_AHEAD: usize = 500;
/// Longest text shown in a cell, in characters.
const MAX_CELL: usize = 60;
const GAP: &str = "  ";

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// Writes rows below a line of headers.
#[derive(Debug)]
pub struct Table<W> {
    out: W,
    columns: Vec<(String, Align)>,
    widths: Vec<usize>,
    waiting: Vec<Vec<String>>,
    settled: bool,
}

impl<W: Write> Table<W> {
    /// A table with these columns, without rows.
    pub fn new(out: W, columns: Vec<(String, Align)>) -> Self {
        Self {
            out,
            columns,
            widths: Vec::new(),
            waiting: Vec::new(),
            settled: false,
        }
    }

    /// Adds a row; it has a cell for each column.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn push(&mut self, cells: &[String]) -> io::Result<()> {
        let cells: Vec<String> = cells.iter().map(|cell| shown(cell)).collect();
        if self.settled {
            return self.write(&cells);
        }
        self.waiting.push(cells);
        if self.waiting.len() < LOOK_AHEAD {
            Ok(())
        } else {
            self.settle()
        }
    }

    /// Writes what is waiting; without rows, the headers alone.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        if !self.settled {
            self.settle()?;
        }
        self.out.flush()
    }

    fn settle(&mut self) -> io::Result<()> {
        self.settled = true;
        let headers: Vec<String> = self.columns.iter().map(|(name, _)| shown(name)).collect();
        let waiting = std::mem::take(&mut self.waiting);
        self.widths = headers.iter().map(|header| header.width()).collect();
        for row in &waiting {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        self.write(&headers)?;
        waiting.iter().try_for_each(|row| self.write(row))
    }

    fn write(&mut self, cells: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            let width = self.widths.get(index).copied().unwrap_or(0);
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            let align = self
                .columns
                .get(index)
                .map_or(Align::Left, |(_, align)| *align);
            if index > 0 {
                line.push_str(GAP);
            }
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), cell]),
            }
        }
        writeln!(self.out, "{}", line.trim_end())
    }
}

/// A cell as it can be shown: a terminal must not obey what an event says.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == MAX_CELL {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let columns = vec![
            ("city".to_owned(), Align::Left),
            ("n".to_owned(), Align::Right),
        ];
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, columns);
        for (city, n) in [("台北", "7"), ("Oslo\u{1b}[2J", "1234")] {
            table.push(&[city.to_owned(), n.to_owned()]).unwrap();
        }
        table.finish().unwrap();
        let expected = concat!(
            "city              n\n",
            "台北              7\n",
            "Oslo\\u{1b}[2J  1234\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
