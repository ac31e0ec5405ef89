//! Links: what replicas say to each other often, as frames on a connection that stays. A heartbeat costs one write and one
//! read on either side; each talker has a link of its own, so that no heartbeat waits behind entries.
//!
//! A link begins with eight bytes that name it and the version of all that is said on it. On the same port the peers
//! serve HTTP, for what is large and rare; its methods begin with another letter.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The version of the frames and of all messages in them, and of those that go by HTTP.
pub(crate) const VERSION: u8 = 3;
const PREFACE: [u8; 8] = [b'u', b'n', b'i', b's', b'o', b'n', b'o', VERSION];
/// The largest frame.
const FRAME_BYTES: usize = 64 << 20;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_millis(500);
/// A link on which nothing was said for so long is closed: its other end may be gone without a word.
const SILENCE: Duration = Duration::from_secs(60);

/// What a request is about; its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Append = 1,
    Vote = 2,
    PreVote = 3,
    Transfer = 4,
    Gossip = 5,
    Suspect = 6,
    Confirm = 7,
}

impl Topic {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Append,
            Self::Vote,
            Self::PreVote,
            Self::Transfer,
            Self::Gossip,
            Self::Suspect,
            Self::Confirm,
        ];
        all.into_iter().find(|topic| *topic as u8 == byte)
    }
}

/// A request as it is received.
pub(crate) struct Request {
    pub(crate) topic: Topic,
    /// The node that is meant; 0 for whoever is there.
    pub(crate) target: u64,
    pub(crate) body: Vec<u8>,
}

/// Why a request is not answered; what went wrong follows as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is for a node that this one is not (any more).
    Misdirected,
    /// Another version's message, or no message at all.
    Unreadable(String),
    /// Raft has stopped.
    Stopped(String),
}

impl Refusal {
    fn kind(&self) -> u8 {
        match self {
            Self::Misdirected => 1,
            Self::Unreadable(_) => 2,
            Self::Stopped(_) => 3,
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Misdirected => "this node has another identity: its disk was replaced",
            Self::Unreadable(text) | Self::Stopped(text) => text,
        }
    }
}

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There is no link: nothing was said. Try again a little later.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// The peer does not answer this; the text says why.
    #[error("refused: {0}")]
    Refused(String),
    /// The link broke, or the answer did not come in time: the request may have taken effect.
    #[error("no answer: {0}")]
    Broken(io::Error),
}

