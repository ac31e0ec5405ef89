//! Lanes that come, go, change behind Unisono's back, or cannot be read for a while.
#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use unisono_tests::serve::{Addresses, PIPELINE, Served, event};

#[path = "lanes/kafka.rs"]
mod kafka;

/// Replicas that read one directory.
struct OnFiles {
    dir: tempfile::TempDir,
    replicas: Vec<Served>,
}

impl OnFiles {
    fn new(nodes: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::of(nodes);
        let input = dir.path().join("in");
        fs::create_dir(&input).unwrap();
        let streams = format!(
            "[[source]]\nname = \"events\"\nfiles = {{ dir = {input:?}, pattern = \"*.ndjson\" }}\n{PIPELINE}"
        );
        let replica = |node: u16| {
            let own = dir.path().join(node.to_string());
            fs::create_dir(&own).unwrap();
            Served::new(&own, node, &addresses, &streams)
        };
        let replicas = (1..=nodes).map(replica).collect();
        Self { dir, replicas }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("in").join(name)
    }

    /// One event of group `group` in each of these seconds.
    fn append(&self, name: &str, seconds: std::ops::Range<i64>, group: &str) {
        let mut file = OpenOptions::new();
        let mut file = file
            .create(true)
            .append(true)
            .open(self.path(name))
            .unwrap();
        let lines: String = seconds.map(|second| event(second, group)).collect();
        file.write_all(lines.as_bytes()).unwrap();
    }

    fn start(&mut self) {
        self.replicas.iter_mut().for_each(Served::start);
    }

    fn stop(&mut self) {
        for replica in &mut self.replicas {
            assert_eq!(replica.terminate().unwrap(), 0);
        }
    }

    /// Waits until each replica has at least so many rows, which must be these.
    #[track_caller]
    fn wait_rows(&mut self, expected: &[String]) {
        for replica in &mut self.replicas {
            assert_eq!(replica.wait_rows(expected.len()).unwrap(), expected);
        }
    }

    /// Waits until all replicas have just these lanes, each with this position.
    #[track_caller]
    fn wait_lanes(&mut self, expected: &[(&str, i64)]) {
        for replica in &mut self.replicas {
            wait_lanes(replica, expected);
        }
    }
}

/// The lanes that a replica has: name, position, trouble.
fn lanes(served: &Served) -> Option<Vec<(String, i64, Option<String>)>> {
    let (_, body) = served.get("/v1/cluster").ok()?;
    let view: Value = serde_json::from_str(&body).ok()?;
    let lane = |lane: &Value| {
        let trouble = lane["trouble"].as_str().map(str::to_owned);
        Some((
            lane["lane"].as_str()?.to_owned(),
            lane["position"].as_i64()?,
            trouble,
        ))
    };
    view["lanes"].as_array()?.iter().map(lane).collect()
}

/// Where a replica's only lane ends, and its lag.
fn lag(served: &Served) -> Option<(Option<i64>, Option<i64>)> {
    let (_, body) = served.get("/v1/cluster").ok()?;
    let view: Value = serde_json::from_str(&body).ok()?;
    let lane = &view["lanes"].as_array()?.first()?;
    Some((lane["end"].as_i64(), lane["lag"].as_i64()))
}

#[track_caller]
fn wait_lanes(served: &mut Served, expected: &[(&str, i64)]) {
    let is_it = |served: &Served| {
        let lanes = lanes(served)?;
        let mut lanes: Vec<_> = lanes.iter().map(|lane| (lane.0.as_str(), lane.1)).collect();
        lanes.sort_unstable();
        (lanes == expected).then_some(())
    };
    let found = served.wait(&format!("lanes {expected:?}"), is_it);
    if let Err(error) = found {
        panic!("{error}; lanes {:?}", lanes(served));
    }
}

/// The rows of these groups, a window of each second, the groups of a second in order.
fn rows(seconds: std::ops::Range<i64>, of: &[&str]) -> Vec<String> {
    let row = |second| move |group: &&str| format!("13:{:02} {group} 1", 20 + second);
    seconds
        .flat_map(|second| of.iter().map(row(second)).collect::<Vec<_>>())
        .collect()
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// What is done to a file that was read.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// In place, with the same length.
    Rewritten,
    /// Cut to nothing, and written anew with more in it.
    Truncated,
    /// By another one, which is renamed to its name.
    Replaced,
}

impl Change {
    fn make(self, path: &Path) {
        let mut lines: String = (0..9).map(|second| event(second, "y")).collect();
        match self {
            Self::Rewritten => {
                let length = fs::metadata(path).unwrap().len();
                lines.truncate(usize::try_from(length).unwrap());
                overwrite(path, 0, lines.as_bytes());
            }
            Self::Truncated => fs::write(path, lines).unwrap(),
            Self::Replaced => {
                let other = path.with_extension("new");
                fs::write(&other, lines).unwrap();
                fs::rename(&other, path).unwrap();
            }
        }
    }
}

