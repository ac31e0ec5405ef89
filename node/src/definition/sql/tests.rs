#![allow(clippy::unwrap_used)]

use super::*;

/// Translates, and shows the expression with field names in place of columns.
fn shown(text: &str) -> String {
    let mut fields = FieldSet::new();
    let expr = parse_condition(text, &mut fields).unwrap();
    show(&expr, &fields)
}

fn show(expr: &Expr, fields: &FieldSet) -> String {
    let operand = |operand: &Operand| match operand {
        Operand::Column(column) => format!("{:?}", fields.paths()[column.0].keys()),
        Operand::Text(text) => format!("'{text}'"),
        Operand::Number(number) => number.to_string(),
        Operand::Bool(value) => value.to_string(),
        Operand::Null => "null".to_owned(),
    };
    let list = |parts: &[Expr]| {
        let parts: Vec<String> = parts.iter().map(|part| show(part, fields)).collect();
        parts.join(" ")
    };
    match expr {
        Expr::Compare { left, op, right } => {
            format!("({op:?} {} {})", operand(left), operand(right))
        }
        Expr::IsNull(inner) => format!("(IsNull {})", operand(inner)),
        Expr::Truth(inner) => format!("(Truth {})", operand(inner)),
        Expr::Not(inner) => format!("(Not {})", show(inner, fields)),
        Expr::And(parts) => format!("(And {})", list(parts)),
        Expr::Or(parts) => format!("(Or {})", list(parts)),
    }
}

#[test]
fn conditions_are_translated() {
    let cases = [
        ("a = 'x'", r#"(Eq ["a"] 'x')"#),
        ("a.b <> 'it''s'", r#"(Ne ["a", "b"] 'it's')"#),
        ("\"a.b\" != 1", r#"(Ne ["a.b"] 1)"#),
        (
            "a < -1.50 or b >= 1e3",
            r#"(Or (Lt ["a"] -1.5) (Ge ["b"] 1000))"#,
        ),
        ("a <= .5 and b > 5.", r#"(And (Le ["a"] 0.5) (Gt ["b"] 5))"#),
        ("a = 007", r#"(Eq ["a"] 7)"#),
        ("a = 0", r#"(Eq ["a"] 0)"#),
        ("a = 0.25", r#"(Eq ["a"] 0.25)"#),
        ("a and not b", r#"(And (Truth ["a"]) (Not (Truth ["b"])))"#),
        ("a is null", r#"(IsNull ["a"])"#),
        ("a is not null", r#"(Not (IsNull ["a"]))"#),
        ("a in (1, 'x')", r#"(Or (Eq ["a"] 1) (Eq ["a"] 'x'))"#),
        ("a not in (1)", r#"(Not (Or (Eq ["a"] 1)))"#),
        ("a between 1 and 2", r#"(And (Ge ["a"] 1) (Le ["a"] 2))"#),
        (
            "(a = true or b = false) and c",
            r#"(And (Or (Eq ["a"] true) (Eq ["b"] false)) (Truth ["c"]))"#,
        ),
        ("a = b", r#"(Eq ["a"] ["b"])"#),
        ("AA = aa", r#"(Eq ["AA"] ["aa"])"#),
        ("true", "(Truth true)"),
        (
            "a = 1 or b = 2 and c = 3",
            r#"(Or (Eq ["a"] 1) (And (Eq ["b"] 2) (Eq ["c"] 3)))"#,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn a_field_has_one_column_however_often_it_is_named() {
    let mut fields = FieldSet::new();
    parse_condition("a > 1 and b = 2 and a < 3", &mut fields).unwrap();
    assert_eq!(fields.len(), 2);
}

#[test]
fn what_is_not_allowed_is_refused_with_its_place() {
    let cases = [
        ("a = 1 and upper(b) = 'X'", "at column 11"),
        ("a + 1 = 2", "a + 1 is not supported"),
        ("a like 'x%'", "not supported"),
        ("a = 'x' b", "at column 9"),
        ("'x'", "no condition"),
        ("a =", "not an expression"),
        ("a = 'x", "not an expression"),
        ("", "is empty"),
        ("a = 1e999", "too large"),
        ("`a` = 1", "double quotes"),
        ("a = (select 1)", "not supported"),
    ];
    for (text, expected) in cases {
        let message = parse_condition(text, &mut FieldSet::new()).unwrap_err();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn a_chain_of_thousands_is_translated_without_exhausting_the_stack() {
    let chain = vec!["a"; 2_000].join(" or ");
    assert!(
        matches!(parse_condition(&chain, &mut FieldSet::new()), Ok(Expr::Or(parts)) if parts.len() == 2_000)
    );
    let deep = format!("{}a{}", "(".repeat(4_000), ")".repeat(4_000));
    assert!(
        parse_condition(&deep, &mut FieldSet::new())
            .unwrap_err()
            .contains("nested")
    );
}

#[test]
fn values_are_translated() {
    let mut fields = FieldSet::new();
    let mut value = |text: &str| parse_value(text, &mut fields);
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
    for bad in [
        "sum()",
        "sum(*)",
        "sum(a, b)",
        "sum(a + 1)",
        "count(distinct a)",
        "quantile(a, 99)",
        "top(a, 0)",
        "sum('a')",
        "summ(a)",
        "sum(a) over ()",
        "sum(a) filter (where a > 1)",
        "a",
        "sum(a) + 1",
    ] {
        let message = value(bad).unwrap_err();
        assert!(
            ["write ", "a value is", "condition", "compare"]
                .iter()
                .any(|rule| message.contains(rule)),
            "{bad}: {message}"
        );
    }
}
