//! Expressions over one record, with SQL's three-valued logic: prepared once, evaluated for each
//! record without an allocation.

use crate::record::{Cell, Cells, Record, RecordState};
use crate::spec::{Column, Expr};

mod call;
mod compile;
mod pattern;
mod text;
mod time;
mod value;

use compile::Node;
use value::{Text, Value, compare, holds};

pub use pattern::{MOST_PATTERN, regular_expression};
pub use time::{Unit, parse_time};
pub(crate) use value::Work;

/// An expression, prepared.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    root: Node,
    /// The parts of it that may meet values that they cannot use.
    sites: Vec<Expr>,
}

impl Compiled {
    pub(crate) fn new(expr: &Expr) -> Self {
        let mut sites = Vec::new();
        let root = compile::value(expr, &mut sites);
        Self { root, sites }
    }

    /// The same, for an expression that is asked for its truth.
    pub(crate) fn condition(expr: &Expr) -> Self {
        let mut sites = Vec::new();
        let root = compile::condition(expr, &mut sites);
        Self { root, sites }
    }

    /// The memory that it works in.
    pub(crate) fn work(&self) -> Work {
        Work::new(self.sites.len())
    }

    /// Parts that met values which they could not use, with how often.
    pub(crate) fn misfits<'a>(&'a self, work: &'a Work) -> impl Iterator<Item = (&'a Expr, u64)> {
        let all = self.sites.iter().zip(work.misfits.iter().copied());
        all.filter(|(_, number)| *number > 0)
    }

    /// Whether the record is selected: the condition is true, neither false nor unknown.
    #[inline]
    pub(crate) fn selects(&self, record: &Record<'_>, work: &mut Work) -> bool {
        work.begin();
        truth(&self.root, record, work) == Some(true)
    }

    /// Computes it, and puts the result into a cell: bad where it is null because something could
    /// not be used.
    #[inline]
    pub(crate) fn write(
        &self,
        record: &Record<'_>,
        work: &mut Work,
        column: Column,
        cells: &mut Cells,
    ) {
        work.begin();
        match value(&self.root, record, work) {
            Value::Null if work.misfit => cells.set_bad(column),
            Value::Null => cells.set_null(column),
            Value::Bool(value) => cells.set_bool(column, value),
            Value::Number(number) => cells.set_number(column, number),
            Value::Text(text) => cells.set_text_with(column, |out| {
                out.extend_from_slice(work.bytes(text));
                true
            }),
            Value::Time(time) => cells.set_text_with(column, |out| {
                crate::timestamp::write_to(time, out);
                true
            }),
            Value::Nested => cells.set_nested(column),
        }
    }
}

/// An expression with its memory, for one record after another.
#[derive(Debug)]
pub struct Evaluator {
    compiled: Compiled,
    work: Work,
    cells: Cells,
}

impl Evaluator {
    /// Prepares an expression over decoded fields.
    #[must_use]
    pub fn new(expr: &Expr) -> Self {
        let compiled = Compiled::new(expr);
        Self {
            work: compiled.work(),
            compiled,
            cells: Cells::new(1),
        }
    }

