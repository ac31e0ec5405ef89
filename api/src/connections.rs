//! Connections: how many there may be, and how long one may take to say what it wants and to take what it asked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};

/// Connections at once; more wait to be taken.
pub(crate) const CONNECTIONS: usize = 512;
/// How long a client may take for the head of a request, and how long its connection may be idle before.
pub(crate) const HEAD: Duration = Duration::from_secs(60);
/// How long a client may take nothing of an answer.
pub(crate) const TAKE: Duration = Duration::from_secs(30);
/// How long after a failure to take a connection the next one is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// What a client is granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) connections: usize,
    pub(crate) head: Duration,
    pub(crate) take: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            head: HEAD,
            take: TAKE,
        }
    }
}

/// Serves `app` on a bound socket until the process ends, so many connections at once; more wait to be taken.
///
/// # Errors
/// None: what fails (no file handle is left) is tried again.
pub async fn serve(listener: TcpListener, app: Router, connections: usize) -> io::Result<()> {
    let patience = Patience {
        connections,
        ..Patience::default()
    };
    serve_with(listener, app, patience).await
}

pub(crate) async fn serve_with(
    listener: TcpListener,
    app: Router,
    patience: Patience,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(patience.connections));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "no connection can be taken; trying again");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(app.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new());
            builder.header_read_timeout(patience.head);
            let taking = Taking::new(stream, patience.take);
            let served = builder.serve_connection(TokioIo::new(taking), service);
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}

/// A connection that fails when its client takes nothing for too long.
struct Taking {
    stream: TcpStream,
    patience: Duration,
    sleep: Pin<Box<Sleep>>,
    stands: bool,
}

impl Taking {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            sleep: Box::pin(tokio::time::sleep(patience)),
            stands: false,
        }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stands = false;
            return polled;
        }
        if !std::mem::replace(&mut self.stands, true) {
            self.sleep.as_mut().reset(Instant::now() + self.patience);
        }
        let expired = self.sleep.as_mut().poll(context);
        expired.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Taking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Taking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, polled)
    }
}
