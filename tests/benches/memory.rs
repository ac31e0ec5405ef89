//! The most memory that a replica holds over input that is nothing but records: a file of 20 MB of newlines, and a topic of a
//! million tombstones. Beside them a replica whose sources are empty.
//!
//! `cargo bench -p unisono-tests --bench memory`; `UNISONO_BENCH_NEWLINES` (default 20,000,000),
//! `UNISONO_BENCH_TOMBSTONES` (default 1,000,000), `UNISONO`, the program. The budget for what is read ahead is 64 MiB.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::producer::{BaseRecord, Producer};
use unisono_tests::bench::{Cluster, Table, memory, producer, program, setting};
use unisono_tests::kafka::TestBroker;

const PARTITIONS: i32 = 4;

fn main() -> Result<()> {
    let newlines = setting("UNISONO_BENCH_NEWLINES", 20_000_000)?;
    let tombstones = setting("UNISONO_BENCH_TOMBSTONES", 1_000_000)?;
    println!("program: {}", program().display());
    let broker = TestBroker::start()?;
    let address = broker.address();
    for topic in ["empty", "tombstones"] {
        broker.create_topic(topic, PARTITIONS)?;
    }
    produce_tombstones(&address, tombstones)?;
    let dir = tempfile::tempdir()?;
    let headings = ["input", "peak MiB", "CPU-s", "MiB after"];
    let mut table = Table::new(&headings);
    for (name, lines) in [("an empty file", 0), ("newlines", newlines)] {
        let files = dir.path().join(lines.to_string());
        write_newlines(&files, lines)?;
        let source = format!("files = {{ dir = {files:?}, pattern = \"*\" }}");
        measure(&mut table, name, &source, lines)?;
    }
    for (topic, records) in [("empty", 0), ("tombstones", tombstones)] {
        let source = format!("kafka = {{ brokers = \"{address}\", topic = \"{topic}\" }}");
        measure(&mut table, &format!("topic: {topic}"), &source, records)?;
    }
    table.print();
    Ok(())
}

fn write_newlines(dir: &Path, count: u64) -> Result<()> {
    std::fs::create_dir(dir)?;
    std::fs::write(dir.join("lines"), vec![b'\n'; usize::try_from(count)?])?;
    Ok(())
}

fn produce_tombstones(brokers: &str, count: u64) -> Result<()> {
    let producer = producer(brokers)?;
    for index in 0..count {
        let key = index.to_be_bytes();
        let partition = i32::try_from(index % PARTITIONS as u64)?;
        let mut record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to("tombstones").partition(partition).key(&key);
        while let Err((_, refused)) = producer.send(record) {
            record = refused;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    producer
        .flush(Duration::from_secs(120))
        .context("the broker did not take the tombstones")
}

/// Runs a replica until its lanes have come to `end` together, and for a while after.
fn measure(table: &mut Table, name: &str, source: &str, end: u64) -> Result<()> {
    let streams = format!(
        "[[source]]\nname = \"events\"\n{source}\n[[pipeline]]\nname = \"p\"\nsources = [\"events\"]\n\
         time = {{ field = \"t\", format = \"ms\" }}\nwindow = {{ size = \"10s\" }}\nvalues = {{ n = \"count()\" }}\n"
    );
    let mut cluster = Cluster::start(1, "", &streams)?;
    cluster.wait("/v1/cluster", |answer| {
        let lanes = answer["lanes"].as_array();
        lanes.is_some_and(|lanes| {
            let positions = lanes.iter().filter_map(|lane| lane["position"].as_u64());
            !lanes.is_empty() && positions.sum::<u64>() >= end
        })
    })?;
    table.line(&[
        name.to_owned(),
        format!("{:.0}", cluster.peak()?),
        format!("{:.2}", cluster.cpu()?),
        format!("{:.0}", memory(&cluster.process(1))?),
    ]);
    Ok(())
}
