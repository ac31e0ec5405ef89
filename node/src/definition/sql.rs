//! Conditions and values, written in SQL, translated into the engine's terms.
//!
//! Field names: `a.b` is the key `b` of the object under `a`; `"a.b"` is the one key `a.b`. Text
//! stands in single quotes. What SQL allows and Unisono does not is refused with its place.

use sqlparser::ast::{
    BinaryOperator, Expr as Sql, Function as SqlFunction, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, InTarget, Spanned, UnaryOperator, Value,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token};
use unisono_engine::decimal::Decimal;
use unisono_engine::spec::{Column, CompareOp, Expr, Function, Operand};

use super::fields::{FieldPath, FieldSet};
use super::functions::{self, Argument};

/// Longest SQL text in bytes: bounds the depth of what the parser builds.
const MAX_SQL: usize = 10_000;

const CONDITIONS: &str = "a condition is made of = != <> < <= > >=, and, or, not, is null, \
                          is not null, in (…), between, parentheses, and fields that are booleans";
const OPERANDS: &str = "compare fields, 'text', numbers, true and false";
const VALUES: &str =
    "a value is a function of a field, as count(), sum(field), quantile(field, 0.99)";

/// Translates a condition; the fields that it names are added to `fields`.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse_condition(text: &str, fields: &mut FieldSet) -> Result<Expr, String> {
    condition(&parse(text)?, fields)
}

/// Translates one of the `values`; the field that it names is added to `fields`.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse_value(text: &str, fields: &mut FieldSet) -> Result<Function, String> {
    match parse(text)? {
        Sql::Function(function) => value_function(&function, fields),
        other => Err(refuse(other.span(), "is not a function", VALUES)),
    }
}

fn parse(text: &str) -> Result<Sql, String> {
    if text.trim().is_empty() {
        return Err("is empty; write an expression or remove the key".to_owned());
    }
    if text.len() > MAX_SQL {
        return Err(format!("is longer than {MAX_SQL} bytes; shorten it"));
    }
    let mut parser = Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(syntax)?;
    let expr = parser.parse_expr().map_err(syntax)?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(refuse(
            next.span,
            &format!("\"{}\" is not expected", next.token),
            CONDITIONS,
        ));
    }
    Ok(expr)
}

fn syntax(error: ParserError) -> String {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => "too deeply nested".to_owned(),
    };
    format!(
        "is not an expression: {message}; a field whose name SQL reserves goes in double quotes, \
         a text in single quotes"
    )
}

/// Where, what is wrong, what is allowed.
fn refuse(at: Span, what: &str, allowed: &str) -> String {
    match (at.start.line, at.start.column) {
        (0, _) => format!("{what}; {allowed}"),
        (1, column) => format!("at column {column}: {what}; {allowed}"),
        (line, column) => format!("at line {line}, column {column}: {what}; {allowed}"),
    }
}

fn condition(sql: &Sql, fields: &mut FieldSet) -> Result<Expr, String> {
    match sql {
        Sql::Nested(inner) => condition(inner, fields),
        Sql::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => Ok(not(condition(expr, fields)?)),
        Sql::BinaryOp {
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            ..
        } => {
            let parts = chain(sql, op)
                .into_iter()
                .map(|part| condition(part, fields))
                .collect::<Result<_, _>>()?;
            Ok(if *op == BinaryOperator::And {
                Expr::And(parts)
            } else {
                Expr::Or(parts)
            })
        }
        Sql::BinaryOp { left, op, right } => comparison(sql, (left, op, right), fields),
        Sql::IsNull(inner) => Ok(Expr::IsNull(operand(inner, fields)?)),
        Sql::IsNotNull(inner) => Ok(not(Expr::IsNull(operand(inner, fields)?))),
        Sql::In {
            expr,
            target: InTarget::List(list),
            negated,
            global: false,
        } => Ok(negate_if(*negated, one_of(expr, list, fields)?)),
        Sql::Between {
            expr,
            negated,
            low,
            high,
        } => Ok(negate_if(*negated, between(expr, low, high, fields)?)),
        Sql::Identifier(_) | Sql::CompoundIdentifier(_) | Sql::Value(_) => truth(sql, fields),
        other => Err(refuse(
            other.span(),
            &format!("{other} is not supported"),
            CONDITIONS,
        )),
    }
}

