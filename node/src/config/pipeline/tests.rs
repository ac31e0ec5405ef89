#![allow(clippy::unwrap_used)]

use unisono_engine::spec::WindowSpec;

use unisono_engine::spec::{TimeFormat, TimeSource};

use super::*;
use crate::config::ConfigProblem;

mod late;

mod windows;

const DNS: &str = r#"
name = "dns"
sources = ["zeek"]
time = { field = "ts", format = "rfc3339" }
where = "rtt > 0.001 and \"id.orig_h\" in ('a', 'b') and not rejected"
group_by = ["rcode_name", "\"id.orig_h\""]
window = { size = "5m", slide = "1m", offset = "10s" }
max_future = "never"
[close]
lag = "15m"
records = 3
idle = "never"
[values]
n = "count()"
total = "sum(rtt)"
average = "avg(rtt)"
"#;

fn problems(text: &str) -> Vec<String> {
    let errors = PipelineDefinition::parse("p.toml", text).unwrap_err();
    // Lines have tests of their own.
    let without_line = |problem: ConfigProblem| ConfigProblem {
        line: None,
        ..problem
    };
    let problems = errors.problems.into_iter().map(without_line);
    problems.map(|problem| problem.to_string()).collect()
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let found = problems(text);
    assert!(
        found.iter().any(|problem| problem.contains(expected)),
        "{expected}: {found:#?}"
    );
}

#[test]
fn a_definition_means_what_it_says() {
    let definition = PipelineDefinition::parse("p.toml", DNS).unwrap();
    let labels: Vec<String> = definition
        .fields
        .paths()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        labels,
        ["ts", "rtt", "\"id.orig_h\"", "rejected", "rcode_name"]
    );
    let spec = &definition.spec;
    assert_eq!(
        spec.window,
        WindowSpec::new(300_000, 60_000, 10_000).unwrap()
    );
    assert_eq!(
        (spec.close.lag_ms, spec.close.records, spec.close.idle_ms),
        (900_000, 3, None)
    );
    assert_eq!(spec.max_future_ms, None);
    assert_eq!(spec.group_by[1].name, "id.orig_h");
    let names: Vec<&str> = spec
        .values
        .iter()
        .map(|value| value.name.as_str())
        .collect();
    assert_eq!(names, ["n", "total", "average"], "values keep their order");
    assert_eq!(definition.sink, BUILTIN_SINK);
}

#[test]
fn what_is_left_out_has_its_default() {
    let text =
        "name='p'\nsources=['s']\ntime={field='t'}\nwindow={size='1m'}\nvalues={n='count()'}";
    let spec = PipelineDefinition::parse("p.toml", text).unwrap().spec;
    assert_eq!(
        (spec.close.lag_ms, spec.close.records, spec.close.idle_ms),
        (0, 1, Some(10_000))
    );
    assert_eq!(spec.max_future_ms, Some(300_000));
    assert!(matches!(
        spec.time,
        TimeSource::Field {
            format: TimeFormat::Auto,
            ..
        }
    ));
}

