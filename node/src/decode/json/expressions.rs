//! What expressions give for decoded records. The right values are written by hand, as PostgreSQL and DuckDB have them
//! where those agree; where they don't, as docs/configuration.md says.
#![allow(clippy::unwrap_used)]

use unisono_engine::expr::Evaluator;
use unisono_engine::record::Cell;
use unisono_engine::spec::Expr;

use super::*;
use crate::definition::{Names, parse_group};

const RECORD: &str = r#"{"n": 7, "half": 2.5, "neg": -7.25, "big": 9999999999999999999999999999,
    "s": "Grüße", "t": " padded ", "num": " 10.50", "yes": true, "no": false, "nil": null,
    "at": "2024-02-29T13:45:30.250+01:00", "secs": 1709210730, "path": "a/b//c",
    "list": [5, "x", {"k": "v"}, [1, 2]], "obj": {"a.b": 1, "c": {"d": "deep"}}, "order": 3}"#;

/// What the expression gives for the record; `bad`: null because something could not be used.
fn evaluated(text: &str, record: &str) -> String {
    let mut names = Names::default();
    let (_, column) = parse_group(&format!("({text})"), &mut names)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let expr = match column.derived() {
        Some(at) => names.derived[at].clone(),
        None => Expr::Column(column),
    };
    let mut decoder = JsonDecoder::new(&names.fields);
    let record = decoder.decode(0, None, Some(record.as_bytes()));
    match Evaluator::new(&expr).evaluate(&record) {
        Cell::Missing => "missing".to_owned(),
        Cell::Null => "null".to_owned(),
        Cell::Bool(value) => value.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => format!("'{}'", std::str::from_utf8(text).unwrap()),
        Cell::Nested => "nested".to_owned(),
        Cell::Bad => "bad".to_owned(),
    }
}

