//! Leaders that live and are unfit: one that reads another record than the others, one whose
//! agreed time is old, one that cannot read. And whether each says so.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use unisono_chaos::cluster::{Cluster, Setup};
use unisono_chaos::http::{self, RowReader};
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
}

impl Apart {
    async fn start(max_future: &str, idle: &str) -> Result<Self> {
        Self::start_with(max_future, idle, None).await
    }

    async fn start_with(
        max_future: &str,
        idle: &str,
        checkpoint_interval: Option<&str>,
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for number in 1..=3 {
            std::fs::create_dir_all(folder(dir.path(), number))?;
            std::fs::write(folder(dir.path(), number).join("a.ndjson"), "")?;
        }
        let setup = Setup {
            binary: unisono_binary(),
            dir: dir.path().to_owned(),
            nodes: 3,
            checkpoint_interval: checkpoint_interval.map(str::to_owned),
            streams: sums_of_own_folder(max_future, idle),
            pipeline: PIPELINE.to_owned(),
        };
        let mut cluster = Cluster::start_setup(&setup)?;
        cluster.wait_ready().await?;
        Ok(Self {
            cluster,
            dir,
            next_ms: (now_s()? - 5) * 1000,
        })
    }

    /// The same line to all, or another one to `wrong`.
    fn append(&mut self, wrong: Option<u16>) -> Result<()> {
        self.append_to("input", wrong)
    }

    /// To all whose folder is there.
    fn append_to(&mut self, folder: &str, wrong: Option<u16>) -> Result<()> {
        for number in 1..=3 {
            let dir = self.dir.path().join(format!("unisono-{number}"));
            if !dir.join(folder).is_dir() {
                continue;
            }
            let value = if wrong == Some(number) { 9 } else { 1 };
            let path = dir.join(folder).join("a.ndjson");
            let mut file = OpenOptions::new().append(true).open(path)?;
            // One write: a reader sees the whole line or nothing of it.
            file.write_all(format!("{{\"at\":{},\"v\":{value}}}\n", self.next_ms).as_bytes())?;
        }
        self.next_ms += 1000 / A_SECOND;
        Ok(())
    }

    fn append_seconds(&mut self, seconds: u64) -> Result<()> {
        (0..seconds * A_SECOND).try_for_each(|_| self.append(None))
    }

