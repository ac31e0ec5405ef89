//! Leaders that live and are unfit: one that reads another record than the others, and one whose agreed time is old.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unisono_chaos::cluster::{Cluster, Setup};
use unisono_chaos::http::{self, RowReader};
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
    async fn start(max_future: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        for number in 1..=3 {
            std::fs::create_dir_all(folder(dir.path(), number))?;
            std::fs::write(folder(dir.path(), number).join("a.ndjson"), "")?;
        }
        let setup = Setup {
            binary: unisono_binary(),
            dir: dir.path().to_owned(),
            nodes: 3,
            checkpoint_interval: None,
            streams: streams(dir.path(), max_future),
            pipeline: "orders".to_owned(),
        };
        let mut cluster = Cluster::start_setup(&setup)?;
        cluster.wait_ready().await?;
        Ok(Self {
            cluster,
            dir,
            next_ms: now * 1000,
        })
    }

    /// The same line to all, or another one to `wrong`.
    fn append(&mut self, wrong: Option<u16>) -> Result<()> {
        for number in 1..=3 {
            let value = if wrong == Some(number) { 9 } else { 1 };
            let path = folder(self.dir.path(), number).join("a.ndjson");
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

    /// Waits until a replica serves so many rows, and gives them.
    async fn rows(&mut self, number: u16, count: usize) -> Result<Vec<Value>> {
        let address = self.cluster.addresses()[&number].clone();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let read = RowReader::new(http::client()?, &address)
                .read_all(1000)
                .await;
            let rows = read.map(|step| step.rows).unwrap_or_default();
            if rows.len() >= count {
                let read = rows.iter().map(|row| serde_json::from_str(row));
                return Ok(read.collect::<Result<_, _>>()?);
            }
            self.cluster.ensure_none_crashed()?;
            ensure!(
                Instant::now() < deadline,
                "replica {number} serves {rows:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn dead_letters(&self, number: u16) -> Result<u64> {
        let url = format!("http://{}/v1/pipelines", self.cluster.addresses()[&number]);
        let body = http::client()?.get(url).send().await?.text().await?;
        let view: Value = serde_json::from_str(&body)?;
        let letters = &view["pipelines"][0]["dead_letters"];
        letters
            .as_u64()
            .with_context(|| format!("no number of dead letters in {body}"))
    }
}

fn folder(dir: &Path, number: u16) -> PathBuf {
    dir.join(format!("input-{number}"))
}

fn streams(dir: &Path, max_future: &str) -> String {
    format!(
        r#"[[source]]
name = "events"
files = {{ dir = "{}/input-{{node}}", pattern = "*.ndjson" }}
[[pipeline]]
name = "orders"
sources = ["events"]
sink = "builtin"
time = {{ field = "at", format = "ms" }}
max_future = "{max_future}"
window = {{ size = "1s" }}
close = {{ lag = "0s", idle = "1h" }}
values = {{ events = "count()", total = "sum(v)" }}
"#,
        dir.display()
    )
}

/// All rows are those of ten events of value 1 each, without a gap.
fn all_right(rows: &[Value]) -> Result<()> {
    for (seq, row) in rows.iter().enumerate() {
        ensure!(row["seq"] == seq, "not in order: {row}");
        let right = row["values"]["events"] == 10 && row["values"]["total"] == 10;
        ensure!(right, "a wrong row: {row}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_reads_one_wrong_record_gives_the_lead_away_and_no_row_is_wrong() {
    let mut apart = Apart::start("1h").await.unwrap();
    apart.append_seconds(3).unwrap();
    let wrong = apart.cluster.wait_leader().await.unwrap();
    let other = wrong % 3 + 1;
    all_right(&apart.rows(wrong, 2).await.unwrap()).unwrap();
    apart.append(Some(wrong)).unwrap();
    (1..A_SECOND).try_for_each(|_| apart.append(None)).unwrap();
    apart.append_seconds(5).unwrap();
    all_right(&apart.rows(other, 8).await.unwrap()).unwrap();
    assert_ne!(apart.cluster.wait_leader().await.unwrap(), wrong);
    // It keeps what it has published, and adds nothing to it.
    all_right(&apart.rows(wrong, 2).await.unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_of_all_longer_than_max_future_no_record_is_a_dead_letter() {
    let mut apart = Apart::start("2s").await.unwrap();
    apart.append_seconds(3).unwrap();
    apart.rows(1, 2).await.unwrap();
    apart.cluster.kill_all().unwrap();
    // The outage itself.
    tokio::time::sleep(Duration::from_secs(5)).await;
    apart.cluster.restart_all().unwrap();
    apart.cluster.wait_ready().await.unwrap();
    apart.append_seconds(5).unwrap();
    all_right(&apart.rows(1, 7).await.unwrap()).unwrap();
    assert_eq!(apart.dead_letters(1).await.unwrap(), 0);
}
