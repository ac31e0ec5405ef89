//! A held feed whose log grows too long is parked, and goes on from there whatever is decided.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{Apart, OTHER, PATIENCE, last_of_each_window};

/// So many entries of the log are kept below checkpoints.
const KEEP: u64 = 60;

impl Apart {
    /// With a second feed, checkpoints each second, and a log that is kept for so many entries.
    async fn with_a_short_log() -> Result<Self> {
        let mut apart = Self::start_with(Some("1s"), OTHER).await?;
        apart.cluster.kill_all()?;
        for number in 1..=3 {
            let path = apart.dir.path().join(format!("unisono-{number}.toml"));
            let keys = format!("[cluster]\nkeep_log_entries = {KEEP}\n");
            let text = std::fs::read_to_string(&path)?.replace("[cluster]\n", &keys);
            std::fs::write(path, text)?;
        }
        apart.cluster.restart_all()?;
        apart.cluster.wait_ready().await?;
        // All have a state of the feed in a checkpoint.
        apart.append_seconds(1)?;
        let saved =
            |apart: &Self| (1..=3).all(|number| apart.checkpoint(number).unwrap_or(0) > KEEP / 2);
        apart.feed_other_until("a checkpoint", saved).await?;
        Ok(apart)
    }

    /// A replica's newest checkpoint: where it stands.
    fn checkpoint(&self, number: u16) -> Result<u64> {
        let dir = self.dir.path().join(format!("data-{number}/checkpoints"));
        let mut newest = 0;
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            let index = name
                .split_once('-')
                .and_then(|(index, _)| index.parse().ok());
            newest = newest.max(index.unwrap_or(0));
        }
        Ok(newest)
    }

    /// Feeds the second source until something is so.
    async fn feed_other_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            let late = Instant::now() > deadline;
            ensure!(!late, "{what} did not come true; {}", self.logs()?);
            for number in 1..=3 {
                let path = format!("unisono-{number}/other/a.ndjson");
                let mut file = OpenOptions::new()
                    .append(true)
                    .open(self.dir.path().join(path))?;
                file.write_all(format!("{{\"at\":{}}}\n", self.next_ms).as_bytes())?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn dispute(&self, number: u16) -> Result<Value> {
        let cluster = self.get(number, "/v1/cluster").await?.1;
        let cluster: Value = serde_json::from_str(&cluster)?;
        let mut feeds = cluster["feeds"].as_array().cloned().unwrap_or_default();
        feeds.retain(|feed| feed["dispute"] != Value::Null);
        Ok(feeds.pop().unwrap_or_default())
    }
}

/// Held, parked, all replicas killed and started again, and then decided so.
async fn parked_and_decided(decision: &str) -> (Apart, u16, Vec<Value>) {
    let mut apart = Apart::with_a_short_log().await.unwrap();
    let (leader, published) = apart.wrong_alone().await.unwrap();
    let said = |apart: &Apart, number: u16| {
        let log = apart.cluster.log(number).map(std::fs::read_to_string);
        log.unwrap().unwrap().contains("feed parked")
    };
    apart
        .feed_other_until("parking", |apart| (1..=3).all(|number| said(apart, number)))
        .await
        .unwrap();
    let feed = apart.dispute(1).await.unwrap();
    let state = feed["dispute"]["parked"].as_u64().unwrap();
    assert_eq!(feed["dispute"]["alone"], true, "{feed}");
    // The log is kept for it no more, on no replica.
    let beyond =
        |apart: &Apart| (1..=3).all(|number| apart.checkpoint(number).unwrap() > state + 4 * KEEP);
    apart.feed_other_until("a purge", beyond).await.unwrap();
    apart.cluster.kill_all().unwrap();
    apart.cluster.restart_all().unwrap();
    apart.cluster.wait_ready().await.unwrap();
    let name = feed["name"].as_str().unwrap().to_owned();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = apart.unisono(&["feeds", decision, &name]) {
        assert!(Instant::now() < deadline, "{error}");
    }
    (apart, leader, published)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_feed_keeps_no_log_for_ever_and_goes_on_from_where_it_was_parked() {
    let (mut apart, leader, published) = parked_and_decided("end").await;
    let other = leader % 3 + 1;
    std::fs::copy(apart.file(other), apart.file(leader)).unwrap();
    apart.append_seconds(3).unwrap();
    for number in 1..=3 {
        let is_last = |row: &Value| row["seq"] == published.len() + 5;
        let rows = apart.rows(number, is_last).await.unwrap();
        assert_eq!(rows[..published.len()], published);
        for (window, values) in last_of_each_window(&rows) {
            let right = values["events"] == 10 && values["total"] == 10;
            assert!(right || values["events"] == 0, "{window}: {values}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_feed_is_accepted_where_a_replica_has_what_the_log_said() {
    let (mut apart, _, published) = parked_and_decided("accept").await;
    apart.append_seconds(3).unwrap();
    for number in 1..=3 {
        let is_last = |row: &Value| row["seq"] == published.len() + 2;
        let rows = apart.rows(number, is_last).await.unwrap();
        assert_eq!(rows[..published.len()], published);
        let windows = last_of_each_window(&rows);
        assert_eq!(windows.len(), rows.len(), "each window once: {rows:?}");
    }
}
