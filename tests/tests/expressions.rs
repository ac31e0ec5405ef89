//! `unisono eval` with expressions: the rows are those that were worked out by hand, and what is
//! silently wrong is said.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use unisono_tests::unisono_binary;

const ORDERS: &str = r#"{"t":"2026-01-01T00:00:01Z","status":"paid","s":"WEB","price":19.99,"qty":3,"ms":120,"items":[{"sku":"a"}],"error":null}
{"t":"2026-01-01T00:00:02Z","status":"paid","s":"web","price":0.1,"qty":2,"ms":480,"items":[{"sku":"b"},{"sku":"c"}],"error":{"code":5}}
{"t":"2026-01-01T00:00:03Z","status":"open","s":"App","price":5,"qty":1,"ms":90,"items":[],"error":[1]}
{"t":"2026-01-01T00:00:04Z","status":"paid","s":"APP","price":"7","qty":1,"ms":700,"error":"timeout"}
{"t":"2026-01-01T00:00:05Z","status":"paid","s":null,"price":1e20,"qty":1e20,"ms":1}
{"t":"2026-01-01T00:01:10Z","status":"paid","s":"app","price":2.5,"qty":2,"ms":30}
"#;

/// Rows and summary of a pipeline over [`ORDERS`].
fn eval(rest: &str, input: &str) -> (Vec<String>, String) {
    let dir = tempfile::tempdir().unwrap();
    let head =
        "name = \"p\"\nsources = [\"s\"]\ntime = { field = \"t\" }\nwindow = { size = \"1m\" }\n";
    std::fs::write(dir.path().join("p.toml"), format!("{head}{rest}")).unwrap();
    std::fs::write(dir.path().join("orders"), input).unwrap();
    let mut command = Command::new(unisono_binary());
    command.current_dir(dir.path());
    let output = command
        .args(["eval", "p.toml", "orders", "--format", "ndjson"])
        .output()
        .unwrap();
    let summary = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{summary}");
    let rows = String::from_utf8(output.stdout).unwrap();
    (rows.lines().map(str::to_owned).collect(), summary)
}

/// Minute, group and values of each row.
fn shown(rows: &[String]) -> Vec<String> {
    let shown = rows.iter().map(|row| {
        let minute = &row[row.find("T00:").unwrap() + 4..][..2];
        format!(
            "{minute} {}",
            &row[row.find("\"group\":").unwrap() + 8..row.len() - 1]
        )
    });
    shown.collect()
}

#[test]
fn groups_values_and_filters_are_expressions() {
    let pipeline = r#"
where = ["status = 'paid'", "ms > 0"]
group_by = ["channel = lower(s)"]
[values]
n = "count()"
revenue = "sum(price * qty)"
slow = "count() where ms >= 480"
fast = "max(price) filter (where ms < 480)"
steps = "sum(case when ms between 100 and 500 then 1 else 0 end)"
errors = "count(error)"
"#;
    let (rows, summary) = eval(pipeline, ORDERS);
    assert_eq!(
        shown(&rows),
        [
            // 10^20 times 10^20 is more than can be held.
            r#"00 {"channel":null},"values":{"n":1,"revenue":null,"slow":0,"fast":100000000000000000000,"steps":0,"errors":0}"#,
            // The price is a text.
            r#"00 {"channel":"app"},"values":{"n":1,"revenue":null,"slow":1,"fast":null,"steps":0,"errors":1}"#,
            r#"00 {"channel":"web"},"values":{"n":2,"revenue":60.17,"slow":1,"fast":19.99,"steps":2,"errors":1}"#,
            r#"01 {"channel":"app"},"values":{"n":1,"revenue":5,"slow":0,"fast":2.5,"steps":0,"errors":0}"#,
        ]
    );
    assert!(summary.contains("1 not selected by where"), "{summary}");
    assert!(summary.contains("2 unusable fields"), "{summary}");
    assert!(
        summary.contains(
            "note: (price * qty) has a value that it cannot use, and gives null: 2 times"
        ),
        "{summary}"
    );
}

#[test]
fn a_row_for_which_having_does_not_hold_takes_no_number() {
    let pipeline = r#"
group_by = ["upper(s)"]
having = ["n > 1 and \"upper(s)\" is not null", "most < 100"]
[values]
n = "count()"
most = "max(ms)"
"#;
    let (all, _) = eval(&pipeline.replace("most < 100", "true"), ORDERS);
    assert_eq!(
        shown(&all),
        [
            r#"00 {"upper(s)":"APP"},"values":{"n":2,"most":700}"#,
            r#"00 {"upper(s)":"WEB"},"values":{"n":2,"most":480}"#,
        ]
    );
    assert!(all[1].contains("\"seq\":1,"), "{all:?}");
    let (rows, summary) = eval(&pipeline.replace("most < 100", "most < 500"), ORDERS);
    assert_eq!(shown(&rows), shown(&all[1..]));
    assert!(rows[0].contains("\"seq\":0,"), "{rows:?}");
    assert!(summary.contains("3 rows withheld by having"), "{summary}");
}

