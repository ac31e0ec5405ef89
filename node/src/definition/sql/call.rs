//! Functions, and what SQL writes in words of its own: like, case, cast, extract.

use sqlparser::ast::{
    CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr as Sql, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Spanned, TrimWhereField,
};
use sqlparser::keywords::{ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_IDENTIFIER};
use unisono_engine::decimal::Decimal;
use unisono_engine::expr::{MOST_PATTERN, Unit, regular_expression};
use unisono_engine::spec::{Call, CompareOp, Expr, Gives, Kind};

use super::expression::{Scope, as_time, compare_with, condition, expression, negate_if, one};
use super::{expect, refuse};

/// Functions that are called by a name, and how else they may be called.
const FUNCTIONS: [(&str, Call); 33] = [
    ("abs", Call::Abs),
    ("ceil", Call::Ceil),
    ("ceiling", Call::Ceil),
    ("char_length", Call::Length),
    ("character_length", Call::Length),
    ("coalesce", Call::Coalesce),
    ("concat", Call::Concat),
    ("date_part", Call::Extract),
    ("date_trunc", Call::DateTrunc),
    ("datetrunc", Call::DateTrunc),
    ("ends_with", Call::EndsWith),
    ("floor", Call::Floor),
    ("ifnull", Call::Coalesce),
    ("len", Call::Length),
    ("length", Call::Length),
    ("lower", Call::Lower),
    ("ltrim", Call::TrimStart),
    ("mod", Call::Mod),
    ("nullif", Call::NullIf),
    ("regexp_like", Call::RegexpLike),
    ("regexp_matches", Call::RegexpLike),
    ("replace", Call::Replace),
    ("round", Call::Round),
    ("rtrim", Call::TrimEnd),
    ("split_part", Call::SplitPart),
    ("starts_with", Call::StartsWith),
    ("strlen", Call::Length),
    ("substr", Call::Substr),
    ("substring", Call::Substr),
    ("suffix", Call::EndsWith),
    ("to_timestamp", Call::ToTime),
    ("trim", Call::Trim),
    ("upper", Call::Upper),
];

/// Functions of many records, which stand in `[values]`.
const OF_VALUES: [&str; 10] = [
    "count", "sum", "avg", "min", "max", "median", "quantile", "stddev", "variance", "top",
];

/// Whether SQL reserves the word for names: then a field of that name needs its quotes.
pub(super) fn is_keyword(word: &str) -> bool {
    let upper = word.to_ascii_uppercase();
    let found = ALL_KEYWORDS.binary_search(&upper.as_str());
    found.is_ok_and(|at| {
        let keyword = ALL_KEYWORDS_INDEX[at];
        RESERVED_FOR_IDENTIFIER.contains(&keyword) || super::is_reserved(keyword)
    })
}

/// `None`: it is nothing of that.
pub(super) fn invoke(sql: &Sql, scope: &mut Scope<'_>) -> Result<Option<Expr>, String> {
    Ok(Some(match sql {
        Sql::Function(function) => called(function, sql, scope)?,
        Sql::Like {
            negated,
            any: false,
            expr,
            pattern,
            escape_char,
        }
        | Sql::ILike {
            negated,
            any: false,
            expr,
            pattern,
            escape_char,
        } => {
            let call = match sql {
                Sql::Like { .. } => Call::Like,
                _ => Call::ILike,
            };
            let parts = (&**expr, &**pattern, escape_char.as_deref());
            negate_if(*negated, like(call, parts, scope)?)
        }
        Sql::RLike {
            negated,
            expr,
            pattern,
            ..
        } => negate_if(*negated, regexp(&[expr, pattern], sql, scope)?),
        Sql::Case {
            operand,
            conditions,
            else_result,
            ..
        } => case(
            operand.as_deref(),
            conditions,
            else_result.as_deref(),
            scope,
        )?,
        Sql::Cast {
            kind: CastKind::Cast | CastKind::TryCast | CastKind::SafeCast | CastKind::DoubleColon,
            expr,
            data_type,
            format: None,
            ..
        } => cast(expr, data_type, sql, scope)?,
        _ => return spelled(sql, scope),
    }))
}

