//! Prepared expressions give what a plain evaluator gives, which knows nothing but the rules.

use std::cmp::Ordering;

use unisono_engine::decimal::Decimal;
use unisono_engine::expr::Evaluator;
use unisono_engine::record::{Cell, Cells, Record, RecordState};
use unisono_engine::spec::{Call, Column, CompareOp, Expr};

use crate::properties::Random;

/// A number is `mantissa · 10^-scale`.
#[derive(Clone, Debug, PartialEq)]
enum Plain {
    Null,
    Bool(bool),
    Number(i128, u32),
    Text(String),
    Nested,
}

/// Numbers grew beyond what is compared here.
struct TooLarge;

const COLUMNS: usize = 6;
const WORDS: [&str; 8] = ["", "a", "b", "ab", "aXb", "ÄB", "a%b", "a_b"];
const PATTERNS: [&str; 8] = ["", "%", "a%", "%b", "%x%", "_", "a_b", r"%\%_"];
const OPS: [CompareOp; 6] = [
    CompareOp::Eq,
    CompareOp::Ne,
    CompareOp::Lt,
    CompareOp::Le,
    CompareOp::Gt,
    CompareOp::Ge,
];

fn pick<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

fn plain(random: &mut Random) -> Plain {
    match random.below(8) {
        0 => Plain::Null,
        1 => Plain::Bool(random.below(2) == 0),
        2 | 3 => Plain::Text(pick(random, &WORDS).to_owned()),
        4 => Plain::Nested,
        _ => Plain::Number(i128::from(random.below(9)) * 5 - 20, random.below(2) as u32),
    }
}

fn literal(value: &Plain) -> Expr {
    match value {
        Plain::Null | Plain::Nested => Expr::Null,
        Plain::Bool(value) => Expr::Bool(*value),
        Plain::Number(mantissa, scale) => {
            Expr::Number(Decimal::from_parts(*mantissa, *scale).unwrap())
        }
        Plain::Text(text) => Expr::Text(text.clone()),
    }
}

fn expr(random: &mut Random, depth: u64) -> Expr {
    let some = |random: &mut Random, number: u64| -> Vec<Expr> {
        (0..number).map(|_| expr(random, depth - 1)).collect()
    };
    let one = |random: &mut Random| Box::new(expr(random, depth.saturating_sub(1)));
    if depth == 0 || random.below(6) == 0 {
        return match random.below(2) {
            0 => Expr::Column(Column(random.below(COLUMNS as u64) as usize)),
            _ => literal(&plain(random)),
        };
    }
    match random.below(12) {
        0 | 1 => Expr::Compare {
            left: one(random),
            op: pick(random, &OPS),
            right: one(random),
        },
        2 => Expr::IsNull(one(random)),
        3 => Expr::Not(one(random)),
        4 => {
            let number = random.below(4);
            Expr::And(some(random, number))
        }
        5 => {
            let number = random.below(4);
            Expr::Or(some(random, number))
        }
        6 => in_texts(random),
        7 => {
            let calls = [Call::Add, Call::Subtract, Call::Multiply, Call::Mod];
            Expr::Call(pick(random, &calls), some(random, 2))
        }
        8 => {
            let number = 1 + random.below(4);
            let calls = [Call::Coalesce, Call::Concat];
            Expr::Call(pick(random, &calls), some(random, number))
        }
        9 => {
            let number = 2 + random.below(4);
            let calls = [Call::Case, Call::In, Call::Join];
            Expr::Call(pick(random, &calls), some(random, number))
        }
        10 => {
            let text = *one(random);
            let pattern = Expr::Text(pick(random, &PATTERNS).to_owned());
            Expr::Call(
                pick(random, &[Call::Like, Call::ILike]),
                vec![text, pattern],
            )
        }
        _ => {
            let (call, number) = plain_call(random);
            Expr::Call(call, some(random, number))
        }
    }
}

