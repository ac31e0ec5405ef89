//! Faults as a user meets them: each is said once, with what, where and what to do, and nothing else is said.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use unisono_tests::serve::{Addresses, PATIENCE, PIPELINE, Served, event};
use unisono_tests::unisono_binary;

#[path = "faults/kafka.rs"]
mod kafka;

/// Runs the program to its end.
fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(unisono_binary());
    command
        .current_dir(dir)
        .args(args)
        .env("RUST_BACKTRACE", "1");
    command.output().unwrap()
}

/// Asserts that the text has all the parts, each once, and nothing that only a programmer understands.
#[track_caller]
fn says_once(text: &str, parts: &[&str]) {
    for part in parts {
        let count = text.matches(part).count();
        assert_eq!(count, 1, "{part:?} is said {count} times in\n{text}");
    }
    for noise in ["panicked", "backtrace", "Custom {", "Os {", "Error {"] {
        assert!(!text.contains(noise), "{noise:?} in\n{text}");
    }
}

fn append(path: &Path, lines: &[impl AsRef<[u8]>]) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    for line in lines {
        file.write_all(line.as_ref()).unwrap();
    }
}

/// A source of files in the folder `in` beside the config.
fn files() -> String {
    format!(
        "[[source]]\nname = \"events\"\nfiles = {{ dir = \"in\", pattern = \"*.ndjson\" }}\n{PIPELINE}"
    )
}

/// A folder with a replica that reads `in/a.ndjson`, which holds one event in each of `seconds` seconds.
fn on_files(seconds: i64) -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    let lines: Vec<_> = (0..seconds).map(|second| event(second, "x")).collect();
    append(&dir.path().join("in/a.ndjson"), &lines);
    let served = Served::new(dir.path(), 1, &Addresses::of(1), &files());
    (dir, served)
}

/// The rows of one event a second in `x`, from second 0 on. The first second of the data is 13:20.
fn one_a_second(seconds: i64) -> Vec<String> {
    let row = |second| format!("13:{:02} x 1", 20 + second);
    (0..seconds).map(row).collect()
}

#[test]
fn all_problems_of_a_config_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let bad = format!(
        "data_dri = \"d\"\n[node]\nid = 1\nhttp = \"nonsense\"\n[cluster]\npeers = {{ 1 = \"127.0.0.1:1\" }}\n{}",
        files().replace("count()", "cuont()")
    );
    std::fs::write(dir.path().join("u.toml"), bad).unwrap();
    let output = run(dir.path(), &["serve", "--config", "u.toml"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    says_once(
        &said,
        &[
            "error: the config has 4 problems",
            "u.toml: data_dir: is missing",
            "u.toml:1: data_dri: unknown key; did you mean data_dir?",
            "u.toml:4: node.http: \"nonsense\" has no port",
            "pipeline \"p\": values.n: at column 1: function cuont is not known; did you mean count?",
        ],
    );
}

#[test]
fn wrong_usage_ends_with_64_and_the_right_word() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["sevre"], "'serve'"),
        (&["serve", "--confg", "x"], "'--config'"),
        (
            &["serve", "--config", "none.toml"],
            "none.toml: cannot read: No such file",
        ),
        (
            &["status", "--url", "nonsense"],
            "hint: give --url an address such as",
        ),
        (
            &["demo", "--kafka", "nonsense"],
            "--kafka nonsense: not HOST:PORT",
        ),
    ];
    for (args, expected) in cases {
        let output = run(dir.path(), args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{args:?}: {said}");
        says_once(&said, &["error: ", expected]);
    }
}

#[test]
fn a_busy_port_is_named_with_its_key() {
    let (_dir, mut served) = on_files(1);
    let addresses = Addresses::of(1);
    for (key, address) in [
        ("node.http", addresses.http(1)),
        ("cluster.peers", addresses.raft(1)),
    ] {
        let _busy = std::net::TcpListener::bind(address).unwrap();
        let dir = tempfile::tempdir().unwrap();
        served = Served::new(dir.path(), 1, &addresses, &files());
        served.start();
        assert_eq!(served.ended().unwrap(), 1);
        let where_it_is =
            format!("error: cannot listen on {address} ({key}): Address already in use");
        says_once(
            &served.said(),
            &[&where_it_is, "hint: stop the program that has this port"],
        );
    }
    drop(served);
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("taken"), "").unwrap();
    let data = dir.path().join("taken/data");
    let mut served = Served::with_data(dir.path(), &data, 1, &Addresses::of(1), &files());
    served.start();
    assert_eq!(served.ended().unwrap(), 1);
    let place = format!("error: cannot create {}", data.display());
    says_once(&served.said(), &[&place, "Not a directory", "data_dir"]);
    assert_eq!(served.said().lines().count(), 1, "{}", served.said());
}

/// A small file system of its own; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None`, with a notice, where this process may not mount.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]);
        let mounted = mount.arg(dir.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(dir));
        }
        println!("left out: a full disk needs the right to mount a tmpfs");
        None
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a killed replica may still hold a file.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_the_replica_with_one_message_and_a_restart_goes_on() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let (dir, _) = on_files(11);
    let data = disk.0.path().join("data");
    let mut served = Served::with_data(dir.path(), &data, 1, &Addresses::of(1), &files());
    served.start();
    assert_eq!(served.wait_rows(10).unwrap(), one_a_second(10));
    disk.fill();
    // More rows than any space that files have in reserve.
    let input = dir.path().join("in/a.ndjson");
    let second = |second: i64| (0..300).map(move |group| event(second, &format!("{group:0150}")));
    append(&input, &(11..31).flat_map(second).collect::<Vec<_>>());
    assert_eq!(served.ended().unwrap(), 1);
    let place = data.display().to_string();
    says_once(
        &served.said(),
        &["No space left on device", &place, "error: "],
    );
    assert!(served.said().contains("free space"), "{}", served.said());

    std::fs::remove_file(disk.filler()).unwrap();
    served.start();
    let mut expected = one_a_second(11);
    for second in 11..30 {
        expected.extend((0..300).map(|group| format!("13:{} {group:0150} 1", 20 + second)));
    }
    let rows = served.wait_rows(expected.len()).unwrap();
    assert!(rows == expected, "other rows than without the fault");
    assert_eq!(served.terminate().unwrap(), 0);
}