    /// Waits until a replica serves so many rows with events, and gives all that it serves.
    async fn rows(&mut self, number: u16, count: usize) -> Result<Vec<Value>> {
        let address = self.cluster.addresses()[&number].clone();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let read = RowReader::new(http::client()?, &address)
                .read_all(1000)
                .await;
            let rows = read.map(|step| step.rows).unwrap_or_default();
            let read = rows.iter().map(|row| serde_json::from_str(row));
            let read: Vec<Value> = read.collect::<Result<_, _>>()?;
            let full = read.iter().filter(|row| row["values"]["events"] != 0);
            if full.count() >= count {
                return Ok(read);
            }
            self.cluster.ensure_none_crashed()?;
            if Instant::now() > deadline {
                let log = self.cluster.log(number).map(std::fs::read_to_string);
                let log = log.transpose()?.unwrap_or_default();
                bail!("replica {number} serves {rows:?}; it said:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Moves the folder of one replica out of its sight, or back.
    fn set_blind(&self, number: u16, blind: bool) -> Result<()> {
        let (seen, hidden) = (
            folder(self.dir.path(), number),
            self.dir.path().join("hidden"),
        );
        let (from, to) = if blind {
            (seen, hidden)
        } else {
            (hidden, seen)
        };
        Ok(std::fs::rename(from, to)?)
    }

    async fn get(&self, number: u16, path: &str) -> Result<(u16, Value)> {
        let address = &self.cluster.addresses()[&number];
        let url = format!("http://{address}{path}");
        let answer = http::client()?.get(url).send().await?;
        let status = answer.status().as_u16();
        Ok((status, serde_json::from_str(&answer.text().await?)?))
    }

    /// Waits until `/readyz` of a replica, with these parameters, has this status and text.
    async fn ready(&self, number: u16, query: &str, status: u16, text: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.get(number, &format!("/readyz{query}")).await?;
            if found.0 == status && found.1.to_string().contains(text) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "replica {number} says {found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until another replica than `number` leads.
    async fn other_leader(&mut self, number: u16) -> Result<u16> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = self.cluster.wait_leader().await?;
            if leader != number {
                return Ok(leader);
            }
            ensure!(Instant::now() < deadline, "replica {number} leads on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn dead_letters(&self, number: u16) -> Result<Value> {
        let address = &self.cluster.addresses()[&number];
        let url = format!("http://{address}/v1/pipelines/{PIPELINE}/dead-letters");
        let body = http::client()?.get(url).send().await?.text().await?;
        let page: Value = serde_json::from_str(&body)?;
        Ok(page["rows"].clone())
    }
}

fn now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

fn folder(dir: &Path, number: u16) -> PathBuf {
    dir.join(format!("unisono-{number}/input"))
}

/// All rows are those of ten events of value 1 each, or of none at all, without a gap.
fn all_right(rows: &[Value]) -> Result<()> {
    for (seq, row) in rows.iter().enumerate() {
        ensure!(row["seq"] == seq, "not in order: {row}");
        let (events, total) = (&row["values"]["events"], &row["values"]["total"]);
        let right = (events == 10 && total == 10) || events == 0;
        ensure!(right, "a wrong row: {row}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_reads_one_wrong_record_gives_the_lead_away_and_no_row_is_wrong() {
    let mut apart = Apart::start("1h", "1h").await.unwrap();
    apart.append_seconds(3).unwrap();
    let wrong = apart.cluster.wait_leader().await.unwrap();
    let other = wrong % 3 + 1;
    all_right(&apart.rows(wrong, 2).await.unwrap()).unwrap();
    apart.append(Some(wrong)).unwrap();
    (1..A_SECOND).try_for_each(|_| apart.append(None)).unwrap();
    apart.append_seconds(5).unwrap();
    all_right(&apart.rows(other, 8).await.unwrap()).unwrap();
    assert_ne!(apart.cluster.wait_leader().await.unwrap(), wrong);
    // It keeps what it has, and adds nothing to it before it can read what the others read.
    assert!(apart.rows(wrong, 2).await.unwrap().len() < 4);
    let right = folder(apart.dir.path(), other).join("a.ndjson");
    std::fs::copy(right, folder(apart.dir.path(), wrong).join("a.ndjson")).unwrap();
    all_right(&apart.rows(wrong, 8).await.unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_of_all_longer_than_max_future_no_record_is_a_dead_letter() {
    let mut apart = Apart::start("2s", "1h").await.unwrap();
    apart.append_seconds(3).unwrap();
    apart.rows(1, 2).await.unwrap();
    apart.cluster.kill_all().unwrap();
    // The outage itself: so long that agreed time would not be made good at once, and further than `max_future`.
    tokio::time::sleep(Duration::from_secs(13)).await;
    apart.cluster.restart_all().unwrap();
    apart.cluster.wait_ready().await.unwrap();
    // What comes now is further ahead of the last tick's time than `max_future`.
    apart.next_ms = (now_s().unwrap() - 5) * 1000;
    apart.append_seconds(5).unwrap();
    all_right(&apart.rows(1, 7).await.unwrap()).unwrap();
    assert_eq!(apart.dead_letters(1).await.unwrap(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_nobody_can_read_is_not_late_though_the_lane_was_idle() {
    let mut apart = Apart::start("1h", "1s").await.unwrap();
    apart.append_seconds(3).unwrap();
    // The last of them is closed by silence alone.
    apart.rows(1, 3).await.unwrap();
    let (input, away) = ("input", "away");
    let moved = |apart: &Apart, from: &str, to: &str| {
        for number in 1..=3 {
            let folder = apart.dir.path().join(format!("unisono-{number}"));
            std::fs::rename(folder.join(from), folder.join(to)).unwrap();
        }
    };
    moved(&apart, input, away);
    // The outage itself: longer than the lane may be quiet, and than evidence counts.
    tokio::time::sleep(Duration::from_secs(4)).await;
    apart.next_ms = (now_s().unwrap() - 3) * 1000;
    for _ in 0..2 * A_SECOND {
        apart.append_to(away, None).unwrap();
    }
    moved(&apart, away, input);
    all_right(&apart.rows(1, 5).await.unwrap()).unwrap();
    assert_eq!(apart.dead_letters(1).await.unwrap(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_read_its_source_gives_the_lead_away_and_says_so_until_it_can() {
    let mut apart = Apart::start("1h", "1h").await.unwrap();
    apart.append_seconds(3).unwrap();
    let blind = apart.cluster.wait_leader().await.unwrap();
    apart.rows(blind, 2).await.unwrap();
    let kept = std::fs::read(folder(apart.dir.path(), blind).join("a.ndjson")).unwrap();
    apart.set_blind(blind, true).unwrap();
    let leader = apart.other_leader(blind).await.unwrap();
    apart.append_seconds(5).unwrap();
    all_right(&apart.rows(leader, 7).await.unwrap()).unwrap();
    // The others run, so it is this node that is not well.
    apart.ready(blind, "", 503, "input").await.unwrap();
    apart.ready(leader, "", 200, "true").await.unwrap();
    apart.set_blind(blind, false).unwrap();
    let whole = std::fs::read(folder(apart.dir.path(), leader).join("a.ndjson")).unwrap();
    let path = folder(apart.dir.path(), blind).join("a.ndjson");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(&whole[kept.len()..]).unwrap();
    apart.append_seconds(2).unwrap();
    all_right(&apart.rows(blind, 9).await.unwrap()).unwrap();
    apart.ready(blind, "", 200, "true").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_nobody_can_read_leaves_all_ready_but_for_its_pipeline() {
    let mut apart = Apart::start("1h", "1h").await.unwrap();
    apart.append_seconds(3).unwrap();
    apart.rows(1, 2).await.unwrap();
    for number in 1..=3 {
        let seen = folder(apart.dir.path(), number);
        let hidden = apart.dir.path().join(format!("hidden-{number}"));
        std::fs::rename(seen, hidden).unwrap();
    }
    for number in 1..=3 {
        let strict = format!("?pipeline={PIPELINE}");
        apart.ready(number, &strict, 503, "input").await.unwrap();
    }
    for number in 1..=3 {
        apart.ready(number, "", 200, "true").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_left_alone_is_neither_ready_nor_a_leader() {
    let mut apart = Apart::start("1h", "1h").await.unwrap();
    let leader = apart.cluster.wait_leader().await.unwrap();
    apart.ready(leader, "", 200, "true").await.unwrap();
    for number in (1..=3).filter(|&number| number != leader) {
        apart.cluster.kill(number).unwrap();
    }
    apart.ready(leader, "", 503, "quorum").await.unwrap();
    let (_, cluster) = apart.get(leader, "/v1/cluster").await.unwrap();
    assert_eq!(
        (&cluster["role"], &cluster["leader"]),
        (&json!("unknown"), &json!(null))
    );
    for number in (1..=3).filter(|&number| number != leader) {
        apart.cluster.restart(number).unwrap();
    }
    for number in 1..=3 {
        apart.ready(number, "", 200, "true").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_replica_shows_no_gap_and_is_not_ready_before_it_has_computed_all_again() {
    let mut apart = Apart::start("1h", "1h").await.unwrap();
    apart.append_seconds(6).unwrap();
    let wiped = apart.cluster.wait_leader().await.unwrap() % 3 + 1;
    apart.rows(wiped, 5).await.unwrap();
    apart.cluster.kill(wiped).unwrap();
    let data = apart.dir.path().join(format!("data-{wiped}"));
    std::fs::remove_dir_all(data).unwrap();
    apart.set_blind(wiped, true).unwrap();
    apart.cluster.restart(wiped).unwrap();
    let windows = format!("/v1/pipelines/{PIPELINE}/windows");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Before it listens it cannot answer.
        if let Ok((status, body)) = apart.get(wiped, &windows).await {
            assert_eq!(status, 503, "{body}");
            let (status, ready) = apart.get(wiped, "/readyz").await.unwrap();
            assert_eq!(status, 503);
            if ready.to_string().contains("published and not here yet") {
                break;
            }
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    apart.set_blind(wiped, false).unwrap();
    apart.ready(wiped, "", 200, "true").await.unwrap();
    all_right(&apart.rows(wiped, 5).await.unwrap()).unwrap();
}

/// Waits until the node's answer has this status and text.
async fn answers(apart: &Apart, number: u16, path: &str, status: u16, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = apart.get(number, path).await.unwrap();
        if found.0 == status && found.1.to_string().contains(text) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "replica {number} says {found:?} of {path}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_state_is_wrong_says_so_serves_nothing_and_is_whole_again_by_itself() {
    let mut apart = Apart::start_with("1h", "1h", Some("6s")).await.unwrap();
    let wrong = apart.cluster.wait_leader().await.unwrap();
    let other = wrong % 3 + 1;
    let flips = apart.dir.path().join("flips");
    let variable = [("UNISONO_WRONG", flips.to_str().unwrap())];
    apart.cluster.set_environment(wrong, &variable).unwrap();
    apart.cluster.kill(wrong).unwrap();
    apart.cluster.restart(wrong).unwrap();
    apart.cluster.wait_ready().await.unwrap();
    apart.append_seconds(3).unwrap();
    all_right(&apart.rows(wrong, 2).await.unwrap()).unwrap();
    // As if a bit of its state flipped in memory: every window that is open there now has one event too many.
    std::fs::write(&flips, "").unwrap();
    apart.append_seconds(2).unwrap();
    let windows = format!("/v1/pipelines/{PIPELINE}/windows");
    answers(&apart, wrong, &windows, 503, "otherwise than most").await;
    answers(&apart, wrong, "/readyz", 503, "otherwise than most").await;
    answers(&apart, wrong, "/v1/cluster", 200, "otherwise than most").await;
    all_right(&apart.rows(other, 4).await.unwrap()).unwrap();
    apart.append_seconds(5).unwrap();
    all_right(&apart.rows(other, 9).await.unwrap()).unwrap();
    // It takes a peer's state as soon as one has saved it.
    all_right(&apart.rows(wrong, 9).await.unwrap()).unwrap();
    apart.ready(wrong, "", 200, "true").await.unwrap();
    let evidence = apart.dir.path().join(format!("data-{wrong}/evidence"));
    let kept = std::fs::read_dir(evidence)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|it| it == "json"));
    let kept: Value = serde_json::from_slice(&std::fs::read(kept.unwrap()).unwrap()).unwrap();
    let first =
        |side: &str| -> Value { serde_json::from_str(kept[0][side][0].as_str().unwrap()).unwrap() };
    assert_eq!(kept[0]["from"], first("here")["seq"]);
    assert_eq!(first("here")["values"]["events"], 11);
    assert_eq!(first("there")["values"]["events"], 10);
}
