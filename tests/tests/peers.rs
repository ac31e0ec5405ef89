//! The port on which replicas hear each other: who may speak there, and what is said of those who may not.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use serde_json::Value;
use unisono_tests::serve::{Addresses, PIPELINE, Served};

/// Replica `node` in `dir`, whose secret's file holds this.
fn replica(dir: &Path, node: u16, addresses: &Addresses, secret: &str) -> Served {
    let own = dir.join(node.to_string());
    fs::create_dir_all(own.join("in")).unwrap();
    fs::write(own.join("secret"), secret).unwrap();
    let streams = format!(
        "secret_file = \"secret\"\n[[source]]\nname = \"events\"\nfiles = {{ dir = \"in\" }}\n{PIPELINE}"
    );
    Served::new(&own, node, addresses, &streams)
}

fn cluster(served: &Served) -> Option<Value> {
    let (_, body) = served.get("/v1/cluster").ok()?;
    serde_json::from_str(&body).ok()
}

#[test]
fn a_node_with_another_secret_is_no_member_and_both_sides_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = Addresses::of(3);
    let ours = "what only the members know\n";
    let mut members: Vec<Served> = [1, 2, 3]
        .map(|node| replica(dir.path(), node, &addresses, ours))
        .into();
    members.iter_mut().for_each(Served::start);
    for member in &mut members {
        member.wait_ready(200, "true").unwrap();
    }
    let mut stranger = members.remove(2);
    assert_eq!(stranger.terminate().unwrap(), 0);
    fs::write(dir.path().join("3/secret"), "what nobody else knows").unwrap();
    stranger.start();
    let refused = |served: &Served| {
        let port = cluster(served)?["peers_port"].clone();
        let last = port["last_refused"]["reason"] == "secret";
        let counted = port["refused"]["secret"].as_u64()? > 0;
        (last && counted && port["asks_for_secret"] == true).then_some(())
    };
    members[0].wait("a refusal", refused).unwrap();
    let refuses = |served: &Served| {
        let nodes = cluster(served)?["nodes"].as_array()?.clone();
        let reason = nodes[0]["refuses"].as_str()?.to_owned();
        reason.contains("another secret").then_some(())
    };
    stranger.wait("why it is refused", refuses).unwrap();
    stranger.wait_ready(503, "").unwrap();
    let (_, metrics) = members[0].get("/metrics").unwrap();
    let counted = "unisono_peers_refused_total{reason=\"secret\"} ";
    assert!(metrics.contains(counted), "{metrics}");
    // Many refusals are one line, and the secret is in none.
    let said = members[0].said();
    assert!(said.contains("refused at the peers' port"), "{said}");
    assert!(!said.contains("only the members know"), "{said}");
    // With the right one it is a member again.
    assert_eq!(stranger.terminate().unwrap(), 0);
    fs::write(dir.path().join("3/secret"), ours).unwrap();
    stranger.start();
    stranger.wait_ready(200, "true").unwrap();
}

#[test]
fn a_secret_that_is_none_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = Addresses::of(1);
    let mut served = replica(dir.path(), 1, &addresses, "short\n");
    served.start();
    assert_eq!(served.ended().unwrap(), 64);
    let said = served.said();
    assert!(said.contains("a secret of 5 bytes is too short"), "{said}");
    assert!(said.contains("openssl rand -hex 32"), "{said}");
}
