//! One of the `values`: a function of expressions, with or without a filter.

use sqlparser::ast::{
    DuplicateTreatment, Expr as Sql, Function as SqlFunction, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Spanned,
};
use sqlparser::keywords::Keyword;
use unisono_engine::spec::{Call, Expr, Function};

use super::super::functions::{self, Argument};
use super::expression::{Scope, condition, expression};
use super::{Names, ends, parser, refuse, syntax};

const VALUES: &str =
    "a value is a function of a field, as count(), sum(field), quantile(field, 0.99)";

/// Translates one of the `values`; the fields and expressions that it names are added to `names`.
///
/// `f(x) where c`, as `f(x) filter (where c)`, takes in the records for which the condition is true:
/// for the others its first argument is null, which no function takes in.
///
/// # Errors
/// What is wrong, where, and what is allowed.
pub fn parse_value(text: &str, names: &mut Names) -> Result<Function, String> {
    let mut parser = parser(text)?;
    let sql = parser.parse_expr().map_err(|error| syntax(text, error))?;
    let filter = match parser.parse_keyword(Keyword::WHERE) {
        true => Some(parser.parse_expr().map_err(|error| syntax(text, error))?),
        false => None,
    };
    ends(&parser)?;
    let Sql::Function(function) = &sql else {
        return Err(refuse(sql.span(), "is not a function", VALUES));
    };
    let mut call = read_call(function)?;
    if let Some(filter) = filter {
        if call.filter.is_some() {
            let what = "has two filters";
            return Err(refuse(filter.span(), what, "combine them by and"));
        }
        call.filter = Some(filter);
    }
    let arguments = translate(&call, names)?;
    functions::function(&call.name, &arguments)
        .map_err(|refused| refuse(sql.span(), &refused.what, &refused.allowed))
}

/// A call as it was written.
struct Written<'a> {
    name: String,
    arguments: Vec<&'a Sql>,
    filter: Option<Sql>,
}

fn read_call(function: &SqlFunction) -> Result<Written<'_>, String> {
    let bare = !function.uses_odbc_syntax
        && function.parameters == FunctionArguments::None
        && function.null_treatment.is_none()
        && function.over.is_none()
        && function.within_group.is_empty();
    let unsupported = || {
        let what = format!("{function} is not supported");
        refuse(function.span(), &what, VALUES)
    };
    let FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment,
        args,
        clauses,
    }) = &function.args
    else {
        return Err(unsupported());
    };
    if !bare || !clauses.is_empty() {
        return Err(unsupported());
    }
    let mut arguments = Vec::with_capacity(args.len());
    let mut name = function.name.to_string().to_ascii_lowercase();
    for arg in args {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(sql)) => arguments.push(sql),
            // `count(*)` is `count()`.
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard)
                if name == "count" && args.len() == 1 => {}
            _ => return Err(unsupported()),
        }
    }
    if matches!(duplicate_treatment, Some(DuplicateTreatment::Distinct)) {
        if name != "count" {
            return Err(unsupported());
        }
        "distinct".clone_into(&mut name);
    }
    Ok(Written {
        name,
        arguments,
        filter: function.filter.as_deref().cloned(),
    })
}

fn translate(call: &Written<'_>, names: &mut Names) -> Result<Vec<Argument>, String> {
    let mut scope = Scope::of_record(&mut names.fields);
    let filter = call.filter.as_ref();
    let mut filter = filter.map(|sql| condition(sql, &mut scope)).transpose()?;
    let mut arguments = Vec::with_capacity(call.arguments.len());
    for sql in &call.arguments {
        let mut expr = expression(sql, &mut scope)?;
        if !expr.is_literal()
            && let Some(filter) = filter.take()
        {
            expr = Expr::Call(Call::Case, vec![filter, expr, Expr::Null]);
        }
        arguments.push(expr);
    }
    if let Some(filter) = filter {
        // `count()`, which counts records: here, those with something true.
        let counted = Expr::Call(Call::Case, vec![filter, Expr::Bool(true), Expr::Null]);
        arguments.insert(0, counted);
    }
    let warnings = scope.warnings;
    names.warnings.extend(warnings);
    let arguments = arguments.into_iter();
    Ok(arguments
        .map(|expr| match expr {
            Expr::Number(number) => Argument::Number(number),
            expr if expr.is_literal() => Argument::Literal,
            expr => Argument::Column(names.column_of(expr)),
        })
        .collect())
}