/// Without groups an empty window has a row, which `having` judges like any other.
#[test]
fn having_judges_empty_windows_too() {
    let later = r#"{"t":"2026-01-01T00:03:10Z","ms":5}"#;
    let input = format!("{ORDERS}{later}\n");
    let rows = |having: &str| {
        let pipeline = format!("having = \"{having}\"\n[values]\nn = \"count()\"\n");
        shown(&eval(&pipeline, &input).0)
    };
    assert_eq!(rows("n >= 0").len(), 4);
    assert_eq!(rows("n = 0"), [r#"02 {},"values":{"n":0}"#]);
    assert_eq!(rows("n > 1"), [r#"00 {},"values":{"n":5}"#]);
}

#[test]
fn elements_of_arrays_are_fields() {
    let pipeline = r#"
group_by = ["items[0].sku", "second = items[1]['sku']"]
[values]
n = "count()"
"#;
    let (rows, summary) = eval(pipeline, ORDERS);
    assert_eq!(
        shown(&rows),
        [
            r#"00 {"items[0].sku":null,"second":null},"values":{"n":3}"#,
            r#"00 {"items[0].sku":"a","second":null},"values":{"n":1}"#,
            r#"00 {"items[0].sku":"b","second":"c"},"values":{"n":1}"#,
            r#"01 {"items[0].sku":null,"second":null},"values":{"n":1}"#,
        ]
    );
    assert!(!summary.contains("note:"), "{summary}");
}

#[test]
fn what_is_no_group_is_a_dead_letter_and_not_null() {
    let (rows, summary) = eval(
        "group_by = [\"error\"]\n[values]\nn = \"count()\"\n",
        ORDERS,
    );
    assert_eq!(
        shown(&rows),
        [
            r#"00 {"error":null},"values":{"n":2}"#,
            r#"00 {"error":"timeout"},"values":{"n":1}"#,
            r#"01 {"error":null},"values":{"n":1}"#,
        ]
    );
    assert!(summary.contains("2 dead letters"), "{summary}");
}

/// Each of these gives nothing, or null, and is right as SQL.
#[test]
fn what_is_silently_empty_is_said() {
    for (rest, expected) in [
        (
            "where = \"statsu = 'paid'\"\n[values]\nn = \"count()\"\n",
            "note: no record so far has a field statsu",
        ),
        (
            "where = 'status = \"paid\"'\n[values]\nn = \"count()\"\n",
            "note: \"paid\" in double quotes is a field; if a text is meant, write 'paid'",
        ),
        (
            "where = \"status = paid\"\n[values]\nn = \"count()\"\n",
            "note: no record so far has a field paid",
        ),
        (
            "where = \"ms = '480'\"\n[values]\nn = \"count()\"\n",
            "note: ms = '480' compares values of different kinds, which is never true: 6 times",
        ),
        (
            "where = \"ms\"\n[values]\nn = \"count()\"\n",
            "note: ms is not true or false: 6 times",
        ),
        (
            "[values]\nn = \"sum(amout)\"\n",
            "note: no record so far has a field amout",
        ),
        (
            "group_by = [\"ctiy\"]\n[values]\nn = \"count()\"\n",
            "note: no record so far has a field ctiy",
        ),
    ] {
        let (_, summary) = eval(rest, ORDERS);
        assert!(summary.contains(expected), "{rest}: {summary}");
    }
}

#[test]
fn check_says_what_is_hardly_meant_and_what_is_wrong() {
    let check = |rest: &str| {
        let dir = tempfile::tempdir().unwrap();
        let head = "name = \"p\"\nsources = [\"s\"]\ntime = { field = \"t\" }\nwindow = { size = \"1m\" }\n";
        std::fs::write(dir.path().join("p.toml"), format!("{head}{rest}")).unwrap();
        let mut command = Command::new(unisono_binary());
        let output = command
            .current_dir(dir.path())
            .args(["check", "p.toml"])
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    };
    let (code, text) = check("where = 'status = \"paid\"'\n[values]\nn = \"count()\"\n");
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("p.toml: warning: pipeline p: \"paid\" in double quotes"),
        "{text}"
    );
    let (code, text) = check("where = \"price + 'a' > 1\"\n[values]\nn = \"sum(upper(5))\"\n");
    assert_eq!(code, 64, "{text}");
    for expected in [
        "p.toml:5: where: at column 9: + takes a number, but 'a' is a text",
        "p.toml:7: values.n: at column 11: upper takes a text, but 5 is a number",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
