//! What an operator's commands do, given to whichever node.

use super::*;

#[test]
fn a_paused_pipeline_computes_and_publishes_nothing_until_it_is_resumed() {
    let mut replicas = Replicas::start(NODES, &pipeline("p", 1, ""));
    replicas.events(0..5);
    replicas.published("p", 4);
    let follower = replicas.leader() % NODES + 1;
    let said = succeeds(replicas.node(follower), &["pipelines", "pause", "p"]);
    assert!(said.contains("pipeline p: paused"), "{said}");
    // The node that was asked has applied it.
    assert_eq!(info(replicas.node(follower), "p").unwrap()["paused"], true);
    replicas.events(5..10);
    for served in &mut replicas.running {
        let computed = |served: &Served| (info(served, "p").ok()?["next_seq"] == 9).then_some(());
        served.wait("9 rows computed", computed).unwrap();
    }
    // Whoever leads from now on holds them back too.
    let leader = replicas.leader();
    replicas.restart(leader, &pipeline("p", 1, ""));
    let leader = replicas.leader();
    assert_eq!(info(replicas.node(leader), "p").unwrap()["published"], 4);
    succeeds(replicas.node(1), &["pipelines", "resume", "p"]);
    replicas.published("p", 9);
}

#[test]
fn a_changed_pipeline_is_replaced_by_command_and_its_rows_are_those_of_the_new_definition() {
    let mut replicas = Replicas::start(NODES, &pipeline("p", 1, ""));
    replicas.events(0..10);
    replicas.published("p", 9);
    let before = info(replicas.node(1), "p").unwrap();
    let file = replicas.dir.path().join("p.toml");
    let changed = pipeline("p", 2, "");
    let text = changed.replace("[[pipeline]]\n", "");
    std::fs::write(&file, &text).unwrap();
    let said = succeeds(replicas.node(2), &["apply", path(&file)]);
    assert!(said.contains("ended, and its rows with it"), "{said}");
    assert!(said.contains("runs as incarnation"), "{said}");
    replicas.published("p", 4);
    let after = info(replicas.node(2), "p").unwrap();
    assert_ne!(before["incarnation"], after["incarnation"]);
    replicas.all("all files drift now", |cluster| {
        (1..=NODES).all(|node| drifts(cluster, node, "p", "differs"))
    });
    let again = succeeds(replicas.node(3), &["apply", path(&file)]);
    assert!(again.contains("agreed so already"), "{again}");
    // The files follow, and a restart from the log and from checkpoints gives the same.
    for node in 1..=NODES {
        replicas.restart(node, &changed);
    }
    replicas.events(10..20);
    replicas.published("p", 9);
    replicas.all("no drift", |cluster| {
        cluster["drifts"] == Value::Array(vec![])
    });

    std::fs::write(&file, text.replace("events", "nowhere")).unwrap();
    let refused = fails(replicas.node(1), &["apply", path(&file)]);
    assert!(
        refused.contains("its source nowhere: no majority"),
        "{refused}"
    );
    std::fs::write(&file, format!("sink = \"nowhere\"\n{text}")).unwrap();
    let refused = fails(replicas.node(1), &["apply", path(&file)]);
    assert!(
        refused.contains("its sink nowhere is not agreed"),
        "{refused}"
    );
    assert_eq!(info(replicas.node(1), "p").unwrap()["published"], 9);
}

#[test]
fn a_removed_pipeline_stays_away_though_files_name_it_and_the_others_go_on() {
    let only_p = pipeline("p", 1, "");
    let both = format!("{only_p}{}", pipeline("q", 2, ""));
    let mut replicas = Replicas::start(NODES, &both);
    replicas.events(0..10);
    replicas.published("p", 9);
    replicas.published("q", 4);
    let incarnation = info(replicas.node(1), "q").unwrap()["incarnation"].to_string();
    succeeds(replicas.node(1), &["pipelines", "remove", "q"]);
    assert!(info(replicas.node(1), "q").is_err());
    replicas.all("all files drift", |cluster| {
        (1..=NODES).all(|node| drifts(cluster, node, "q", "removed"))
    });
    let again = fails(replicas.node(2), &["pipelines", "remove", "q"]);
    assert!(again.contains("there is no pipeline \"q\""), "{again}");
    // Its state left the engines, what stays goes on, and its rows leave the disks.
    replicas.events(10..20);
    replicas.published("p", 19);
    for node in 1..=NODES {
        let rows = replicas
            .folder(node)
            .join("data/results")
            .join(&incarnation);
        let gone = |_: &Served| (!rows.exists()).then_some(());
        replicas.node(node).wait("the rows are gone", gone).unwrap();
    }
    for node in 1..=NODES {
        replicas.restart(node, &both);
        replicas.node(node).wait_ready(200, "true").unwrap();
    }
    replicas.events(20..30);
    replicas.published("p", 29);
    assert!(info(replicas.node(1), "q").is_err());

    // When no file names it any more, one that does again is new.
    for node in 1..=NODES {
        replicas.restart(node, &only_p);
    }
    replicas.all("it is forgotten", |cluster| {
        cluster["removed"] == Value::Array(vec![])
    });
    for node in 1..=2 {
        replicas.restart(node, &both);
    }
    replicas.published("q", 14);
    assert_ne!(
        info(replicas.node(3), "q").unwrap()["incarnation"].to_string(),
        incarnation
    );
}

#[test]
fn a_feed_ends_with_its_last_pipeline_and_the_cluster_goes_on() {
    let mut replicas = Replicas::start(NODES, &pipeline("p", 1, ""));
    replicas.events(0..5);
    replicas.published("p", 4);
    succeeds(replicas.node(2), &["pipelines", "remove", "p"]);
    replicas.all("no feed", |cluster| {
        cluster["feeds"] == Value::Array(vec![])
    });
    for node in 1..=NODES {
        replicas.node(node).wait_ready(200, "true").unwrap();
    }
    let file = replicas.dir.path().join("p.toml");
    std::fs::write(&file, pipeline("p", 1, "").replace("[[pipeline]]\n", "")).unwrap();
    succeeds(replicas.node(3), &["apply", path(&file)]);
    replicas.published("p", 4);
}
