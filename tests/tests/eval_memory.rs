//! `unisono eval` with less memory for state than it takes: the same rows.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

use unisono_tests::unisono_binary;

const RULES: &str = "name = \"p\"\nsources = [\"events\"]\ntime = { field = \"t\", format = \"s\" }\n\
    group_by = [\"user\"]\n[values]\nn = \"count()\"\nsum = \"sum(x)\"\np90 = \"quantile(x, 0.9)\"\n\
    ids = \"distinct(x)\"\n";

/// Two files over three hours; most users come in each, some several times, far apart.
fn write_inputs(dir: &Path) {
    for file in 0..2_u64 {
        let mut text = String::new();
        for at in 0..30_000_u64 {
            let user = at * 7919 % 20_000 + file * 5000;
            let (time, x) = (at * 10_800 / 30_000, at * at % 997);
            writeln!(text, "{{\"t\":{time},\"user\":\"user-{user}\",\"x\":{x}}}").unwrap();
        }
        std::fs::write(dir.join(format!("{file}.ndjson")), text).unwrap();
    }
}

fn eval(dir: &Path, window: &str, more: &[&str]) -> Output {
    let rules = RULES.replace("[values]", &format!("window = {window}\n[values]"));
    std::fs::write(dir.join("p.toml"), rules).unwrap();
    let mut command = Command::new(unisono_binary());
    command.current_dir(dir).env("TMPDIR", dir);
    command.args([
        "eval", "p.toml", "0.ndjson", "1.ndjson", "--format", "ndjson",
    ]);
    command.args(more).output().unwrap()
}

#[test]
fn rows_are_the_same_bytes_whatever_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    write_inputs(dir.path());
    for window in [
        "{ size = \"3h\" }",
        "{ size = \"30m\" }",
        "{ size = \"2h\", slide = \"20m\" }",
    ] {
        let plain = eval(dir.path(), window, &[]);
        let told = String::from_utf8_lossy(&plain.stderr).into_owned();
        assert!(plain.status.success(), "{told}");
        assert!(!told.contains("on disk"), "{told}");
        for budget in ["1MiB", "3 MiB"] {
            let tight = eval(dir.path(), window, &["--state-memory", budget]);
            let told = String::from_utf8_lossy(&tight.stderr).into_owned();
            assert!(tight.status.success(), "{told}");
            // All that is open at a time may fit into the larger one.
            let is_spilled = told.contains(" MiB of state were on disk");
            assert!(is_spilled || budget != "1MiB", "{told}");
            assert!(tight.stdout == plain.stdout, "{window}, {budget}: {told}");
        }
    }
    // Files have no names.
    let names = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(names.count(), 3);
}

#[test]
fn a_budget_that_is_none_and_a_disk_that_is_none_are_said() {
    let dir = tempfile::tempdir().unwrap();
    write_inputs(dir.path());
    let small = eval(dir.path(), "{ size = \"3h\" }", &["--state-memory", "4KiB"]);
    let told = String::from_utf8_lossy(&small.stderr).into_owned();
    assert!(told.contains("must be at least 1MiB"), "{told}");
    let mut command = Command::new(unisono_binary());
    command
        .current_dir(dir.path())
        .env("TMPDIR", "/nowhere/at/all");
    command.args(["eval", "p.toml", "0.ndjson", "--format", "ndjson"]);
    let lost = command.args(["--state-memory", "1MiB"]).output().unwrap();
    let told = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert_eq!(lost.status.code(), Some(1), "{told}");
    let expected = "cannot be put on disk in /nowhere/at/all";
    assert!(
        told.contains(expected) && told.contains("raise state_memory"),
        "{told}"
    );
}