/// Of one or two arguments of any kind.
fn plain_call(random: &mut Random) -> (Call, u64) {
    let calls = [
        (Call::NullIf, 2),
        (Call::IsDistinct, 2),
        (Call::StartsWith, 2),
        (Call::EndsWith, 2),
        (Call::IsTrue, 1),
        (Call::IsFalse, 1),
        (Call::Negate, 1),
        (Call::Abs, 1),
        (Call::Upper, 1),
        (Call::Lower, 1),
        (Call::Length, 1),
        (Call::ToText, 1),
    ];
    pick(random, &calls)
}

/// As `in` is written, also with many texts.
fn in_texts(random: &mut Random) -> Expr {
    let column = Column(random.below(COLUMNS as u64) as usize);
    let equal = |random: &mut Random| Expr::Compare {
        left: Box::new(Expr::Column(column)),
        op: CompareOp::Eq,
        right: Box::new(Expr::Text(pick(random, &WORDS).to_owned())),
    };
    Expr::Or((0..random.below(10)).map(|_| equal(random)).collect())
}

fn compare(left: &Plain, right: &Plain) -> Option<Ordering> {
    match (left, right) {
        (Plain::Bool(left), Plain::Bool(right)) => Some(left.cmp(right)),
        (Plain::Text(left), Plain::Text(right)) => Some(left.cmp(right)),
        (Plain::Number(left, scale), Plain::Number(right, others)) => {
            Some((left * 10_i128.pow(*others)).cmp(&(right * 10_i128.pow(*scale))))
        }
        _ => None,
    }
}

fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order == Ordering::Equal,
        CompareOp::Ne => order != Ordering::Equal,
        CompareOp::Lt => order == Ordering::Less,
        CompareOp::Le => order != Ordering::Greater,
        CompareOp::Gt => order == Ordering::Greater,
        CompareOp::Ge => order != Ordering::Less,
    }
}

fn of_truth(truth: Option<bool>) -> Plain {
    truth.map_or(Plain::Null, Plain::Bool)
}

fn truth(expr: &Expr, row: &[Plain]) -> Result<Option<bool>, TooLarge> {
    Ok(match evaluate(expr, row)? {
        Plain::Bool(value) => Some(value),
        _ => None,
    })
}

fn evaluate(expr: &Expr, row: &[Plain]) -> Result<Plain, TooLarge> {
    Ok(match expr {
        Expr::Null | Expr::Time(_) => Plain::Null,
        Expr::Bool(value) => Plain::Bool(*value),
        Expr::Number(number) => Plain::Number(number.mantissa(), number.scale()),
        Expr::Text(text) => Plain::Text(text.clone()),
        Expr::Column(column) => row[column.0].clone(),
        Expr::Compare { left, op, right } => {
            let order = compare(&evaluate(left, row)?, &evaluate(right, row)?);
            of_truth(order.map(|order| holds(*op, order)))
        }
        Expr::IsNull(inner) => Plain::Bool(evaluate(inner, row)? == Plain::Null),
        Expr::Not(inner) => of_truth(truth(inner, row)?.map(|value| !value)),
        Expr::And(parts) => all(true, parts, row)?,
        Expr::Or(parts) => all(false, parts, row)?,
        Expr::Call(call, arguments) => called(*call, arguments, row)?,
    })
}

fn all(neutral: bool, parts: &[Expr], row: &[Plain]) -> Result<Plain, TooLarge> {
    let mut truths = Vec::new();
    for part in parts {
        truths.push(truth(part, row)?);
    }
    Ok(if truths.contains(&Some(!neutral)) {
        Plain::Bool(!neutral)
    } else if truths.contains(&None) {
        Plain::Null
    } else {
        Plain::Bool(neutral)
    })
}

