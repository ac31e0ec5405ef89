//! The functions of `[values]`: by which names and arguments they are called, and which are refused.

use unisono_engine::QUANTILE_DIGITS;
use unisono_engine::decimal::Decimal;
use unisono_engine::spec::{Column, Function, Spread};

/// Names less like a known one than this are not taken for its typo.
const LIKENESS: f64 = 0.6;
/// Longest list of `top`.
const MOST_TOP: usize = 1000;
/// Most quantiles of one value, and most bounds of a histogram.
const MOST_LISTED: usize = 1000;

/// One argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Argument {
    /// A field, or what is computed of fields.
    Column(Column),
    /// A number.
    Number(Decimal),
    /// Another literal.
    Literal,
}

/// A function's names, the first of which is its own, and how it is written.
struct Known {
    names: &'static [&'static str],
    usage: &'static str,
}

const KNOWN: [Known; 18] = [
    known(&["count"], "count() or count(field)"),
    known(&["sum"], "sum(field)"),
    known(&["avg", "mean"], "avg(field)"),
    known(&["min"], "min(field)"),
    known(&["max"], "max(field)"),
    known(&["variance", "var_samp"], "variance(field)"),
    known(&["var_pop"], "var_pop(field)"),
    known(&["stddev", "stddev_samp"], "stddev(field)"),
    known(&["stddev_pop"], "stddev_pop(field)"),
    known(&["median"], "median(field)"),
    known(
        &["quantile", "approx_percentile", "approx_quantile"],
        "quantile(field, q, …) with q from 0 to 1, as 0.99",
    ),
    known(
        &["distinct", "approx_distinct", "approx_count_distinct"],
        "distinct(field)",
    ),
    known(&["top"], "top(field, n) with n from 1 to 1000"),
    known(
        &["histogram"],
        "histogram(field, bound, …) with ascending numbers as bounds",
    ),
    known(&["first"], "first(field)"),
    known(&["last"], "last(field)"),
    known(&["increase"], "increase(field)"),
    known(&["rate"], "rate(field)"),
];

const fn known(names: &'static [&'static str], usage: &'static str) -> Known {
    Known { names, usage }
}

/// Why a function is refused: what is wrong, and what is right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refused {
    pub(super) what: String,
    pub(super) allowed: String,
}

/// The function with this name, in any case, of these arguments.
///
/// # Errors
/// What is wrong, and what is allowed.
pub(super) fn function(name: &str, arguments: &[Argument]) -> Result<Function, Refused> {
    let lower = name.to_ascii_lowercase();
    let known = KNOWN.iter().find(|known| known.names.contains(&&*lower));
    let known = known.ok_or_else(|| unknown(name))?;
    let own_name = known.names.first().copied().unwrap_or_default();
    of_known(own_name, arguments).map_err(|what| Refused {
        what: format!("{lower} {what}"),
        allowed: format!("write {}", known.usage),
    })
}

fn unknown(name: &str) -> Refused {
    let names = || KNOWN.iter().flat_map(|known| known.names);
    let nearest = names()
        .map(|known| {
            let likeness =
                strsim::normalized_damerau_levenshtein(&name.to_ascii_lowercase(), known);
            (likeness, *known)
        })
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = nearest.map_or(String::new(), |(_, near)| format!("; did you mean {near}?"));
    let own_names = KNOWN.iter().filter_map(|known| known.names.first());
    let own_names: Vec<&str> = own_names.copied().collect();
    Refused {
        what: format!("function {name} is not known{meant}"),
        allowed: format!("write one of {}", own_names.join(", ")),
    }
}

fn of_known(name: &str, arguments: &[Argument]) -> Result<Function, String> {
    if let ("count", []) = (name, arguments) {
        return Ok(Function::CountAll);
    }
    let Some((Argument::Column(column), others)) = arguments.split_first() else {
        return Err("takes a field".to_owned());
    };
    let column = *column;
    let numbers = others.iter().map(|other| match other {
        Argument::Number(number) => Ok(*number),
        Argument::Literal | Argument::Column(_) => {
            Err("takes one field, and numbers behind it".to_owned())
        }
    });
    let numbers: Vec<Decimal> = match name {
        "quantile" | "top" | "histogram" => numbers.collect::<Result<_, _>>()?,
        _ if others.is_empty() => Vec::new(),
        _ => return Err("takes one field alone".to_owned()),
    };
    Ok(match name {
        "count" => Function::Count(column),
        "sum" => Function::Sum(column),
        "avg" => Function::Avg(column),
        "min" => Function::Min(column),
        "max" => Function::Max(column),
        "variance" => Function::Spread(column, Spread::Variance),
        "var_pop" => Function::Spread(column, Spread::PopulationVariance),
        "stddev" => Function::Spread(column, Spread::Deviation),
        "stddev_pop" => Function::Spread(column, Spread::PopulationDeviation),
        "median" => Function::Quantile(column, half()),
        "quantile" => quantile(column, numbers)?,
        "distinct" => Function::Distinct(column),
        "top" => Function::Top(column, top(&numbers)?),
        "histogram" => Function::Histogram(column, bounds(numbers)?),
        "first" => Function::First(column),
        "last" => Function::Last(column),
        "increase" => Function::Increase(column),
        _ => Function::Rate(column),
    })
}

