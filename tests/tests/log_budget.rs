//! The agreed log has a budget of bytes: nothing is kept below a checkpoint beyond it, and what still holds it is said.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use unisono_tests::serve::{Addresses, PIPELINE, Served, event};

const SECONDS: i64 = 400;
/// Far less than those seconds take, and more than come between two checkpoints.
const FEW: f64 = 150.0;

fn replica(dir: &Path, budget: &str) -> Served {
    let addresses = Addresses::of(1);
    fs::create_dir(dir.join("in")).unwrap();
    let input = dir.join("in");
    let streams = format!(
        "checkpoint_interval = \"1s\"\n{budget}\n[[source]]\nname = \"events\"\nfiles = {{ dir = {input:?} }}\n{PIPELINE}"
    );
    let mut served = Served::new(dir, 1, &addresses, &streams);
    served.start();
    served.wait_ready(200, "true").unwrap();
    served
}

/// Adds an event at a time, so that each one has a tick.
fn run(dir: &Path, served: &mut Served) {
    let mut input = fs::File::create(dir.join("in/a.ndjson")).unwrap();
    for second in 0..SECONDS {
        input.write_all(event(second, "a").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(30));
    }
    served
        .wait_rows(usize::try_from(SECONDS).unwrap() - 1)
        .unwrap();
}

fn metric(served: &Served, name: &str) -> f64 {
    let (_, body) = served.get("/metrics").unwrap();
    let value = body
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

#[test]
fn beyond_its_budget_the_log_keeps_nothing_below_a_checkpoint_and_what_holds_it_still_is_said() {
    let dir = tempfile::tempdir().unwrap();
    // Less than the log's last file, which nothing can remove: so it is told, too.
    let mut served = replica(dir.path(), "max_log = \"1KiB\"");
    run(dir.path(), &mut served);
    let few = |served: &Served| (metric(served, "unisono_log_entries") < FEW).then_some(());
    served.wait("a purge", few).unwrap();
    assert!(metric(&served, "unisono_log_bytes") > metric(&served, "unisono_log_max_bytes"));
    served.wait_ready(200, "cluster.max_log is 1024").unwrap();
    let said = served.said();
    let told = said
        .lines()
        .filter(|line| line.contains("takes more than cluster.max_log"));
    assert_eq!(told.count(), 1, "{said}");
}

#[test]
fn within_its_budget_the_log_is_kept_for_peers_that_were_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = replica(dir.path(), "");
    run(dir.path(), &mut served);
    assert!(metric(&served, "unisono_log_entries") > FEW);
    let (_, ready) = served.get("/readyz").unwrap();
    assert!(!ready.contains("max_log"), "{ready}");
    let bytes = metric(&served, "unisono_log_bytes");
    println!(
        "{} bytes an entry",
        bytes / metric(&served, "unisono_log_entries")
    );
}
