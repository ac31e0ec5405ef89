//! Members go by command.

use super::*;

#[test]
fn a_node_that_no_file_names_any_more_is_removed_by_command_and_one_that_files_name_is_not() {
    let files = pipeline("p", 1, "");
    let mut replicas = Replicas::start(NODES, &files);
    replicas.events(0..5);
    replicas.published("p", 4);
    let refused = fails(replicas.node(1), &["members", "remove", "2"]);
    assert!(
        refused.contains("node 2 is among the peers in the files of node"),
        "{refused}"
    );
    let unknown = fails(replicas.node(1), &["members", "remove", "9"]);
    assert!(unknown.contains("node 9 is no member"), "{unknown}");

    // Node 3 is replaced by node 4, in one file after the other.
    drop(replicas.running.pop());
    let all = Addresses::of(4);
    replicas.addresses = replicas.addresses.with(4, &all).without(3);
    for node in [1, 2] {
        replicas.restart(node, &files);
    }
    let folder = replicas.folder(4);
    std::fs::create_dir(&folder).unwrap();
    symlink(replicas.dir.path().join("in"), folder.join("in")).unwrap();
    let served = replicas.served(4, &files);
    replicas.running.push(served);
    replicas.all("the former one votes still", |cluster| {
        cluster["members"]["voters"] == serde_json::json!([1, 2, 3, 4])
    });
    let status = succeeds(replicas.node(1), &["status"]);
    assert!(status.contains("unisono members remove 3"), "{status}");
    succeeds(replicas.node(2), &["members", "remove", "3"]);
    replicas.all("three voters", |cluster| {
        cluster["members"]["voters"] == serde_json::json!([1, 2, 4])
            && cluster["members"]["joint"] == false
    });
    replicas.events(5..10);
    replicas.published("p", 9);
}
