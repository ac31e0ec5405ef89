//! `unisono eval` with every kind of value: rows worked out by hand.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use unisono_tests::unisono_binary;

const PIPELINE: &str = r#"
name = "latency"
sources = ["requests"]
time = { field = "t", format = "s" }
window = { size = "1m" }
[values]
n = "count()"
numbers = "sum(ms)"
least = "min(who)"
most = "max(who)"
variance = "variance(ms)"
spread = "stddev_pop(ms)"
half = "median(ms)"
ends = "quantile(ms, 0, 1)"
who = "distinct(who)"
best = "top(who, 2)"
by = "histogram(ms, 10, 100.5)"
first = "first(who)"
last = "last(who)"
grown = "increase(total)"
rate = "rate(total)"
tiny = "max(x)"
"#;

/// Second, milliseconds, who, total.
const FIRST: &str = r#"
{"t": 3, "ms": 4, "who": "ann", "total": 100, "x": 5.551115123125783e-17}
{"t": 10, "ms": 4, "who": "bob", "total": 130}
{"t": 20, "ms": 5, "who": "bob", "total": 10}
{"t": 50, "ms": "5", "who": "cid", "total": 25}
"#;
const SECOND: &str = r#"
{"t": 1, "ms": 2, "who": "eve", "total": 90}
{"t": 5, "ms": 4, "who": "ann", "total": 110}
{"t": 50, "ms": 5, "who": "dan", "total": 20}
{"t": 51, "ms": 7, "who": null}
{"t": 52, "ms": 9, "who": "ann"}
{"t": 53, "ms": 100.5, "who": "ann"}
"#;

fn eval(pipeline: &str, files: &[&str]) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("p.toml"), pipeline).unwrap();
    let mut command = Command::new(unisono_binary());
    command.current_dir(dir.path());
    command.args(["eval", "p.toml", "--format", "ndjson"]);
    for (index, file) in files.iter().enumerate() {
        std::fs::write(dir.path().join(index.to_string()), file.trim_start()).unwrap();
        command.arg(index.to_string());
    }
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn every_kind_of_value_is_what_is_worked_out_by_hand() {
    let (rows, summary) = eval(PIPELINE, &[FIRST, SECOND]);
    // ms: 2, 4, 4, 4, 5, 5, 7, 9 have the sum 40 and the squares' sum 232; with 100.5 there are nine
    // numbers: 140.5 and 10332.25. The text "5" is none.
    // Variance: (9 · 10332.25 - 140.5²) / 72 = (92990.25 - 19740.25) / 72 = 73250 / 72.
    // Of all: 73250 / 81, and its root.
    // total by time, the greater of two at once: 90, 100, 110, 130, 10 (a reset), 25.
    let values = concat!(
        r#""values":{"n":10,"numbers":140.5,"least":"ann","most":"eve","#,
        r#""variance":1017.3611111111111111,"spread":30.07193022827635166,"half":5,"ends":[2,100.5],"#,
        r#""who":5,"best":[{"value":"ann","count":4},{"value":"bob","count":2}],"#,
        r#""by":[{"le":10,"count":8},{"le":100.5,"count":1},{"le":null,"count":0}],"#,
        r#""first":"eve","last":"ann","grown":65,"rate":1.0833333333333333333,"#,
        r#""tiny":0.000000000000000055511151231258}}"#
    );
    let half = rows
        .split("\"half\":")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    let half: f64 = half.unwrap().parse().unwrap();
    assert!(
        (half - 5.0).abs() <= 0.05,
        "the median to one percent: {half}"
    );
    let exact = rows.replace(&format!("\"half\":{half},"), "\"half\":5,");
    assert!(exact.trim_end().ends_with(values), "{rows}\n{values}");
    assert!(
        summary.contains(", 1 unusable fields, 1 rounded fields, "),
        "{summary}"
    );
    let (again, _) = eval(PIPELINE, &[SECOND, FIRST]);
    assert_eq!(again, rows, "which file is which lane must not show");
}

#[test]
fn a_wrong_function_is_refused_with_file_key_and_rule() {
    for (from, to, expected) in [
        (
            "median(ms)",
            "medain(ms)",
            "values.half: at column 1: function medain is not known; did you mean median?",
        ),
        (
            "top(who, 2)",
            "top(who, 2000)",
            "values.best: at column 1: top lists 1 to 1000 values, not 2000; write top(field, n)",
        ),
        (
            "quantile(ms, 0, 1)",
            "quantile(ms, 99)",
            "values.ends: at column 1: quantile takes parts from 0 to 1, and 99 is none",
        ),
        (
            "10, 100.5",
            "10, 9",
            "values.by: at column 1: histogram takes ascending bounds, and 9 follows 10",
        ),
    ] {
        let (_, said) = eval(&PIPELINE.replace(from, to), &[FIRST]);
        assert!(said.contains("p.toml") && said.contains(expected), "{said}");
    }
}
