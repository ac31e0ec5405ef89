//! A simulated network: connections whose bytes take their time, stand still while a way is cut, and end with a process.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::mpsc;

use super::{Node, WORLD, between, current_node, sleep, spawn_on, with};

/// What a connection holds in one direction.
const BUFFER: usize = 256 << 10;
/// How often a way that is cut is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How the way from one node to another is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Nothing passes; it is not lost.
    pub cut: bool,
    /// How long bytes take, in microseconds.
    pub micros: Range<u64>,
}

type Incoming = mpsc::UnboundedSender<(DuplexStream, SocketAddr)>;

/// All ways and all ports.
pub struct Network {
    nodes: usize,
    ways: Vec<Conditions>,
    ports: BTreeMap<String, (Node, Incoming)>,
}

impl Network {
    pub(super) fn new(nodes: usize) -> Self {
        let way = Conditions {
            cut: false,
            micros: 50..500,
        };
        Self {
            nodes,
            ways: vec![way; (nodes + 1) * (nodes + 1)],
            ports: BTreeMap::new(),
        }
    }

    /// The way from one node to another.
    pub fn way(&mut self, from: Node, to: Node) -> &mut Conditions {
        &mut self.ways[from * (self.nodes + 1) + to]
    }
}

/// A port of a node.
#[derive(Debug)]
pub struct Listener(mpsc::UnboundedReceiver<(DuplexStream, SocketAddr)>);

/// Listens on a port of the node that asks.
#[must_use]
pub fn listen(address: &str) -> Listener {
    let (sender, receiver) = mpsc::unbounded_channel();
    let node = current_node();
    super::network(|network| {
        network.ports.insert(address.to_owned(), (node, sender));
    });
    Listener(receiver)
}

impl Listener {
    pub(in crate::rt) async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.0.recv().await {
            Some(connection) => connection,
            // Another one listens there now: this node's process has ended.
            None => std::future::pending().await,
        }
    }
}

pub(in crate::rt) async fn connect(address: &str) -> io::Result<DuplexStream> {
    let from = current_node();
    let to = with(|run| run.network.borrow().ports.get(address).map(|port| port.0));
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let to = to.ok_or_else(refused)?;
    pass(from, to).await;
    pass(to, from).await;
    let port = with(|run| run.network.borrow().ports.get(address).cloned());
    let (_, incoming) = port.ok_or_else(refused)?;
    let ((near, near_end), (far_end, far)) = (duplex(BUFFER), duplex(BUFFER));
    let of = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(from).unwrap_or(0)));
    incoming.send((far, of)).map_err(|_| refused())?;
    let (near_read, near_write) = split(near_end);
    let (far_read, far_write) = split(far_end);
    spawn_on(WORLD, pump(near_read, far_write, (from, to)));
    spawn_on(WORLD, pump(far_read, near_write, (to, from)));
    Ok(near)
}

/// Carries bytes one way, until that end is closed, which it carries too.
async fn pump(
    mut read: tokio::io::ReadHalf<DuplexStream>,
    mut write: tokio::io::WriteHalf<DuplexStream>,
    (from, to): (Node, Node),
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = read.read(&mut bytes).await.unwrap_or(0);
        pass(from, to).await;
        if count == 0 {
            let _ = write.shutdown().await;
            return;
        }
        if write.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Returns when something that is sent now has arrived.
async fn pass(from: Node, to: Node) {
    loop {
        let way = with(|run| run.network.borrow_mut().way(from, to).clone());
        let micros = between(way.micros);
        sleep(Duration::from_micros(micros)).await;
        if !with(|run| run.network.borrow_mut().way(from, to).cut) {
            return;
        }
        sleep(LOOK).await;
    }
}
