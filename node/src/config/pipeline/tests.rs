#![allow(clippy::unwrap_used)]

use super::*;

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
    errors.problems.iter().map(ToString::to_string).collect()
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
        "p.toml: values.a: at column 1: function summ is not supported yet",
    ] {
        assert!(
            found.iter().any(|problem| problem.starts_with(expected)),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn windows_that_are_none_are_refused_with_the_rule() {
    let with = |window: &str| {
        DNS.replace(
            "{ size = \"5m\", slide = \"1m\", offset = \"10s\" }",
            window,
        )
    };
    refused(
        &with("{ size = '-1m' }"),
        "window: size must be greater than 0",
    );
    refused(
        &with("{ size = '1m', slide = '0s' }"),
        "window: slide must be greater than 0",
    );
    refused(
        &with("{ size = '1m', slide = '2m' }"),
        "window: slide must not be greater than size",
    );
    refused(
        &with("{ size = '1m', slide = '25s' }"),
        "window: slide must divide size",
    );
    refused(&with("{ slide = '25s' }"), "window.size: is missing");
}

#[test]
fn what_the_design_has_and_this_version_lacks_is_refused_by_name() {
    refused(
        &DNS.replace("records = 3", "at_most = '2m'"),
        "close.at_most: not supported yet",
    );
    refused(
        &format!("{DNS}[align]\nmax_skew = '1m'"),
        "align: not supported yet",
    );
    refused(
        &format!("{DNS}[late]\npolicy = 'revise'"),
        "late.policy: \"revise\" is not supported yet",
    );
    refused(
        &format!("{DNS}[late]\nkeep = '1h'"),
        "late.keep: not supported yet",
    );
    refused(
        &DNS.replace("offset = \"10s\"", "time_zone = 'Asia/Taipei'"),
        "window.time_zone: not supported",
    );
    refused(
        &DNS.replace("avg(rtt)", "quantile(rtt, 0.9)"),
        "function quantile is not supported yet",
    );
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    refused("name = 'p'\nsources = [", "p.toml: not TOML at line 2");
}
