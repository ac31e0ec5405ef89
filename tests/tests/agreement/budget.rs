//! Rows that wait to be published have a budget: beyond it their feed takes in nothing more, and loses nothing.

use unisono_tests::kafka::TestBroker;

use super::*;

/// Rows of each second.
const GROUPS: u64 = 1_000;

/// An event of each group, for each of these seconds.
fn many(replicas: &Replicas, seconds: std::ops::Range<i64>) {
    let of = |second: i64| (0..GROUPS).map(move |group| event(second, &format!("group-{group}")));
    let lines: String = seconds.flat_map(of).collect();
    let mut options = OpenOptions::new();
    let path = replicas.dir.path().join("in/0.ndjson");
    let mut file = options.create(true).append(true).open(path).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

fn held(cluster: &Value) -> bool {
    let feed = cluster["feeds"][0].to_string();
    feed.contains("held") && feed.contains("results.max_unpublished")
}

#[test]
fn a_feed_whose_rows_are_not_published_is_held_when_their_budget_is_used_up_and_goes_on_after() {
    let files = format!(
        "{}[results]\nmax_unpublished = \"1MiB\"\n",
        pipeline("p", 1, "")
    );
    let mut replicas = Replicas::start(NODES, &files);
    many(&replicas, 0..2);
    replicas.published("p", GROUPS);
    succeeds(replicas.node(1), &["pipelines", "pause", "p"]);
    let mut seconds = 2;
    while !held(&cluster(replicas.node(1)).unwrap()) {
        assert!(seconds < 30, "it takes in whatever comes");
        many(&replicas, seconds..seconds + 1);
        seconds += 1;
        for served in &mut replicas.running {
            let taken = |served: &Served| {
                let rows = info(served, "p").ok()?["next_seq"].as_u64()?;
                let all = rows == (seconds as u64 - 1) * GROUPS;
                (all || held(&cluster(served).ok()?)).then_some(())
            };
            served.wait("its rows", taken).unwrap();
        }
    }
    replicas.all("it is held", held);
    let next: Vec<_> = replicas.running.iter().map(next_seq).collect();
    many(&replicas, seconds..seconds + 5);
    replicas.all("the rest waits", |cluster| {
        cluster["lanes"][0]["lag"].as_u64() > Some(5 * GROUPS * 30)
    });
    assert_eq!(
        replicas.running.iter().map(next_seq).collect::<Vec<_>>(),
        next
    );
    let status = succeeds(replicas.node(2), &["status"]);
    assert!(status.contains("held: rows of pipeline p"), "{status}");
    for served in &mut replicas.running {
        served.wait_ready(200, "true").unwrap();
        let (status, said) = served.get("/readyz?pipeline=p").unwrap();
        assert!(status == 503 && said.contains("max_unpublished"), "{said}");
        let (_, metrics) = served.get("/metrics").unwrap();
        let line = "unisono_pipeline_held{pipeline=\"p\"} 1";
        assert!(metrics.contains(line), "{metrics}");
    }
    // Whoever leads holds it.
    let leader = replicas.leader();
    replicas.restart(leader, &files);
    replicas.all("it is held", held);
    assert_eq!(next_seq(replicas.node(leader)), next[0]);
    succeeds(replicas.node(1), &["pipelines", "resume", "p"]);
    replicas.published("p", (seconds as u64 + 4) * GROUPS);
    let outcome = info(replicas.node(1), "p").unwrap();
    assert_eq!(
        outcome["dead_letters"].as_u64().unwrap_or(0),
        0,
        "{outcome}"
    );
}

fn next_seq(served: &Served) -> u64 {
    info(served, "p").unwrap()["next_seq"].as_u64().unwrap()
}

#[test]
fn a_sink_that_is_down_for_long_fills_no_disk_and_gets_every_row_once_it_is_back() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    let sink = sinks::sink(&broker, "out", "down", "");
    let of_sink = pipeline("p", 1, "sink = \"out\"");
    let files = format!("{sink}{of_sink}[results]\nmax_unpublished = \"1MiB\"\n");
    let mut replicas = Replicas::start(NODES, &files);
    many(&replicas, 0..2);
    replicas.published("p", GROUPS);
    broker.freeze().unwrap();
    let mut seconds = 2;
    while !held(&cluster(replicas.node(1)).unwrap()) {
        assert!(seconds < 60, "it takes in whatever comes");
        many(&replicas, seconds..seconds + 1);
        seconds += 1;
        let taken = |served: &Served| {
            let rows = info(served, "p").ok()?["next_seq"].as_u64()?;
            let all = rows == (seconds as u64 - 1) * GROUPS;
            (all || held(&cluster(served).ok()?)).then_some(())
        };
        replicas.node(1).wait("its rows", taken).unwrap();
    }
    many(&replicas, seconds..seconds + 5);
    replicas.all("the rest waits", |cluster| {
        held(cluster) && cluster["lanes"][0]["lag"].as_u64() > Some(5 * GROUPS * 30)
    });
    broker.thaw().unwrap();
    let rows = (seconds as u64 + 4) * GROUPS;
    replicas.published("p", rows);
    sinks::wait_records(&mut replicas, &broker, "down-rows", rows as usize);
}