    /// What the expression gives for a record, as a derived column: a time as its text in RFC 3339,
    /// [`Cell::Bad`] where it is null because something could not be used.
    pub fn evaluate(&mut self, record: &Record<'_>) -> Cell<'_> {
        self.cells.clear();
        let cells = &mut self.cells;
        self.compiled
            .write(record, &mut self.work, Column(0), cells);
        self.cells.cell(Column(0), b"")
    }
}

/// What the expression is for a record without fields, where that is the same for all: a literal.
fn constant(node: &Node, sites: usize) -> Option<Expr> {
    let cells = Cells::new(0);
    let record = Record {
        offset: 0,
        append_time: None,
        state: RecordState::Decoded,
        payload: b"",
        cells: &cells,
    };
    let mut work = Work::new(sites);
    let found = value(node, &record, &mut work);
    // What does not fit is to be counted for each record.
    if work.misfit {
        return None;
    }
    Some(match found {
        Value::Null => Expr::Null,
        Value::Bool(value) => Expr::Bool(value),
        Value::Number(number) => Expr::Number(number),
        Value::Text(text) => Expr::Text(work.str(text).to_owned()),
        Value::Time(time) => Expr::Time(time),
        Value::Nested => return None,
    })
}

/// `None` is SQL's unknown.
pub(crate) fn truth<'a>(node: &'a Node, record: &Record<'a>, work: &mut Work) -> Option<bool> {
    match node {
        Node::CompareNumber {
            column,
            op,
            number,
            site,
        } => match Value::of_cell(record.cell(*column)) {
            Value::Number(found) => Some(holds(*op, found.cmp(number))),
            Value::Null => None,
            _ => missed(work, *site),
        },
        Node::CompareText {
            column,
            op,
            text,
            site,
        } => match Value::of_cell(record.cell(*column)) {
            Value::Text(found) => Some(holds(*op, work.bytes(found).cmp(text))),
            Value::Null => None,
            _ => missed(work, *site),
        },
        Node::InTexts {
            column,
            texts,
            site,
        } => match Value::of_cell(record.cell(*column)) {
            Value::Text(Text::Given(found)) => {
                let place = texts.binary_search_by(|text| (**text).cmp(found));
                Some(place.is_ok())
            }
            Value::Null => None,
            _ => missed(work, *site),
        },
        Node::Compare { sides, op, site } => {
            let left = value(&sides.0, record, work);
            let right = value(&sides.1, record, work);
            match compare(left, right, work) {
                Some(ordering) => Some(holds(*op, ordering)),
                None if left.is_null() || right.is_null() => None,
                None => missed(work, *site),
            }
        }
        Node::IsNull(inner) => Some(value(inner, record, work).is_null()),
        Node::Not(inner) => truth(inner, record, work).map(|value| !value),
        Node::And(parts) => all_are(true, parts, record, work),
        Node::Or(parts) => all_are(false, parts, record, work),
        Node::Like { text, like, site } => {
            let found = call::text(value(text, record, work), *site, work)?;
            Some(like.matches(work.bytes(found)))
        }
        Node::Regexp { text, regex, site } => {
            let found = call::text(value(text, record, work), *site, work)?;
            Some(regex.is_match(work.bytes(found)))
        }
        Node::Truth(inner, site) => match value(inner, record, work) {
            Value::Bool(value) => Some(value),
            Value::Null => None,
            _ => missed(work, *site),
        },
        other => match value(other, record, work) {
            Value::Bool(value) => Some(value),
            _ => None,
        },
    }
}

/// Unknown, since something was there that could not be used.
#[cold]
fn missed(work: &mut Work, site: usize) -> Option<bool> {
    work.miss(site);
    None
}

/// `neutral` if all parts are that, its opposite as soon as one is, else unknown: "and" for true,
/// "or" for false.
fn all_are<'a>(
    neutral: bool,
    parts: &'a [Node],
    record: &Record<'a>,
    work: &mut Work,
) -> Option<bool> {
    let mut result = Some(neutral);
    for part in parts {
        match truth(part, record, work) {
            Some(value) if value == neutral => {}
            Some(value) => return Some(value),
            None => result = None,
        }
    }
    result
}

pub(crate) fn value<'a>(node: &'a Node, record: &Record<'a>, work: &mut Work) -> Value<'a> {
    match node {
        Node::Null => Value::Null,
        Node::Bool(value) => Value::Bool(*value),
        Node::Number(number) => Value::Number(*number),
        Node::Text(text) => Value::Text(Text::Given(text)),
        Node::Time(time) => Value::Time(*time),
        Node::Column(column) => Value::of_cell(record.cell(*column)),
        Node::Arithmetic { call, sides, site } => {
            let left = value(&sides.0, record, work);
            let right = value(&sides.1, record, work);
            call::arithmetic(*call, left, right, *site, work)
        }
        Node::Case(parts) => {
            for branch in parts.chunks(2) {
                match branch {
                    [condition, result] if truth(condition, record, work) == Some(true) => {
                        return value(result, record, work);
                    }
                    [otherwise] => return value(otherwise, record, work),
                    _ => {}
                }
            }
            Value::Null
        }
        Node::Coalesce(parts) => {
            let mut parts = parts.iter().map(|part| value(part, record, work));
            parts.find(|value| !value.is_null()).unwrap_or(Value::Null)
        }
        Node::DateTrunc { unit, time, site } => {
            let time = call::time(value(time, record, work), *site, work);
            let cut = time.and_then(|time| time::truncate(*unit, time));
            cut.map_or(Value::Null, Value::Time)
        }
        Node::Extract { unit, time, site } => {
            let time = call::time(value(time, record, work), *site, work);
            Value::from(time.and_then(|time| time::extract(*unit, time)))
        }
        Node::Call {
            call,
            arguments,
            site,
        } => call::call(*call, arguments, *site, record, work),
        condition => truth(condition, record, work).map_or(Value::Null, Value::Bool),
    }
}