fn comparison(
    sql: &Sql,
    (left, op, right): (&Sql, &BinaryOperator, &Sql),
    fields: &mut FieldSet,
) -> Result<Expr, String> {
    let unknown = || {
        let what = format!("operator {op} is not supported");
        refuse(sql.span(), &what, CONDITIONS)
    };
    let op = compare_op(op).ok_or_else(unknown)?;
    let (left, right) = (operand(left, fields)?, operand(right, fields)?);
    Ok(Expr::Compare { left, op, right })
}

fn one_of(tested: &Sql, list: &[Sql], fields: &mut FieldSet) -> Result<Expr, String> {
    let left = operand(tested, fields)?;
    let equals = |right| Expr::Compare {
        left: left.clone(),
        op: CompareOp::Eq,
        right,
    };
    let items = list
        .iter()
        .map(|item| operand(item, fields).map(equals))
        .collect::<Result<_, _>>()?;
    Ok(Expr::Or(items))
}

fn between(tested: &Sql, low: &Sql, high: &Sql, fields: &mut FieldSet) -> Result<Expr, String> {
    let left = operand(tested, fields)?;
    let mut bound = |op, sql| {
        Ok::<_, String>(Expr::Compare {
            left: left.clone(),
            op,
            right: operand(sql, fields)?,
        })
    };
    Ok(Expr::And(vec![
        bound(CompareOp::Ge, low)?,
        bound(CompareOp::Le, high)?,
    ]))
}

/// A field or a literal that stands alone.
fn truth(sql: &Sql, fields: &mut FieldSet) -> Result<Expr, String> {
    match operand(sql, fields)? {
        truth @ (Operand::Column(_) | Operand::Bool(_) | Operand::Null) => Ok(Expr::Truth(truth)),
        Operand::Text(_) | Operand::Number(_) => Err(refuse(
            sql.span(),
            "a text or number alone is no condition",
            CONDITIONS,
        )),
    }
}

/// The parts of `a and b and c`, which the parser nests to the left. A loop, since a chain can be
/// thousands long.
fn chain<'a>(mut sql: &'a Sql, wanted: &BinaryOperator) -> Vec<&'a Sql> {
    let mut parts = Vec::new();
    while let Sql::BinaryOp { left, op, right } = sql
        && op == wanted
    {
        parts.push(right.as_ref());
        sql = left;
    }
    parts.push(sql);
    parts.reverse();
    parts
}

fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

fn compare_op(op: &BinaryOperator) -> Option<CompareOp> {
    Some(match op {
        BinaryOperator::Eq => CompareOp::Eq,
        BinaryOperator::NotEq => CompareOp::Ne,
        BinaryOperator::Lt => CompareOp::Lt,
        BinaryOperator::LtEq => CompareOp::Le,
        BinaryOperator::Gt => CompareOp::Gt,
        BinaryOperator::GtEq => CompareOp::Ge,
        _ => return None,
    })
}

fn operand(sql: &Sql, fields: &mut FieldSet) -> Result<Operand, String> {
    match sql {
        Sql::Nested(inner) => operand(inner, fields),
        Sql::Identifier(_) | Sql::CompoundIdentifier(_) => column(sql, fields).map(Operand::Column),
        Sql::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => number(expr, "-"),
        Sql::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        } => number(expr, ""),
        Sql::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Ok(Operand::Text(text.clone())),
            Value::Boolean(value) => Ok(Operand::Bool(*value)),
            Value::Null => Ok(Operand::Null),
            Value::Number(..) => number(sql, ""),
            other => Err(refuse(
                value.span,
                &format!("{other} is not supported"),
                OPERANDS,
            )),
        },
        other => Err(refuse(
            other.span(),
            &format!("{other} is not supported"),
            OPERANDS,
        )),
    }
}