fn half() -> Decimal {
    Decimal::from_parts(5, 1).unwrap_or(Decimal::ZERO)
}

fn quantile(column: Column, quantiles: Vec<Decimal>) -> Result<Function, String> {
    let one = Decimal::from_i64(1);
    if let Some(odd) = quantiles
        .iter()
        .find(|q| !(Decimal::ZERO..=one).contains(q))
    {
        return Err(format!("takes parts from 0 to 1, and {odd} is none"));
    }
    if let Some(odd) = quantiles.iter().find(|q| q.scale() > QUANTILE_DIGITS) {
        return Err(format!(
            "takes at most {QUANTILE_DIGITS} digits after the point, and {odd} has more"
        ));
    }
    match quantiles.as_slice() {
        [] => Err("takes a field and at least one q".to_owned()),
        [q] => Ok(Function::Quantile(column, *q)),
        _ if quantiles.len() > MOST_LISTED => Err(format!("takes at most {MOST_LISTED} of them")),
        _ => Ok(Function::Quantiles(column, quantiles)),
    }
}

fn top(numbers: &[Decimal]) -> Result<usize, String> {
    let [number] = numbers else {
        return Err("takes a field and one number".to_owned());
    };
    let whole = usize::try_from(number.mantissa()).ok();
    whole
        .filter(|whole| number.scale() == 0 && (1..=MOST_TOP).contains(whole))
        .ok_or_else(|| format!("lists 1 to {MOST_TOP} values, not {number}"))
}

fn bounds(bounds: Vec<Decimal>) -> Result<Vec<Decimal>, String> {
    if bounds.is_empty() {
        return Err("takes a field and at least one bound".to_owned());
    }
    if bounds.len() > MOST_LISTED {
        return Err(format!("takes at most {MOST_LISTED} bounds"));
    }
    let descent = bounds.windows(2).find(|pair| pair[0] >= pair[1]);
    match descent {
        Some(pair) => Err(format!(
            "takes ascending bounds, and {} follows {}",
            pair[1], pair[0]
        )),
        None => Ok(bounds),
    }
}

