//! One expression of the parser's into one of the engine's, with its kinds checked.

use sqlparser::ast::{BinaryOperator, Expr as Sql, InTarget, Spanned, UnaryOperator, Value};
use unisono_engine::decimal::Decimal;
use unisono_engine::expr::parse_time;
use unisono_engine::record::Cell;
use unisono_engine::spec::{Call, Column, CompareOp, Expr, Kind};

use super::call::{self, invoke};
use super::leaf::{FIELDS, keys_of, literal, number, typed_literal};
use super::{expect, refuse};
use crate::definition::fields::{FieldPath, FieldSet, Key};

const EXPRESSIONS: &str = "an expression is made of fields, 'text', numbers, true, false, null, \
                           comparisons, and, or, not, is null, in (…), between, like, arithmetic, \
                           case, cast, and the functions in docs/configuration.md";
/// Deepest nesting: the agreed text of a definition must be read again, and its evaluation must not
/// exhaust a stack.
const MAX_DEPTH: usize = 50;

/// What names mean.
pub(super) struct Scope<'a> {
    names: NamesOf<'a>,
    depth: usize,
    pub(super) warnings: Vec<String>,
}

enum NamesOf<'a> {
    Record(&'a mut FieldSet),
    Row {
        values: &'a [String],
        groups: &'a [String],
    },
}

impl<'a> Scope<'a> {
    /// Fields of a record, to which those that are named are added.
    pub(super) fn of_record(fields: &'a mut FieldSet) -> Self {
        Self::new(NamesOf::Record(fields))
    }

    /// Values and groups of a row.
    pub(super) fn of_row(values: &'a [String], groups: &'a [String]) -> Self {
        Self::new(NamesOf::Row { values, groups })
    }

    fn new(names: NamesOf<'a>) -> Self {
        Self {
            names,
            depth: 0,
            warnings: Vec::new(),
        }
    }

    pub(super) fn is_row(&self) -> bool {
        matches!(self.names, NamesOf::Row { .. })
    }

    fn column(&mut self, keys: Vec<Key>, sql: &Sql) -> Result<Column, String> {
        let path =
            FieldPath::of_keys(keys).ok_or_else(|| refuse(sql.span(), "an empty name", FIELDS))?;
        match &mut self.names {
            NamesOf::Record(fields) => Ok(fields.insert(path)),
            NamesOf::Row { values, groups } => {
                let label = path.label();
                let all: Vec<&String> = values.iter().chain(*groups).collect();
                let mut found = (0..all.len()).filter(|at| *all[*at] == label);
                match (found.next(), found.next()) {
                    (Some(at), None) => Ok(Column(at)),
                    (Some(_), Some(_)) => {
                        let what = format!("{label} is a value and a group");
                        Err(refuse(sql.span(), &what, "rename the value"))
                    }
                    (None, _) => {
                        let names: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
                        let what = format!("{label} is neither a value nor a group of the row");
                        let hint = format!("known here: {}", names.join(", "));
                        Err(refuse(sql.span(), &what, &hint))
                    }
                }
            }
        }
    }
}

/// An expression that is asked for its truth.
pub(super) fn condition(sql: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    let expr = expression(sql, scope)?;
    match expr.kind() {
        Kind::Any | Kind::Bool => Ok(expr),
        kind => {
            let what = format!("{sql} is {}, no condition", kind.name());
            Err(refuse(sql.span(), &what, "compare it with something"))
        }
    }
}

pub(super) fn expression(sql: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    scope.depth += 1;
    if scope.depth > MAX_DEPTH {
        let what = format!("too deeply nested, more than {MAX_DEPTH} levels");
        return Err(refuse(sql.span(), &what, "shorten it"));
    }
    let expr = translate(sql, scope);
    scope.depth -= 1;
    expr
}

