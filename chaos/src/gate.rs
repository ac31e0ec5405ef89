//! A way to a broker that can be shut: connections stay, and nothing passes, as where a network is cut.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const CHUNK: usize = 64 << 10;

/// Where a gate stands: a broker tells clients that come by one of its listeners to come by the gate's port.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The gate listens here.
    pub port: u16,
    /// The broker's listener behind it.
    pub behind: u16,
}

/// An open gate; what passes by it ends when it is dropped.
#[derive(Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Gate {
    /// An open one. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Its port is taken.
    pub async fn build(place: Place) -> Result<Self> {
        let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let listener = TcpListener::bind(local(place.port)).await;
        let listener = listener.with_context(|| format!("no gate at port {}", place.port))?;
        let (open, state) = watch::channel(true);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, local(place.behind), state.clone()));
            }
        });
        Ok(Self { open, task })
    }

    /// Nothing passes until it is opened.
    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    /// What waited passes now.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: TcpStream, to: SocketAddr, mut open: watch::Receiver<bool>) {
    // An error means that the gate, and with it the drill, is gone.
    if open.wait_for(|open| *open).await.is_err() {
        return;
    }
    let Ok(broker) = TcpStream::connect(to).await else {
        return;
    };
    for side in [&client, &broker] {
        // What is late by it is still right.
        let _ = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_broker, to_broker) = broker.into_split();
    tokio::select! {
        () = pump(from_client, to_broker, open.clone()) => {}
        () = pump(from_broker, to_client, open) => {}
    }
}

/// Until either end closes.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut open: watch::Receiver<bool>) {
    let mut bytes = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let is_open = open.wait_for(|open| *open).await.is_ok();
        if !is_open || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn nothing_passes_while_it_is_shut_and_all_of_it_later() {
        let behind = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Place {
            port: free.local_addr().unwrap().port(),
            behind: behind.local_addr().unwrap().port(),
        };
        drop(free);
        let gate = Gate::build(place).await.unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", place.port)).await.unwrap();
        let (mut broker, _) = behind.accept().await.unwrap();
        let mut read = [0; 1];
        client.write_all(b"a").await.unwrap();
        broker.read_exact(&mut read).await.unwrap();
        gate.shut();
        client.write_all(b"b").await.unwrap();
        let passed = tokio::time::timeout(Duration::from_millis(50), broker.read_exact(&mut read));
        assert!(passed.await.is_err());
        gate.open();
        broker.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"b");
    }
}