fn called(call: Call, arguments: &[Expr], row: &[Plain]) -> Result<Plain, TooLarge> {
    let mut values = Vec::new();
    for argument in arguments {
        values.push(evaluate(argument, row)?);
    }
    let is_true = |value: &Plain| *value == Plain::Bool(true);
    Ok(match (call, values.as_slice()) {
        (Call::IsTrue, [value]) => Plain::Bool(is_true(value)),
        (Call::IsFalse, [value]) => Plain::Bool(*value == Plain::Bool(false)),
        (Call::Coalesce, values) => {
            let found = values.iter().find(|value| **value != Plain::Null);
            found.cloned().unwrap_or(Plain::Null)
        }
        (Call::Case, values) => {
            let mut pairs = values.chunks_exact(2);
            let otherwise = pairs.remainder().first().cloned().unwrap_or(Plain::Null);
            let found = pairs.find(|pair| is_true(&pair[0]));
            found.map_or(otherwise, |pair| pair[1].clone())
        }
        (Call::In, [tested, items @ ..]) => {
            let equal = items
                .iter()
                .map(|item| compare(tested, item).map(Ordering::is_eq));
            let equal: Vec<Option<bool>> = equal.collect();
            match (equal.contains(&Some(true)), equal.contains(&None)) {
                (true, _) => Plain::Bool(true),
                (false, unknown) => of_truth((!unknown).then_some(false)),
            }
        }
        (Call::NullIf, [left, right]) => match compare(left, right) {
            Some(Ordering::Equal) => Plain::Null,
            _ => left.clone(),
        },
        (Call::IsDistinct, [left, right]) => Plain::Bool(match (left, right) {
            (Plain::Null, Plain::Null) => false,
            _ => compare(left, right) != Some(Ordering::Equal),
        }),
        (Call::Concat | Call::Join, values) => joined(call == Call::Join, values),
        (_, values) if values.contains(&Plain::Null) => Plain::Null,
        (Call::ToText, [value]) => shown(value).map_or(Plain::Null, Plain::Text),
        (Call::Negate, [Plain::Number(mantissa, scale)]) => Plain::Number(-mantissa, *scale),
        (Call::Abs, [Plain::Number(mantissa, scale)]) => Plain::Number(mantissa.abs(), *scale),
        (_, [Plain::Number(left, scale), Plain::Number(right, others)]) => {
            arithmetic(call, (*left, *scale), (*right, *others))?
        }
        (Call::Upper, [Plain::Text(text)]) => Plain::Text(text.to_uppercase()),
        (Call::Lower, [Plain::Text(text)]) => Plain::Text(text.to_lowercase()),
        (Call::Length, [Plain::Text(text)]) => Plain::Number(text.chars().count() as i128, 0),
        (Call::StartsWith, [Plain::Text(text), Plain::Text(part)]) => {
            Plain::Bool(text.starts_with(part.as_str()))
        }
        (Call::EndsWith, [Plain::Text(text), Plain::Text(part)]) => {
            Plain::Bool(text.ends_with(part.as_str()))
        }
        (Call::Like, [Plain::Text(text), Plain::Text(pattern)]) => Plain::Bool(like(text, pattern)),
        (Call::ILike, [Plain::Text(text), Plain::Text(pattern)]) => {
            Plain::Bool(like(&text.to_lowercase(), &pattern.to_lowercase()))
        }
        _ => Plain::Null,
    })
}

fn joined(strict: bool, values: &[Plain]) -> Plain {
    let mut text = String::new();
    for value in values {
        match (value, shown(value)) {
            (_, Some(part)) => text += &part,
            (Plain::Null, None) if !strict => {}
            _ => return Plain::Null,
        }
    }
    Plain::Text(text)
}

fn shown(value: &Plain) -> Option<String> {
    match value {
        Plain::Null | Plain::Nested => None,
        Plain::Bool(value) => Some(value.to_string()),
        Plain::Text(text) => Some(text.clone()),
        Plain::Number(mantissa, scale) => {
            let unit = 10_u128.pow(*scale);
            let (whole, part) = (
                mantissa.unsigned_abs() / unit,
                mantissa.unsigned_abs() % unit,
            );
            let sign = if *mantissa < 0 { "-" } else { "" };
            let text = format!("{sign}{whole}.{part:0width$}", width = *scale as usize);
            Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
        }
    }
}

