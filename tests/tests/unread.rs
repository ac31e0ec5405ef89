//! Clients that ask and don't read: what a replica holds for them is bounded, and others are answered.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use unisono_tests::serve::{Addresses, PIPELINE, Served, event};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 300;
const SECONDS: i64 = 6;
const GROUPS: usize = 1_000;
/// Together the answers take this many MiB at least.
const ALL_MIB: u64 = 1_300;
/// More than the program, the answers' budget (64 MiB), and eight answers that are made at the same time take.
const MOST_MIB: u64 = 500;

/// The most memory that the process has taken so far, in MiB.
fn peak_mib(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.pid().unwrap()));
    let status = status.unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib >> 10
}

#[test]
fn three_hundred_unread_answers_take_no_more_than_their_budget() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    let wide = "x".repeat(900);
    let of = |second| {
        let wide = wide.clone();
        (0..GROUPS).map(move |group| event(second, &format!("{wide}{group}")))
    };
    let lines: String = (0..=SECONDS).flat_map(of).collect();
    std::fs::write(dir.path().join("in/a.ndjson"), lines).unwrap();
    let streams = format!(
        "[[source]]\nname = \"events\"\nfiles = {{ dir = \"in\", pattern = \"*.ndjson\" }}\n{PIPELINE}"
    );
    let addresses = Addresses::of(1);
    let mut served = Served::new(dir.path(), 1, &addresses, &streams);
    served.start();
    let path = "/v1/pipelines/p/windows?limit=10000";
    let rows = SECONDS as usize * GROUPS;
    let answer = served.wait("all rows", |served| {
        let (_, body) = served.get(path).ok()?;
        (body.matches("\"seq\"").count() >= rows).then_some(body.len() as u64)
    });
    assert!(answer.unwrap() * CLIENTS as u64 >= ALL_MIB << 20);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(addresses.http(1)).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
        clients.push(client);
    }
    // Each is told something: the begin of its answer, or that there is no room for one.
    let deadline = Instant::now() + PATIENCE;
    let (mut begun, mut busy) = (0, 0);
    while !clients.is_empty() {
        assert!(Instant::now() < deadline, "{} wait", clients.len());
        let mut waiting = Vec::new();
        let mut told = Vec::new();
        for client in clients {
            let mut begin = [0; 12];
            match client.peek(&mut begin) {
                Ok(12) if begin.ends_with(b"200") => {
                    begun += 1;
                    told.push(client);
                }
                Ok(12) if begin.ends_with(b"503") => busy += 1,
                Ok(0) => panic!("a connection was closed without an answer"),
                Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                _ => waiting.push(client),
            }
        }
        // They stay open, and unread.
        std::mem::forget(told);
        clients = waiting;
        std::thread::sleep(Duration::from_millis(20));
    }
    let peak = peak_mib(&served);
    assert!(
        peak < MOST_MIB,
        "{peak} MiB, {begun} answers begun, {busy} refused"
    );
    assert!(begun > 0 && busy > 0, "{begun} begun, {busy} refused");
    assert_eq!(served.get("/healthz").unwrap().0, 200);
    served.wait_ready(200, "true").unwrap();
}
