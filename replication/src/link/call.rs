//! One's own end of a link.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::secret::{End, Secret, nonce};
use super::{PREFACE, Topic, frame, read_frame, request_frame};
use crate::rt;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_millis(500);

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

type Stream = BufReader<rt::Stream>;

/// One's own end of a link, which is made when it is needed.
pub(crate) struct Link {
    address: String,
    secret: Option<Secret>,
    pub(super) stream: Option<Stream>,
}

impl Link {
    pub(crate) fn new(address: String, secret: Option<Secret>) -> Self {
        Self {
            address,
            secret,
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
        rt::timeout(within, self.exchange(&request))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Sends a checkpoint: its head, and its pieces as they come. Waits for as long as the peer takes.
    pub(crate) async fn send(
        self,
        target: u64,
        head: &[u8],
        mut pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    ) -> Result<Vec<u8>, CallError> {
        let request = request_frame(Topic::Checkpoint, target, head).map_err(CallError::Broken)?;
        let mut stream = self.connect().await?;
        ask(&mut stream, &request).await?;
        while let Some(piece) = pieces.recv().await {
            let piece = piece.and_then(|piece| frame(&[&piece]));
            let written = stream.write_all(&piece.map_err(CallError::Broken)?).await;
            written.map_err(CallError::Broken)?;
        }
        let end = frame(&[]).map_err(CallError::Broken)?;
        ask(&mut stream, &end).await
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>, CallError> {
        // A peer that restarted has closed the link that stands here; all requests may be made twice.
        if let Some(mut stream) = self.stream.take() {
            match ask(&mut stream, request).await {
                Err(CallError::Broken(_)) => {}
                answer => {
                    self.stream = Some(stream);
                    return answer;
                }
            }
        }
        let mut stream = self.connect().await?;
        let answer = ask(&mut stream, request).await;
        if !matches!(answer, Err(CallError::Broken(_))) {
            self.stream = Some(stream);
        }
        answer
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

    async fn connect(&self) -> Result<Stream, CallError> {
        let connect = rt::connect(&self.address);
        let late = || Err(io::ErrorKind::TimedOut.into());
        let connected = rt::timeout(CONNECT, connect).await;
        let connected = connected.unwrap_or_else(|_| late());
        let stream = connected.map_err(CallError::Unreachable)?;
        let mut stream = BufReader::new(stream);
        match &self.secret {
            None => {
                let hello = [&PREFACE[..], &[0]].concat();
                let written = stream.write_all(&hello).await;
                written.map_err(CallError::Unreachable)?;
            }
            Some(secret) => prove(&mut stream, secret).await?,
        }
        Ok(stream)
    }
}

/// Proves that this end has the secret, and has the other end prove it.
async fn prove(stream: &mut Stream, secret: &Secret) -> Result<(), CallError> {
    let own = nonce();
    let theirs = ask(stream, &[&PREFACE[..], &[1], &own].concat()).await?;
    let unreadable = || CallError::Broken(io::ErrorKind::InvalidData.into());
    let theirs = theirs.try_into().map_err(|_| unreadable())?;
    let proof = ask(stream, &secret.proof(End::Asks, &own, &theirs)).await?;
    match secret.is_proven(End::Answers, &own, &theirs, &proof) {
        true => Ok(()),
        false => Err(CallError::Refused(
            "who answers there does not have the cluster's secret (cluster.secret_file)".to_owned(),
        )),
    }
}

async fn ask(stream: &mut Stream, said: &[u8]) -> Result<Vec<u8>, CallError> {
    stream.write_all(said).await.map_err(CallError::Broken)?;
    let answer = read_frame(stream).await.map_err(CallError::Broken)?;
    let Some(mut answer) = answer else {
        return Err(CallError::Broken(io::ErrorKind::UnexpectedEof.into()));
    };
    match answer.first() {
        Some(0) => Ok(answer.split_off(1)),
        Some(_) => {
            let text = String::from_utf8_lossy(&answer[1..]);
            Err(CallError::Refused(text.into_owned()))
        }
        None => Err(CallError::Broken(io::ErrorKind::InvalidData.into())),
    }
}