fn translate(sql: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    match sql {
        Sql::Nested(inner) => translate(inner, scope),
        Sql::Identifier(_) | Sql::CompoundIdentifier(_) | Sql::CompoundFieldAccess { .. } => {
            let keys = keys_of(sql)?;
            scope.column(keys, sql).map(Expr::Column)
        }
        Sql::Value(value) => literal(&value.value, sql),
        Sql::TypedString(typed) => typed_literal(typed, sql),
        Sql::UnaryOp { op, expr } => unary(*op, expr, sql, scope),
        Sql::BinaryOp { left, op, right } => binary((left, op, right), sql, scope),
        Sql::IsNull(inner) => Ok(is_null(expression(inner, scope)?)),
        Sql::IsNotNull(inner) => Ok(not(is_null(expression(inner, scope)?))),
        Sql::IsUnknown(inner) => Ok(is_null(condition(inner, scope)?)),
        Sql::IsNotUnknown(inner) => Ok(not(is_null(condition(inner, scope)?))),
        Sql::IsTrue(inner) => Ok(one(Call::IsTrue, condition(inner, scope)?)),
        Sql::IsNotTrue(inner) => Ok(not(one(Call::IsTrue, condition(inner, scope)?))),
        Sql::IsFalse(inner) => Ok(one(Call::IsFalse, condition(inner, scope)?)),
        Sql::IsNotFalse(inner) => Ok(not(one(Call::IsFalse, condition(inner, scope)?))),
        Sql::IsDistinctFrom(left, right) => distinct(left, right, scope),
        Sql::IsNotDistinctFrom(left, right) => Ok(not(distinct(left, right, scope)?)),
        Sql::In {
            expr,
            target: InTarget::List(list),
            negated,
            global: false,
        } => Ok(negate_if(*negated, one_of(expr, list, scope)?)),
        Sql::Between {
            expr,
            negated,
            low,
            high,
        } => {
            let left = expression(expr, scope)?;
            let low = compare_with(left.clone(), CompareOp::Ge, expr, low, scope)?;
            let high = compare_with(left, CompareOp::Le, expr, high, scope)?;
            Ok(negate_if(*negated, Expr::And(vec![low, high])))
        }
        other => match invoke(other, scope)? {
            Some(expr) => Ok(expr),
            None => {
                let what = format!("{other} is not supported");
                Err(refuse(other.span(), &what, EXPRESSIONS))
            }
        },
    }
}

fn unary(op: UnaryOperator, inner: &Sql, sql: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    match op {
        UnaryOperator::Not => Ok(not(condition(inner, scope)?)),
        UnaryOperator::Minus | UnaryOperator::Plus => {
            let minus = op == UnaryOperator::Minus;
            if let Sql::Value(value) = inner
                && let Value::Number(digits, _) = &value.value
            {
                return number(digits, if minus { "-" } else { "" }, inner);
            }
            let expr = expression(inner, scope)?;
            expect(&expr, Kind::Number, inner, "a sign")?;
            match minus {
                true => Ok(one(Call::Negate, expr)),
                false => Ok(expr),
            }
        }
        _ => {
            let what = format!("{sql} is not supported");
            Err(refuse(sql.span(), &what, EXPRESSIONS))
        }
    }
}

