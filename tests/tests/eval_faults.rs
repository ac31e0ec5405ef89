//! `unisono eval` and `unisono check` say what is wrong, and their exit codes tell who can help.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use unisono_tests::unisono_binary;

const PIPELINE: &str = r#"
name = "p"
sources = ["s"]
time = { field = "t" }
group_by = ["\"g.h\""]
window = { size = "1m" }
[values]
n = "count()"
total = "sum(x)"
"#;

/// What a run of the program gave.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs the program in a directory with these files, the last argument's text on its standard
/// input.
fn run(files: &[(&str, &[u8])], args: &[&str], input: &str) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    run_in(dir.path(), args, input)
}

fn run_in(dir: &Path, args: &[&str], input: &str) -> Ran {
    let mut command = Command::new(unisono_binary());
    command.current_dir(dir).args(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
fn fails(ran: &Ran, code: i32, expected: &[&str]) {
    assert_eq!(ran.code, code, "{}", ran.err);
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    assert!(
        !ran.err.contains("panicked") && !ran.err.contains("backtrace"),
        "{}",
        ran.err
    );
    for part in expected {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}

const LINES: &str = concat!(
    "{\"t\":\"2026-01-01T00:00:00Z\",\"g.h\":\"b\",\"x\":0.1}\n",
    "not json\n",
    "{\"t\":\"2026-01-01T00:00:01Z\",\"g.h\":\"a, \\\"b\\\"\",\"x\":0.2}\n",
    "{\"t\":\"2026-01-01T00:00:02Z\",\"g.h\":\"b\",\"x\":0.2}",
);

#[test]
fn rows_come_as_ndjson_csv_and_table() {
    let eval = |format: &str| {
        let files = [("p.toml", PIPELINE.as_bytes())];
        let ran = run(&files, &["eval", "p.toml", "-", "--format", format], LINES);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("4 records, 2 rows, 0 late"), "{}", ran.err);
        assert!(
            ran.err.contains("1 not usable (first at -:2: not JSON)"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("1 dead letters, digest "), "{}", ran.err);
        ran.out
    };
    assert_eq!(
        eval("csv"),
        "start,end,g.h,n,total\r\n\
         2026-01-01T00:00:00Z,2026-01-01T00:01:00Z,\"a, \"\"b\"\"\",1,0.2\r\n\
         2026-01-01T00:00:00Z,2026-01-01T00:01:00Z,b,2,0.3\r\n"
    );
    assert_eq!(
        eval("table"),
        "start                 end                   g.h     n  total\n\
         2026-01-01T00:00:00Z  2026-01-01T00:01:00Z  a, \"b\"  1    0.2\n\
         2026-01-01T00:00:00Z  2026-01-01T00:01:00Z  b       2    0.3\n"
    );
    let rows = eval("ndjson");
    assert!(rows.ends_with(
        "\"seq\":1,\"revision\":0,\"start\":\"2026-01-01T00:00:00Z\",\"end\":\"2026-01-01T00:01:00Z\",\
         \"group\":{\"g.h\":\"b\"},\"values\":{\"n\":2,\"total\":0.3}}\n"
    ), "{rows}");
}

#[test]
fn a_file_that_is_not_json_is_a_failure_that_says_so() {
    let files: [(&str, &[u8]); 3] = [
        ("p.toml", PIPELINE.as_bytes()),
        ("notes.txt", b"dear diary\ntoday\n"),
        ("log.gz", b"\x1f\x8b\x08\0\0\0\0\0"),
    ];
    let ran = run(&files, &["eval", "p.toml", "notes.txt"], "");
    fails(
        &ran,
        1,
        &[
            "no line of the input is a JSON object",
            "notes.txt:1 is not JSON",
        ],
    );
    let ran = run(&files, &["eval", "p.toml", "log.gz"], "");
    fails(&ran, 1, &["cannot read log.gz: "]);
    let ran = run(
        &files,
        &["eval", "p.toml", "-"],
        "{\"time\":1}\n{\"time\":2}\n",
    );
    fails(
        &ran,
        1,
        &["no record of the input has a usable time", "time.field"],
    );
}

const NODE: &str = r#"
data_dir = "data"
[node]
id = 1
http = "127.0.0.1:8101"
[cluster]
peers = { 1 = "127.0.0.1:8201", 2 = "no-such-host.invalid:8201" }
[[source]]
name = "s"
files = { dir = "logs" }
[[pipeline]]
name = "p"
sources = ["s"]
time = { field = "t", format = "s" }
window = { size = "1m" }
values = { n = "count()" }
"#;

#[test]
fn check_looks_at_the_machine_that_it_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(dir.path().join("u.toml"), text).unwrap();
        run_in(dir.path(), &["check", "u.toml"], "")
    };
    fails(
        &check(NODE),
        64,
        &["u.toml:10: source \"s\": files.dir: cannot list logs: No such"],
    );
    std::fs::write(dir.path().join("logs"), "").unwrap();
    fails(
        &check(NODE),
        64,
        &["files.dir: logs is a file; name the directory"],
    );
    std::fs::remove_file(dir.path().join("logs")).unwrap();
    std::fs::create_dir(dir.path().join("logs")).unwrap();
    let secret = NODE.replace("[cluster]", "[cluster]\nsecret_file = \"key\"");
    fails(
        &check(&secret),
        64,
        &["u.toml:7: cluster.secret_file: cannot read key: No such"],
    );
    let seconds = NODE.replace("\"s\" }", "\"seconds\" }");
    let expected =
        "u.toml:14: pipeline \"p\": time.format: \"seconds\" is not known; did you mean \"s\"?";
    fails(&check(&seconds), 64, &[expected]);
    // A host without an address here can have one where the node runs.
    let ran = check(NODE);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        ran.out,
        "u.toml: node 1 is right, pipelines: p\n\
         warning: u.toml:7: cluster.peers[2]: host no-such-host.invalid has no address here; is it spelled right?\n"
    );
}