fn number(sql: &Sql, sign: &str) -> Result<Operand, String> {
    if let Sql::Value(value) = sql
        && let Value::Number(digits, _) = &value.value
    {
        // SQL writes .5 and 5. where JSON, whose syntax the engine reads, wants 0.5 and 5.0.
        let head = if digits.starts_with('.') { "0" } else { "" };
        let (mantissa, exponent) = match digits.find(['e', 'E']) {
            Some(at) => digits.split_at(at),
            None => (digits.as_str(), ""),
        };
        let trimmed = mantissa.trim_start_matches('0');
        let mantissa = match trimmed.chars().next() {
            None => "0".to_owned(),
            Some('.') if head.is_empty() => format!("0{trimmed}"),
            Some(_) => format!("{head}{trimmed}"),
        };
        let tail = if mantissa.ends_with('.') { "0" } else { "" };
        return Decimal::parse(format!("{sign}{mantissa}{tail}{exponent}").as_bytes())
            .map(Operand::Number)
            .map_err(|error| refuse(value.span, &format!("{digits}: {error}"), OPERANDS));
    }
    Err(refuse(
        sql.span(),
        &format!("{sign}{sql} is not supported"),
        OPERANDS,
    ))
}

fn column(sql: &Sql, fields: &mut FieldSet) -> Result<Column, String> {
    let idents: &[Ident] = match sql {
        Sql::Identifier(ident) => std::slice::from_ref(ident),
        Sql::CompoundIdentifier(idents) => idents,
        other => return Err(refuse(other.span(), "is not a field name", VALUES)),
    };
    if let Some(odd) = idents
        .iter()
        .find(|ident| !matches!(ident.quote_style, None | Some('"')))
    {
        return Err(refuse(
            odd.span,
            "field names are quoted with double quotes alone",
            OPERANDS,
        ));
    }
    let keys = idents.iter().map(|ident| ident.value.clone()).collect();
    FieldPath::of_keys(keys)
        .map(|path| fields.insert(path))
        .ok_or_else(|| refuse(sql.span(), "an empty field name", OPERANDS))
}

fn value_function(function: &SqlFunction, fields: &mut FieldSet) -> Result<Function, String> {
    let span = function.span();
    let bare = !function.uses_odbc_syntax
        && function.parameters == FunctionArguments::None
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.over.is_none()
        && function.within_group.is_empty();
    let FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment: None,
        args,
        clauses,
    }) = &function.args
    else {
        return Err(refuse(
            span,
            &format!("{function} is not supported yet"),
            VALUES,
        ));
    };
    if !bare || !clauses.is_empty() {
        return Err(refuse(
            span,
            &format!("{function} is not supported yet"),
            VALUES,
        ));
    }
    let arguments = args.iter().map(|arg| argument(arg, span, fields));
    let arguments: Vec<Argument> = arguments.collect::<Result<_, _>>()?;
    functions::function(&function.name.to_string(), &arguments)
        .map_err(|refused| refuse(span, &refused.what, &refused.allowed))
}

/// What stands in a value's parentheses: `*`, a field or a number.
fn argument(arg: &FunctionArg, span: Span, fields: &mut FieldSet) -> Result<Argument, String> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => Ok(Argument::Star),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(sql)) => match operand(sql, fields)? {
            Operand::Column(column) => Ok(Argument::Column(column)),
            Operand::Number(number) => Ok(Argument::Number(number)),
            Operand::Text(_) | Operand::Bool(_) | Operand::Null => Err(refuse(
                sql.span(),
                &format!("{sql} is neither a field nor a number"),
                VALUES,
            )),
        },
        _ => Err(refuse(span, &format!("{arg} is not supported"), VALUES)),
    }
}

#[cfg(test)]
mod tests;