#[test]
fn a_file_that_is_cut_short_or_replaced_stops_its_feed_and_is_named() {
    for (what, expected) in [
        ("cut", "was cut short"),
        ("replaced", "was rewritten or replaced by another file"),
    ] {
        let (dir, mut served) = on_files(6);
        served.start();
        assert_eq!(served.wait_rows(5).unwrap(), one_a_second(5));
        let input = dir.path().join("in/a.ndjson");
        if what == "cut" {
            let file = OpenOptions::new().write(true).open(&input).unwrap();
            file.set_len(40).unwrap();
        } else {
            let other = dir.path().join("in/a.new");
            append(&other, &(0..9).map(|s| event(s, "y")).collect::<Vec<_>>());
            std::fs::rename(&other, &input).unwrap();
        }
        served.wait_ready(503, expected).unwrap();
        let (_, ready) = served.get("/readyz").unwrap();
        assert!(ready.contains("a.ndjson"), "{ready}");
        says_once(&served.said(), &[expected]);
        assert_eq!(
            served.rows().unwrap(),
            one_a_second(5),
            "nothing of it counts"
        );
        assert_eq!(served.terminate().unwrap(), 0);
        assert_eq!(
            served.said().matches("ERROR").count(),
            1,
            "{}",
            served.said()
        );
    }
}

/// What no program should send, between events that count.
fn hostile_records() -> Vec<Vec<u8>> {
    let big = format!(
        "{{\"t\":1700000001000,\"g\":\"x\",\"blob\":\"{}\"}}",
        "b".repeat(2 << 20)
    );
    let nested = format!(
        "{{\"t\":1700000001000,\"g\":{}{}}}",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let records: [&[u8]; 7] = [
        b"dear diary",
        &[0, 255, 254, 7, 0, 128],
        nested.as_bytes(),
        big.as_bytes(),
        b"",
        b"\xef\xbb\xbf{\"t\":1700000001000,\"g\":\"bom\"}",
        b"{\"t\":1e999,\"g\":\"x\"}",
    ];
    records.iter().map(|record| record.to_vec()).collect()
}

/// What counts of the hostile records, among some that are not.
const OF_HOSTILE: [&str; 4] = ["13:20 x 1", "13:21 bom 1", "13:21 x 2", "13:22 x 1"];

#[test]
fn what_is_no_event_is_a_dead_letter_and_the_rest_counts() {
    let (dir, mut served) = on_files(2);
    let input = dir.path().join("in/a.ndjson");
    for mut record in hostile_records() {
        record.push(b'\n');
        append(&input, &[record]);
    }
    append(&input, &[event(2, "x"), event(3, "x")]);
    served.start();
    // As on Kafka: 2 MB are a record like any other, and a byte order mark in front of one is nothing.
    assert_eq!(served.wait_rows(4).unwrap(), OF_HOSTILE);
    let (_, letters) = served.get("/v1/pipelines/p/dead-letters").unwrap();
    assert!(letters.contains("dear diary"), "{letters}");
    assert!(letters.contains("too_deep"), "{letters}");
    served.wait_ready(200, "true").unwrap();
    assert_eq!(served.terminate().unwrap(), 0);
    says_once(&served.said(), &["stopping"]);
    assert!(!served.said().contains("ERROR"), "{}", served.said());
}

#[test]
fn a_replica_with_other_bytes_stops_before_a_row_comes_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = Addresses::of(3);
    let mut replicas: Vec<Served> = (1..=3)
        .map(|node| {
            let own = dir.path().join(node.to_string());
            std::fs::create_dir_all(own.join("in")).unwrap();
            append(
                &own.join("in/a.ndjson"),
                &(0..4).map(|s| event(s, "x")).collect::<Vec<_>>(),
            );
            Served::new(&own, node, &addresses, &files())
        })
        .collect();
    replicas.iter_mut().for_each(Served::start);
    for replica in &mut replicas {
        replica.wait_rows(3).unwrap();
    }
    let leads = |served: &Served| {
        served.get("/v1/cluster").is_ok_and(|(_, body)| {
            serde_json::from_str::<serde_json::Value>(&body)
                .is_ok_and(|view| view["role"] == "leader")
        })
    };
    let odd = replicas.iter().position(|replica| !leads(replica)).unwrap();
    for (index, node) in (1..=3).enumerate() {
        let group = if index == odd { "y" } else { "x" };
        let input = dir.path().join(format!("{node}/in/a.ndjson"));
        append(&input, &(4..9).map(|s| event(s, group)).collect::<Vec<_>>());
    }
    for (index, replica) in replicas.iter_mut().enumerate() {
        if index == odd {
            replica
                .wait_ready(503, "hold other records here than were agreed")
                .unwrap();
            // The log may say it a moment later.
            let deadline = Instant::now() + PATIENCE;
            while !replica.said().contains("ERROR") && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            says_once(&replica.said(), &["ERROR", "hold other records here"]);
            assert!(replica.rows().unwrap().iter().all(|row| row.contains('x')));
        } else {
            assert_eq!(replica.wait_rows(8).unwrap(), one_a_second(8));
        }
    }
}
