//! A replica that may open few files, and many who connect to it: they wait or are turned away, and take nothing from the log,
//! the ticks and the checkpoints.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use unisono_tests::serve::{Addresses, PIPELINE, Served, event};

const FILES: u32 = 128;
const CLIENTS: usize = 300;
/// Of which so many only connect, half of them where peers do.
const SILENT: usize = 200;
const SECONDS: i64 = 30;

fn replica(dir: &Path, node: u16, addresses: &Addresses) -> Served {
    let own = dir.join(node.to_string());
    fs::create_dir_all(&own).unwrap();
    let input = dir.join("in");
    let streams = format!(
        "checkpoint_interval = \"1s\"\n[[source]]\nname = \"events\"\nfiles = {{ dir = {input:?} }}\n{PIPELINE}"
    );
    Served::new(&own, node, addresses, &streams)
}

/// The newest checkpoint of a replica, by its file's name.
fn newest_checkpoint(dir: &Path, node: u16) -> Option<String> {
    let names = fs::read_dir(dir.join(format!("{node}/data/checkpoints"))).ok()?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".checkpoint")).max()
}

fn leader(served: &Served) -> Option<u16> {
    let (_, body) = served.get("/v1/cluster").ok()?;
    let view: serde_json::Value = serde_json::from_str(&body).ok()?;
    u16::try_from(view["leader"].as_u64()?).ok()
}

#[test]
fn clients_without_number_take_no_handle_that_the_node_needs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("in")).unwrap();
    let mut input = fs::File::create(dir.join("in/a.ndjson")).unwrap();
    let addresses = Addresses::of(3);
    let mut replicas: Vec<Served> = (1..=3).map(|node| replica(dir, node, &addresses)).collect();
    for served in &mut replicas {
        served.limit_files(FILES);
        served.start();
    }
    for served in &mut replicas {
        served.wait_ready(200, "true").unwrap();
    }
    let led = leader(&replicas[0]).unwrap();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let address = match client {
            ..SILENT if client % 2 == 0 => addresses.raft(led),
            _ => addresses.http(led),
        };
        let Ok(mut stream) =
            TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(1))
        else {
            // So many wait already.
            continue;
        };
        if client >= SILENT {
            write!(
                stream,
                "GET /v1/pipelines/p/windows HTTP/1.1\r\nhost: test\r\n\r\n"
            )
            .unwrap();
        }
        clients.push(stream);
    }
    assert!(clients.len() > FILES as usize, "{}", clients.len());
    let before = newest_checkpoint(dir, led);
    let index = usize::from(led) - 1;
    let follower = usize::from(led) % 3;
    for second in 0..SECONDS {
        input.write_all(event(second, "a").as_bytes()).unwrap();
        let rows = usize::try_from(second).unwrap();
        replicas[follower].wait_rows(rows).unwrap();
    }
    let checkpoint = |_: &Served| (newest_checkpoint(dir, led) > before).then_some(());
    replicas[follower]
        .wait("a checkpoint of the leader", checkpoint)
        .unwrap();
    let said = replicas[index].said();
    for trouble in [
        "os error 24",
        "Too many open files",
        "cannot write",
        "no checkpoint",
    ] {
        assert!(!said.contains(trouble), "{said}");
    }
    let open = fs::read_dir(format!("/proc/{}/fd", replicas[index].pid().unwrap())).unwrap();
    let open = open.count();
    assert!(open < FILES as usize, "{open} files are open");
    drop(clients);
    replicas[index].wait_ready(200, "true").unwrap();
    replicas[index]
        .wait_rows(usize::try_from(SECONDS).unwrap() - 1)
        .unwrap();
}