fn binary(
    (left, op, right): (&Sql, &BinaryOperator, &Sql),
    sql: &Sql,
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    if let Some(op) = compare_op(op) {
        warn_of_quotes(left, right, scope);
        let left_expr = expression(left, scope)?;
        return compare_with(left_expr, op, left, right, scope);
    }
    if let Some(call) = arithmetic_op(op) {
        warn_of_dash(left, op, right, scope);
        let arguments = [left, right].map(|side| {
            let expr = expression(side, scope)?;
            expect(&expr, Kind::Number, side, &op.to_string())?;
            Ok::<_, String>(expr)
        });
        let [left_expr, right_expr] = arguments;
        let arguments = vec![left_expr?, right_expr?];
        let divides = matches!(call, Call::Divide | Call::Mod);
        if divides && arguments[1] == Expr::Number(Decimal::ZERO) {
            return Err(refuse(sql.span(), "a division by 0", "divide by something"));
        }
        return Ok(Expr::Call(call, arguments));
    }
    match op {
        BinaryOperator::And | BinaryOperator::Or => {
            let parts = chain(sql, op).into_iter();
            let parts = parts.map(|part| condition(part, scope));
            let parts = parts.collect::<Result<_, _>>()?;
            Ok(match op {
                BinaryOperator::And => Expr::And(parts),
                _ => Expr::Or(parts),
            })
        }
        BinaryOperator::StringConcat => {
            let parts = chain(sql, op).into_iter();
            let parts = parts.map(|part| expression(part, scope));
            Ok(Expr::Call(Call::Join, parts.collect::<Result<_, _>>()?))
        }
        _ => {
            let what = format!("operator {op} is not supported");
            Err(refuse(sql.span(), &what, EXPRESSIONS))
        }
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

fn distinct(left: &Sql, right: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    let left_expr = expression(left, scope)?;
    let right_expr = expression(right, scope)?;
    let (left, right) = matched((left_expr, left), (right_expr, right))?;
    Ok(Expr::Call(Call::IsDistinct, vec![left, right]))
}

fn one_of(tested: &Sql, list: &[Sql], scope: &mut Scope<'_>) -> Result<Expr, String> {
    let left = expression(tested, scope)?;
    if matches!(left, Expr::Column(_)) {
        let items = list
            .iter()
            .map(|item| compare_with(left.clone(), CompareOp::Eq, tested, item, scope));
        return Ok(Expr::Or(items.collect::<Result<_, _>>()?));
    }
    let mut arguments = vec![left];
    for item in list {
        let right = expression(item, scope)?;
        let (left, right) = matched((arguments[0].clone(), tested), (right, item))?;
        arguments[0] = left;
        arguments.push(right);
    }
    Ok(Expr::Call(Call::In, arguments))
}

pub(super) fn compare_with(
    left: Expr,
    op: CompareOp,
    left_sql: &Sql,
    right: &Sql,
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    let right_expr = expression(right, scope)?;
    let (left, right) = matched((left, left_sql), (right_expr, right))?;
    Ok(Expr::Compare {
        left: Box::new(left),
        op,
        right: Box::new(right),
    })
}

/// Both sides of a comparison, of one kind as far as is known: with a time, a text is read as one.
fn matched(left: (Expr, &Sql), right: (Expr, &Sql)) -> Result<(Expr, Expr), String> {
    let kinds = (left.0.kind(), right.0.kind());
    match kinds {
        (Kind::Time, Kind::Text | Kind::Any) => Ok((left.0, as_time(right.0, right.1)?)),
        (Kind::Text | Kind::Any, Kind::Time) => Ok((as_time(left.0, left.1)?, right.0)),
        (one, other) if one.may_be(other) => Ok((left.0, right.0)),
        (one, other) => {
            let what = format!(
                "{} is {}, {} is {}: they are never equal, and none is the larger",
                left.1,
                one.name(),
                right.1,
                other.name()
            );
            let hint = "cast one of them, as in cast(x as number) or cast(x as text)";
            Err(refuse(left.1.span(), &what, hint))
        }
    }
}

/// What is to be a time.
pub(super) fn as_time(expr: Expr, sql: &Sql) -> Result<Expr, String> {
    match &expr {
        Expr::Null => Ok(expr),
        Expr::Text(text) => match parse_time(Cell::Text(text.trim().as_bytes())) {
            Some(time) => Ok(Expr::Time(time)),
            None => {
                let what = format!("'{text}' is no time");
                let hint = "write it as 2026-01-31T12:00:00Z, or 2026-01-31";
                Err(refuse(sql.span(), &what, hint))
            }
        },
        _ if expr.kind() == Kind::Time => Ok(expr),
        _ => Ok(one(Call::ToTime, expr)),
    }
}

/// `status = "paid"`: legal, but the double quotes were hardly needed for a field.
fn warn_of_quotes(left: &Sql, right: &Sql, scope: &mut Scope<'_>) {
    for side in [left, right] {
        if let Sql::Identifier(ident) = side
            && ident.quote_style == Some('"')
            && !scope.is_row()
            && ident.value.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !call::is_keyword(&ident.value)
        {
            scope.warnings.push(format!(
                "\"{0}\" in double quotes is a field; if a text is meant, write '{0}'",
                ident.value
            ));
        }
    }
}

/// `x-y` without blanks: legal, but perhaps one key.
fn warn_of_dash(left: &Sql, op: &BinaryOperator, right: &Sql, scope: &mut Scope<'_>) {
    let (Sql::Identifier(one), BinaryOperator::Minus, Sql::Identifier(other)) = (left, op, right)
    else {
        return;
    };
    if one.span.end.line == other.span.start.line
        && one.span.end.column + 1 == other.span.start.column
    {
        scope.warnings.push(format!(
            "{one}-{other} is {one} minus {other}; if it is one key, write \"{one}-{other}\" in \
             double quotes"
        ));
    }
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

fn arithmetic_op(op: &BinaryOperator) -> Option<Call> {
    Some(match op {
        BinaryOperator::Plus => Call::Add,
        BinaryOperator::Minus => Call::Subtract,
        BinaryOperator::Multiply => Call::Multiply,
        BinaryOperator::Divide => Call::Divide,
        BinaryOperator::Modulo => Call::Mod,
        _ => return None,
    })
}

pub(super) fn one(call: Call, argument: Expr) -> Expr {
    Expr::Call(call, vec![argument])
}

fn is_null(expr: Expr) -> Expr {
    Expr::IsNull(Box::new(expr))
}

pub(super) fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

pub(super) fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}