#[test]
fn how_far_a_lane_may_be_ahead_stands_in_the_agreed_text() {
    let text =
        "name='p'\nsources=['s']\ntime={field='t'}\nwindow={size='1m'}\nvalues={n='count()'}";
    let free = PipelineDefinition::parse("p.toml", text).unwrap();
    assert_eq!(free.max_skew_ms, None);
    let text = format!("align={{max_skew='10m'}}\n{text}");
    let aligned = PipelineDefinition::parse("p.toml", &text).unwrap();
    let again = PipelineDefinition::from_canonical(&aligned.canonical, &aligned.sink).unwrap();
    assert_eq!(again.max_skew_ms, Some(600_000));
    for (align, message) in [
        ("{max_skew='0s'}", "must be greater than 0"),
        ("{}", "is missing; write max_skew"),
        ("{skew='1s'}", "skew"),
    ] {
        let text = text.replace("{max_skew='10m'}", align);
        let error = PipelineDefinition::parse("p.toml", &text).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn the_canonical_text_gives_the_same_definition_back() {
    let definition = PipelineDefinition::parse("p.toml", DNS).unwrap();
    let again =
        PipelineDefinition::from_canonical(&definition.canonical, &definition.sink).unwrap();
    assert_eq!(
        format!("{:?}", again.spec),
        format!("{:?}", definition.spec)
    );
    assert_eq!(again.fields, definition.fields);
    assert_eq!(again.sources, definition.sources);
    let written = PipelineDefinition::new(
        again.sources.clone(),
        again.sink.clone(),
        again.fields.clone(),
        again.spec.clone(),
        again.terms(),
    );
    assert_eq!(written.canonical, definition.canonical);
}

#[test]
fn the_canonical_text_is_a_promise() {
    let text =
        "name='p'\nsources=['s']\ntime={field='t'}\nwindow={size='1m'}\nvalues={n='count()'}";
    let canonical = PipelineDefinition::parse("p.toml", text).unwrap().canonical;
    let expected = concat!(
        r#"{"version":2,"name":"p","sources":["s"],"fields":[["t"]],"#,
        r#""time":{"field":{"column":0,"format":"auto"}},"filter":null,"group_by":[],"#,
        r#""window":{"size_ms":60000,"slide_ms":60000,"offset_ms":0},"#,
        r#""close":{"lag_ms":0,"records":1,"idle_ms":10000},"values":[["n","count",null]],"#,
        r#""max_future_ms":300000,"group_bytes":1024}"#
    );
    assert_eq!(canonical, expected);
}

/// Values that older programs don't know have a version of their own: they say so, and guess nothing.
#[test]
fn the_canonical_text_of_newer_values_is_a_promise_too() {
    let values = [
        (
            "p99",
            "quantile(v, 0.990)",
            r#"["p99","quantile",1,["0.99"]]"#,
        ),
        (
            "ps",
            "quantile(v, 0.5, 1)",
            r#"["ps","quantile",1,["0.5","1"]]"#,
        ),
        ("median", "median(v)", r#"["median","quantile",1,["0.5"]]"#),
        ("users", "distinct(v)", r#"["users","distinct",1]"#),
        ("best", "top(v, 10)", r#"["best","top",1,["10"]]"#),
        (
            "h",
            "histogram(v, -1, 0.5)",
            r#"["h","histogram",1,["-1","0.5"]]"#,
        ),
        ("s", "stddev_samp(v)", r#"["s","stddev",1]"#),
        ("sp", "var_pop(v)", r#"["sp","var_pop",1]"#),
        ("f", "first(v)", r#"["f","first",1]"#),
        ("l", "last(v)", r#"["l","last",1]"#),
        ("i", "increase(v)", r#"["i","increase",1]"#),
        ("r", "rate(v)", r#"["r","rate",1]"#),
    ];
    let head = "name='p'\nsources=['s']\ntime={field='t'}\nwindow={size='1m'}\n[values]\n";
    let lines = values.map(|(name, text, _)| format!("{name} = \"{text}\""));
    let definition = PipelineDefinition::parse("p.toml", &(head.to_owned() + &lines.join("\n")));
    let definition = definition.unwrap();
    assert!(definition.canonical.starts_with("{\"version\":3,"));
    let expected = format!("\"values\":[{}]", values.map(|(.., json)| json).join(","));
    assert!(
        definition.canonical.contains(&expected),
        "{}",
        definition.canonical
    );
    let again = PipelineDefinition::from_canonical(&definition.canonical, BUILTIN_SINK).unwrap();
    assert_eq!(
        format!("{:?}", again.spec),
        format!("{:?}", definition.spec)
    );
    for (from, to) in [
        ("\"0.99\"", "\"1.99\""),
        ("\"0.99\"", "\"x\""),
        ("\"10\"", "\"0\""),
        ("\"distinct\",1", "\"distinct\",7"),
        ("\"stddev\"", "\"stddev_samp\""),
    ] {
        let damaged = definition.canonical.replacen(from, to, 1);
        let read = PipelineDefinition::from_canonical(&damaged, BUILTIN_SINK);
        assert!(read.is_err(), "{from} {to}");
    }
}

const SHOP: &str = r#"
name = "shop"
sources = ["orders"]
time = { field = "t" }
where = ["status = 'paid'", "items[0].price > 0 and at < timestamp '2026-01-01'"]
group_by = ["channel = lower(s)", "city", "date_trunc('day', t)"]
window = { size = "1m" }
having = "n > 10 and channel <> 'test'"
[values]
n = "count()"
revenue = "sum(price * qty)"
failed = "count() where status >= 500"
large = "sum(price * qty) filter (where price * qty > 100)"
"#;

#[test]
fn expressions_stand_in_the_canonical_text_too() {
    let definition = PipelineDefinition::parse("p.toml", SHOP).unwrap();
    assert!(definition.warnings.is_empty());
    let spec = &definition.spec;
    let names: Vec<&str> = spec
        .group_by
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    assert_eq!(names, ["channel", "city", "date_trunc('day', t)"]);
    assert!(matches!(&spec.filter, Some(Expr::And(parts)) if parts.len() == 2));
    assert_eq!(spec.derived.len(), 5);
    let canonical = &definition.canonical;
    for part in [
        r#"{"version":3,"#,
        r#""fields":[["t"],["status"],["items",0,"price"],["at"],["s"],["city"],["price"],["qty"]]"#,
        r#""group_by":[["channel",8],["city",5],["date_trunc('day', t)",9]]"#,
        r#"["revenue","sum",10]"#,
        r#""derived":[["lower",{"column":4}],["date_trunc",{"text":"day"},{"column":0}],["multiply",{"column":6},{"column":7}],"#,
        r#""having":{"and":[{"compare":[{"column":0},">",{"number":"10"}]},{"compare":[{"column":4},"!=",{"text":"test"}]}]}"#,
    ] {
        assert!(canonical.contains(part), "{part}: {canonical}");
    }
    let again = PipelineDefinition::from_canonical(canonical, BUILTIN_SINK).unwrap();
    assert_eq!(format!("{:?}", again.spec), format!("{spec:?}"));
    assert_eq!(again.fields, definition.fields);
    for (from, to) in [
        ("[\"lower\",{\"column\":4}]", "[\"lower\"]"),
        ("[\"lower\",", "[\"frobnicate\","),
        ("{\"column\":7}", "{\"column\":8}"),
        ("[\"city\",5]", "[\"city\",13]"),
        ("[\"items\",0,", "[0,"),
    ] {
        let damaged = canonical.replacen(from, to, 1);
        assert_ne!(damaged, *canonical, "{from}");
        let error = PipelineDefinition::from_canonical(&damaged, BUILTIN_SINK).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

#[test]
fn an_expression_that_is_wrong_is_refused_by_its_key() {
    let with = |from: &str, to: &str| SHOP.replace(from, to);
    refused(
        &with("status = 'paid'", "status + 1"),
        "p.toml: where: at column 1: status + 1 is a number, no condition",
    );
    refused(
        &with("lower(s)", "lower(5)"),
        "p.toml: group_by: \"channel = lower(5)\" at column 7: lower takes a text",
    );
    refused(
        &with("n > 10", "m > 10"),
        "p.toml: having: at column 1: m is neither a value nor a group of the row; known here: n, \
         revenue, failed, large, channel, city, date_trunc('day', t)",
    );
    refused(
        &with("price * qty)\"", "price * 'x')\""),
        "p.toml: values.revenue: at column 13: * takes a number, but 'x' is a text",
    );
}

#[test]
fn a_damaged_or_newer_canonical_text_is_refused() {
    let canonical = PipelineDefinition::parse("p.toml", DNS).unwrap().canonical;
    let newer = canonical.replace("\"version\":2", "\"version\":4");
    let error = PipelineDefinition::from_canonical(&newer, BUILTIN_SINK).unwrap_err();
    assert_eq!(
        error.to_string(),
        "definition has version 4, this program reads up to 3; upgrade it"
    );
    for (from, to) in [
        ("\"column\":0", "\"column\":9"),
        ("\"slide_ms\":60000", "\"slide_ms\":0"),
        ("\"records\":3", "\"records\":0"),
        ("\"sum\"", "\"median\""),
        ("{\"version\"", "[{\"version\""),
    ] {
        let damaged = canonical.replacen(from, to, 1);
        assert_ne!(damaged, canonical);
        let error = PipelineDefinition::from_canonical(&damaged, BUILTIN_SINK).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

#[test]
fn a_typo_names_the_nearest_right_key() {
    refused(
        &DNS.replace("group_by", "groupby"),
        "p.toml: groupby: unknown key; did you mean group_by?",
    );
    refused(
        &DNS.replace("lag =", "lagg ="),
        "p.toml: close.lagg: unknown key; did you mean lag?",
    );
    refused(
        &DNS.replace("slide", "slid"),
        "window.slid: unknown key; did you mean slide?",
    );
    refused(
        &DNS.replace("format", "frmat"),
        "time.frmat: unknown key; did you mean format?",
    );
    refused(
        &format!("qqqq = 1\n{DNS}"),
        "qqqq: unknown key; known here: name, sources",
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let text = "nam = 'p'\ntime = { field = 1 }\nwindow = { size = '0s' }\n[values]\na = 'summ(x)'";
    let found = problems(text);
    for expected in [
        "p.toml: name: is missing",
        "p.toml: nam: unknown key; did you mean name?",
        "p.toml: sources: is missing",
        "p.toml: time.field: is a whole number, but must be a text in quotes",
        "p.toml: window: size must be greater than 0",
        "p.toml: values.a: at column 1: function summ is not known; did you mean sum?; write one of count, sum, avg",
    ] {
        assert!(
            found.iter().any(|problem| problem.starts_with(expected)),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn lanes_and_at_most_are_read_and_written() {
    let text = DNS.replace("records = 3", "lanes = 12\nat_most = '2m'");
    let definition = PipelineDefinition::parse("p.toml", &text).unwrap();
    let canonical = &definition.canonical;
    let close =
        r#""close":{"lag_ms":900000,"records":1,"idle_ms":null,"lanes":12,"at_most_ms":120000}"#;
    assert!(canonical.contains(close), "{canonical}");
    assert!(canonical.starts_with("{\"version\":3,"));
    let close = PipelineDefinition::from_canonical(canonical, "s")
        .unwrap()
        .spec
        .close;
    assert_eq!((close.lanes, close.at_most_ms), (12, Some(120_000)));
    refused(
        &DNS.replace("records = 3", "lanes = 0"),
        "close.lanes: 0 is out of range; write 1 to 100000",
    );
    refused(
        &DNS.replace("records = 3", "at_most = '0s'"),
        "close.at_most: must be greater than 0",
    );
}

#[test]
fn what_the_design_has_and_this_version_lacks_is_refused_by_name() {
    refused(
        &DNS.replace("avg(rtt)", "avg(rtt) over ()"),
        "avg(rtt) OVER () is not supported",
    );
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    refused("name = 'p'\nsources = [", "p.toml: not TOML at line 2");
}