/// The functions whose arguments SQL spells in a way of its own.
fn spelled(sql: &Sql, scope: &mut Scope<'_>) -> Result<Option<Expr>, String> {
    Ok(Some(match sql {
        Sql::Extract { field, expr, .. } => {
            let unit = unit_of(field);
            timed(Call::Extract, &unit, expr, sql, scope)?
        }
        Sql::Ceil {
            expr,
            field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
        } => checked(Call::Ceil, &[expr], sql, scope)?,
        Sql::Floor {
            expr,
            field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
        } => checked(Call::Floor, &[expr], sql, scope)?,
        Sql::Substring {
            expr,
            substring_from: Some(from),
            substring_for,
            ..
        } => {
            let mut parts: Vec<&Sql> = vec![expr, from];
            parts.extend(substring_for.as_deref());
            checked(Call::Substr, &parts, sql, scope)?
        }
        Sql::Trim {
            trim_where,
            trim_what,
            expr,
            trim_characters,
            ..
        } => {
            let call = match trim_where {
                Some(TrimWhereField::Leading) => Call::TrimStart,
                Some(TrimWhereField::Trailing) => Call::TrimEnd,
                _ => Call::Trim,
            };
            let mut parts: Vec<&Sql> = vec![expr];
            parts.extend(trim_what.as_deref());
            parts.extend(trim_characters.iter().flatten());
            checked(call, &parts, sql, scope)?
        }
        _ => return Ok(None),
    }))
}

fn called(function: &Function, sql: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    let name = function.name.to_string().to_ascii_lowercase();
    let bare = !function.uses_odbc_syntax
        && function.parameters == FunctionArguments::None
        && function.filter.is_none()
        && function.null_treatment.is_none()
        && function.over.is_none()
        && function.within_group.is_empty();
    let FunctionArguments::List(list) = &function.args else {
        let what = format!("{name} means something of its own in SQL");
        let hint = format!("if it is a field, write \"{name}\" in double quotes");
        return Err(refuse(sql.span(), &what, &hint));
    };
    if OF_VALUES.contains(&name.as_str()) {
        let what = format!("{name} is a function of many records, which stands in [values]");
        let hint = match scope.is_row() {
            true => "name the value instead",
            false => "having = \"…\" filters rows by their values",
        };
        return Err(refuse(sql.span(), &what, hint));
    }
    let found = FUNCTIONS.iter().find(|(known, _)| *known == name);
    let Some(&(_, call)) = found else {
        let near = FUNCTIONS
            .iter()
            .map(|(known, _)| (strsim::normalized_damerau_levenshtein(&name, known), known))
            .filter(|(likeness, _)| *likeness >= 0.6)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let hint = match near {
            Some((_, near)) => format!("did you mean {near}?"),
            None => {
                let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
                format!("known are {}", names.join(", "))
            }
        };
        return Err(refuse(
            sql.span(),
            &format!("function {name} is not known"),
            &hint,
        ));
    };
    if !bare || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        let what = format!("{sql} is not supported");
        return Err(refuse(sql.span(), &what, &format!("write {name}(…) alone")));
    }
    let mut arguments = Vec::with_capacity(list.args.len());
    for argument in &list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
            let what = format!("{argument} is not supported");
            return Err(refuse(sql.span(), &what, "write plain arguments"));
        };
        arguments.push(argument);
    }
    match (call, arguments.as_slice()) {
        (Call::RegexpLike, arguments) => regexp(arguments, sql, scope),
        (Call::DateTrunc | Call::Extract, [Sql::Value(unit), time]) => {
            let unit = unit.value.clone().into_string().unwrap_or_default();
            timed(call, &unit.to_ascii_lowercase(), time, sql, scope)
        }
        (Call::ToTime, [argument]) => as_time(expression(argument, scope)?, argument),
        _ => checked(call, &arguments, sql, scope),
    }
}

/// A call whose arguments are as many and of such kinds as it takes.
fn checked(
    call: Call,
    arguments: &[&Sql],
    sql: &Sql,
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    let signature = call.signature();
    if !(signature.least..=signature.most).contains(&arguments.len()) {
        let takes = match (signature.least, signature.most) {
            (least, most) if least == most => least.to_string(),
            (least, most) if most > 10 => format!("at least {least}"),
            (least, most) => format!("{least} to {most}"),
        };
        let what = format!("{} takes {takes} arguments", call.name());
        let hint = format!("these are {}", arguments.len());
        return Err(refuse(sql.span(), &what, &hint));
    }
    let mut exprs: Vec<Expr> = Vec::with_capacity(arguments.len());
    for (at, argument) in arguments.iter().enumerate() {
        let expr = expression(argument, scope)?;
        expect(&expr, signature.wants(at), argument, call.name())?;
        exprs.push(expr);
    }
    if signature.gives == Gives::SameAsArguments {
        let pairs = exprs.iter().zip(arguments);
        one_kind(pairs.map(|(expr, sql)| (expr, *sql)))?;
    }
    if call == Call::Mod && exprs.get(1) == Some(&Expr::Number(Decimal::ZERO)) {
        return Err(refuse(sql.span(), "a division by 0", "divide by something"));
    }
    Ok(Expr::Call(call, exprs))
}