/// A function's own name, its field, and its numbers: [`function`] gives it back.
pub(super) fn parts(function: &Function) -> (&'static str, Option<Column>, Vec<Decimal>) {
    let (name, numbers) = match function {
        Function::CountAll | Function::Count(_) => ("count", Vec::new()),
        Function::Sum(_) => ("sum", Vec::new()),
        Function::Avg(_) => ("avg", Vec::new()),
        Function::Min(_) => ("min", Vec::new()),
        Function::Max(_) => ("max", Vec::new()),
        Function::Spread(_, Spread::Variance) => ("variance", Vec::new()),
        Function::Spread(_, Spread::PopulationVariance) => ("var_pop", Vec::new()),
        Function::Spread(_, Spread::Deviation) => ("stddev", Vec::new()),
        Function::Spread(_, Spread::PopulationDeviation) => ("stddev_pop", Vec::new()),
        Function::Quantile(_, q) => ("quantile", vec![*q]),
        Function::Quantiles(_, quantiles) => ("quantile", quantiles.clone()),
        Function::Distinct(_) => ("distinct", Vec::new()),
        Function::Top(_, most) => {
            let most = i64::try_from(*most).unwrap_or(i64::MAX);
            ("top", vec![Decimal::from_i64(most)])
        }
        Function::Histogram(_, bounds) => ("histogram", bounds.clone()),
        Function::First(_) => ("first", Vec::new()),
        Function::Last(_) => ("last", Vec::new()),
        Function::Increase(_) => ("increase", Vec::new()),
        Function::Rate(_) => ("rate", Vec::new()),
    };
    (name, function.column(), numbers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const X: Argument = Argument::Column(Column(3));

    fn number(text: &str) -> Decimal {
        Decimal::parse(text.as_bytes()).unwrap()
    }

    fn arguments(texts: &str) -> Vec<Argument> {
        let texts = texts.split_whitespace();
        let argument = |text| match text {
            "x" => X,
            "a" => Argument::Literal,
            _ => Argument::Number(number(text)),
        };
        texts.map(argument).collect()
    }

    #[test]
    fn functions_go_by_their_names_in_sql() {
        let x = Column(3);
        let half = number("0.5");
        for (name, texts, expected) in [
            ("count", "", Function::CountAll),
            ("COUNT", "", Function::CountAll),
            ("count", "x", Function::Count(x)),
            ("mean", "x", Function::Avg(x)),
            ("var_samp", "x", Function::Spread(x, Spread::Variance)),
            ("variance", "x", Function::Spread(x, Spread::Variance)),
            (
                "var_pop",
                "x",
                Function::Spread(x, Spread::PopulationVariance),
            ),
            ("stddev", "x", Function::Spread(x, Spread::Deviation)),
            ("stddev_samp", "x", Function::Spread(x, Spread::Deviation)),
            (
                "stddev_pop",
                "x",
                Function::Spread(x, Spread::PopulationDeviation),
            ),
            ("median", "x", Function::Quantile(x, half)),
            ("quantile", "x 0.5", Function::Quantile(x, half)),
            ("approx_percentile", "x 0.50", Function::Quantile(x, half)),
            (
                "quantile",
                "x 1 0.5 0",
                Function::Quantiles(x, vec![number("1"), half, number("0")]),
            ),
            ("approx_distinct", "x", Function::Distinct(x)),
            ("top", "x 10", Function::Top(x, 10)),
            (
                "histogram",
                "x -1 0.5",
                Function::Histogram(x, vec![number("-1"), half]),
            ),
            ("first", "x", Function::First(x)),
            ("last", "x", Function::Last(x)),
            ("increase", "x", Function::Increase(x)),
            ("rate", "x", Function::Rate(x)),
        ] {
            let found = function(name, &arguments(texts)).unwrap();
            assert_eq!(found, expected, "{name} {texts}");
            let (name, column, numbers) = parts(&found);
            let again = column.map(Argument::Column).into_iter();
            let again: Vec<_> = again
                .chain(numbers.into_iter().map(Argument::Number))
                .collect();
            assert_eq!(function(name, &again).unwrap(), expected);
        }
    }

    fn refused(cases: &[(&str, &str, &str)]) {
        for (name, texts, expected) in cases {
            let Refused { what, allowed } = function(name, &arguments(texts)).unwrap_err();
            let message = format!("{what}; {allowed}");
            assert!(message.contains(expected), "{name} {texts}: {message}");
        }
    }

    #[test]
    fn wrong_arguments_are_refused_with_the_rule() {
        refused(&[
            ("sum", "", "sum takes a field; write sum(field)"),
            ("sum", "a", "sum takes a field; write sum(field)"),
            ("sum", "x x", "sum takes one field alone; write sum(field)"),
            (
                "count",
                "x 1",
                "count takes one field alone; write count() or count(field)",
            ),
            (
                "median",
                "x 0.5",
                "median takes one field alone; write median(field)",
            ),
        ]);
    }

    #[test]
    fn wrong_numbers_are_refused_with_the_rule() {
        refused(&[
            (
                "quantile",
                "x",
                "quantile takes a field and at least one q; write quantile(field, q, …) with q from 0 to 1, as 0.99",
            ),
            (
                "quantile",
                "x 99",
                "quantile takes parts from 0 to 1, and 99 is none",
            ),
            (
                "quantile",
                "x 0.5 -0.1",
                "quantile takes parts from 0 to 1, and -0.1 is none",
            ),
            (
                "quantile",
                "x 0.1234567890123",
                "at most 12 digits after the point",
            ),
            ("quantile", "x x", "takes one field, and numbers behind it"),
            (
                "top",
                "x",
                "top takes a field and one number; write top(field, n)",
            ),
            ("top", "x 0", "top lists 1 to 1000 values, not 0"),
            ("top", "x 1001", "top lists 1 to 1000 values, not 1001"),
            ("top", "x 2.5", "top lists 1 to 1000 values, not 2.5"),
            ("top", "x -1", "top lists 1 to 1000 values, not -1"),
            ("histogram", "x", "takes a field and at least one bound"),
            (
                "histogram",
                "x 1 2 2",
                "takes ascending bounds, and 2 follows 2",
            ),
            (
                "histogram",
                "x 1 10 5",
                "takes ascending bounds, and 5 follows 10",
            ),
            (
                "quantil",
                "x 0.5",
                "function quantil is not known; did you mean quantile?; write one of count, sum",
            ),
            ("Averag", "x", "function Averag is not known"),
            (
                "frobnicate",
                "x",
                "function frobnicate is not known; write one of count, sum",
            ),
        ]);
        let many: Vec<_> = (0..1001)
            .map(|at| Argument::Number(Decimal::from_i64(at)))
            .collect();
        let many = [&[X], &many[..]].concat();
        let refused = function("histogram", &many).unwrap_err();
        assert_eq!(refused.what, "histogram takes at most 1000 bounds");
    }
}
