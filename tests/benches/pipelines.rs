//! What ten pipelines on one topic cost against one: all in the config from the start, and nine of them added later.
//!
//! `cargo bench -p unisono-tests --bench pipelines`; `UNISONO_BENCH_EVENTS` (default 3,000,000), `UNISONO_BENCH_ROUNDS`
//! (default 3) and `UNISONO`, the program. CPU time is that of the replica's process. For pipelines that are added later, only
//! the second half of the events counts, which comes after they have read the first half.

use std::time::{Duration, Instant};

use anyhow::Result;
use unisono_tests::bench::{
    Cluster, Events, Table, figure, fill_topic, get, median, program, setting,
};
use unisono_tests::kafka::TestBroker;

const PARTITIONS: i32 = 4;
/// How long pipelines that were added later may take to share the reading of the topic with those that were there.
const JOIN_WITHIN: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let events = setting("UNISONO_BENCH_EVENTS", 3_000_000)?;
    let rounds = setting("UNISONO_BENCH_ROUNDS", 3)?;
    println!("program: {}", program().display());
    let broker = TestBroker::start()?;
    let address = broker.address();
    broker.create_topic("events", PARTITIONS)?;
    fill(&address, "events", &mut Events::default(), events)?;
    println!("{events} events, {rounds} rounds, CPU seconds per million events");
    let mut table = Table::new(&["pipelines", "1", "10", "ratio", "feeds"]);
    let (mut one, mut ten) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        one.push(from_the_start(&address, events, 1)?);
        ten.push(from_the_start(&address, events, 10)?);
    }
    line(&mut table, "from the start", &one, &ten, "");
    let (mut one, mut ten, mut feeds) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        for (count, figures) in [(1, &mut one), (10, &mut ten)] {
            let topic = format!("later-{round}-{count}");
            broker.create_topic(&topic, PARTITIONS)?;
            let (used, found) = added_later(&address, &topic, events / 2, count)?;
            figures.push(used);
            feeds = found;
        }
    }
    line(&mut table, "added later", &one, &ten, &feeds.to_string());
    table.print();
    Ok(())
}

fn line(table: &mut Table, name: &str, one: &[f64], ten: &[f64], feeds: &str) {
    table.line(&[
        name.to_owned(),
        figure(one, 2),
        figure(ten, 2),
        format!("{:.2}", median(ten) / median(one)),
        feeds.to_owned(),
    ]);
}

fn fill(brokers: &str, topic: &str, events: &mut Events, count: u64) -> Result<()> {
    fill_topic(brokers, topic, PARTITIONS as u64, events, count)
}

/// The first is the one of the other benchmarks. The others differ in what they select, by what they group, or both.
fn streams(brokers: &str, topic: &str, pipelines: usize) -> String {
    let mut text = format!(
        "[[source]]\nname = \"events\"\nkafka = {{ brokers = \"{brokers}\", topic = \"{topic}\" }}\n"
    );
    let selected = ["view", "click", "purchase"]
        .map(|kind| format!("where = \"event_type = '{kind}'\"\n"))
        .into_iter();
    let all = selected.chain([String::new()]);
    let groups = [r#"["ad_id"]"#, r#"["ad_type"]"#, "[]"];
    let shapes = all.flat_map(|chosen| groups.map(|group| (chosen.clone(), group)));
    for (at, (chosen, group)) in shapes.take(pipelines).enumerate() {
        let group = match group {
            "[]" => String::new(),
            fields => format!("group_by = {fields}\n"),
        };
        text += &format!(
            "[[pipeline]]\nname = \"p{at}\"\nsources = [\"events\"]\n{chosen}{group}\
             time = {{ field = \"event_time\", format = \"ms\" }}\nwindow = {{ size = \"10s\" }}\n\
             close = {{ lag = \"500ms\" }}\nvalues = {{ n = \"count()\" }}\n"
        );
    }
    text
}

fn from_the_start(brokers: &str, events: u64, pipelines: usize) -> Result<f64> {
    let mut cluster = Cluster::start(1, "", &streams(brokers, "events", pipelines))?;
    cluster.wait_records(pipelines, events)?;
    Ok(cluster.cpu()? * 1e6 / events as f64)
}

/// CPU for the second half of the events, and how many feeds there were then.
fn added_later(brokers: &str, topic: &str, half: u64, pipelines: usize) -> Result<(f64, usize)> {
    let mut events = Events::default();
    fill(brokers, topic, &mut events, half)?;
    let mut cluster = Cluster::start(1, "", &streams(brokers, topic, 1))?;
    cluster.wait_records(1, half)?;
    cluster.restart("", &streams(brokers, topic, pipelines))?;
    cluster.wait_records(pipelines, half)?;
    let caught_up = Instant::now();
    while feeds(&cluster)? > 1 && caught_up.elapsed() < JOIN_WITHIN {
        std::thread::sleep(Duration::from_millis(100));
    }
    let found = feeds(&cluster)?;
    let before = cluster.cpu()?;
    fill(brokers, topic, &mut events, half)?;
    cluster.wait_records(pipelines, 2 * half)?;
    Ok(((cluster.cpu()? - before) * 1e6 / half as f64, found))
}

fn feeds(cluster: &Cluster) -> Result<usize> {
    let answer = get(cluster.http(1), "/v1/cluster")?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    Ok(answer["feeds"].as_array().map_or(0, Vec::len))
}
