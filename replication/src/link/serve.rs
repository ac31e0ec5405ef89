//! The other end of a link: finds out who asks, judges each request by its head, then reads and answers it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::OwnedSemaphorePermit;

use crate::rt::timeout;

use super::port::{Port, Reason, body_time};
use super::secret::{End, Secret, nonce};
use super::{
    FRAME_BYTES, HEAD, PIECE_BYTES, PREFACE, Refusal, Request, SILENCE, Topic, VERSION,
    answer_frame, read_bytes, read_length, too_large,
};

/// How long the other end has to read why it is refused.
const FAREWELL: Duration = Duration::from_millis(500);

/// An answer, and what is held until it is sent.
pub(crate) struct Answered {
    pub(crate) body: Vec<u8>,
    pub(crate) held: Option<OwnedSemaphorePermit>,
}

impl From<Vec<u8>> for Answered {
    fn from(body: Vec<u8>) -> Self {
        Self { body, held: None }
    }
}

/// Who answers.
pub(crate) trait Serve {
    /// The identity for which requests must be.
    fn node_id(&self) -> u64;

    /// Answers a request.
    fn answer(&self, request: Request) -> impl Future<Output = Result<Answered, Refusal>> + Send;

    /// Takes a checkpoint with this head.
    fn receive<S: AsyncRead + Send + Unpin>(
        &self,
        head: Vec<u8>,
        pieces: Pieces<'_, S>,
    ) -> impl Future<Output = Result<Answered, Refusal>> + Send;
}

/// The pieces of a checkpoint as they come.
pub(crate) struct Pieces<'a, S> {
    stream: &'a mut S,
    piece: Vec<u8>,
}

impl<S: AsyncRead + Unpin> Pieces<'_, S> {
    /// The next piece; `None` after the last.
    pub(crate) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let read = timeout(SILENCE, self.read()).await;
        let length = read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok((length > 0).then_some(&self.piece[..length]))
    }

    async fn read(&mut self) -> io::Result<usize> {
        let length = read_length(self.stream).await?;
        let length = length.ok_or(io::ErrorKind::UnexpectedEof)?;
        if length > PIECE_BYTES {
            return Err(too_large(length, PIECE_BYTES));
        }
        self.piece.resize(PIECE_BYTES, 0);
        self.stream.read_exact(&mut self.piece[..length]).await?;
        Ok(length)
    }
}

/// What stands before a request's body.
struct Head {
    topic: Option<Topic>,
    target: u64,
    length: usize,
}

/// Answers requests in order until the peer closes the link. `stranger` is the place that the connection has until it is known.
///
/// # Errors
/// The link broke, or the peer was refused and told so.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(
    stream: S,
    from: SocketAddr,
    port: &Port,
    stranger: Option<OwnedSemaphorePermit>,
    peers: &impl Serve,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    match timeout(port.greeting, greet(&mut stream, port)).await {
        Ok(Ok(())) => {}
        Ok(Err(Unwelcome::Broken(error))) => return Err(error),
        Ok(Err(Unwelcome::Refused(reason, refusal))) => {
            port.refuse(from, reason, refusal.text());
            say_farewell(&mut stream, &refusal).await?;
            return Err(io::Error::other(refusal.text().to_owned()));
        }
        Err(_) => {
            let text = "a connection did not say in time who it is";
            port.refuse(from, Reason::Late, text);
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let _place = port.settle(from)?;
    drop(stranger);
    loop {
        let head = timeout(SILENCE, read_head(&mut stream)).await;
        let head = head.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        match head {
            Ok(None) => return Ok(()),
            Ok(Some(head)) => take(&mut stream, from, port, &head, peers).await?,
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    port.refuse(from, Reason::Message, &error.to_string());
                }
                return Err(error);
            }
        }
    }
}

enum Unwelcome {
    Broken(io::Error),
    Refused(Reason, Refusal),
}

impl From<io::Error> for Unwelcome {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Finds out whether the other end is a peer.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    port: &Port,
) -> Result<(), Unwelcome> {
    let mut preface = [0; 8];
    stream.read_exact(&mut preface).await?;
    if preface[..7] != PREFACE[..7] {
        let text = "not a replica: only replicas of the cluster have something to say here";
        let refusal = Refusal::Unreadable(text.to_owned());
        return Err(Unwelcome::Refused(Reason::Version, refusal));
    }
    if preface != PREFACE {
        let found = preface[7];
        let text = format!(
            "the peer speaks version {found} of the replicas' protocol, this replica version {VERSION}: run the same Unisono on both"
        );
        return Err(Unwelcome::Refused(
            Reason::Version,
            Refusal::Unreadable(text),
        ));
    }
    let stranger = |text: &str| {
        let refusal = Refusal::Stranger(text.to_owned());
        Err(Unwelcome::Refused(Reason::Secret, refusal))
    };
    match (&port.secret, stream.read_u8().await?) {
        (None, 0) => Ok(()),
        (Some(secret), 1) => match is_peer(stream, secret).await? {
            true => Ok(()),
            false => stranger(
                "the peer has another secret than this replica: give all nodes the same cluster.secret_file",
            ),
        },
        (Some(_), _) => stranger(
            "this replica asks for the cluster's secret, and the peer has none: give all nodes the same cluster.secret_file",
        ),
        (None, _) => stranger(
            "the peer asks for the cluster's secret, and this replica has none: give all nodes the same cluster.secret_file",
        ),
    }
}