/// Refuses results of different kinds.
fn one_kind<'a>(exprs: impl Iterator<Item = (&'a Expr, &'a Sql)>) -> Result<(), String> {
    let mut known: Option<(Kind, &Sql)> = None;
    for (expr, sql) in exprs {
        let kind = expr.kind();
        match known {
            _ if kind == Kind::Any => {}
            None => known = Some((kind, sql)),
            Some((first, _)) if first == kind => {}
            Some((first, first_sql)) => {
                let what = format!(
                    "{first_sql} is {}, {sql} is {}: the results must be of one kind",
                    first.name(),
                    kind.name()
                );
                return Err(refuse(sql.span(), &what, "cast one of them"));
            }
        }
    }
    Ok(())
}

fn like(
    call: Call,
    (text, pattern, escape): (&Sql, &Sql, Option<&Sql>),
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    let tested = expression(text, scope)?;
    expect(&tested, Kind::Text, text, call.name())?;
    let literal = literal_text(pattern, call, scope)?;
    let mut arguments = vec![tested, Expr::Text(literal.clone())];
    let mut escaping = Some('\\');
    if let Some(escape) = escape {
        let text = literal_text(escape, call, scope)?;
        if text.chars().count() > 1 {
            let what = format!("{escape} is longer than one character");
            return Err(refuse(escape.span(), &what, "write escape '!'"));
        }
        escaping = text.chars().next();
        arguments.push(Expr::Text(text));
    }
    let ends_in_escape = escaping.is_some_and(|escape| {
        let escapes = literal.chars().rev().take_while(|char| *char == escape);
        escapes.count() % 2 == 1
    });
    if ends_in_escape {
        let what = format!("{pattern} ends in its escape character");
        return Err(refuse(pattern.span(), &what, "double it"));
    }
    Ok(Expr::Call(call, arguments))
}

/// A pattern, which is prepared once and so must be a literal.
fn literal_text(sql: &Sql, call: Call, scope: &mut Scope<'_>) -> Result<String, String> {
    let what = match expression(sql, scope)? {
        Expr::Text(text) if text.len() > MOST_PATTERN => {
            format!("the pattern is longer than {MOST_PATTERN} bytes")
        }
        Expr::Text(text) => return Ok(text),
        _ => format!("the pattern of {} is {sql}", call.name()),
    };
    Err(refuse(sql.span(), &what, "write a text in single quotes"))
}

/// Text, pattern and flags.
fn regexp(arguments: &[&Sql], sql: &Sql, scope: &mut Scope<'_>) -> Result<Expr, String> {
    let (text, pattern_sql, flags) = match *arguments {
        [text, pattern] => (text, pattern, String::new()),
        [text, pattern, flags] => {
            let flags = literal_text(flags, Call::RegexpLike, scope)?;
            (text, pattern, flags)
        }
        _ => {
            let what = "regexp_like takes a text, a pattern and flags";
            return Err(refuse(
                sql.span(),
                what,
                "write regexp_like(field, 'pattern')",
            ));
        }
    };
    let tested = expression(text, scope)?;
    expect(&tested, Kind::Text, text, "regexp_like")?;
    let mut pattern = literal_text(pattern_sql, Call::RegexpLike, scope)?;
    match flags.as_str() {
        "" | "c" => {}
        "i" | "s" | "m" => pattern = format!("(?{flags}){pattern}"),
        _ => {
            let what = format!("'{flags}' is no flag");
            return Err(refuse(sql.span(), &what, "write 'i', 'c', 's' or 'm'"));
        }
    }
    match regular_expression(&pattern) {
        Ok(_) => Ok(Expr::Call(
            Call::RegexpLike,
            vec![tested, Expr::Text(pattern)],
        )),
        Err(error) => {
            let what = format!("{pattern_sql} is no regular expression: {error}");
            let hint = "look-around and back references are not supported";
            Err(refuse(pattern_sql.span(), &what, hint))
        }
    }
}

