//! One feed that does not move on one replica, while another one does: checkpoints go on and the agreed log is purged, and
//! the feed gets its state from a peer when the log does not reach back to its own.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use unisono_chaos::cluster::{Cluster, Setup};
use unisono_chaos::http;
use unisono_chaos::order::PIPELINE;
use unisono_tests::unisono_binary;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(90);
/// The second pipeline; each has a source of its own, of the folder with its name.
const EXTRA: &str = "extra";
/// Events of one second.
const A_SECOND: u64 = 10;
const INSTALLS: &str = "taking a peer's checkpoint";
const HEALS: &str = "the feed's state is taken from a peer's checkpoint";

struct Two {
    cluster: Cluster,
    dir: tempfile::TempDir,
    /// Event time of the next line, in milliseconds.
    next_ms: u64,
    /// A replica that lacks lines of the second source, its file, and the lines.
    held: Option<(u16, PathBuf, String)>,
}

fn append(path: &Path, lines: &str) -> Result<()> {
    // One write: a reader sees whole lines or nothing of them.
    let mut file = OpenOptions::new().append(true).open(path)?;
    Ok(file.write_all(lines.as_bytes())?)
}

fn streams() -> String {
    let stream = |name: &str| {
        format!(
            "[[source]]\nname = \"{name}\"\nfiles = {{ dir = \"/proc/self/cwd/{name}\", pattern = \"*.ndjson\" }}\n\
             [[pipeline]]\nname = \"{name}\"\nsources = [\"{name}\"]\nsink = \"builtin\"\n\
             time = {{ field = \"at\", format = \"ms\" }}\nmax_future = \"1h\"\nwindow = {{ size = \"1s\" }}\n\
             close = {{ lag = \"0s\", idle = \"1h\" }}\nvalues = {{ events = \"count()\" }}\n"
        )
    };
    format!("{}{}", stream(PIPELINE), stream(EXTRA))
}

