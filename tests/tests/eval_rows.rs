//! `unisono eval` gives exactly the rows of an independent computation.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use unisono_tests::events::{deal, dns_log, real_log};
use unisono_tests::reference::{Answer, Question, answer};
use unisono_tests::unisono_binary;

const MINUTE: i64 = 60_000;

fn question(size_minutes: i64, lag_ms: i64) -> Question<'static> {
    Question {
        pipeline: "dns",
        time: "ts",
        group: "rcode_name",
        number: "rtt",
        size_ms: size_minutes * MINUTE,
        slide_ms: MINUTE,
        lag_ms,
    }
}

fn pipeline(question: &Question<'_>) -> String {
    format!(
        r#"
name = "dns"
sources = ["dns"]
time = {{ field = "ts", format = "rfc3339" }}
group_by = ["rcode_name"]
window = {{ size = "{}ms", slide = "{}ms" }}
close = {{ lag = "{}ms" }}
[values]
n = "count()"
total = "sum(rtt)"
average = "avg(rtt)"
least = "min(rtt)"
most = "max(rtt)"
"#,
        question.size_ms, question.slide_ms, question.lag_ms
    )
}

/// What `unisono eval` gives for these lanes: its output, and the dead letters that it wrote.
fn eval(question: &Question<'_>, lanes: &[String]) -> (Output, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("dns.toml"), pipeline(question)).unwrap();
    let mut command = Command::new(unisono_binary());
    command.current_dir(dir.path());
    command.args([
        "eval",
        "dns.toml",
        "--format",
        "ndjson",
        "--dead-letters",
        "dead.ndjson",
    ]);
    for (index, lane) in lanes.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{index}")), lane).unwrap();
        command.arg(format!("{index}"));
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let dead_letters = std::fs::read_to_string(dir.path().join("dead.ndjson")).unwrap();
    (output, dead_letters)
}

/// Lane and offset of each late record that `eval` wrote.
fn late(dead_letters: &str) -> BTreeSet<(usize, usize)> {
    let letters = dead_letters.lines().map(|line| {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(letter["reason"], "late", "{line}");
        let lane = letter["lane"].as_str().unwrap().parse().unwrap();
        (
            lane,
            usize::try_from(letter["offset"].as_u64().unwrap()).unwrap(),
        )
    });
    letters.collect()
}

/// Compares `eval` with the reference, row by row and byte by byte.
#[track_caller]
fn check(question: &Question<'_>, lanes: &[String]) -> Answer {
    let expected = answer(question, lanes);
    let (output, dead_letters) = eval(question, lanes);
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<&str> = rows.lines().collect();
    for (row, wanted) in rows.iter().zip(&expected.rows) {
        assert_eq!(row, wanted);
    }
    assert_eq!(rows.len(), expected.rows.len());
    assert_eq!(late(&dead_letters), expected.late);
    let summary = String::from_utf8(output.stderr).unwrap();
    let records: usize = lanes.iter().map(|lane| lane.lines().count()).sum();
    let start = format!(
        "{records} records, {} rows, {} late, ",
        rows.len(),
        expected.late.len()
    );
    let partly = format!("{} late for some windows, ", expected.partly_late);
    let wanted = if expected.partly_late > 0 {
        start + &partly
    } else {
        start
    };
    assert!(summary.starts_with(&wanted), "{wanted}: {summary}");
    expected
}

/// As one file, dealt out to three, in hopping windows, and with little lag.
fn check_log(log: &str, generous_lag_ms: i64) {
    let whole = [log.to_owned()];
    let by_minute = check(&question(1, generous_lag_ms), &whole);
    assert!(by_minute.late.is_empty() && by_minute.rows.len() > 20);
    let dealt = check(&question(1, generous_lag_ms), &deal(log, 3));
    assert_eq!(dealt.rows, by_minute.rows);
    let hopping = check(&question(5, generous_lag_ms), &whole);
    assert!(hopping.rows.len() > by_minute.rows.len());
    let with_late = check(&question(1, 5_000), &whole);
    assert!(with_late.late.len() > 100, "{}", with_late.late.len());
    let partly = check(&question(5, 5_000), &deal(log, 3));
    assert!(partly.partly_late > 100, "{}", partly.partly_late);
}

#[test]
fn a_made_log_gives_the_rows_of_an_independent_computation() {
    check_log(&dns_log(1, 60_000), 120_000);
}

#[test]
#[ignore = "needs zeek_dns.json.gz, which is not ours to give away; UNISONO_DATA names its folder"]
fn a_real_log_gives_the_rows_of_an_independent_computation() {
    let log = real_log("zeek_dns.json.gz").expect("the log in the folder of UNISONO_DATA");
    check_log(&log, 15 * MINUTE);
}