fn case(
    operand: Option<&Sql>,
    branches: &[CaseWhen],
    otherwise: Option<&Sql>,
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    let mut arguments = Vec::with_capacity(branches.len() * 2 + 1);
    let mut results = Vec::with_capacity(branches.len() + 1);
    for branch in branches {
        arguments.push(match operand {
            None => condition(&branch.condition, scope)?,
            Some(operand) => {
                let tested = expression(operand, scope)?;
                compare_with(tested, CompareOp::Eq, operand, &branch.condition, scope)?
            }
        });
        arguments.push(expression(&branch.result, scope)?);
        results.push((arguments.len() - 1, &branch.result));
    }
    arguments.push(match otherwise {
        None => Expr::Null,
        Some(otherwise) => {
            results.push((arguments.len(), otherwise));
            expression(otherwise, scope)?
        }
    });
    one_kind(results.iter().map(|&(at, sql)| (&arguments[at], sql)))?;
    if arguments.len() > Call::Case.signature().most {
        let sql = branches.first().map(|branch| branch.condition.span());
        let what = "has too many branches";
        return Err(refuse(
            sql.unwrap_or_else(sqlparser::tokenizer::Span::empty),
            what,
            "shorten it",
        ));
    }
    Ok(Expr::Call(Call::Case, arguments))
}

fn cast(
    inner: &Sql,
    data_type: &DataType,
    sql: &Sql,
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    let expr = expression(inner, scope)?;
    let written = data_type.to_string().to_ascii_lowercase();
    let (name, details) = match written.split_once('(') {
        Some((name, details)) => (name.trim(), details.trim_end_matches(')')),
        None => (written.as_str(), ""),
    };
    let call = match (name, details) {
        ("text" | "varchar" | "string" | "char" | "character varying" | "character", "") => {
            Call::ToText
        }
        ("number" | "decimal" | "numeric" | "dec", scale) => {
            let number = one(Call::ToNumber, expr);
            if scale.is_empty() {
                return Ok(number);
            }
            let scale = scale.split_once(',').map_or("0", |(_, scale)| scale.trim());
            return match Decimal::parse(scale.as_bytes()) {
                Ok(scale) => Ok(Expr::Call(Call::Round, vec![number, Expr::Number(scale)])),
                Err(_) => Err(refuse(
                    sql.span(),
                    "has no such scale",
                    "write decimal(18, 2)",
                )),
            };
        }
        ("double" | "double precision" | "float" | "float8" | "float4" | "real", "") => {
            Call::ToNumber
        }
        ("integer" | "int" | "bigint" | "smallint" | "int8" | "int4" | "int2" | "long", "") => {
            Call::ToInteger
        }
        ("boolean" | "bool", "") => Call::ToBool,
        (name, "") if name.starts_with("timestamp") || name == "datetime" => {
            return as_time(expr, inner);
        }
        ("date", "") => {
            let time = as_time(expr, inner)?;
            let day = Expr::Text("day".to_owned());
            return Ok(Expr::Call(Call::DateTrunc, vec![day, time]));
        }
        _ => {
            let what = format!("type {data_type} is not supported");
            let hint = "write text, number, integer, boolean or timestamp";
            return Err(refuse(sql.span(), &what, hint));
        }
    };
    Ok(one(call, expr))
}

fn unit_of(field: &DateTimeField) -> String {
    field.to_string().to_ascii_lowercase()
}

fn timed(
    call: Call,
    unit: &str,
    time: &Sql,
    sql: &Sql,
    scope: &mut Scope<'_>,
) -> Result<Expr, String> {
    let found = Unit::of_name(unit);
    if !found.is_some_and(|found| call == Call::Extract || found.cuts()) {
        let what = format!("{} has no unit {unit}", call.name());
        let mut hint = "write second, minute, hour, day, week, month, quarter or year".to_owned();
        if call == Call::Extract {
            hint += "; or dow, isodow, doy, epoch, millisecond";
        }
        return Err(refuse(sql.span(), &what, &hint));
    }
    let expr = expression(time, scope)?;
    // Fields are read as times where they are used.
    let expr = match expr.kind() {
        Kind::Text if expr.is_literal() => as_time(expr, time)?,
        _ => expr,
    };
    expect(&expr, Kind::Time, time, call.name())?;
    Ok(Expr::Call(call, vec![Expr::Text(unit.to_owned()), expr]))
}
