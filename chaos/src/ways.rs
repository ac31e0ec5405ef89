//! The ways between replicas: all that they say to each other takes its time on them, and they can be cut, in both directions
//! or in one: connections stay then, and nothing passes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// How often it is looked whether a process is there again.
const LOOK: Duration = Duration::from_millis(20);
const CHUNK: usize = 64 << 10;
/// Pieces on their way at once: who sends more has to wait, as where a network is full.
const ON_THE_WAY: usize = 1024;

/// How a way from one replica to another one is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// How long what is said there takes.
    pub delay: Duration,
    /// Nothing passes.
    pub cut: bool,
}

/// Every way between replicas. A replica is told its peers' addresses as the ways' beginnings.
#[derive(Debug)]
pub struct Ways {
    ways: BTreeMap<(u16, u16), Between>,
    tasks: Vec<JoinHandle<Option<()>>>,
}

#[derive(Debug)]
struct Between {
    /// Where the one replica reaches the other.
    address: SocketAddr,
    to: watch::Sender<Option<SocketAddr>>,
    state: watch::Sender<Way>,
}

/// Both directions of a connection.
struct Course {
    there: watch::Receiver<Way>,
    back: watch::Receiver<Way>,
}

impl Ways {
    /// Ways between so many replicas, numbered from 1, on which everything takes `delay`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// No ports are left.
    pub async fn build(nodes: u16, delay: Duration) -> Result<Self> {
        let way = Way { delay, cut: false };
        let pairs = (1..=nodes).flat_map(|from| (1..=nodes).map(move |to| (from, to)));
        let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
        let states: BTreeMap<_, _> = pairs
            .iter()
            .map(|&pair| (pair, watch::channel(way)))
            .collect();
        let (mut ways, mut tasks) = (BTreeMap::new(), Vec::new());
        for &(from, to) in &pairs {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await;
            let listener = listener.context("no port for a way")?;
            let course = || Course {
                there: states[&(from, to)].1.clone(),
                back: states[&(to, from)].1.clone(),
            };
            let (target, known) = watch::channel(None);
            let between = Between {
                address: listener.local_addr()?,
                to: target,
                state: states[&(from, to)].0.clone(),
            };
            tasks.push(tokio::spawn(accept(listener, known, course())));
            ways.insert((from, to), between);
        }
        Ok(Self { ways, tasks })
    }

    /// The replicas' addresses as one of them is to know them: its own as it is, the others' as the ways to them.
    ///
    /// # Errors
    /// One of them is no address.
    pub fn seen_from(
        &self,
        from: u16,
        all: &BTreeMap<u16, String>,
    ) -> Result<BTreeMap<u16, String>> {
        let mut seen = all.clone();
        for (&number, address) in all {
            if let Some(way) = self.ways.get(&(from, number)) {
                let to: SocketAddr = address.parse().with_context(|| address.clone())?;
                way.to.send_replace(Some(to));
                seen.insert(number, way.address.to_string());
            }
        }
        Ok(seen)
    }

    /// Changes the way from one replica to another one; the way back stays as it is.
    pub fn set(&self, from: u16, to: u16, way: Way) {
        if let Some(between) = self.ways.get(&(from, to)) {
            between.state.send_replace(way);
        }
    }

