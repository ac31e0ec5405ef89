//! Bytes to and from one other end, with TLS or without.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

use super::Tls;
use super::trouble::{SPEAKS_NO_TLS, explain, is_end, of_tls};

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("{0}")]
    Tls(String),
}

/// Plain, or TLS: boxed, for it is much larger.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Connects to one of the name's addresses, and begins TLS if it is asked for. `ca`: the property that names authorities.
pub async fn open_stream(
    host: &str,
    port: u16,
    tls: Option<&Tls>,
    ca: &str,
) -> Result<Stream, LinkError> {
    let stream = connect(host, port).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else {
        return Ok(Either::Left(stream));
    };
    let config = tls.config().map_err(LinkError::Tls)?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| LinkError::Tls(format!("{host} is no name that a certificate can be for")))?;
    let secured = TlsConnector::from(config).connect(name, stream).await;
    let secured = secured.map_err(|error| match of_tls(&error) {
        Some(found) => LinkError::Tls(explain(found, host, ca, tls.has_certificate())),
        None if is_end(&error) => {
            LinkError::Tls(format!("it ends the connection: {SPEAKS_NO_TLS}"))
        }
        None => LinkError::Io(error),
    })?;
    Ok(Either::Right(Box::new(secured)))
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, LinkError> {
    let mut last = LinkError::NoAddress(host.to_owned());
    // A name may have several addresses, of which not all need work.
    for socket in tokio::net::lookup_host((host, port)).await? {
        match TcpStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
