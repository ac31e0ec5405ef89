//! A leader that reads one wrong record while nobody else can read, and ticks alone: rows of it are out. When the others can
//! read again, the feed is held on all replicas until an operator decides, and each of both decisions leads on.
#![allow(clippy::unwrap_used)]

#[path = "disputed/parked.rs"]
mod parked;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use unisono_chaos::cluster::{Cluster, Setup};
use unisono_chaos::http;
use unisono_chaos::order::PIPELINE;
use unisono_tests::serve::sums_of_own_folder;
use unisono_tests::unisono_binary;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events of one second.
const A_SECOND: u64 = 10;

/// Three replicas, each with a folder of its own to read.
struct Apart {
    cluster: Cluster,
    dir: tempfile::TempDir,
    /// Event time of the next line, in milliseconds.
    next_ms: u64,
    /// What those have yet to be given who get nothing to read.
    late: BTreeMap<u16, String>,
}

/// A second feed, over a file that all read alike.
const OTHER: &str = r#"[[source]]
name = "other"
files = { dir = "/proc/self/cwd/other", pattern = "*.ndjson" }
[[pipeline]]
name = "other"
sources = ["other"]
time = { field = "at", format = "ms" }
max_future = "1h"
window = { size = "1s" }
close = { lag = "0s", idle = "1h" }
values = { events = "count()" }
"#;

impl Apart {
    async fn start() -> Result<Self> {
        Self::start_with(None, "").await
    }

