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

/// Waits until as many rows are published as are expected, and compares them. Returns how many there are.
///
/// # Errors
/// The first row that is missing, doubled, out of order or other than expected.
pub(super) async fn compare(
    broker: &'static TestBroker,
    topic: &str,
    expected: &Expected,
) -> Result<usize> {
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
    Ok(wanted)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn row(seq: &str, payload: &str, digest: &str) -> Committed {
        let headers = [("pipeline", "p"), ("seq", seq), ("digest", digest)];
        Committed {
            partition: 0,
            offset: 0,
            key: None,
            payload: Some(payload.into()),
            headers: headers
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }
    }

    fn problem(published: &[&Committed]) -> String {
        let stream = Stream {
            pipeline: "p",
            rows: vec!["a".to_owned(), "b".to_owned()],
            digest: "d2".to_owned(),
        };
        let mut other = row("0", "x", "d");
        other.headers[0].1 = "other".to_owned();
        let mut all = vec![other];
        all.extend(published.iter().copied().cloned());
        compare_stream(&stream, &all).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_row_that_is_missing_doubled_moved_or_altered_is_found() {
        let (a, b) = (row("0", "a", "d1"), row("1", "b", "d2"));
        assert_eq!(problem(&[&a, &b]), "");
        assert_eq!(problem(&[&a]), "1 rows of 2");
        assert_eq!(problem(&[&b]), "offset 0: row 1 where row 0 is due");
        assert_eq!(problem(&[&a, &a, &b]), "offset 0: row 0 where row 1 is due");
        assert_eq!(problem(&[&b, &a]), "offset 0: row 1 where row 0 is due");
        let altered = problem(&[&a, &row("1", "c", "d2")]);
        assert_eq!(altered, "row 1 is c\nexpected is Some(\"b\")");
        let more = problem(&[&a, &b, &row("2", "c", "d3")]);
        assert_eq!(more, "row 2 is c\nexpected is None");
        let digest = problem(&[&a, &row("1", "b", "d9")]);
        assert_eq!(digest, "the last row has digest Some(\"d9\"), eval's is d2");
    }
}