fn arithmetic(call: Call, left: (i128, u32), right: (i128, u32)) -> Result<Plain, TooLarge> {
    let scale = left.1.max(right.1);
    let (one, other) = (
        left.0 * 10_i128.pow(scale - left.1),
        right.0 * 10_i128.pow(scale - right.1),
    );
    let (mantissa, scale) = match call {
        Call::Add => (one + other, scale),
        Call::Subtract => (one - other, scale),
        Call::Multiply => (left.0 * right.0, left.1 + right.1),
        Call::Mod if other == 0 => return Ok(Plain::Null),
        Call::Mod => (one % other, scale),
        _ => return Ok(Plain::Null),
    };
    match mantissa.abs() < 1_000_000_000_000 && scale < 6 {
        true => Ok(Plain::Number(mantissa, scale)),
        false => Err(TooLarge),
    }
}

/// By trying everything.
fn like(text: &str, pattern: &str) -> bool {
    let mut chars = pattern.chars();
    let first = text.chars().next();
    let rest = first.map_or("", |char| &text[char.len_utf8()..]);
    match chars.next() {
        None => text.is_empty(),
        Some('%') => like(text, chars.as_str()) || (first.is_some() && like(rest, pattern)),
        Some('_') => first.is_some() && like(rest, chars.as_str()),
        Some('\\') => first.is_some() && first == chars.next() && like(rest, chars.as_str()),
        char => first == char && like(rest, chars.as_str()),
    }
}

fn cells(row: &[Plain]) -> Cells {
    let mut cells = Cells::new(row.len());
    for (at, value) in row.iter().enumerate() {
        match value {
            Plain::Null if at % 2 == 0 => cells.set_null(Column(at)),
            Plain::Null => cells.set_missing(Column(at)),
            Plain::Bool(value) => cells.set_bool(Column(at), *value),
            Plain::Number(mantissa, scale) => {
                let number = Decimal::from_parts(*mantissa, *scale).unwrap();
                cells.set_number(Column(at), number);
            }
            Plain::Text(text) => cells.set_text(Column(at), text),
            Plain::Nested => cells.set_nested(Column(at)),
        }
    }
    cells
}

#[test]
fn prepared_expressions_give_what_a_plain_evaluator_gives() {
    let (mut compared, mut not_null) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random(seed * 2 + 1);
        // The first numbers of neighbouring seeds are alike.
        random.below(1);
        let expr = expr(&mut random, 4);
        let mut evaluator = Evaluator::new(&expr);
        for _ in 0..3 {
            let row: Vec<Plain> = (0..COLUMNS).map(|_| plain(&mut random)).collect();
            let Ok(expected) = evaluate(&expr, &row) else {
                continue;
            };
            let cells = cells(&row);
            let record = Record {
                offset: 0,
                append_time: None,
                state: RecordState::Decoded,
                payload: b"",
                cells: &cells,
            };
            let found = match evaluator.evaluate(&record) {
                Cell::Missing | Cell::Null | Cell::Bad => Plain::Null,
                Cell::Bool(value) => Plain::Bool(value),
                Cell::Number(number) => Plain::Number(number.mantissa(), number.scale()),
                Cell::Text(text) => Plain::Text(String::from_utf8(text.to_vec()).unwrap()),
                Cell::Nested => Plain::Nested,
            };
            let same = found == expected || compare(&found, &expected) == Some(Ordering::Equal);
            assert!(
                same,
                "seed {seed}: {expr:?} of {row:?}: {found:?}, not {expected:?}"
            );
            compared += 1;
            not_null += u32::from(expected != Plain::Null);
        }
    }
    assert!(
        compared > 50_000 && not_null > 15_000,
        "{compared} {not_null}"
    );
}