/// One's own end of a link, which is made when it is needed.
pub(crate) struct Link {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Link {
    pub(crate) fn new(address: String) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    /// Asks, and waits for the answer at most `within`. A call that is given up closes the link: its answer may still come.
    pub(crate) async fn call(
        &mut self,
        topic: Topic,
        target: u64,
        body: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let request = request_frame(topic, target, body).map_err(CallError::Broken)?;
        let late = || CallError::Broken(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(within, self.exchange(&request))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>, CallError> {
        // A peer that restarted has closed the link that stands here; all requests may be made twice.
        if let Some(stream) = self.stream.take()
            && let Ok(answer) = self.ask(stream, request).await
        {
            return answer.map_err(CallError::Refused);
        }
        let stream = self.connect().await.map_err(CallError::Unreachable)?;
        let answer = self.ask(stream, request).await.map_err(CallError::Broken)?;
        answer.map_err(CallError::Refused)
    }

    /// Whether there is no connection now.
    pub(crate) fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    /// Returns when the peer has ended the link; never while there is none.
    pub(crate) async fn ended(&mut self) {
        let Some(stream) = &mut self.stream else {
            return std::future::pending().await;
        };
        // A peer says nothing unasked: whatever comes here is the end.
        let _ = stream.fill_buf().await;
        self.stream = None;
    }

    async fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let connect = TcpStream::connect(&self.address);
        let late = || Err(io::ErrorKind::TimedOut.into());
        let connected = tokio::time::timeout(CONNECT, connect).await;
        let mut stream = connected.unwrap_or_else(|_| late())?;
        // A request must not wait for more bytes to go with it.
        stream.set_nodelay(true)?;
        stream.write_all(&PREFACE).await?;
        Ok(BufReader::new(stream))
    }

    async fn ask(
        &mut self,
        mut stream: BufReader<TcpStream>,
        request: &[u8],
    ) -> io::Result<Result<Vec<u8>, String>> {
        stream.write_all(request).await?;
        let Some(answer) = read_frame(&mut stream).await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        self.stream = Some(stream);
        match answer.split_first() {
            Some((0, body)) => Ok(Ok(body.to_vec())),
            Some((_, text)) => Ok(Err(String::from_utf8_lossy(text).into_owned())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The other end: answers requests in order until the peer closes the link.
///
/// # Errors
/// The link broke, or it is another version's; the peer was told so.
pub(crate) async fn serve<S, F>(stream: S, mut answer: impl FnMut(Request) -> F) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<Vec<u8>, Refusal>>,
{
    let mut stream = BufReader::new(stream);
    let mut preface = [0; 8];
    stream.read_exact(&mut preface).await?;
    if preface != PREFACE {
        let found = preface[7];
        let text = format!(
            "the peer speaks version {found} of the replicas' protocol, this replica version {VERSION}: run the same Unisono on both"
        );
        let refusal = answer_frame(Err(Refusal::Unreadable(text.clone())))?;
        stream.write_all(&refusal).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    loop {
        let read = tokio::time::timeout(SILENCE, read_frame(&mut stream)).await;
        let Some(frame) = read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? else {
            return Ok(());
        };
        let answered = match parse_request(frame) {
            Some(request) => answer(request).await,
            None => Err(Refusal::Unreadable("not a request".to_owned())),
        };
        stream.write_all(&answer_frame(answered)?).await?;
    }
}

/// Whether a connection is a link. Waits for its first byte.
pub(crate) async fn is_link(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    Ok(count == 1 && first[0] == PREFACE[0])
}

/// A frame: its length in four bytes, then that many. Written at once.
fn frame(parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let header = u32::try_from(length).ok().filter(|_| length <= FRAME_BYTES);
    let header = header.ok_or_else(|| too_large(length))?;
    let mut bytes = Vec::with_capacity(length + 4);
    bytes.extend_from_slice(&header.to_le_bytes());
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Ok(bytes)
}

fn too_large(length: usize) -> io::Error {
    let text = format!("a message of {length} bytes is larger than {FRAME_BYTES}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn request_frame(topic: Topic, target: u64, body: &[u8]) -> io::Result<Vec<u8>> {
    frame(&[&[topic as u8], &target.to_le_bytes(), body])
}

fn parse_request(mut frame: Vec<u8>) -> Option<Request> {
    let (&topic, rest) = frame.split_first()?;
    let (&target, rest) = rest.split_first_chunk::<8>()?;
    let head = frame.len() - rest.len();
    let (topic, target) = (Topic::from_byte(topic)?, u64::from_le_bytes(target));
    frame.drain(..head);
    Some(Request {
        topic,
        target,
        body: frame,
    })
}

fn answer_frame(answer: Result<Vec<u8>, Refusal>) -> io::Result<Vec<u8>> {
    match answer {
        Ok(body) => frame(&[&[0], &body]),
        Err(refusal) => frame(&[&[refusal.kind()], refusal.text().as_bytes()]),
    }
}

/// The next frame; `None` where the link ends between two.
async fn read_frame<S: AsyncRead + Unpin>(
    stream: &mut BufReader<S>,
) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; 4];
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[1..]).await?;
    let length = u32::from_le_bytes(header) as usize;
    if length > FRAME_BYTES {
        return Err(too_large(length));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(Some(frame))
}

#[cfg(test)]
mod tests;
