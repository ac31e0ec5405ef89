//! Who leads goes by command, too.

use super::*;

#[test]
fn the_lead_goes_where_an_operator_wants_it_and_a_drained_node_has_it_only_while_no_other_can() {
    let mut replicas = Replicas::start(NODES, &pipeline("p", 1, ""));
    replicas.events(0..5);
    replicas.published("p", 4);
    let before = replicas.leader();
    let (to, third) = (before % NODES + 1, (before + 1) % NODES + 1);

    // Of any node, the leader or not.
    let said = succeeds(replicas.node(third), &["transfer", "--to", &to.to_string()]);
    assert!(said.contains(&format!("node {to} leads")), "{said}");
    replicas.all("the one that was named", |cluster| cluster["leader"] == to);
    let said = succeeds(replicas.node(to), &["transfer", "--to", &to.to_string()]);
    assert!(said.contains("as it did before"), "{said}");
    let refused = fails(replicas.node(to), &["transfer", "--to", "9"]);
    assert!(refused.contains("node 9 does not vote"), "{refused}");

    let said = succeeds(replicas.node(to), &["drain"]);
    assert!(said.contains("gave the lead away"), "{said}");
    replicas.all("another one", |cluster| {
        cluster["leader"].is_number() && cluster["leader"] != to
    });
    let drained = cluster(replicas.node(to)).unwrap();
    assert_eq!(drained["drained"], true);
    // Given the lead, it gives it away again.
    succeeds(replicas.node(third), &["transfer", "--to", &to.to_string()]);
    replicas.all("another one again", |cluster| {
        cluster["leader"].is_number() && cluster["leader"] != to
    });
    let said = succeeds(replicas.node(to), &["drain", "--end"]);
    assert!(said.contains("like any other"), "{said}");
    assert_eq!(cluster(replicas.node(to)).unwrap()["drained"], false);
    replicas.events(5..10);
    replicas.published("p", 9);
}