/// Has the other end prove that it has the secret, then proves it.
async fn is_peer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    secret: &Secret,
) -> io::Result<bool> {
    let (mut theirs, own) = ([0; 32], nonce());
    stream.read_exact(&mut theirs).await?;
    stream.write_all(&answer_frame(Ok(&own))?).await?;
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).await?;
    if !secret.is_proven(End::Asks, &theirs, &own, &proof) {
        return Ok(false);
    }
    let proof = secret.proof(End::Answers, &theirs, &own);
    stream.write_all(&answer_frame(Ok(&proof))?).await?;
    Ok(true)
}

/// Tells why, and waits until it is read: a connection that is closed with bytes unread loses what was said last.
async fn say_farewell<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    refusal: &Refusal,
) -> io::Result<()> {
    stream.write_all(&answer_frame(Err(refusal))?).await?;
    stream.shutdown().await?;
    let _ = timeout(FAREWELL, discard(stream, 1 << 20)).await;
    Ok(())
}

/// Reads and forgets at most so many bytes.
async fn discard<S: AsyncRead + Unpin>(stream: &mut BufReader<S>, bytes: usize) -> io::Result<()> {
    tokio::io::copy_buf(&mut stream.take(bytes as u64), &mut tokio::io::sink()).await?;
    Ok(())
}

/// The head of the next request; `None` where the link ends between two.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> io::Result<Option<Head>> {
    let Some(length) = read_length(stream).await? else {
        return Ok(None);
    };
    if length > FRAME_BYTES {
        return Err(too_large(length, FRAME_BYTES));
    }
    let Some(length) = length.checked_sub(HEAD) else {
        let text = format!("a message of {length} bytes is none");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    };
    Ok(Some(Head {
        topic: Topic::from_byte(stream.read_u8().await?),
        target: stream.read_u64_le().await?,
        length,
    }))
}

/// What this node is asked, if it may be.
fn judge(head: &Head, node_id: u64) -> Result<Topic, Refusal> {
    let unknown = || Refusal::Unreadable("not a request".to_owned());
    let topic = head.topic.ok_or_else(unknown)?;
    if topic.is_addressed() && head.target != node_id {
        return Err(Refusal::Misdirected);
    }
    let most = topic.most_bytes();
    if head.length > most {
        let text = too_large(head.length, most).to_string();
        return Err(Refusal::Unreadable(text));
    }
    Ok(topic)
}

/// Reads the rest of a request, if it may be read, and answers it.
async fn take<S: AsyncRead + AsyncWrite + Send + Unpin>(
    stream: &mut BufReader<S>,
    from: SocketAddr,
    port: &Port,
    head: &Head,
    peers: &impl Serve,
) -> io::Result<()> {
    let late = |_| {
        let text = "what a peer began to say, or was told, was not at its end in time";
        port.refuse(from, Reason::Late, text);
        io::Error::from(io::ErrorKind::TimedOut)
    };
    let time = body_time(head.length);
    let topic = match judge(head, peers.node_id()) {
        Ok(topic) => topic,
        Err(refusal) => {
            port.refuse_message(from, &refusal);
            let discarded = timeout(time, discard(stream, head.length)).await;
            discarded.map_err(late)??;
            return stream.write_all(&answer_frame(Err(&refusal))?).await;
        }
    };
    let room = port.room(head.length).await?;
    let body = timeout(time, read_bytes(stream, head.length)).await;
    let body = body.map_err(late)??;
    let answered = if topic == Topic::Checkpoint {
        stream.write_all(&answer_frame(Ok(&[]))?).await?;
        let piece = Vec::new();
        peers.receive(body, Pieces { stream, piece }).await
    } else {
        peers.answer(Request { topic, body }).await
    };
    let answered = match answered {
        Ok(answered) => answered,
        Err(refusal) if topic == Topic::Checkpoint => {
            // Pieces of it may follow.
            say_farewell(stream, &refusal).await?;
            return Err(io::Error::other(refusal.text().to_owned()));
        }
        Err(refusal) => {
            port.refuse_message(from, &refusal);
            return stream.write_all(&answer_frame(Err(&refusal))?).await;
        }
    };
    let bytes = answered.body.len();
    // The request is gone by now: its room will do, if it is large enough.
    let _room = if bytes <= head.length {
        room
    } else {
        drop(room);
        port.room(bytes).await?
    };
    let sent = timeout(body_time(bytes), send(stream, &answered.body)).await;
    drop(answered.held);
    sent.map_err(late)?
}

/// A small answer goes at once; a large one is not copied for that.
async fn send<S: AsyncWrite + Unpin>(stream: &mut S, body: &[u8]) -> io::Result<()> {
    if body.len() <= PIECE_BYTES {
        return stream.write_all(&answer_frame(Ok(body))?).await;
    }
    let length = body.len() + 1;
    let header = u32::try_from(length).ok().filter(|_| length <= FRAME_BYTES);
    let header = header.ok_or_else(|| too_large(length, FRAME_BYTES))?;
    stream.write_all(&header.to_le_bytes()).await?;
    stream.write_all(&[0]).await?;
    stream.write_all(body).await
}