#[test]
fn a_file_that_is_not_what_it_was_gives_no_row_and_goes_on_when_it_is_restored() {
    for change in [Change::Rewritten, Change::Truncated, Change::Replaced] {
        for while_it_runs in [true, false] {
            println!("{change:?}, while it runs: {while_it_runs}");
            let mut cluster = OnFiles::new(1);
            cluster.append("a.ndjson", 0..6, "x");
            let kept = fs::read(cluster.path("a.ndjson")).unwrap();
            cluster.start();
            cluster.wait_rows(&rows(0..5, &["x"]));
            if while_it_runs {
                change.make(&cluster.path("a.ndjson"));
            } else {
                cluster.stop();
                change.make(&cluster.path("a.ndjson"));
                cluster.start();
            }
            let served = &mut cluster.replicas[0];
            let reason = "a.ndjson was rewritten or replaced by another file";
            served.wait_ready(503, reason).unwrap();
            assert_eq!(served.rows().unwrap(), rows(0..5, &["x"]), "{change:?}");
            assert_eq!(
                served.said().matches("ERROR").count(),
                1,
                "{}",
                served.said()
            );
            fs::write(cluster.path("a.ndjson"), &kept).unwrap();
            cluster.append("a.ndjson", 6..10, "x");
            cluster.wait_rows(&rows(0..9, &["x"]));
            cluster.replicas[0].wait_ready(200, "true").unwrap();
            cluster.stop();
        }
    }
}

#[test]
fn a_file_that_was_read_to_its_end_may_be_deleted() {
    let mut cluster = OnFiles::new(3);
    cluster.append("a.ndjson", 0..6, "x");
    cluster.append("b.ndjson", 0..6, "y");
    cluster.append("c.ndjson", 0..6, "z");
    cluster.start();
    cluster.wait_rows(&rows(0..5, &["x", "y", "z"]));
    let size = i64::try_from(fs::metadata(cluster.path("a.ndjson")).unwrap().len()).unwrap();
    fs::remove_file(cluster.path("a.ndjson")).unwrap();
    cluster.wait_lanes(&[("b.ndjson", size), ("c.ndjson", size)]);
    cluster.append("b.ndjson", 6..8, "y");
    cluster.append("c.ndjson", 6..8, "z");
    // Its last second is whole: it holds nothing back any more.
    let mut expected = rows(0..6, &["x", "y", "z"]);
    expected.extend(rows(6..7, &["y", "z"]));
    cluster.wait_rows(&expected);

    // Deleted while nobody looks: nobody has it open any more.
    let size = i64::try_from(fs::metadata(cluster.path("c.ndjson")).unwrap().len()).unwrap();
    cluster.stop();
    fs::remove_file(cluster.path("b.ndjson")).unwrap();
    cluster.append("c.ndjson", 8..12, "z");
    cluster.start();
    let size = size * 12 / 8;
    cluster.wait_lanes(&[("c.ndjson", size)]);
    expected.extend(rows(7..8, &["y", "z"]));
    expected.extend(rows(8..11, &["z"]));
    cluster.wait_rows(&expected);
    for replica in &mut cluster.replicas {
        replica.wait_ready(200, "true").unwrap();
    }
    // A name is free again when its file is gone.
    cluster.append("a.ndjson", 10..14, "x");
    let one = size / 12;
    cluster.wait_lanes(&[("a.ndjson", 4 * one), ("c.ndjson", size)]);
    cluster.append("c.ndjson", 12..14, "z");
    expected.extend(rows(11..13, &["x", "z"]));
    cluster.wait_rows(&expected);
    for replica in &cluster.replicas {
        assert!(!replica.said().contains("ERROR"), "{}", replica.said());
    }
    cluster.stop();
}

#[test]
fn rotation_by_rename_reads_every_line_once() {
    let mut cluster = OnFiles::new(3);
    cluster.append("b.ndjson", 0..60, "y");
    cluster.append("a.ndjson", 0..3, "x");
    cluster.start();
    cluster.wait_rows(&rows(0..2, &["x", "y"]));
    let mut next = 3;
    // Under a name that matches too, and under one that does not.
    for (round, to) in ["a1.ndjson", "a.old", "a2.ndjson"].into_iter().enumerate() {
        let (from, to) = (cluster.path("a.ndjson"), cluster.path(to));
        fs::rename(from, &to).unwrap();
        // Whoever writes notices later.
        let name = to.file_name().unwrap().to_str().unwrap();
        cluster.append(name, next..next + 2, "x");
        cluster.wait_rows(&rows(0..next + 1, &["x", "y"]));
        cluster.append("a.ndjson", next + 2..next + 4, "x");
        next += 4;
        cluster.wait_rows(&rows(0..next - 1, &["x", "y"]));
        if round == 1 {
            cluster.stop();
            cluster.start();
        }
    }
    cluster.append("a.ndjson", next..next + 2, "x");
    cluster.wait_rows(&rows(0..next + 1, &["x", "y"]));
    for replica in &cluster.replicas {
        assert!(!replica.said().contains("ERROR"), "{}", replica.said());
    }
    cluster.stop();
}

