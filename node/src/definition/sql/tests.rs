#![allow(clippy::unwrap_used)]

use super::*;

use unisono_engine::decimal::Decimal;
use unisono_engine::spec::Function;

fn condition_of(text: &str) -> Result<Expr, String> {
    parse_condition(text, &mut Names::default())
}

/// Translates, and shows the expression with field names in place of columns.
fn shown(text: &str) -> String {
    let mut names = Names::default();
    let expr = parse_condition(text, &mut names).unwrap();
    show(&expr, &names.fields)
}

fn show(expr: &Expr, fields: &FieldSet) -> String {
    let list = |parts: &[Expr]| {
        let parts: Vec<String> = parts.iter().map(|part| show(part, fields)).collect();
        parts.join(" ")
    };
    match expr {
        Expr::Column(column) => fields.paths()[column.0].to_string(),
        Expr::Text(text) => format!("'{text}'"),
        Expr::Number(number) => number.to_string(),
        Expr::Bool(value) => value.to_string(),
        Expr::Null => "null".to_owned(),
        Expr::Time(time) => unisono_engine::timestamp::format(*time),
        Expr::Compare { left, op, right } => {
            format!("({op:?} {} {})", show(left, fields), show(right, fields))
        }
        Expr::IsNull(inner) => format!("(IsNull {})", show(inner, fields)),
        Expr::Not(inner) => format!("(Not {})", show(inner, fields)),
        Expr::And(parts) => format!("(And {})", list(parts)),
        Expr::Or(parts) => format!("(Or {})", list(parts)),
        Expr::Call(call, arguments) => format!("({} {})", call.name(), list(arguments)),
    }
}

