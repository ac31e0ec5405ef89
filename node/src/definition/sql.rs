//! Expressions and values, written in SQL, translated into the engine's terms.
//!
//! Field names: `a.b` is the key `b` of the object under `a`, as is `a['b']`; `"a.b"` is the one key
//! `a.b`; `a[0]` is the first element of the array under `a`. Text stands in single quotes. What SQL
//! allows and Unisono does not is refused with its place.

use sqlparser::ast::{Expr as Sql, Spanned};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token, Tokenizer};
use unisono_engine::spec::{Column, Expr, Kind};

use super::fields::{FieldPath, FieldSet};

mod call;
mod expression;
mod leaf;
mod value;

use expression::{Scope, condition, expression};
pub use value::parse_value;

/// Longest SQL text in bytes: bounds the depth of what the parser builds.
const MAX_SQL: usize = 10_000;

/// Columns that a definition names: fields, and what is derived of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names {
    /// The decoded fields.
    pub fields: FieldSet,
    /// The derived columns, each once.
    pub derived: Vec<Expr>,
    /// What is right, and probably not what was meant.
    pub warnings: Vec<String>,
}

impl Names {
    /// The column that holds what `expr` gives.
    fn column_of(&mut self, expr: Expr) -> Column {
        if let Expr::Column(column) = expr {
            return column;
        }
        let known = self.derived.iter().position(|known| *known == expr);
        Column::of_derived(known.unwrap_or_else(|| {
            self.derived.push(expr);
            self.derived.len() - 1
        }))
    }
}

/// Translates a condition over the fields of a record; those that it names are added to `names`.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse_condition(text: &str, names: &mut Names) -> Result<Expr, String> {
    let sql = parse(text)?;
    let mut scope = Scope::of_record(&mut names.fields);
    let expr = condition(&sql, &mut scope)?;
    let warnings = scope.warnings;
    names.warnings.extend(warnings);
    Ok(expr)
}

/// Translates a condition over a row: `values` and `groups` are the names that it may use. Its
/// columns are those of the values, then those of the groups.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse_having(text: &str, values: &[String], groups: &[String]) -> Result<Expr, String> {
    let sql = parse(text)?;
    condition(&sql, &mut Scope::of_row(values, groups))
}

/// Translates one of `group_by`: a field, an expression, or `name = ` one of them. Gives its name
/// and its column.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse_group(text: &str, names: &mut Names) -> Result<(String, Column), String> {
    let (alias, text) = match split_alias(text) {
        Some((alias, rest)) => (Some(alias), rest),
        None => (None, text.trim()),
    };
    if let Ok(path) = FieldPath::parse(text) {
        let name = alias.unwrap_or_else(|| path.label());
        return Ok((name, names.fields.insert(path)));
    }
    let sql = parse(text)?;
    let mut scope = Scope::of_record(&mut names.fields);
    let expr = expression(&sql, &mut scope)?;
    let warnings = scope.warnings;
    names.warnings.extend(warnings);
    if expr.is_literal() {
        let what = format!("{sql} is the same for every record");
        return Err(refuse(sql.span(), &what, "group by a field"));
    }
    let name = alias.unwrap_or_else(|| text.to_owned());
    Ok((name, names.column_of(expr)))
}

/// The name before a single `=`, and what follows it.
fn split_alias(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    let (name, rest) = text.split_once('=')?;
    if rest.starts_with('=') {
        return None;
    }
    let path = FieldPath::parse(name).ok()?;
    let [super::fields::Key::Name(name)] = path.keys() else {
        return None;
    };
    Some((name.clone(), rest.trim()))
}

fn parse(text: &str) -> Result<Sql, String> {
    let mut parser = parser(text)?;
    let expr = parser.parse_expr().map_err(|error| syntax(text, error))?;
    ends(&parser)?;
    Ok(expr)
}

fn parser(text: &str) -> Result<Parser<'static>, String> {
    if text.trim().is_empty() {
        return Err("is empty; write an expression or remove the key".to_owned());
    }
    if text.len() > MAX_SQL {
        return Err(format!("is longer than {MAX_SQL} bytes; shorten it"));
    }
    Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(|error| syntax(text, error))
}

fn ends(parser: &Parser<'_>) -> Result<(), String> {
    let next = parser.peek_token();
    match &next.token {
        Token::EOF => Ok(()),
        found => {
            let what = format!("\"{found}\" is not expected");
            let hint =
                "combine conditions by and, or; a key with odd characters goes in double quotes";
            Err(refuse(next.span, &what, hint))
        }
    }
}

fn syntax(text: &str, error: ParserError) -> String {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => "too deeply nested".to_owned(),
    };
    let hint = match reserved(text) {
        Some(word) => format!("if {word} is a field, write \"{word}\" in double quotes"),
        None => "a field whose name SQL reserves goes in double quotes, a text in single quotes"
            .to_owned(),
    };
    format!("is not an expression: {message}; {hint}")
}

/// The first word that SQL reserves and that is no part of an expression.
fn reserved(text: &str) -> Option<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().ok()?;
    tokens.into_iter().find_map(|token| match token {
        Token::Word(word) if word.quote_style.is_none() && is_reserved(word.keyword) => {
            Some(word.value)
        }
        _ => None,
    })
}

fn is_reserved(keyword: Keyword) -> bool {
    let of_expressions = [
        Keyword::AND,
        Keyword::OR,
        Keyword::NOT,
        Keyword::IS,
        Keyword::IN,
        Keyword::BETWEEN,
        Keyword::LIKE,
        Keyword::ILIKE,
        Keyword::ESCAPE,
        Keyword::NULL,
        Keyword::TRUE,
        Keyword::FALSE,
        Keyword::UNKNOWN,
        Keyword::CASE,
        Keyword::WHEN,
        Keyword::THEN,
        Keyword::ELSE,
        Keyword::CAST,
        Keyword::EXTRACT,
    ];
    keyword != Keyword::NoKeyword && !of_expressions.contains(&keyword)
}

/// Where, what is wrong, what is allowed.
fn refuse(at: Span, what: &str, allowed: &str) -> String {
    match (at.start.line, at.start.column) {
        (0, _) => format!("{what}; {allowed}"),
        (1, column) => format!("at column {column}: {what}; {allowed}"),
        (line, column) => format!("at line {line}, column {column}: {what}; {allowed}"),
    }
}

/// Refuses `expr`, which `sql` says, if it is known to be of another kind.
fn expect(expr: &Expr, wanted: Kind, sql: &Sql, who: &str) -> Result<(), String> {
    let kind = expr.kind();
    if kind.may_be(wanted) {
        return Ok(());
    }
    let what = format!(
        "{who} takes {}, but {sql} is {}",
        wanted.name(),
        kind.name()
    );
    let hint = match wanted {
        Kind::Text => format!("write cast({sql} as text)"),
        Kind::Number => format!("write cast({sql} as number)"),
        Kind::Time => format!("write cast({sql} as timestamp)"),
        _ => "write a comparison".to_owned(),
    };
    Err(refuse(sql.span(), &what, &hint))
}

#[cfg(test)]
mod tests;