    /// Changes all of them.
    pub fn set_all(&self, way: Way) {
        for between in self.ways.values() {
            between.state.send_replace(way);
        }
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn accept(
    mut listener: TcpListener,
    mut to: watch::Receiver<Option<SocketAddr>>,
    course: Course,
) -> Option<()> {
    let own = listener.local_addr().ok()?;
    let refused = Arc::new(Notify::new());
    loop {
        let client = tokio::select! {
            client = listener.accept() => client.ok()?.0,
            () = refused.notified() => {
                // Whoever is asked for a process that is gone says so: the way's beginning refuses as well.
                drop(listener);
                let to = (*to.borrow())?;
                listener = open_again(own, to).await;
                continue;
            }
        };
        // An error means that the ways are gone.
        let to = (*to.wait_for(Option::is_some).await.ok()?)?;
        let (there, back) = (course.there.clone(), course.back.clone());
        let refused = Arc::clone(&refused);
        tokio::spawn(async move {
            if pass(client, to, Course { there, back }).await == Some(Refused) {
                refused.notify_one();
            }
        });
    }
}

/// When there is a process again.
async fn open_again(own: SocketAddr, to: SocketAddr) -> TcpListener {
    loop {
        tokio::time::sleep(LOOK).await;
        if TcpStream::connect(to).await.is_err() {
            continue;
        }
        if let Ok(listener) = TcpListener::bind(own).await {
            return listener;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Refused;

async fn pass(client: TcpStream, to: SocketAddr, mut course: Course) -> Option<Refused> {
    // A connection takes a way there and a way back before anything can be said.
    let there = course.there.borrow().delay;
    let back = course.back.borrow().delay;
    tokio::time::sleep(there + back).await;
    for way in [&mut course.there, &mut course.back] {
        way.wait_for(|way| !way.cut).await.ok()?;
    }
    let Ok(server) = TcpStream::connect(to).await else {
        return Some(Refused);
    };
    for side in [&client, &server] {
        // What is late by it is still right.
        let _ = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = carry(from_client, to_server, course.there) => {}
        () = carry(from_server, to_client, course.back) => {}
    }
    None
}

/// Until either end closes, of which the other end hears as late as of all else.
async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, way: watch::Receiver<Way>) {
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    let take = take_in(from, sender, way.clone());
    let give = give_out(to, receiver, way);
    tokio::join!(take, give);
}

async fn take_in(
    mut from: OwnedReadHalf,
    on_the_way: mpsc::Sender<(Instant, Vec<u8>)>,
    way: watch::Receiver<Way>,
) {
    let mut bytes = vec![0; CHUNK];
    loop {
        let count = tokio::select! {
            count = from.read(&mut bytes) => count.unwrap_or(0),
            () = on_the_way.closed() => return,
        };
        let due = Instant::now() + way.borrow().delay;
        let is_taken = on_the_way.send((due, bytes[..count].to_vec())).await;
        if count == 0 || is_taken.is_err() {
            return;
        }
    }
}

async fn give_out(
    mut to: OwnedWriteHalf,
    mut on_the_way: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut way: watch::Receiver<Way>,
) {
    while let Some((due, bytes)) = on_the_way.recv().await {
        tokio::time::sleep_until(due.into()).await;
        let is_open = way.wait_for(|way| !way.cut).await.is_ok();
        let is_end = bytes.is_empty();
        if !is_open || is_end || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const DELAY: Duration = Duration::from_millis(40);

    /// A connection from replica 1 to replica 2, and both of its ends.
    async fn connected(ways: &Ways) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = |number: u16| match number {
            2 => (2, listener.local_addr().unwrap().to_string()),
            number => (number, "127.0.0.1:1".to_owned()),
        };
        let seen = ways.seen_from(1, &(1..=2).map(address).collect()).unwrap();
        assert_eq!(seen[&1], "127.0.0.1:1");
        let client = TcpStream::connect(&seen[&2]).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (client, server)
    }

    async fn takes(from: &mut TcpStream, to: &mut TcpStream) -> Duration {
        let began = Instant::now();
        from.write_all(b"a").await.unwrap();
        to.read_exact(&mut [0]).await.unwrap();
        began.elapsed()
    }

    #[tokio::test]
    async fn what_is_said_takes_its_time_and_what_follows_does_not_wait_for_it() {
        let ways = Ways::build(2, DELAY).await.unwrap();
        let (mut client, mut server) = connected(&ways).await;
        assert!(takes(&mut client, &mut server).await >= DELAY);
        assert!(takes(&mut server, &mut client).await >= DELAY);
        ways.set_all(Way {
            delay: DELAY * 5,
            ..Way::default()
        });
        let began = Instant::now();
        for _ in 0..10 {
            client.write_all(b"b").await.unwrap();
            tokio::time::sleep(DELAY / 4).await;
        }
        server.read_exact(&mut [0; 10]).await.unwrap();
        assert!(began.elapsed() >= DELAY * 5);
        assert!(began.elapsed() < DELAY * 20, "one after the other");
        drop(client);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_way_is_cut_in_one_direction_and_all_passes_later() {
        let ways = Ways::build(2, Duration::ZERO).await.unwrap();
        let (mut client, mut server) = connected(&ways).await;
        takes(&mut client, &mut server).await;
        let cut = Way {
            cut: true,
            ..Way::default()
        };
        ways.set(1, 2, cut);
        client.write_all(b"c").await.unwrap();
        let mut read = [0];
        assert!(timeout(DELAY, server.read_exact(&mut read)).await.is_err());
        takes(&mut server, &mut client).await;
        ways.set(1, 2, Way::default());
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"c");
    }
}
