//! Connections between replicas.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "simulation")]
use super::simulated;

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// The system's.
    Tcp(TcpStream),
    /// A simulation's.
    #[cfg(feature = "simulation")]
    Simulated(tokio::io::DuplexStream),
}

/// Connects to `host:port`. What is written goes out at once.
///
/// # Errors
/// Nobody listens there, or the system's.
pub async fn connect(address: &str) -> io::Result<Stream> {
    #[cfg(feature = "simulation")]
    if simulated::is_active() {
        return simulated::connect(address).await.map(Stream::Simulated);
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Stream::Tcp(stream))
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
                Ok((Stream::Tcp(stream), from))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => {
                let (stream, from) = listener.accept().await;
                Ok((Stream::Simulated(stream), from))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