#[test]
fn conditions_are_translated() {
    let cases = [
        ("a = 'x'", r#"(Eq a 'x')"#),
        ("a.b <> 'it''s'", r#"(Ne a.b 'it's')"#),
        ("\"a.b\" != 1", r#"(Ne "a.b" 1)"#),
        ("a < -1.50 or b >= 1e3", r#"(Or (Lt a -1.5) (Ge b 1000))"#),
        ("a <= .5 and b > 5.", r#"(And (Le a 0.5) (Gt b 5))"#),
        ("a = 007", r#"(Eq a 7)"#),
        ("a = 0", r#"(Eq a 0)"#),
        ("a = 0.25", r#"(Eq a 0.25)"#),
        ("a and not b", r#"(And a (Not b))"#),
        ("a is null", r#"(IsNull a)"#),
        ("a is not null", r#"(Not (IsNull a))"#),
        ("a in (1, 'x')", r#"(Or (Eq a 1) (Eq a 'x'))"#),
        ("a not in (1)", r#"(Not (Or (Eq a 1)))"#),
        ("a between 1 and 2", r#"(And (Ge a 1) (Le a 2))"#),
        (
            "(a = true or b = false) and c",
            r#"(And (Or (Eq a true) (Eq b false)) c)"#,
        ),
        ("a = b", r#"(Eq a b)"#),
        ("AA = aa", r#"(Eq AA aa)"#),
        ("true", "true"),
        (
            "a = 1 or b = 2 and c = 3",
            r#"(Or (Eq a 1) (And (Eq b 2) (Eq c 3)))"#,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn fields_are_named_in_many_ways() {
    for (text, expected) in [
        ("a['b.c'] = 1", r#"(Eq a."b.c" 1)"#),
        ("items[0] = 1", "(Eq items[0] 1)"),
        ("o.items[2].price = 1", "(Eq o.items[2].price 1)"),
        ("items[0]['x'][1] = 1", "(Eq items[0].x[1] 1)"),
        (r#""user".id = 1"#, "(Eq user.id 1)"),
        (r#""x-y" = 1"#, r#"(Eq "x-y" 1)"#),
        // Words of SQL that stand where only a field can.
        ("date = 1", "(Eq date 1)"),
        (
            "value = 1 and type = 2 and status = 3",
            "(And (Eq value 1) (Eq type 2) (Eq status 3))",
        ),
        (
            "level = 'x' and host = 'y' and method = 'z'",
            "(And (Eq level 'x') (Eq host 'y') (Eq method 'z'))",
        ),
        (
            "e.user = 1 and e.order = 2",
            "(And (Eq e.user 1) (Eq e.order 2))",
        ),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn a_field_has_one_column_however_often_it_is_named() {
    let mut names = Names::default();
    parse_condition("a > 1 and b = 2 and a < 3", &mut names).unwrap();
    assert_eq!(names.fields.len(), 2);
}

/// Conditions, and what is said of them.
const REFUSED: &[(&str, &str)] = &[
    (
        "a = 1 and uper(b) = 'X'",
        "at column 11: function uper is not known; did you mean upper?",
    ),
    (
        "upper(5) = 'X'",
        "at column 7: upper takes a text, but 5 is a number; write cast(5 as text)",
    ),
    (
        "'a' + 1 = 2",
        "+ takes a number, but 'a' is a text; write cast('a' as number)",
    ),
    (
        "lower(a) = 5",
        "lower(a) is a text, 5 is a number: they are never equal",
    ),
    ("lower(a) in ('x', 5)", "never equal"),
    ("lower(a, b) = 'x'", "lower takes 1 arguments; these are 2"),
    (
        "coalesce(lower(a), 5) = 'x'",
        "the results must be of one kind",
    ),
    (
        "case when a then 1 else 'x' end = 1",
        "the results must be of one kind",
    ),
    (
        "a + 1",
        "a + 1 is a number, no condition; compare it with something",
    ),
    ("not 5", "5 is a number, no condition"),
    ("a / 0 > 1", "a division by 0"),
    (
        "a like b",
        "the pattern of like is b; write a text in single quotes",
    ),
    (r"a like 'x\'", "ends in its escape character"),
    ("regexp_like(a, '(')", "'(' is no regular expression"),
    ("regexp_like(a, '(?=x)')", "look-around"),
    (
        "cast(a as json) = 1",
        "type JSON is not supported; write text, number",
    ),
    (
        "date_trunc('fortnight', a) = b",
        "date_trunc has no unit fortnight",
    ),
    ("extract(century from a) = 1", "extract has no unit century"),
    (
        "timestamp 'yesterday' < a",
        "'yesterday' is no time; write it as 2026-01-31T12:00:00Z",
    ),
    ("date_trunc('day', a) = 'x'", "'x' is no time"),
    (
        "items[x] = 1",
        "[x] is no index; write [0] to [99], or ['key']",
    ),
    ("items[1000] = 1", "[1000] is no index"),
    ("user.id = 1", "\"user\""),
    (
        "user = 1",
        "if it is a field, write \"user\" in double quotes",
    ),
    (
        "sum(a) > 1",
        "sum is a function of many records, which stands in [values]",
    ),
    ("a = 'x' b", "at column 9"),
    ("'x'", "no condition"),
    ("a =", "not an expression"),
    ("a = 'x", "not an expression"),
    ("", "is empty"),
    ("a = 1e999", "too large"),
    ("`a` = 1", "double quotes"),
    ("a = (select 1)", "not supported"),
    ("a = interval '1 day'", "not supported"),
];

#[test]
fn what_is_not_allowed_is_refused_with_its_place() {
    let mut wrong = Vec::new();
    for &(text, expected) in REFUSED {
        let message = match condition_of(text) {
            Err(message) => message,
            Ok(expr) => format!("{expr:?}"),
        };
        if !message.contains(expected) {
            wrong.push(format!("{text}: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_right_and_hardly_meant_is_warned_of() {
    let warnings = |text: &str| {
        let mut names = Names::default();
        parse_condition(text, &mut names).unwrap();
        names.warnings.join(" ")
    };
    assert_eq!(
        warnings("status = \"paid\""),
        "\"paid\" in double quotes is a field; if a text is meant, write 'paid'"
    );
    assert!(warnings("x-y > 1").contains("write \"x-y\" in double quotes"));
    for silent in [
        "x - y > 1",
        "a = 'b'",
        "\"x-y\" = 1",
        "a = \"order\"",
        "a = b",
    ] {
        assert_eq!(warnings(silent), "", "{silent}");
    }
}

#[test]
fn a_chain_of_thousands_is_translated_without_exhausting_the_stack() {
    let chain = vec!["a"; 2_000].join(" or ");
    assert!(matches!(condition_of(&chain), Ok(Expr::Or(parts)) if parts.len() == 2_000));
    let deep = format!("{}a{}", "(".repeat(4_000), ")".repeat(4_000));
    assert!(condition_of(&deep).unwrap_err().contains("nested"));
    let sum = vec!["a"; 2_000].join(" + ");
    assert!(
        condition_of(&format!("{sum} > 1"))
            .unwrap_err()
            .contains("nested")
    );
}

#[test]
fn groups_are_fields_or_expressions_with_or_without_a_name() {
    let mut names = Names::default();
    let mut group = |text: &str| parse_group(text, &mut names);
    assert_eq!(group("city"), Ok(("city".into(), Column(0))));
    assert_eq!(group("user.id"), Ok(("user.id".into(), Column(1))));
    assert_eq!(
        group("lower(s)"),
        Ok(("lower(s)".into(), Column::of_derived(0)))
    );
    assert_eq!(
        group("channel = lower(s)"),
        Ok(("channel".into(), Column::of_derived(0)))
    );
    assert_eq!(group("place = city"), Ok(("place".into(), Column(0))));
    assert_eq!(
        group("\"x y\" = a > 5"),
        Ok(("x y".into(), Column::of_derived(1)))
    );
    assert_eq!(group("items[0].id"), Ok(("items[0].id".into(), Column(4))));
    assert!(group("'x'").is_err_and(|error| error.contains("the same for every record")));
    assert!(group("x y").is_err());
}

#[test]
fn conditions_over_rows_know_values_and_groups() {
    let (values, groups) = (["n".to_owned(), "p99".to_owned()], ["city".to_owned()]);
    let having = |text: &str| parse_having(text, &values, &groups);
    let expected = "n = 1";
    assert!(having(expected).is_ok());
    let mut columns = Vec::new();
    having("p99 > 5 and city = 'x'")
        .unwrap()
        .columns(&mut columns);
    assert_eq!(columns, [Column(1), Column(2)]);
    let message = having("p95 > 5").unwrap_err();
    assert!(
        message.contains("p95 is neither a value nor a group of the row; known here: n, p99, city"),
        "{message}"
    );
    assert!(
        having("count() > 5")
            .unwrap_err()
            .contains("name the value instead")
    );
    let both = parse_having("n > 1", &["n".to_owned()], &["n".to_owned()]);
    assert!(both.unwrap_err().contains("n is a value and a group"));
}

#[test]
fn values_are_translated() {
    let mut names = Names::default();
    let mut value = |text: &str| parse_value(text, &mut names);
    assert_eq!(value("count()"), Ok(Function::CountAll));
    assert_eq!(value("count(*)"), Ok(Function::CountAll));
    assert_eq!(value("COUNT(a)"), Ok(Function::Count(Column(0))));
    assert_eq!(value("sum(a)"), Ok(Function::Sum(Column(0))));
    assert_eq!(value("avg(\"a.b\")"), Ok(Function::Avg(Column(1))));
    assert_eq!(value("min(a.b)"), Ok(Function::Min(Column(2))));
    assert_eq!(value("max(a)"), Ok(Function::Max(Column(0))));
    let p99 = Decimal::parse(b"0.99").unwrap();
    assert_eq!(
        value("quantile(a, .990)"),
        Ok(Function::Quantile(Column(0), p99))
    );
    assert_eq!(value("Top(a, 3)"), Ok(Function::Top(Column(0), 3)));
    let bounds = vec![Decimal::from_i64(-1), Decimal::from_i64(5)];
    assert_eq!(
        value("histogram(a, -1, 5)"),
        Ok(Function::Histogram(Column(0), bounds))
    );
    assert_eq!(
        value("count(distinct a)"),
        Ok(Function::Distinct(Column(0)))
    );
    let derived = Column::of_derived;
    assert_eq!(value("sum(a * b)"), Ok(Function::Sum(derived(0))));
    assert_eq!(value("max(a*b)"), Ok(Function::Max(derived(0))));
    assert_eq!(
        value("count() where a > 1"),
        Ok(Function::Count(derived(1)))
    );
    let counted = value("count(*) filter (where a > 1)");
    assert_eq!(counted, Ok(Function::Count(derived(1))));
    assert_eq!(value("sum(a) where b = 'x'"), Ok(Function::Sum(derived(2))));
    for (bad, expected) in [
        ("sum()", "sum takes a field; write sum(field)"),
        ("sum(*)", "not supported"),
        ("sum(a, b)", "sum takes one field alone"),
        ("sum(1)", "sum takes a field"),
        ("quantil(a, 0.99)", "not known; did you mean quantile?"),
        ("quantile(a, 'x')", "takes one field, and numbers behind it"),
        ("quantile(a, 99)", "takes parts from 0 to 1"),
        ("sum(a) over ()", "not supported"),
        ("sum(distinct a)", "not supported"),
        ("a", "is not a function"),
        ("sum(a) + 1", "is not a function"),
        ("sum(a) where", "not an expression"),
        ("count() where a + 1", "no condition"),
        ("count() filter (where a) where b", "has two filters"),
        ("sum(sum(a))", "sum is a function of many records"),
    ] {
        let message = value(bad).unwrap_err();
        assert!(message.contains(expected), "{bad}: {message}");
    }
}