#[test]
fn an_empty_file_has_no_rows() {
    let files: [(&str, &[u8]); 2] = [("p.toml", PIPELINE.as_bytes()), ("empty", b"")];
    let ran = run(&files, &["eval", "p.toml", "empty"], "");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    assert!(
        ran.err.starts_with("0 records, 0 rows, 0 late"),
        "{}",
        ran.err
    );
}

/// Two members of gzip, one after the other, are one file; nothing of it is lost to a mark, a blank line or half a
/// surrogate pair.
#[test]
fn compressed_files_are_read_as_they_are() {
    let lines = "\u{feff}{\"t\":\"2026-01-01T00:00:01Z\",\"g.h\":\"a\",\"x\":1}\n\n\r\n\
                 {\"t\":\"2026-01-01T00:00:02Z\",\"g.h\":\"a\",\"x\":2,\"\\ud800\":\"\\udc00\"}\n";
    let gzip = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let (head, tail) = lines.split_at(30);
    let packed = [gzip(head), gzip(tail)].concat();
    let files: [(&str, &[u8]); 3] = [
        ("p.toml", PIPELINE.as_bytes()),
        ("plain", lines.as_bytes()),
        ("packed", &packed),
    ];
    let plain = run(&files, &["eval", "p.toml", "plain"], "");
    assert_eq!(plain.code, 0, "{}", plain.err);
    assert!(
        plain.out.contains("\"values\":{\"n\":2,\"total\":3}"),
        "{}",
        plain.out
    );
    assert!(
        plain
            .err
            .starts_with("2 records, 1 rows, 0 late, 0 dead letters"),
        "{}",
        plain.err
    );
    let unpacked = run(&files, &["eval", "p.toml", "packed"], "");
    assert_eq!((unpacked.out, unpacked.err), (plain.out, plain.err));
}

#[test]
fn lines_of_logs_and_of_csv_are_records_too() {
    let pipeline = |time: &str, format: &str, filter: &str| {
        format!(
            "name = 'p'\nsources = ['s']\ntime = {time}\nformat = {format}\nwhere = '{filter}'\n\
             group_by = ['g']\nwindow = {{ size = '1m' }}\n[values]\nn = 'count()'\ntotal = 'sum(x)'\n"
        )
    };
    let csv = pipeline(
        "{ field = 't' }",
        "{ kind = 'csv', columns = ['t', 'g', 'x'] }",
        "x > 1",
    );
    let log = pipeline(
        "{ field = 'time', format = '%d/%b/%Y:%H:%M:%S %z' }",
        "'apache_combined'",
        "status >= 500",
    );
    let log = log
        .replace("['g']", "['path']")
        .replace("sum(x)", "sum(bytes)");
    let lines = "1.2.3.4 - - [01/Jan/2026:00:00:05 +0000] \"GET /a HTTP/1.1\" 500 10 \"-\" \"x \\\"y\\\"\"\n\
                 1.2.3.4 - bob [01/Jan/2026:00:00:06 +0000] \"GET /a HTTP/1.1\" 503 - \"http://h/\" \"-\"\n\
                 1.2.3.4 - - [01/Jan/2026:00:00:07 +0000] \"GET /a HTTP/1.1\" 200 7 \"-\" \"z\"\nbroken\n";
    let table = "t,g,x\n2026-01-01T00:00:01Z,\"a,b\",2.5\n2026-01-01T00:00:02Z,\"a,b\",1\n";
    let files: [(&str, &[u8]); 4] = [
        ("csv.toml", csv.as_bytes()),
        ("log.toml", log.as_bytes()),
        ("table.csv", table.as_bytes()),
        ("access.log", lines.as_bytes()),
    ];
    let ran = run(&files, &["eval", "csv.toml", "table.csv"], "");
    let expected = "\"group\":{\"g\":\"a,b\"},\"values\":{\"n\":1,\"total\":2.5}";
    assert!(ran.out.contains(expected), "{}{}", ran.out, ran.err);
    assert!(ran.err.starts_with("2 records, 1 rows"), "{}", ran.err);
    let ran = run(&files, &["eval", "log.toml", "access.log"], "");
    let expected = "\"group\":{\"path\":\"/a\"},\"values\":{\"n\":2,\"total\":10}";
    assert!(ran.out.contains(expected), "{}{}", ran.out, ran.err);
    let broken = "1 not usable (first at access.log:4: not of the pipeline's format)";
    assert!(ran.err.contains(broken), "{}", ran.err);
}

