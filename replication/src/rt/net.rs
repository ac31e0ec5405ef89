//! Connections between replicas.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
#[cfg(feature = "simulation")]
use tokio_util::either::Either;

#[cfg(feature = "simulation")]
use super::simulated;

/// A connection: the system's, or a simulation's.
#[cfg(feature = "simulation")]
pub type Stream = Either<TcpStream, tokio::io::DuplexStream>;
/// A connection.
#[cfg(not(feature = "simulation"))]
pub type Stream = TcpStream;

#[cfg(feature = "simulation")]
fn system(stream: TcpStream) -> Stream {
    Either::Left(stream)
}

#[cfg(not(feature = "simulation"))]
fn system(stream: TcpStream) -> Stream {
    stream
}

/// Connects to `host:port`. What is written goes out at once.
///
/// # Errors
/// Nobody listens there, or the system's.
pub async fn connect(address: &str) -> io::Result<Stream> {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return simulated::connect(address).await.map(Either::Right);
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(system(stream))
}

/// Where connections come in.
#[derive(Debug)]
pub enum Listener {
    /// The system's.
    Tcp(TcpListener),
    /// A simulation's.
    #[cfg(feature = "simulation")]
    Simulated(simulated::Listener),
}

impl Listener {
    /// The next connection, and where it comes from. What is written to it goes out at once.
    ///
    /// # Errors
    /// The system has none to give at the moment.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // Without it, an answer is only later.
                let _ = stream.set_nodelay(true);
                Ok((system(stream), from))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => {
                let (stream, from) = listener.accept().await;
                Ok((Either::Right(stream), from))
            }
        }
    }
}