    /// With checkpoints so often, and more streams.
    async fn start_with(checkpoints: Option<&str>, more: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for number in 1..=3 {
            let folder = dir.path().join(format!("unisono-{number}/input"));
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("a.ndjson"), "")?;
            let other = dir.path().join(format!("unisono-{number}/other"));
            std::fs::create_dir_all(&other)?;
            std::fs::write(other.join("a.ndjson"), "")?;
        }
        let setup = Setup {
            binary: unisono_binary(),
            dir: dir.path().to_owned(),
            nodes: 3,
            checkpoint_interval: checkpoints.map(str::to_owned),
            streams: format!("{}{more}", sums_of_own_folder("1h", "1h")),
            pipeline: PIPELINE.to_owned(),
        };
        let mut cluster = Cluster::start_setup(&setup)?;
        cluster.wait_ready().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Self {
            cluster,
            dir,
            next_ms: (now.as_secs() - 5) * 1000,
            late: BTreeMap::new(),
        })
    }

    fn file(&self, number: u16) -> PathBuf {
        let dir = self.dir.path().join(format!("unisono-{number}"));
        dir.join("input/a.ndjson")
    }

    /// The same line for all, but for a replica that gets a wrong one. It comes later to who is blind.
    fn append(&mut self, wrong: Option<u16>) -> Result<()> {
        for number in 1..=3 {
            let value = if wrong == Some(number) { 9 } else { 1 };
            let line = format!("{{\"at\":{},\"v\":{value}}}\n", self.next_ms);
            match self.late.get_mut(&number) {
                Some(late) => late.push_str(&line),
                None => self.write(number, &line)?,
            }
        }
        self.next_ms += 1000 / A_SECOND;
        Ok(())
    }

    fn write(&self, number: u16, lines: &str) -> Result<()> {
        let mut file = OpenOptions::new().append(true).open(self.file(number))?;
        Ok(file.write_all(lines.as_bytes())?)
    }

    fn append_seconds(&mut self, seconds: u64) -> Result<()> {
        (0..seconds * A_SECOND).try_for_each(|_| self.append(None))
    }

    async fn get(&self, number: u16, path: &str) -> Result<(u16, String)> {
        let url = format!("http://{}{path}", self.cluster.addresses()[&number]);
        let answer = http::client()?.get(url).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await?))
    }

    /// Waits until an answer of a replica is so.
    async fn until(
        &mut self,
        number: u16,
        path: &str,
        is_so: impl Fn(u16, &str) -> bool,
    ) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(number, path).await.unwrap_or_default();
            if is_so(answer.0, &answer.1) {
                return Ok(answer.1);
            }
            self.cluster.ensure_none_crashed()?;
            if Instant::now() > deadline {
                bail!(
                    "replica {number} answers {path} with {answer:?}; {}",
                    self.logs()?
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn logs(&self) -> Result<String> {
        let mut logs = String::new();
        for number in 1..=3 {
            let log = self.cluster.log(number).map(std::fs::read_to_string);
            logs.push_str(&format!(
                "--- {number}\n{}",
                log.transpose()?.unwrap_or_default()
            ));
        }
        Ok(logs)
    }

    async fn ready(&mut self, number: u16, query: &str, status: u16, text: &str) -> Result<()> {
        let path = format!("/readyz{query}");
        let found = self.until(number, &path, |found, body| {
            found == status && body.contains(text)
        });
        found.await.map(drop)
    }

    /// All rows that a replica serves, once there is one that is so; each has its number and they have no gap.
    async fn rows(&mut self, number: u16, is_so: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        let path = format!("/v1/pipelines/{PIPELINE}/windows?limit=1000");
        let rows = |body: &str| -> Vec<Value> {
            let page: Value = serde_json::from_str(body).unwrap_or_default();
            page["rows"].as_array().cloned().unwrap_or_default()
        };
        let found = self.until(number, &path, |status, body| {
            status == 200 && rows(body).iter().any(&is_so)
        });
        let rows = rows(&found.await?);
        for (seq, row) in rows.iter().enumerate() {
            ensure!(
                row["seq"] == seq,
                "replica {number} serves {row} as row {seq}"
            );
        }
        Ok(rows)
    }

    /// Has the leader alone read on, with a wrong record, and publish a row of it; then all others read what they lack.
    /// Gives the leader and what it had published.
    async fn one_wrong_record_alone() -> Result<(Self, u16, Vec<Value>)> {
        let mut apart = Self::start().await?;
        let (leader, published) = apart.wrong_alone().await?;
        Ok((apart, leader, published))
    }

    async fn wrong_alone(&mut self) -> Result<(u16, Vec<Value>)> {
        let apart = self;
        apart.append_seconds(3)?;
        for number in 1..=3 {
            apart.rows(number, |row| row["seq"] == 1).await?;
        }
        let leader = apart.cluster.wait_leader().await?;
        let others = (1..=3).filter(|&number| number != leader);
        apart.late = others.map(|number| (number, String::new())).collect();
        apart.append(Some(leader))?;
        apart.append_seconds(3)?;
        let published = apart.rows(leader, is_wrong).await?;
        ensure!(
            apart.cluster.wait_leader().await? == leader,
            "another one leads"
        );
        for (number, lines) in std::mem::take(&mut apart.late) {
            apart.write(number, &lines)?;
        }
        Ok((leader, published))
    }

    /// Waits until all replicas say that the feed is held, and give the feed's name.
    async fn held(&mut self, leader: u16) -> Result<String> {
        let mut name = String::new();
        for number in 1..=3 {
            let is_held =
                |_, body: &str| body.contains("\"held\"") && body.contains("unisono feeds");
            let cluster = self.until(number, "/v1/cluster", is_held).await?;
            let cluster: Value = serde_json::from_str(&cluster)?;
            let feed = &cluster["feeds"][0];
            let stretch = &feed["dispute"]["stretch"];
            ensure!(
                feed["dispute"]["alone"] == true && stretch["lane"] == "a.ndjson",
                "{feed}"
            );
            let told = stretch["told"].as_array().cloned().unwrap_or_default();
            let nodes: Vec<u64> = told
                .iter()
                .filter_map(|told| told["node"].as_u64())
                .collect();
            let others: Vec<u64> = (1..=3).filter(|&it| it != u64::from(leader)).collect();
            ensure!(nodes == others, "{feed}");
            ensure!(
                told.iter()
                    .all(|told| told["fingerprint"] != stretch["agreed"]),
                "{feed}"
            );
            // Everywhere alike: that is no reason to restart nodes, but one for who asks for the pipeline.
            self.ready(number, "", 200, "true").await?;
            let strict = format!("?pipeline={PIPELINE}");
            self.ready(number, &strict, 503, "unisono feeds").await?;
            let metrics = self.get(number, "/metrics").await?.1;
            ensure!(
                metrics
                    .lines()
                    .any(|line| line.starts_with("unisono_feed_held{") && line.ends_with(" 1"))
            );
            name = feed["name"].as_str().unwrap_or_default().to_owned();
        }
        Ok(name)
    }

    fn unisono(&self, arguments: &[&str]) -> Result<String> {
        let url = format!("http://{}", self.cluster.addresses()[&1]);
        let output = Command::new(unisono_binary())
            .args(arguments)
            .args(["--url", &url])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {text}{error}");
        Ok(text)
    }
}

fn is_wrong(row: &Value) -> bool {
    row["values"]["total"] == 18
}

/// The last row of each window counts.
fn last_of_each_window(rows: &[Value]) -> BTreeMap<String, Value> {
    let window = |row: &Value| (row["start"].to_string(), row["values"].clone());
    rows.iter().map(window).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_tick_is_computed_again_and_what_was_published_of_it_stays() {
    let (mut apart, leader, published) = Apart::one_wrong_record_alone().await.unwrap();
    let feed = apart.held(leader).await.unwrap();
    // Published is published, on every replica, also where it could not be computed; and nothing is added.
    apart.append_seconds(2).unwrap();
    for number in 1..=3 {
        assert_eq!(apart.rows(number, is_wrong).await.unwrap(), published);
    }
    let told = apart.unisono(&["feeds", "end", &feed]).unwrap();
    assert!(told.contains("ended"), "{told}");
    apart.append_seconds(2).unwrap();
    let last = 9;
    let other = leader % 3 + 1;
    let is_last = |rows: &[Value]| last_of_each_window(rows).len() >= last;
    let deadline = Instant::now() + PATIENCE;
    let rows = loop {
        let rows = apart.rows(other, is_wrong).await.unwrap();
        if is_last(&rows) {
            break rows;
        }
        assert!(Instant::now() < deadline, "{rows:?}");
    };
    assert_eq!(rows[..published.len()], published);
    for (window, values) in last_of_each_window(&rows) {
        let right = values["events"] == 10 && values["total"] == 10;
        assert!(right || values["events"] == 0, "{window}: {values}");
    }
    // It reads what the others read again, and has the same rows, under the same numbers.
    std::fs::copy(apart.file(other), apart.file(leader)).unwrap();
    let newest = rows.len() - 1;
    for number in 1..=3 {
        let same = apart
            .rows(number, |row| row["seq"] == newest)
            .await
            .unwrap();
        assert_eq!(same[..rows.len()], rows);
        apart.ready(number, "", 200, "true").await.unwrap();
    }
    let status = apart.unisono(&["status"]).unwrap();
    assert!(status.contains("were ended by a command"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_tick_counts_and_who_cannot_read_it_takes_the_state_of_the_one_that_could() {
    let (mut apart, leader, published) = Apart::one_wrong_record_alone().await.unwrap();
    let feed = apart.held(leader).await.unwrap();
    apart.unisono(&["feeds", "accept", &feed]).unwrap();
    apart.append_seconds(3).unwrap();
    let newest = published.len() + 2;
    let mut all = Vec::new();
    for number in 1..=3 {
        let rows = apart
            .rows(number, |row| row["seq"] == newest)
            .await
            .unwrap();
        assert_eq!(rows[..published.len()], published);
        let wrong = rows.iter().filter(|row| is_wrong(row)).count();
        assert_eq!(wrong, 1, "each window once: {rows:?}");
        apart.ready(number, "", 200, "true").await.unwrap();
        all.push(rows[..newest].to_vec());
    }
    assert!(all.iter().all(|rows| *rows == all[0]), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_nobody_can_read_again_is_held_and_ended_by_command_and_what_is_skipped_is_told()
 {
    let mut apart = Apart::start().await.unwrap();
    apart.append_seconds(3).unwrap();
    let mut published = Vec::new();
    for number in 1..=3 {
        published = apart.rows(number, |row| row["seq"] == 1).await.unwrap();
    }
    apart.cluster.kill_all().unwrap();
    let mut length = 0;
    for number in 1..=3 {
        let text = std::fs::read_to_string(apart.file(number)).unwrap();
        std::fs::write(apart.file(number), text.replace("\"v\":1", "\"v\":2")).unwrap();
        length = text.len();
    }
    apart.cluster.restart_all().unwrap();
    let strict = format!("?pipeline={PIPELINE}");
    for number in 1..=3 {
        apart
            .ready(
                number,
                &strict,
                503,
                "hold other records here than were agreed",
            )
            .await
            .unwrap();
    }
    // It may be restored: nobody holds the feed by itself.
    let cluster = apart.get(1, "/v1/cluster").await.unwrap().1;
    let cluster: Value = serde_json::from_str(&cluster).unwrap();
    let feed = cluster["feeds"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(cluster["feeds"][0]["dispute"], Value::Null);
    let refused = apart
        .unisono(&["feeds", "end", &feed])
        .unwrap_err()
        .to_string();
    assert!(refused.contains("is not held"), "{refused}");
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = apart.unisono(&["feeds", "hold", &feed]) {
        assert!(Instant::now() < deadline, "{error}");
    }
    let start = format!("events/a.ndjson={length}");
    apart
        .unisono(&["feeds", "end", &feed, "--start", &start])
        .unwrap();
    apart.append_seconds(3).unwrap();
    let newest = published.len() + 1;
    let mut all = Vec::new();
    for number in 1..=3 {
        let rows = apart
            .rows(number, |row| row["seq"] == newest)
            .await
            .unwrap();
        assert_eq!(rows[..published.len()], published);
        for row in &rows[published.len()..] {
            let (events, total) = (&row["values"]["events"], &row["values"]["total"]);
            assert!(events == 0 || (events == 10 && total == 10), "{row}");
        }
        apart.ready(number, &strict, 200, "true").await.unwrap();
        let metrics = apart.get(number, "/metrics").await.unwrap().1;
        let skipped = format!("lane=\"a.ndjson\"}} {length}");
        let told = metrics.lines().any(|line| {
            line.starts_with("unisono_lane_skipped_offsets{") && line.ends_with(&skipped)
        });
        assert!(told, "{metrics}");
        all.push(rows[..newest].to_vec());
    }
    assert!(all.iter().all(|rows| *rows == all[0]), "{all:?}");
    let status = apart.unisono(&["status"]).unwrap();
    let told = format!("offsets 0 to {length} were never taken in");
    assert!(status.contains(&told), "{status}");
}
