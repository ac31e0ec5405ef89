//! A connection to one broker: one question at a time, each with its answer.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::codec::{Cursor, Malformed, Writer};
use super::errors;
use super::messages::{Api, BrokerAddress, Spoken, write_api_versions};
use super::settings::Settings;

/// No answer is longer: it is no broker that says so.
const MOST: usize = 256 << 20;
/// So many answers are kept for their memory.
const KEPT: usize = 4;
/// Kafka's code for a version that the broker does not speak.
const UNSUPPORTED_VERSION: i16 = 35;

/// Why a broker cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it speaks no version of {0:?} that is known here: brokers from 2.8 on do")]
    Version(Api),
    #[error("it refuses {0:?}: {name}", name = errors::name(*.1))]
    Refused(Api, i16),
    #[error("{0} has no address")]
    NoAddress(String),
}

impl ConnectionError {
    /// For people, the same from try to try while nobody answers: a new text would be told as news.
    pub fn reason(&self) -> String {
        match self {
            Self::Io(_) | Self::Late(_) => "no connection".to_owned(),
            other => other.to_string(),
        }
    }
}

pub struct Connection {
    stream: TcpStream,
    next: i32,
    out: Writer,
    spoken: Spoken,
    client: String,
    patience: Duration,
    /// Answers whose bytes may still be in use elsewhere.
    kept: Vec<Bytes>,
}

impl Connection {
    /// Connects, and finds out what the broker speaks.
    pub async fn open(
        address: &BrokerAddress,
        settings: &Settings,
    ) -> Result<Self, ConnectionError> {
        let patience = settings.connect_within;
        let opened = timeout(patience, Self::open_any(address, settings)).await;
        opened.map_err(|_| ConnectionError::Late(patience))?
    }

    async fn open_any(
        address: &BrokerAddress,
        settings: &Settings,
    ) -> Result<Self, ConnectionError> {
        let host = (address.host.as_str(), address.port);
        let mut last = ConnectionError::NoAddress(address.host.clone());
        // A name may have several addresses, of which not all need work.
        for socket in tokio::net::lookup_host(host).await? {
            match TcpStream::connect(socket).await {
                Ok(stream) => return Self::begin(stream, settings).await,
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    async fn begin(stream: TcpStream, settings: &Settings) -> Result<Self, ConnectionError> {
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            next: 0,
            out: Writer::default(),
            spoken: Spoken::default(),
            client: settings.client_id.clone(),
            patience: settings.answer_within,
            kept: Vec::new(),
        };
        let (_, version) = Api::Versions.versions();
        let asked = connection.exchange(Api::Versions, version, write_api_versions);
        connection.spoken = match Spoken::read(&asked.await?)? {
            Ok(spoken) => spoken,
            Err(UNSUPPORTED_VERSION) => return Err(ConnectionError::Version(Api::Versions)),
            Err(code) => return Err(ConnectionError::Refused(Api::Versions, code)),
        };
        Ok(connection)
    }

    /// The newest version of a kind that both speak.
    pub fn version(&self, api: Api) -> Result<i16, ConnectionError> {
        self.spoken
            .version(api)
            .ok_or(ConnectionError::Version(api))
    }

    /// Asks, and gives the answer without its head.
    pub async fn call(
        &mut self,
        api: Api,
        write: impl FnOnce(&mut Writer, i16),
    ) -> Result<(Bytes, i16), ConnectionError> {
        let version = self.version(api)?;
        let patience = self.patience;
        let asked = self.exchange(api, version, |to| write(to, version));
        let answer = timeout(patience, asked).await;
        let answer = answer.map_err(|_| ConnectionError::Late(patience))??;
        Ok((answer, version))
    }

    async fn exchange(
        &mut self,
        api: Api,
        version: i16,
        write: impl FnOnce(&mut Writer),
    ) -> Result<Bytes, ConnectionError> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.out.0.clear();
        self.out.i32(0).i16(api.key()).i16(version).i32(id);
        self.out.old_text(&self.client).no_tags();
        write(&mut self.out);
        let length = self.out.0.len() - 4;
        let length = i32::try_from(length).map_err(io::Error::other)?;
        self.out.0[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&self.out.0).await?;
        let answer = self.receive().await?;
        let mut cursor = Cursor::new(&answer);
        if cursor.i32()? != id {
            return Err(Malformed("it answers another question").into());
        }
        if api.answers_with_tags() {
            cursor.skip_tags()?;
        }
        let head = answer.len() - cursor.left();
        Ok(answer.slice(head..))
    }

    async fn receive(&mut self) -> Result<Bytes, ConnectionError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MOST {
            return Err(Malformed("it is longer than any answer; is that a Kafka broker?").into());
        }
        let mut bytes = self.memory();
        bytes.reserve(length);
        let mut body = (&mut self.stream).take(length as u64);
        while bytes.len() < length {
            if body.read_buf(&mut bytes).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        let bytes = bytes.freeze();
        self.kept.push(bytes.clone());
        Ok(bytes)
    }

    /// Memory of an answer that nobody reads any more: new memory would be zeroed by the system each time.
    fn memory(&mut self) -> BytesMut {
        let unused = self.kept.iter().position(Bytes::is_unique);
        let unused = unused.map(|at| self.kept.swap_remove(at));
        if self.kept.len() >= KEPT {
            self.kept.remove(0);
        }
        let unused = unused.and_then(|bytes| bytes.try_into_mut().ok());
        let mut memory = unused.unwrap_or_default();
        memory.clear();
        memory
    }
}