#[test]
fn rotation_by_copying_and_truncating_is_refused_until_the_rest_has_another_name() {
    let mut cluster = OnFiles::new(1);
    cluster.append("b.ndjson", 0..60, "y");
    cluster.append("a.ndjson", 0..3, "x");
    cluster.start();
    cluster.wait_rows(&rows(0..2, &["x", "y"]));
    fs::copy(cluster.path("a.ndjson"), cluster.path("a.old")).unwrap();
    fs::write(cluster.path("a.ndjson"), "").unwrap();
    let served = &mut cluster.replicas[0];
    served.wait_ready(503, "a.ndjson was cut short").unwrap();
    cluster.append("a.ndjson", 3..5, "x");
    fs::rename(cluster.path("a.ndjson"), cluster.path("a1.ndjson")).unwrap();
    fs::remove_file(cluster.path("a.old")).unwrap();
    cluster.wait_rows(&rows(0..4, &["x", "y"]));
    cluster.replicas[0].wait_ready(200, "true").unwrap();
    cluster.stop();
}

#[test]
fn a_file_that_cannot_be_opened_holds_its_own_lane_until_it_can() {
    let mut cluster = OnFiles::new(1);
    cluster.append("a.ndjson", 0..3, "x");
    cluster.append("b.ndjson", 0..3, "y");
    cluster.start();
    cluster.wait_rows(&rows(0..2, &["x", "y"]));
    cluster.stop();
    let (path, kept) = (cluster.path("a.ndjson"), cluster.path("kept"));
    fs::rename(&path, &kept).unwrap();
    fs::create_dir(&path).unwrap();
    cluster.append("kept", 3..6, "x");
    cluster.append("b.ndjson", 3..6, "y");
    cluster.start();
    let one = i64::try_from(event(0, "x").len()).unwrap();
    cluster.wait_lanes(&[("a.ndjson", 3 * one), ("b.ndjson", 6 * one)]);
    let served = &mut cluster.replicas[0];
    served.wait_ready(503, "a.ndjson").unwrap();
    let held = lanes(served).unwrap();
    let trouble = |name: &str| held.iter().find(|lane| lane.0 == name).unwrap().2.clone();
    assert!(
        trouble("a.ndjson").unwrap().contains("directory"),
        "{held:?}"
    );
    assert_eq!(trouble("b.ndjson"), None);
    assert_eq!(
        served.rows().unwrap(),
        rows(0..2, &["x", "y"]),
        "nothing passes a lane that is held"
    );
    fs::remove_dir(&path).unwrap();
    fs::rename(&kept, &path).unwrap();
    cluster.wait_rows(&rows(0..5, &["x", "y"]));
    cluster.replicas[0].wait_ready(200, "true").unwrap();
    assert!(
        !cluster.replicas[0].said().contains("ERROR"),
        "{}",
        cluster.replicas[0].said()
    );
    cluster.stop();
}

#[test]
fn the_lag_of_a_file_is_all_of_it_and_not_what_was_read_ahead() {
    let mut files = OnFiles::new(3);
    files.append("a.ndjson", 0..4, "x");
    files.start();
    files.wait_rows(&rows(0..3, &["x"]));
    // Alone, a replica takes nothing in any more.
    for replica in &mut files.replicas[1..] {
        assert_eq!(replica.terminate().unwrap(), 0);
    }
    let pad = "p".repeat(10_000);
    let line = |second: i64| format!("{}\n", event(second, &pad).trim_end());
    let lines: String = (4..9_000).map(line).collect();
    let mut file = OpenOptions::new();
    let mut file = file.append(true).open(files.path("a.ndjson")).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    let size = i64::try_from(file.metadata().unwrap().len()).unwrap();
    assert!(size > 80 << 20, "more than may be read ahead");
    let taken = size - i64::try_from(lines.len()).unwrap();
    let all = |served: &Served| (lag(served)? == (Some(size), Some(size - taken))).then_some(());
    files.replicas[0].wait("all of it", all).unwrap();
}
