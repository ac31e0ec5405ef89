//! Expressions as canonical JSON: `{"column":0}`, `{"text":"x"}`, `"null"`,
//! `{"compare":[…,"=",…]}`, and a call as a list, `["upper",{"column":0}]`.

use serde_json::{Value, json};
use unisono_engine::decimal::Decimal;
use unisono_engine::expr::regular_expression;
use unisono_engine::spec::{Call, Column, CompareOp, Expr, Timestamp};

use super::{code_of, value_of};

const COMPARE_OPS: [(&str, CompareOp); 6] = [
    ("=", CompareOp::Eq),
    ("!=", CompareOp::Ne),
    ("<", CompareOp::Lt),
    ("<=", CompareOp::Le),
    (">", CompareOp::Gt),
    (">=", CompareOp::Ge),
];

/// Whether the first version of the program knew all of it.
pub(super) fn is_old(expr: &Expr) -> bool {
    match expr {
        Expr::Time(_) | Expr::Call(..) => false,
        Expr::Compare { left, right, .. } => is_leaf(left) && is_leaf(right),
        Expr::IsNull(inner) => is_leaf(inner),
        Expr::Not(inner) => is_old(inner),
        Expr::And(parts) | Expr::Or(parts) => parts.iter().all(is_old),
        leaf => is_leaf(leaf),
    }
}

fn is_leaf(expr: &Expr) -> bool {
    expr.children().is_empty()
        && !matches!(
            expr,
            Expr::Time(_) | Expr::Call(..) | Expr::And(_) | Expr::Or(_)
        )
}

/// What is asked for its truth: a field says so.
pub(super) fn write_condition(expr: &Expr) -> Value {
    match is_leaf(expr) {
        true => json!({"truth": write(expr)}),
        false => write(expr),
    }
}

pub(super) fn write(expr: &Expr) -> Value {
    let conditions = |parts: &[Expr]| parts.iter().map(write_condition).collect::<Vec<_>>();
    match expr {
        Expr::Null => json!("null"),
        Expr::Bool(value) => json!({"bool": value}),
        Expr::Number(number) => json!({"number": number.to_string()}),
        Expr::Text(text) => json!({"text": text}),
        Expr::Time(time) => json!({"time": time.0}),
        Expr::Column(column) => json!({"column": column.0}),
        Expr::Compare { left, op, right } => {
            json!({"compare": [write(left), code_of(&COMPARE_OPS, op), write(right)]})
        }
        Expr::IsNull(inner) => json!({"is_null": write(inner)}),
        Expr::Not(inner) => json!({"not": write_condition(inner)}),
        Expr::And(parts) => json!({"and": conditions(parts)}),
        Expr::Or(parts) => json!({"or": conditions(parts)}),
        Expr::Call(call, arguments) => {
            let name = std::iter::once(json!(call.name()));
            name.chain(arguments.iter().map(write)).collect()
        }
    }
}

/// Reads an expression over `count` columns.
pub(super) fn read(value: &Value, count: usize) -> Result<Expr, String> {
    let damaged = || format!("{value} is no expression");
    if let Value::Array(parts) = value {
        return read_call(parts, count).ok_or_else(damaged)?;
    }
    if value == "null" {
        return Ok(Expr::Null);
    }
    let object = value.as_object().filter(|object| object.len() == 1);
    let (kind, inner) = object.and_then(|it| it.iter().next()).ok_or_else(damaged)?;
    let boxed = || read(inner, count).map(Box::new);
    let list = || {
        let parts = inner.as_array().ok_or_else(damaged)?.iter();
        parts
            .map(|part| read(part, count))
            .collect::<Result<Vec<_>, String>>()
    };
    Ok(match kind.as_str() {
        "truth" => read(inner, count)?,
        "column" => {
            let column = inner.as_u64().and_then(|at| usize::try_from(at).ok());
            let column = column.ok_or_else(damaged)?;
            if column >= count {
                return Err(format!("no column {column}"));
            }
            Expr::Column(Column(column))
        }
        "text" => Expr::Text(inner.as_str().ok_or_else(damaged)?.to_owned()),
        "bool" => Expr::Bool(inner.as_bool().ok_or_else(damaged)?),
        "time" => Expr::Time(Timestamp(inner.as_i64().ok_or_else(damaged)?)),
        "number" => {
            let digits = inner.as_str().ok_or_else(damaged)?;
            let number = Decimal::parse(digits.as_bytes());
            Expr::Number(number.map_err(|error| format!("{digits}: {error}"))?)
        }
        "compare" => match inner.as_array().map(Vec::as_slice) {
            Some([left, Value::String(op), right]) => Expr::Compare {
                left: Box::new(read(left, count)?),
                op: value_of(&COMPARE_OPS, op)?,
                right: Box::new(read(right, count)?),
            },
            _ => return Err(damaged()),
        },
        "is_null" => Expr::IsNull(boxed()?),
        "not" => Expr::Not(boxed()?),
        "and" => Expr::And(list()?),
        "or" => Expr::Or(list()?),
        _ => return Err(damaged()),
    })
}

fn read_call(parts: &[Value], count: usize) -> Option<Result<Expr, String>> {
    let (name, arguments) = parts.split_first()?;
    let call = Call::of_name(name.as_str()?)?;
    let signature = call.signature();
    if !(signature.least..=signature.most).contains(&arguments.len()) {
        return None;
    }
    let arguments = arguments.iter().map(|argument| read(argument, count));
    let arguments = match arguments.collect::<Result<Vec<_>, _>>() {
        Ok(arguments) => arguments,
        Err(error) => return Some(Err(error)),
    };
    if let (Call::RegexpLike, [_, Expr::Text(pattern)]) = (call, arguments.as_slice())
        && let Err(error) = regular_expression(pattern)
    {
        return Some(Err(format!("pattern {pattern:?} {error}")));
    }
    Some(Ok(Expr::Call(call, arguments)))
}
