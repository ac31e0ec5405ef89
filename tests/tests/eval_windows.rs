//! `unisono eval` with every kind of window, on rows written by hand.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use unisono_tests::unisono_binary;

/// Rows as `start end group n`, and what was said on standard error.
fn eval(rules: &str, files: &[&str]) -> (Vec<String>, String) {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = format!(
        "name = \"p\"\nsources = [\"events\"]\ntime = {{ field = \"t\" }}\n{rules}\n[values]\nn = \"count()\"\n"
    );
    std::fs::write(dir.path().join("p.toml"), pipeline).unwrap();
    let mut command = Command::new(unisono_binary());
    command.current_dir(dir.path());
    command.args(["eval", "p.toml", "--format", "ndjson"]);
    for (index, text) in files.iter().enumerate() {
        let name = format!("{index}.ndjson");
        std::fs::write(dir.path().join(&name), text).unwrap();
        command.arg(name);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let shown = text.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let at = |key: &str| row[key].as_str().unwrap().to_owned();
        let group = row["group"].to_string();
        format!(
            "{} {} {group} {}",
            at("start"),
            at("end"),
            row["values"]["n"]
        )
    });
    (shown.collect(), String::from_utf8(output.stderr).unwrap())
}

fn events(events: &[(&str, &str)]) -> String {
    let line = |(time, group): &(&str, &str)| format!("{{\"t\":\"{time}\",\"g\":\"{group}\"}}\n");
    events.iter().map(line).collect()
}

#[test]
fn days_of_a_time_zone_go_from_its_midnight_to_the_next() {
    let log = events(&[
        ("2024-03-30T22:59:59Z", "a"),
        ("2024-03-30T23:00:00Z", "a"),
        ("2024-03-31T21:59:59.999Z", "a"),
        ("2024-03-31T22:00:00Z", "a"),
    ]);
    let rules = "window = { size = \"1 day\", time_zone = \"Europe/Berlin\" }";
    let (rows, errors) = eval(rules, &[&log]);
    let expected = [
        "2024-03-29T23:00:00Z 2024-03-30T23:00:00Z {} 1",
        // 23 hours.
        "2024-03-30T23:00:00Z 2024-03-31T22:00:00Z {} 2",
        "2024-03-31T22:00:00Z 2024-04-01T22:00:00Z {} 1",
    ];
    assert_eq!(rows, expected, "{errors}");
    let rules = "window = { size = \"1 month\", time_zone = \"Asia/Taipei\", offset = \"6h\" }";
    let (rows, _) = eval(rules, &[&log]);
    assert_eq!(
        rows,
        [
            "2024-02-29T22:00:00Z 2024-03-31T22:00:00Z {} 3",
            "2024-03-31T22:00:00Z 2024-04-30T22:00:00Z {} 1",
        ]
    );
}
