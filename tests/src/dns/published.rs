//! What the replicas computed and published, held against what was expected.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use unisono_chaos::cluster::Cluster;

use super::expected::{Expected, Stream};
use crate::kafka::{Committed, TestBroker};

/// How long the last windows may take to close and to be published; not a promise.
const COMPLETE_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long more rows than there should be may take to show.
const SETTLE: Duration = Duration::from_secs(1);

/// Waits until every replica has all rows with the expected digest.
///
/// # Errors
/// A replica has other rows, more of them, or not all in time.
pub(super) async fn await_digests(cluster: &mut Cluster, expected: &Expected) -> Result<()> {
    let deadline = Instant::now() + COMPLETE_WITHIN;
    let numbers: Vec<u16> = cluster.addresses().into_keys().collect();
    for number in numbers {
        for stream in &expected.streams {
            let wanted = stream.rows.len() as u64;
            loop {
                cluster.ensure_none_crashed()?;
                let view = cluster.pipeline_named(number, stream.pipeline).await;
                match &view {
                    Some(view) if view.next_seq == wanted && view.digest == stream.digest => break,
                    Some(view) if view.next_seq >= wanted => bail!(
                        "replica {number}, pipeline {}: {view:?}, expected are {wanted} rows with digest {}",
                        stream.pipeline,
                        stream.digest
                    ),
                    _ => {}
                }
                ensure!(
                    Instant::now() < deadline,
                    "replica {number}, pipeline {}: {view:?} after {COMPLETE_WITHIN:?}, expected are {wanted} rows",
                    stream.pipeline
                );
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
    Ok(())
}

/// Waits until as many rows are published as are expected, and compares them.
///
/// # Errors
/// The first row that is missing, doubled, out of order or other than expected.
pub(super) async fn compare(
    broker: &'static TestBroker,
    topic: &str,
    expected: &Expected,
) -> Result<()> {
    let deadline = Instant::now() + COMPLETE_WITHIN;
    let wanted: usize = expected
        .streams
        .iter()
        .map(|stream| stream.rows.len())
        .sum();
    let read = || {
        let topic = topic.to_owned();
        tokio::task::spawn_blocking(move || broker.read_committed(&topic))
    };
    // Rows that do not come in time are found missing below.
    while read().await??.len() < wanted && Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    tokio::time::sleep(SETTLE).await;
    let published = read().await??;
    for stream in &expected.streams {
        compare_stream(stream, &published)
            .with_context(|| format!("pipeline {} on topic {topic}", stream.pipeline))?;
    }
    ensure!(
        published.len() == wanted,
        "topic {topic} holds {} rows, {wanted} of them of known pipelines",
        published.len()
    );
    Ok(())
}

fn compare_stream(stream: &Stream, published: &[Committed]) -> Result<()> {
    let of_stream = |row: &&Committed| header(row, "pipeline") == Some(stream.pipeline);
    let rows: Vec<&Committed> = published.iter().filter(of_stream).collect();
    for (number, row) in rows.iter().enumerate() {
        let seq = header(row, "seq").context("a row without a number")?;
        ensure!(
            seq == number.to_string(),
            "offset {}: row {seq} where row {number} is due",
            row.offset
        );
        let text = String::from_utf8_lossy(row.payload.as_deref().unwrap_or_default());
        let wanted = stream.rows.get(number).map(String::as_str);
        ensure!(
            wanted == Some(&*text),
            "row {number} is {text}\nexpected is {wanted:?}"
        );
    }
    ensure!(
        rows.len() == stream.rows.len(),
        "{} rows of {}",
        rows.len(),
        stream.rows.len()
    );
    let digest = rows.last().and_then(|row| header(row, "digest"));
    ensure!(
        digest == Some(&stream.digest),
        "the last row has digest {digest:?}, eval's is {}",
        stream.digest
    );
    Ok(())
}

fn header<'a>(row: &'a Committed, name: &str) -> Option<&'a str> {
    let found = row.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}
