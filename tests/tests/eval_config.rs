//! `unisono eval` of a node's config: several pipelines, files for each source, the digest of a live run, and what
//! became of the records.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use unisono_tests::serve::{Addresses, PIPELINE, Served, event};
use unisono_tests::unisono_binary;

const SOURCES: &str = "[[source]]\nname = \"events\"\nfiles = { dir = \"in\" }\n\
                       [[source]]\nname = \"others\"\nfiles = { dir = \"in\" }\n";
const SECOND: &str = r#"
[[pipeline]]
name = "all"
sources = ["events", "others"]
time = { field = "t" }
where = "g <> 'x'"
window = { size = "10s" }
values = { n = "count()" }
"#;

/// Exit code, standard output, standard error.
fn eval(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(unisono_binary());
    let output = command
        .current_dir(dir)
        .arg("eval")
        .args(args)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A folder with records that are counted, late, filtered and unusable.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    let lines = [
        event(0, "a"),
        event(1, "b"),
        event(12, "a"),
        event(3, "c"),
        event(13, "x"),
    ];
    let text = format!("{}no json\n{{\"g\":\"a\"}}\n", lines.concat());
    std::fs::write(dir.path().join("in/a.ndjson"), text).unwrap();
    std::fs::write(dir.path().join("in/b.ndjson"), event(2, "b")).unwrap();
    dir
}

fn config(dir: &Path, text: &str) -> Served {
    Served::new(dir, 1, &Addresses::of(1), text)
}

#[test]
fn several_pipelines_read_what_stands_for_their_sources() {
    let dir = folder();
    let _config = config(dir.path(), &format!("{SOURCES}{PIPELINE}{SECOND}"));
    let files = [
        "--source",
        "events=in/a.ndjson",
        "--source",
        "others=in/b.ndjson",
    ];
    let with = |more: &[&str]| {
        let args: Vec<&str> = [&["unisono.toml"], more, &files].concat();
        eval(dir.path(), &args)
    };
    let (code, out, err) = with(&[]);
    assert_eq!(code, 0, "{err}");
    let of = |name: &str| out.matches(&format!("\"pipeline\":\"{name}\"")).count();
    assert_eq!((of("p"), of("all")), (4, 2), "{out}");
    assert!(err.contains("p: 7 records, 4 rows, 1 late"), "{err}");
    assert!(err.contains("all: 8 records, 2 rows, 1 late"), "{err}");
    let (_, out, err) = with(&["--pipeline", "all", "--format", "csv"]);
    assert!(
        out.contains(",3\r\n") && out.contains(",1\r\n"),
        "{out}{err}"
    );
    for (args, expected) in [
        (&["--format", "csv"][..], "rows of several pipelines"),
        (
            &["--pipeline", "al"],
            "has no pipeline \"al\"; did you mean \"all\"?",
        ),
        (
            &["--source", "event=in/b.ndjson"],
            "no pipeline reads a source \"event\"; did you mean \"events\"?",
        ),
        (&["in/a.ndjson"], "both with and without a source"),
    ] {
        let (code, _, err) = with(args);
        assert!(code == 64 && err.contains(expected), "{expected}: {err}");
    }
    let (code, _, err) = eval(
        dir.path(),
        &["unisono.toml", "--source", "events=in/a.ndjson"],
    );
    let expected = "pipeline all reads source \"others\" too, and no file stands for it";
    assert!(code == 64 && err.contains(expected), "{err}");
    let (code, _, err) = eval(dir.path(), &["unisono.toml", "-"]);
    assert!(code == 64 && err.contains("can be read once"), "{err}");
}

#[test]
fn explain_says_what_became_of_the_records_of_each_window() {
    let dir = folder();
    let _config = config(dir.path(), &format!("{SOURCES}{SECOND}"));
    let args = [
        "unisono.toml",
        "--explain",
        "--source",
        "events=in/a.ndjson",
        "--source",
        "others=in/b.ndjson",
    ];
    let (code, _, err) = eval(dir.path(), &args);
    assert_eq!(code, 0, "{err}");
    let table: Vec<Vec<&str>> = err
        .lines()
        .skip_while(|line| !line.starts_with("start"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        "start end counted filtered late bad_time not_json",
        "2023-11-14T22:13:20Z 2023-11-14T22:13:30Z 3 0 1 0 0",
        "2023-11-14T22:13:30Z 2023-11-14T22:13:40Z 1 1 0 0 0",
        "no time 0 0 0 1 1",
        "all 4 1 1 1 1",
    ];
    let expected: Vec<Vec<&str>> = expected
        .iter()
        .map(|line| line.split(' ').collect())
        .collect();
    assert_eq!(table, expected, "{err}");
}

#[test]
fn the_digest_is_that_of_a_live_run() {
    let dir = folder();
    std::fs::remove_file(dir.path().join("in/b.ndjson")).unwrap();
    let source = "[[source]]\nname = \"events\"\nfiles = { dir = \"in\" }\n";
    let text = format!("{source}{}", PIPELINE.replace("\"1h\"", "\"200ms\""));
    let mut live = config(dir.path(), &text);
    let args = [
        "unisono.toml",
        "--digest",
        "--source",
        "events=in/a.ndjson",
        "--dead-letters",
        "dead",
    ];
    let (code, out, err) = eval(dir.path(), &args);
    assert_eq!(code, 0, "{err}");
    let field = |name: &str| {
        let (_, rest) = out.split_once(&format!("\"{name}\":")).unwrap();
        rest.split([',', '}']).next().unwrap().to_owned()
    };
    assert_eq!(
        (field("rows").as_str(), field("dead_letters").as_str()),
        ("4", "3"),
        "{out}"
    );
    assert_eq!(out.lines().count(), 1, "{out}");
    live.start();
    live.wait_rows(4).unwrap();
    let (_, info) = live.get("/v1/pipelines").unwrap();
    assert!(
        info.contains(&format!("\"digest\":{}", field("digest"))),
        "{out}{info}"
    );
    let path = "/v1/pipelines/p/dead-letters?format=ndjson";
    let (_, letters) = live.get(path).unwrap();
    assert_eq!(
        letters,
        std::fs::read_to_string(dir.path().join("dead")).unwrap()
    );
}
