//! Conditions over one record, with SQL's three-valued logic.

use std::cmp::Ordering;

use crate::decimal::Decimal;
use crate::record::{Cell, Record};
use crate::spec::{CompareOp, Expr, Operand};

/// What an operand is in one record. Absent, null and unusable are one: null.
enum Value<'a> {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(&'a [u8]),
}

/// Whether the record is selected: the condition is true, neither false nor
/// unknown.
pub(crate) fn selects(condition: &Expr, record: &Record<'_>) -> bool {
    truth(condition, record) == Some(true)
}

/// `None` is SQL's unknown.
fn truth(condition: &Expr, record: &Record<'_>) -> Option<bool> {
    match condition {
        Expr::Compare { left, op, right } => {
            let ordering = compare(&value(left, record), &value(right, record))?;
            Some(holds(*op, ordering))
        }
        Expr::IsNull(operand) => Some(matches!(value(operand, record), Value::Null)),
        Expr::Truth(operand) => match value(operand, record) {
            Value::Bool(value) => Some(value),
            _ => None,
        },
        Expr::Not(inner) => truth(inner, record).map(|value| !value),
        Expr::And(parts) => all_are(true, parts, record),
        Expr::Or(parts) => all_are(false, parts, record),
    }
}

/// `neutral` if all parts are that, its opposite as soon as one is, else unknown: "and" for true,
/// "or" for false.
fn all_are(neutral: bool, parts: &[Expr], record: &Record<'_>) -> Option<bool> {
    let mut result = Some(neutral);
    for part in parts {
        match truth(part, record) {
            Some(value) if value == neutral => {}
            Some(value) => return Some(value),
            None => result = None,
        }
    }
    result
}

fn value<'a>(operand: &'a Operand, record: &Record<'a>) -> Value<'a> {
    match operand {
        Operand::Column(column) => match record.cell(*column) {
            Cell::Missing | Cell::Null | Cell::Bad => Value::Null,
            Cell::Bool(value) => Value::Bool(value),
            Cell::Number(value) => Value::Number(value),
            Cell::Text(value) => Value::Text(value),
        },
        Operand::Text(value) => Value::Text(value.as_bytes()),
        Operand::Number(value) => Value::Number(*value),
        Operand::Bool(value) => Value::Bool(*value),
        Operand::Null => Value::Null,
    }
}

/// Unknown where one is null or the kinds differ: no text is turned into a number unasked.
fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => Some(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

fn holds(op: CompareOp, ordering: Ordering) -> bool {
    match op {
        CompareOp::Eq => ordering.is_eq(),
        CompareOp::Ne => ordering.is_ne(),
        CompareOp::Lt => ordering.is_lt(),
        CompareOp::Le => ordering.is_le(),
        CompareOp::Gt => ordering.is_gt(),
        CompareOp::Ge => ordering.is_ge(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::{Cells, RecordState};
    use crate::spec::Column;

    /// Columns: 0 a number 5, 1 a text "b", 2 true, 3 null, 4 missing, 5 unusable.
    fn cells() -> Cells {
        let mut cells = Cells::new(6);
        cells.set_number(Column(0), Decimal::from_i64(5));
        cells.set_text(Column(1), "b");
        cells.set_bool(Column(2), true);
        cells.set_null(Column(3));
        cells.set_bad(Column(5));
        cells
    }

    fn record(cells: &Cells) -> Record<'_> {
        Record {
            offset: 0,
            append_time: None,
            state: RecordState::Decoded,
            payload: b"{}",
            cells,
        }
    }

    fn column(column: usize) -> Operand {
        Operand::Column(Column(column))
    }

    fn number(text: &str) -> Operand {
        Operand::Number(Decimal::parse(text.as_bytes()).unwrap())
    }

    fn compare(left: Operand, op: CompareOp, right: Operand) -> Expr {
        Expr::Compare { left, op, right }
    }

    fn of(condition: &Expr) -> Option<bool> {
        truth(condition, &record(&cells()))
    }

    #[test]
    fn comparisons_are_by_value_within_one_kind() {
        use CompareOp::{Eq, Ge, Gt, Le, Lt, Ne};
        for (op, smaller, same, larger) in [
            (Eq, false, true, false),
            (Ne, true, false, true),
            (Lt, false, false, true),
            (Le, false, true, true),
            (Gt, true, false, false),
            (Ge, true, true, false),
        ] {
            assert_eq!(of(&compare(column(0), op, number("4.5"))), Some(smaller));
            assert_eq!(of(&compare(column(0), op, number("5.0"))), Some(same));
            assert_eq!(of(&compare(column(0), op, number("10"))), Some(larger));
            assert_eq!(
                of(&compare(column(1), op, Operand::Text("a".into()))),
                Some(smaller)
            );
            assert_eq!(
                of(&compare(column(1), op, Operand::Text("bb".into()))),
                Some(larger)
            );
        }
        assert_eq!(of(&compare(column(2), Eq, Operand::Bool(true))), Some(true));
    }

    #[test]
    fn a_comparison_with_null_or_another_kind_is_unknown() {
        let five = || Operand::Text("5".into());
        for other in [
            column(1),
            column(2),
            column(3),
            column(4),
            column(5),
            Operand::Null,
            five(),
        ] {
            assert_eq!(of(&compare(column(0), CompareOp::Ne, other)), None);
        }
    }

    #[test]
    fn only_null_absent_and_unusable_are_null() {
        let nulls: Vec<_> = (0..6).map(|at| of(&Expr::IsNull(column(at)))).collect();
        let expected = [false, false, false, true, true, true].map(Some);
        assert_eq!(nulls, expected);
        assert_eq!(of(&Expr::Truth(column(2))), Some(true));
        assert_eq!(of(&Expr::Truth(column(1))), None);
    }

    #[test]
    fn and_or_not_follow_the_three_valued_tables() {
        let make = |value: Option<bool>| match value {
            Some(value) => Expr::Truth(Operand::Bool(value)),
            None => Expr::Truth(Operand::Null),
        };
        let (t, f, u) = (Some(true), Some(false), None);
        for (left, right, and, or) in [
            (t, t, t, t),
            (t, f, f, t),
            (t, u, u, t),
            (f, f, f, f),
            (f, u, f, u),
            (u, f, f, u),
            (u, t, u, t),
            (u, u, u, u),
        ] {
            assert_eq!(of(&Expr::And(vec![make(left), make(right)])), and);
            assert_eq!(of(&Expr::Or(vec![make(left), make(right)])), or);
        }
        assert_eq!(of(&Expr::Not(Box::new(make(u)))), None);
        assert_eq!(of(&Expr::Not(Box::new(make(t)))), Some(false));
        assert!(!selects(&make(u), &record(&cells())));
    }
}
