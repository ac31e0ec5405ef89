//! Names of fields and literals.

use sqlparser::ast::{AccessExpr, Expr as Sql, Ident, Spanned, Subscript, TypedString, Value};
use unisono_engine::decimal::Decimal;
use unisono_engine::spec::Expr;

use super::expression::as_time;
use super::refuse;
use crate::definition::fields::Key;

/// How a field is written.
pub(super) const FIELDS: &str = "write a field as a.b, \"a.b\" for one key, a['b'] or a[0]";

/// The keys of a field name.
pub(super) fn keys_of(sql: &Sql) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    push_keys(sql, &mut keys)?;
    Ok(keys)
}

fn push_keys(sql: &Sql, keys: &mut Vec<Key>) -> Result<(), String> {
    let mut push = |idents: &[Ident]| {
        for ident in idents {
            if !matches!(ident.quote_style, None | Some('"')) {
                let what = "field names are quoted with double quotes alone";
                return Err(refuse(ident.span, what, FIELDS));
            }
            keys.push(Key::Name(ident.value.clone()));
        }
        Ok(())
    };
    match sql {
        Sql::Identifier(ident) => push(std::slice::from_ref(ident)),
        Sql::CompoundIdentifier(idents) => push(idents),
        Sql::CompoundFieldAccess { root, access_chain } => {
            push_keys(root, keys)?;
            for access in access_chain {
                match access {
                    AccessExpr::Dot(inner) => push_keys(inner, keys)?,
                    AccessExpr::Subscript(Subscript::Index { index }) => {
                        keys.push(subscript(index)?);
                    }
                    AccessExpr::Subscript(Subscript::Slice { .. }) => {
                        return Err(refuse(sql.span(), "a slice of an array", FIELDS));
                    }
                }
            }
            Ok(())
        }
        Sql::Function(word) => {
            let what = format!("{word} means something of its own in SQL");
            let hint = format!("if it is a field, write \"{word}\" in double quotes");
            Err(refuse(sql.span(), &what, &hint))
        }
        other => Err(refuse(other.span(), "is not a field name", FIELDS)),
    }
}

fn subscript(index: &Sql) -> Result<Key, String> {
    let key = match index {
        Sql::Value(value) => match &value.value {
            Value::SingleQuotedString(name) => Some(Key::Name(name.clone())),
            Value::Number(digits, _) => digits.parse().ok().and_then(Key::index),
            _ => None,
        },
        _ => None,
    };
    key.ok_or_else(|| {
        let what = format!("[{index}] is no index");
        let hint = format!("write [0] to [{}], or ['key']", Key::MAX_INDEX);
        refuse(index.span(), &what, &hint)
    })
}

pub(super) fn literal(value: &Value, sql: &Sql) -> Result<Expr, String> {
    match value {
        Value::SingleQuotedString(text) => Ok(Expr::Text(text.clone())),
        Value::Boolean(value) => Ok(Expr::Bool(*value)),
        Value::Null => Ok(Expr::Null),
        Value::Number(digits, _) => number(digits, "", sql),
        other => {
            let what = format!("{other} is not supported");
            Err(refuse(sql.span(), &what, "write a text as 'text'"))
        }
    }
}

/// `timestamp '2026-01-31 12:00:00'`, `date '2026-01-31'`.
pub(super) fn typed_literal(typed: &TypedString, sql: &Sql) -> Result<Expr, String> {
    let kind = typed.data_type.to_string().to_ascii_lowercase();
    match (
        &typed.value.value,
        kind.starts_with("timestamp") || kind == "date",
    ) {
        (Value::SingleQuotedString(text), true) => as_time(Expr::Text(text.clone()), sql),
        _ => {
            let what = format!("{sql} is not supported");
            Err(refuse(
                sql.span(),
                &what,
                "write timestamp '2026-01-31T12:00:00Z'",
            ))
        }
    }
}

/// SQL writes .5 and 5. where JSON, whose syntax the engine reads, wants 0.5 and 5.0.
pub(super) fn number(digits: &str, sign: &str, sql: &Sql) -> Result<Expr, String> {
    let head = if digits.starts_with('.') { "0" } else { "" };
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => digits.split_at(at),
        None => (digits, ""),
    };
    let trimmed = mantissa.trim_start_matches('0');
    let mantissa = match trimmed.chars().next() {
        None => "0".to_owned(),
        Some('.') if head.is_empty() => format!("0{trimmed}"),
        Some(_) => format!("{head}{trimmed}"),
    };
    let tail = if mantissa.ends_with('.') { "0" } else { "" };
    Decimal::parse(format!("{sign}{mantissa}{tail}{exponent}").as_bytes())
        .map(Expr::Number)
        .map_err(|error| refuse(sql.span(), &format!("{digits}: {error}"), "shorten it"))
}
