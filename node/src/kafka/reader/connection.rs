//! A connection to one broker: one question at a time, each with its answer.

mod authenticate;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::codec::{Cursor, Malformed, Writer};
use super::errors;
use super::messages::{Api, BrokerAddress, Spoken, write_api_versions};
use super::settings::Settings;
use crate::kafka::security::{
    LinkError, SPEAKS_TLS, SaslError, Security, Stream, WANTS_CERTIFICATE, WANTS_SASL, explain,
    is_end, of_tls, open_stream,
};
use crate::kafka::source::KafkaSourceError;

/// No answer is longer: it is no broker that says so.
const MOST: usize = 256 << 20;
/// So many answers are kept for their memory.
const KEPT: usize = 4;
/// How an alert of TLS begins: no answer is so long.
const TLS_ALERT: [u8; 2] = [0x15, 3];
/// Kafka's code for a version that the broker does not speak.
const UNSUPPORTED_VERSION: i16 = 35;

/// Why a broker cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("{0}")]
    Io(io::Error),
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
    #[error("TLS: {0}")]
    Tls(String),
    #[error(transparent)]
    Sasl(#[from] SaslError),
    /// There is no token to authenticate with.
    #[error("{0}")]
    Token(String),
    /// What may be meant.
    #[error("it ends the connection at the first question: {0}")]
    Closed(&'static str),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match of_tls(&error) {
            // After the handshake, in which names and authorities were looked at.
            Some(found) => Self::Tls(explain(found, "", "", false)),
            None => Self::Io(error),
        }
    }
}

impl From<LinkError> for ConnectionError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io(error) => error.into(),
            LinkError::NoAddress(host) => Self::NoAddress(host),
            LinkError::Tls(reason) => Self::Tls(reason),
        }
    }
}

impl ConnectionError {
    /// For people, the same from try to try while nobody answers: a new text would be told as news.
    pub fn reason(&self) -> String {
        match self {
            Self::Io(_) | Self::Late(_) => "no connection".to_owned(),
            other => other.to_string(),
        }
    }

    /// Somebody answers, but we do not come to terms.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Sasl(_) | Self::Token(_))
    }

    /// As an error of the source.
    pub fn of_source(&self, topic: &str, brokers: String) -> KafkaSourceError {
        let (topic, reason) = (topic.to_owned(), self.reason());
        match self.is_refusal() {
            true => KafkaSourceError::Refused {
                topic,
                brokers,
                reason,
            },
            false => KafkaSourceError::Unreachable {
                topic,
                brokers,
                reason,
            },
        }
    }
}

pub struct Connection {
    stream: Stream,
    security: Arc<Security>,
    /// When to authenticate again, if the broker wants that.
    renewal: Option<Instant>,
    /// Something was answered beside what the broker speaks.
    proven: bool,
    next: i32,
    out: Writer,
    spoken: Spoken,
    client: String,
    patience: Duration,
    /// Answers whose bytes may still be in use elsewhere.
    kept: Vec<Bytes>,
}

impl Connection {
    /// Connects, finds out what the broker speaks, and says who we are.
    pub async fn open(
        address: &BrokerAddress,
        settings: &Settings,
    ) -> Result<Self, ConnectionError> {
        // Whoever gives tokens has a time of its own.
        settings
            .security
            .prepare()
            .await
            .map_err(ConnectionError::Token)?;
        let patience = settings.connect_within;
        let opened = timeout(patience, Self::begin(address, settings)).await;
        opened.map_err(|_| ConnectionError::Late(patience))?
    }

    async fn begin(address: &BrokerAddress, settings: &Settings) -> Result<Self, ConnectionError> {
        let security = &settings.security;
        let (host, port) = (address.host.as_str(), address.port);
        let opened = open_stream(host, port, security.tls.as_ref(), "ssl.ca.location");
        let mut connection = Self {
            stream: opened.await?,
            security: Arc::clone(security),
            renewal: None,
            proven: false,
            next: 0,
            out: Writer::default(),
            spoken: Spoken::default(),
            client: settings.client_id.clone(),
            patience: settings.answer_within,
            kept: Vec::new(),
        };
        let (_, version) = Api::Versions.versions();
        let asked = connection.exchange(Api::Versions, version, write_api_versions);
        let answer = asked.await.map_err(|error| connection.unheard(error))?;
        connection.spoken = match Spoken::read(&answer)? {
            Ok(spoken) => spoken,
            Err(UNSUPPORTED_VERSION) => return Err(ConnectionError::Version(Api::Versions)),
            Err(code) => return Err(ConnectionError::Refused(Api::Versions, code)),
        };
        connection.authenticate().await?;
        Ok(connection)
    }

    /// What it means that nothing was answered to the first question.
    fn unheard(&self, error: ConnectionError) -> ConnectionError {
        match (error, &self.security.tls) {
            (ConnectionError::Io(error), None) if is_end(&error) => {
                ConnectionError::Closed(SPEAKS_TLS)
            }
            // An alert that says so may be lost with the connection.
            (ConnectionError::Io(error), Some(tls)) if is_end(&error) && !tls.has_certificate() => {
                ConnectionError::Tls(WANTS_CERTIFICATE.to_owned())
            }
            (error, _) => error,
        }
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
        if self.renewal.is_some_and(|at| at <= Instant::now()) {
            self.security
                .prepare()
                .await
                .map_err(ConnectionError::Token)?;
            let renewed = timeout(patience, self.authenticate()).await;
            renewed.map_err(|_| ConnectionError::Late(patience))??;
        }
        let asked = self.exchange(api, version, |to| write(to, version));
        let answer = timeout(patience, asked).await;
        let answer = answer.map_err(|_| ConnectionError::Late(patience))?;
        let answer = answer.map_err(|error| match error {
            ConnectionError::Io(error)
                if !self.proven && self.security.sasl.is_none() && is_end(&error) =>
            {
                ConnectionError::Closed(WANTS_SASL)
            }
            other => other,
        })?;
        self.proven = true;
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
        self.out.old_text(&self.client);
        if api.asks_with_tags() {
            self.out.no_tags();
        }
        write(&mut self.out);
        let length = self.out.0.len() - 4;
        let length = i32::try_from(length).map_err(io::Error::other)?;
        self.out.0[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&self.out.0).await?;
        self.stream.flush().await?;
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
        if length[..2] == TLS_ALERT {
            return Err(ConnectionError::Closed(SPEAKS_TLS));
        }
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