#[test]
fn wrong_usage_is_told_before_anything_is_read() {
    let append_time = PIPELINE.replace("field = \"t\"", "from = \"append_time\"");
    let files: [(&str, &[u8]); 4] = [
        ("p.toml", PIPELINE.as_bytes()),
        ("a.toml", append_time.as_bytes()),
        ("bad.toml", b"name = 1\nsourcs = []\n"),
        ("x", b"{}\n"),
    ];
    let cases: [(&[&str], &[&str]); 8] = [
        (
            &["eval", "p.toml", "none"],
            &["cannot read none: No such file", "hint: "],
        ),
        (&["eval", "p.toml", "."], &["cannot read .: ", "hint: "]),
        (&["eval", "p.toml", "x", "x"], &["x is named twice"]),
        (
            &["eval", "none.toml", "x"],
            &["none.toml: cannot read: No such file"],
        ),
        (&["eval", "a.toml", "x"], &["files have no append time"]),
        (
            &["eval", "p.toml", "x", "--dead-letters", "x"],
            &["x is an input"],
        ),
        (
            &["eval", "bad.toml", "x"],
            &["bad.toml:2: sourcs: unknown key; did you mean sources?"],
        ),
        (
            &["check", "bad.toml", "p.toml", "x"],
            &["bad.toml:1: name: ", "x: not TOML at line 1"],
        ),
    ];
    for (args, expected) in cases {
        fails(&run(&files, args, ""), 64, expected);
    }
    let ran = run(&files, &["check", "p.toml"], "");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "p.toml: pipeline p is right\n"),
        "{}",
        ran.err
    );
}

/// `{"t": an instant, "g.h": group, "x": 0.5}`, so many seconds after the start of 2026.
fn packed(group: u8, second: u32) -> Vec<u8> {
    let start: u32 = 1_767_225_600;
    let mut bytes = b"\x83\xa1t\xd6\xff".to_vec();
    bytes.extend((start + second).to_be_bytes());
    bytes.extend(b"\xa3g.h\xa1");
    bytes.push(group);
    bytes.extend(b"\xa1x\xcb");
    bytes.extend(0.5_f64.to_be_bytes());
    bytes
}

#[test]
fn files_of_message_pack_hold_records_one_behind_the_other() {
    let pipeline = format!("format = \"msgpack\"\n{PIPELINE}");
    let file = [
        packed(b'b', 0),
        packed(b'a', 1),
        b"\x01".to_vec(),
        packed(b'b', 2),
    ]
    .concat();
    let eval = |file: &[u8]| {
        let files = [("p.toml", pipeline.as_bytes()), ("f", file)];
        run(&files, &["eval", "p.toml", "f", "--format", "csv"], "")
    };
    let ran = eval(&file);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("4 records, 2 rows, 0 late"), "{}", ran.err);
    assert!(
        ran.err.contains("(first at f:3: not an object)"),
        "{}",
        ran.err
    );
    assert_eq!(
        ran.out,
        "start,end,g.h,n,total\r\n\
         2026-01-01T00:00:00Z,2026-01-01T00:01:00Z,a,1,0.5\r\n\
         2026-01-01T00:00:00Z,2026-01-01T00:01:00Z,b,2,1\r\n"
    );
    let at = packed(b'b', 0).len();
    fails(
        &eval(&file[..at + 3]),
        1,
        &[&format!("f ends within a value that begins at byte {at}")],
    );
    let broken = [packed(b'b', 0), b"\xc1".to_vec()].concat();
    fails(
        &eval(&broken),
        1,
        &[&format!("f is not MessagePack at byte {at}")],
    );
}