/// All wrong ones at once.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let found = cases
        .iter()
        .map(|(text, expected)| (text, evaluated(text, RECORD), expected));
    let wrong: Vec<_> = found
        .filter(|(_, found, expected)| found != *expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn arithmetic_is_exact() {
    check(&[
        ("n + half", "9.5"),
        ("n - 0.1 - 0.2", "6.7"),
        ("0.1 + 0.2", "0.3"),
        ("n * half * 2", "35"),
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("n / 2", "3.5"),
        ("1 / 3", "0.33333333333333333333"),
        ("2 / 3", "0.66666666666666666667"),
        ("n % 3", "1"),
        ("neg % 3", "-1.25"),
        ("mod(n, 4)", "3"),
        ("-n", "-7"),
        ("-(-n)", "7"),
        ("+n", "7"),
        ("n / (n - 7)", "bad"),
        ("big + 1", "bad"),
        ("big * big", "bad"),
        ("n + nil", "null"),
        ("n + nowhere", "null"),
        ("n + s", "bad"),
        ("nil + s", "null"),
        ("abs(neg)", "7.25"),
        ("round(half)", "3"),
        ("round(-half)", "-3"),
        ("round(neg, 1)", "-7.3"),
        ("round(1234.5, -2)", "1200"),
        ("round(n, nil)", "null"),
        ("round(n, half)", "bad"),
        ("floor(neg)", "-8"),
        ("ceil(neg)", "-7"),
        ("ceiling(2.1)", "3"),
        ("abs(s)", "bad"),
        ("abs(nil)", "null"),
    ]);
}

#[test]
fn null_is_that_of_sql() {
    check(&[
        ("nil = nil", "null"),
        ("nil <> 1", "null"),
        ("nil is null", "true"),
        ("nowhere is null", "true"),
        ("n is null", "false"),
        ("list is null", "false"),
        ("obj is not null", "true"),
        ("nil is distinct from null", "false"),
        ("n is distinct from nil", "true"),
        ("n is not distinct from 7", "true"),
        ("n is distinct from 8", "true"),
        ("yes and nil", "null"),
        ("no and nil", "false"),
        ("yes or nil", "true"),
        ("no or nil", "null"),
        ("not nil", "null"),
        ("yes is true", "true"),
        ("nil is true", "false"),
        ("nil is not true", "true"),
        ("no is false", "true"),
        ("nil is false", "false"),
        ("(n > nil) is unknown", "true"),
        ("(n > 1) is not unknown", "true"),
        ("n in (1, 7)", "true"),
        ("n in (1, null)", "null"),
        ("n in (7, null)", "true"),
        ("n not in (1, null)", "null"),
        ("n not in (1, 2)", "true"),
        ("nil in (1)", "null"),
        ("n + 0 in (1, 7)", "true"),
        ("n + 0 in (1, nil)", "null"),
        ("n + 0 not in (1, nil)", "null"),
        ("n between 7 and 8", "true"),
        ("n between 8 and 7", "false"),
        ("n between 8 and nil", "false"),
        ("n between 6 and nil", "null"),
        ("n not between 8 and 9", "true"),
        ("coalesce(nil, nowhere, n)", "7"),
        ("coalesce(nil, null)", "null"),
        ("ifnull(nil, 'x')", "'x'"),
        ("nullif(n, 7)", "null"),
        ("nullif(n, 8)", "7"),
        ("nullif(nil, 8)", "null"),
        (
            "case when n > 5 then 'large' when n > 1 then 'small' end",
            "'large'",
        ),
        ("case when nil then 1 else 2 end", "2"),
        ("case when no then 1 end", "null"),
        (
            "case n when 1 then 'one' when 7 then 'seven' else 'other' end",
            "'seven'",
        ),
        ("case nil when null then 1 else 2 end", "2"),
    ]);
}

#[test]
fn comparisons_keep_to_one_kind() {
    check(&[
        ("n = 7.0", "true"),
        ("7 >= n", "true"),
        ("n < 7", "false"),
        ("6 < n", "true"),
        ("s = 'Grüße'", "true"),
        ("'H' > s", "true"),
        ("s <> 'x'", "true"),
        ("yes = true", "true"),
        ("yes > no", "true"),
        ("n = '7'", "bad"),
        ("s = 7", "bad"),
        ("list = 1", "bad"),
        ("s = n", "bad"),
        ("not s", "bad"),
        ("s in ('a', 'b', 'c', 'd', 'e', 'f', 'Grüße')", "true"),
        ("s in ('a', 'b', 'c', 'd', 'e', 'f')", "false"),
        ("n in ('a', 'b', 'c', 'd', 'e', 'f')", "bad"),
        ("s not in ('a', 'b', 'c', 'd', 'e', 'f')", "true"),
    ]);
}

#[test]
fn texts_are_counted_in_characters() {
    check(&[
        ("upper(s)", "'GRÜSSE'"),
        ("lower('ÄB')", "'äb'"),
        ("length(s)", "5"),
        ("length('')", "0"),
        ("trim(t)", "'padded'"),
        ("ltrim(t)", "'padded '"),
        ("rtrim(t)", "' padded'"),
        ("trim('xxaxx', 'x')", "'a'"),
        ("trim(both 'xy' from 'xyaxy')", "'a'"),
        ("trim(leading 'x' from 'xax')", "'ax'"),
        ("trim(trailing 'x' from 'xax')", "'xa'"),
        ("substr(s, 3)", "'üße'"),
        ("substr(s, 3, 2)", "'üß'"),
        ("substring(s from 2 for 3)", "'rüß'"),
        ("substr('abc', 0, 2)", "'a'"),
        ("substr('abc', -1, 3)", "'a'"),
        ("substr('abc', 5)", "''"),
        ("substr('abc', 2, 0)", "''"),
        ("substr('abc', 2, -1)", "bad"),
        ("substr('abc', 1.5)", "bad"),
        ("'a' || 'b' || n", "'ab7'"),
        ("'a' || nil", "null"),
        ("concat('a', nil, n, yes, half)", "'a7true2.5'"),
        ("concat(nil)", "''"),
        ("concat(list)", "bad"),
        ("upper(lower(s) || 'x') || '!'", "'GRÜSSEX!'"),
        ("starts_with(s, 'Gr')", "true"),
        ("ends_with(s, 'ße')", "true"),
        ("ends_with(s, nil)", "null"),
        ("replace(path, '/', '-')", "'a-b--c'"),
        ("replace('aaa', 'aa', 'b')", "'ba'"),
        ("replace('abc', '', 'x')", "'abc'"),
        ("split_part(path, '/', 2)", "'b'"),
        ("split_part(path, '/', 3)", "''"),
        ("split_part(path, '/', -1)", "'c'"),
        ("split_part(path, '/', 9)", "''"),
        ("split_part(path, '/', 0)", "bad"),
        ("split_part(lower('A,B'), ',', 2)", "'b'"),
        ("upper(n)", "bad"),
        ("length(nil)", "null"),
        ("s like 'Gr%'", "true"),
        ("s like '_r_ße'", "true"),
        ("s like 'gr%'", "false"),
        ("s ilike 'gRÜ%'", "true"),
        ("s not like '%x%'", "true"),
        ("nil like '%'", "null"),
        ("'50%' like '50!%' escape '!'", "true"),
        ("'50x' like '50!%' escape '!'", "false"),
        (r"'a_b' like 'a\_b'", "true"),
        (r"'axb' like 'a\_b'", "false"),
        ("n like '7'", "bad"),
        ("regexp_like(s, '^Gr.+e$')", "true"),
        ("regexp_like(s, '^r')", "false"),
        ("regexp_like(s, 'GRÜ', 'i')", "true"),
        ("s rlike 'ß'", "true"),
        ("regexp_like(nil, 'x')", "null"),
    ]);
}

#[test]
fn casts_that_fail_are_bad() {
    check(&[
        ("num::number + 1", "11.5"),
        ("cast('+.5' as number)", "0.5"),
        ("cast('1e3' as decimal)", "1000"),
        ("cast('-5.' as number)", "-5"),
        ("cast('007' as number)", "7"),
        ("cast(s as number)", "bad"),
        ("cast('' as number)", "bad"),
        ("cast('.' as number)", "bad"),
        ("cast(nil as number)", "null"),
        ("cast(yes as integer)", "1"),
        ("half::integer", "3"),
        ("(-half)::int", "-3"),
        ("cast('10.4' as bigint)", "10"),
        ("cast('1.005' as decimal(10, 2))", "1.01"),
        ("try_cast(s as double)", "bad"),
        ("n::text || '!'", "'7!'"),
        ("cast(half as varchar)", "'2.5'"),
        ("cast(yes as text)", "'true'"),
        ("cast(list as text)", "bad"),
        ("cast('YES' as boolean)", "true"),
        ("cast('0' as boolean)", "false"),
        ("cast(n as boolean)", "true"),
        ("cast('maybe' as boolean)", "bad"),
        ("coalesce(cast(s as number), 0)", "0"),
    ]);
}

#[test]
fn times_are_cut_and_taken_apart_in_utc() {
    check(&[
        ("cast(at as timestamp)", "'2024-02-29T12:45:30.250Z'"),
        ("at::timestamp::text", "'2024-02-29T12:45:30.250Z'"),
        ("cast(secs as timestamp)", "'2024-02-29T12:45:30Z'"),
        (
            "to_timestamp(1700000000123 + 0 * n)",
            "'2023-11-14T22:13:20.123Z'",
        ),
        (
            "coalesce(nil, cast('2024-02-29' as timestamp))",
            "'2024-02-29T00:00:00Z'",
        ),
        ("cast(at as date)", "'2024-02-29T00:00:00Z'"),
        ("cast(s as timestamp)", "bad"),
        ("date_trunc('hour', at)", "'2024-02-29T12:00:00Z'"),
        ("date_trunc('day', at)", "'2024-02-29T00:00:00Z'"),
        ("date_trunc('week', at)", "'2024-02-26T00:00:00Z'"),
        ("date_trunc('month', at)", "'2024-02-01T00:00:00Z'"),
        ("date_trunc('quarter', at)", "'2024-01-01T00:00:00Z'"),
        (
            "date_trunc('year', secs::timestamp)",
            "'2024-01-01T00:00:00Z'",
        ),
        ("date_trunc('second', at)", "'2024-02-29T12:45:30Z'"),
        ("date_trunc('day', nil)", "null"),
        ("date_trunc('day', yes)", "bad"),
        ("extract(year from at)", "2024"),
        ("extract(month from at)", "2"),
        ("extract(day from at)", "29"),
        ("extract(hour from at)", "12"),
        ("extract(minute from at)", "45"),
        ("extract(second from at)", "30.25"),
        ("extract(epoch from at)", "1709210730.25"),
        ("extract(quarter from at)", "1"),
        ("extract(doy from at)", "60"),
        ("extract(dow from timestamp '2024-03-03')", "0"),
        ("extract(isodow from timestamp '2024-03-03')", "7"),
        ("extract(week from timestamp '2024-12-30')", "1"),
        ("extract(week from timestamp '2027-01-03')", "53"),
        ("date_part('hour', at)", "12"),
        ("at > timestamp '2024-02-29T12:45:30Z'", "true"),
        ("at < '2024-02-29T12:45:30Z'::timestamp", "false"),
        ("date_trunc('day', at) = '2024-02-29'", "true"),
        (
            "date_trunc('day', at) in ('2024-02-28', date '2024-02-29')",
            "true",
        ),
        (
            "at between timestamp '2024-02-29' and timestamp '2024-03-01'",
            "true",
        ),
        ("s < timestamp '2024-02-29'", "bad"),
        ("extract(epoch from at) - extract(epoch from secs)", "0.25"),
    ]);
}

#[test]
fn fields_within_fields_are_reached() {
    check(&[
        ("list[0]", "5"),
        ("list[1]", "'x'"),
        ("list[2].k", "'v'"),
        ("list[2]['k']", "'v'"),
        ("list[3][1]", "2"),
        ("list[3]", "nested"),
        ("list[4]", "null"),
        ("list[0].k", "null"),
        ("obj['a.b']", "1"),
        ("obj.\"a.b\"", "1"),
        ("obj['c']['d']", "'deep'"),
        ("obj", "nested"),
        ("n[0]", "null"),
        ("\"order\" + 1", "4"),
    ]);
}

#[test]
fn what_would_fill_the_memory_is_bad() {
    let long = format!("'{}'", "x".repeat(300));
    let mut text = long.clone();
    for _ in 0..4 {
        text = format!("replace({text}, 'x', {long})");
    }
    assert_eq!(evaluated(&format!("length({text})"), "{}"), "bad");
    let twice = format!("length(replace(replace({long}, 'x', {long}), 'x', 'yy'))");
    assert_eq!(evaluated(&twice, "{}"), "180000");
}