impl Two {
    /// Three replicas with these keys of `[cluster]`.
    async fn start(keys: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for (number, name) in (1..=3).flat_map(|number| [(number, PIPELINE), (number, EXTRA)]) {
            let folder = dir.path().join(format!("unisono-{number}")).join(name);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("a.ndjson"), "")?;
        }
        let setup = Setup {
            binary: unisono_binary(),
            dir: dir.path().to_owned(),
            nodes: 3,
            checkpoint_interval: Some("1s".to_owned()),
            streams: streams(),
            pipeline: PIPELINE.to_owned(),
        };
        let mut cluster = Cluster::start_setup(&setup)?;
        cluster.wait_ready().await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut two = Self {
            cluster,
            dir,
            next_ms: (now - 60) * 1000,
            held: None,
        };
        if !keys.is_empty() {
            two.cluster.kill_all()?;
            for number in 1..=3 {
                two.edit(number, "[cluster]\n", &format!("[cluster]\n{keys}\n"))?;
            }
            two.cluster.restart_all()?;
            two.cluster.wait_ready().await?;
        }
        Ok(two)
    }

    fn config(&self, number: u16) -> PathBuf {
        self.dir.path().join(format!("unisono-{number}.toml"))
    }

    fn edit(&self, number: u16, from: &str, to: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.config(number))?;
        ensure!(text.contains(from), "no {from} in {text}");
        Ok(std::fs::write(self.config(number), text.replace(from, to))?)
    }

    fn folder(&self, number: u16, name: &str) -> PathBuf {
        self.dir.path().join(format!("unisono-{number}")).join(name)
    }

    /// From now on a replica is given nothing more of the second source, which the others read on.
    fn hold(&mut self, number: u16) -> Result<()> {
        self.held = Some((
            number,
            self.folder(number, EXTRA).join("a.ndjson"),
            String::new(),
        ));
        Ok(())
    }

    /// It is given what it lacks.
    fn release(&mut self) -> Result<()> {
        let (_, path, lines) = self.held.take().context("none is held")?;
        append(&path, &lines)
    }

    /// A second of events for both pipelines.
    fn second(&mut self) -> Result<()> {
        for _ in 0..A_SECOND {
            let line = format!("{{\"at\":{}}}\n", self.next_ms);
            for number in 1..=3 {
                append(&self.folder(number, PIPELINE).join("a.ndjson"), &line)?;
                match &mut self.held {
                    Some((held, _, lines)) if *held == number => lines.push_str(&line),
                    _ => append(&self.folder(number, EXTRA).join("a.ndjson"), &line)?,
                }
            }
            self.next_ms += 1000 / A_SECOND;
        }
        Ok(())
    }

    async fn rows(&self, number: u16, pipeline: &str) -> Result<Vec<Value>> {
        let address = &self.cluster.addresses()[&number];
        let url = format!("http://{address}/v1/pipelines/{pipeline}/windows?limit=1000");
        let body = http::client()?.get(url).send().await?.text().await?;
        let page: Value = serde_json::from_str(&body)?;
        Ok(page["rows"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until a replica serves so many rows, each of a whole second, without a gap.
    async fn wait_rows(&mut self, number: u16, pipeline: &str, count: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rows = self.rows(number, pipeline).await.unwrap_or_default();
            for (seq, row) in rows.iter().enumerate() {
                let right = row["seq"] == seq && row["values"]["events"] == A_SECOND;
                ensure!(right, "replica {number} serves {row} as row {seq}");
            }
            if rows.len() >= count {
                return Ok(());
            }
            self.cluster.ensure_none_crashed()?;
            if Instant::now() > deadline {
                bail!(
                    "replica {number} has {} of {count}; {}",
                    rows.len(),
                    self.log(number)?
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Entries of the log that a replica keeps for a feed that does not move.
    async fn held_entries(&self, number: u16) -> Result<u64> {
        let address = &self.cluster.addresses()[&number];
        let url = format!("http://{address}/metrics");
        let metrics = http::client()?.get(url).send().await?.text().await?;
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix("unisono_log_held_entries "));
        Ok(value.context("no such metric")?.parse()?)
    }

    fn log(&self, number: u16) -> Result<String> {
        let log = self.cluster.log(number).context("no such node")?;
        Ok(std::fs::read_to_string(log)?)
    }

    fn logged(&self, number: u16, text: &str) -> Result<usize> {
        Ok(self.log(number)?.matches(text).count())
    }

    /// A replica's newest checkpoint: the index at which it stands, and how far the log was read.
    fn checkpoint(&self, number: u16) -> Result<(u64, u64)> {
        let dir = self.dir.path().join(format!("data-{number}/checkpoints"));
        let mut newest = (0, 0);
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            let numbers = name
                .strip_suffix(".checkpoint")
                .map(|name| name.split_once('-'));
            if let Some(Some((index, made_at))) = numbers {
                newest = newest.max((index.parse()?, made_at.parse()?));
            }
        }
        Ok(newest)
    }

    /// Feeds both pipelines until something is so; gives how many seconds that took.
    async fn until(
        &mut self,
        number: u16,
        what: &str,
        is_so: impl Fn(&Self) -> Result<bool>,
    ) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        let mut seconds = 0;
        while !is_so(self)? {
            if Instant::now() > deadline {
                bail!(
                    "{what} did not come true; newest checkpoint {:?}; {}",
                    self.checkpoint(number)?,
                    self.log(number)?
                );
            }
            self.second()?;
            seconds += 1;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(seconds)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_waits_here_keeps_no_other_from_being_saved_and_goes_on_from_its_own_state() {
    let mut two = Two::start("").await.unwrap();
    (0..3).try_for_each(|_| two.second()).unwrap();
    let held = two.cluster.wait_leader().await.unwrap() % 3 + 1;
    two.wait_rows(held, EXTRA, 2).await.unwrap();
    two.hold(held).unwrap();
    let before = two.checkpoint(held).unwrap();
    let mut seconds = 3;
    // More than one: those that were asked for before the feed was held may still come.
    let saved = |two: &Two| Ok(two.checkpoint(held)?.1 > before.1 + 100);
    seconds += two.until(held, "a checkpoint", saved).await.unwrap();
    // It stands where the feed that waits stands, with the other one's state of later.
    let (index, made_at) = two.checkpoint(held).unwrap();
    assert!(index < made_at, "{index} {made_at}");
    two.cluster.kill(held).unwrap();
    two.cluster.restart(held).unwrap();
    two.wait_rows(held, PIPELINE, seconds - 1).await.unwrap();
    assert!(two.rows(held, EXTRA).await.unwrap().len() < seconds - 1);
    two.release().unwrap();
    two.second().unwrap();
    for pipeline in [PIPELINE, EXTRA] {
        two.wait_rows(held, pipeline, seconds).await.unwrap();
    }
    assert_eq!(two.logged(held, INSTALLS).unwrap(), 0);
    assert_eq!(two.logged(held, HEALS).unwrap(), 0);
    let whole = |two: &Two| Ok(two.checkpoint(held)?.0 > made_at);
    two.until(held, "a checkpoint beyond", whole).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_waits_here_for_ever_takes_its_state_from_a_peer_and_the_log_is_purged() {
    let mut two = Two::start("keep_log_entries = 10").await.unwrap();
    (0..3).try_for_each(|_| two.second()).unwrap();
    let held = two.cluster.wait_leader().await.unwrap() % 3 + 1;
    two.wait_rows(held, EXTRA, 2).await.unwrap();
    let mut seconds = 3;
    two.hold(held).unwrap();
    let stuck = two.checkpoint(held).unwrap().1;
    assert_eq!(two.held_entries(held).await.unwrap(), 0);
    let told = |two: &Two| Ok(two.logged(held, "the feed does not move here")? > 0);
    seconds += two.until(held, "word of it", told).await.unwrap();
    let purged = |two: &Two| Ok(two.logged(held, HEALS)? > 1 && two.checkpoint(held)?.0 > stuck);
    seconds += two.until(held, "a purge", purged).await.unwrap();
    assert!(two.logged(held, "the feed does not move here").unwrap() > 0);
    assert_eq!(
        two.logged(held, INSTALLS).unwrap(),
        0,
        "the other feed goes on"
    );
    two.release().unwrap();
    two.second().unwrap();
    for pipeline in [PIPELINE, EXTRA] {
        two.wait_rows(held, pipeline, seconds).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_is_refused_here_holds_no_log_and_runs_when_the_config_is_right_again() {
    let mut two = Two::start("keep_log_entries = 10").await.unwrap();
    (0..3).try_for_each(|_| two.second()).unwrap();
    let refused = two.cluster.wait_leader().await.unwrap() % 3 + 1;
    two.wait_rows(refused, EXTRA, 2).await.unwrap();
    let mut seconds = 3;
    let (right, wrong) = ("cwd/extra\"", "cwd/elsewhere\"");
    two.cluster.kill(refused).unwrap();
    two.edit(refused, right, wrong).unwrap();
    two.cluster.restart(refused).unwrap();
    let stuck = two.checkpoint(refused).unwrap().1;
    let purged =
        |two: &Two| Ok(two.logged(refused, HEALS)? > 0 && two.checkpoint(refused)?.0 > stuck);
    seconds += two.until(refused, "a purge", purged).await.unwrap();
    two.wait_rows(refused, PIPELINE, seconds - 1).await.unwrap();
    two.cluster.kill(refused).unwrap();
    two.edit(refused, wrong, right).unwrap();
    two.cluster.restart(refused).unwrap();
    two.second().unwrap();
    for pipeline in [PIPELINE, EXTRA] {
        two.wait_rows(refused, pipeline, seconds).await.unwrap();
    }
    assert_eq!(two.logged(refused, INSTALLS).unwrap(), 0);
}
