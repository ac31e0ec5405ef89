#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::golden;

/// Node 1: answers with what was said, never answers a vote, and gives a checkpoint's head and pieces back.
struct Echo;

impl Serve for Echo {
    fn node_id(&self) -> u64 {
        1
    }

    async fn answer(&self, request: Request) -> Result<Answered, Refusal> {
        match request.topic {
            Topic::Vote => std::future::pending().await,
            _ => Ok(request.body.into()),
        }
    }

    async fn receive<S: AsyncRead + Send + Unpin>(
        &self,
        head: Vec<u8>,
        mut pieces: Pieces<'_, S>,
    ) -> Result<Answered, Refusal> {
        let mut all = head;
        loop {
            match pieces.next().await {
                Ok(Some(piece)) => all.extend_from_slice(piece),
                Ok(None) => return Ok(all.into()),
                Err(error) => return Err(Refusal::Stopped(error.to_string())),
            }
        }
    }
}

const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

fn listen(listener: TcpListener, port: Arc<Port>) -> JoinHandle<()> {
    tokio::spawn(async move {
        // One at a time is enough here; the listener goes with the task.
        while let Ok((stream, from)) = listener.accept().await {
            let _ = serve(stream, from, &port, None, &Echo).await;
        }
    })
}

async fn peer_with(secret: Option<Secret>) -> (String, Arc<Port>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let port = Arc::new(Port::new(secret, PortLimits::default()));
    let served = listen(listener, Arc::clone(&port));
    (address, port, served)
}

async fn peer() -> (String, Arc<Port>, JoinHandle<()>) {
    peer_with(None).await
}

fn link(address: &str) -> Link {
    Link::new(address.to_owned(), None)
}

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).unwrap()
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn answers_come_in_order_on_one_link_and_a_refusal_does_not_end_it() {
    let (address, port, _peer) = peer().await;
    let mut link = link(&address);
    let large = vec![7; 1 << 20];
    for body in [b"one".as_slice(), b"", &large] {
        let answer = link.call(Topic::Append, 1, body, LONG).await.unwrap();
        assert!(answer == body);
        let refused = link.call(Topic::Append, 9, body, LONG).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "refused: this node has another identity: its disk was replaced"
        );
    }
    assert_eq!(
        (port.status().refused["target"], port.status().links),
        (3, 1)
    );
}

#[tokio::test]
async fn a_call_that_is_late_closes_the_link_and_its_answer_is_not_taken_for_the_next() {
    let (address, ..) = peer().await;
    let mut link = link(&address);
    let late = link
        .call(Topic::Vote, 1, b"", Duration::from_millis(50))
        .await;
    assert!(matches!(late, Err(CallError::Broken(_))));
    assert!(link.stream.is_none());
}

#[tokio::test]
async fn a_link_that_the_peer_has_closed_is_made_again() {
    let (address, port, peer) = peer().await;
    let mut link = link(&address);
    link.call(Topic::Append, 1, b"before", LONG).await.unwrap();
    peer.abort();
    assert!(peer.await.unwrap_err().is_cancelled());
    let gone = link.call(Topic::Append, 1, b"meanwhile", LONG).await;
    assert!(matches!(gone, Err(CallError::Unreachable(_))), "{gone:?}");
    let _peer = listen(TcpListener::bind(&address).await.unwrap(), port);
    link.call(Topic::Append, 1, b"first", LONG).await.unwrap();
    assert_eq!(
        link.call(Topic::Append, 1, b"after", LONG).await.unwrap(),
        b"after"
    );
}

#[tokio::test]
async fn another_versions_link_is_refused_with_both_versions() {
    let port = Port::new(None, PortLimits::default());
    let (mut near, far) = tokio::io::duplex(1024);
    let mut preface = PREFACE;
    preface[7] = 9;
    near.write_all(&preface).await.unwrap();
    near.write_all(&[0]).await.unwrap();
    let reads = async {
        let answer = read_frame(&mut near).await.unwrap().unwrap();
        drop(near);
        answer
    };
    let (served, answer) = tokio::join!(serve(far, FROM, &port, None, &Echo), reads);
    let error = served.unwrap_err().to_string();
    assert!(
        error.contains("version 9") && error.contains("version 4"),
        "{error}"
    );
    assert_eq!((answer[0], &answer[1..]), (2, error.as_bytes()));
    assert_eq!(port.status().refused["version"], 1);
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_a_length_beyond_the_bound_ends_the_link() {
    let (mut near, far) = tokio::io::duplex(1024);
    let port = Arc::new(Port::new(None, PortLimits::default()));
    let shared = Arc::clone(&port);
    let served = tokio::spawn(async move { serve(far, FROM, &shared, None, &Echo).await });
    near.write_all(&PREFACE).await.unwrap();
    near.write_all(&[0]).await.unwrap();
    let unknown = frame(&[&[77], &[0; 8], b"a body"]).unwrap();
    near.write_all(&unknown).await.unwrap();
    assert_eq!(read_frame(&mut near).await.unwrap().unwrap()[0], 2);
    // A vote is small: a large one is refused before it is read, and what it said is not taken for the next request.
    let vote = request_frame(Topic::PreVote, 1, &[0; 100_000]).unwrap();
    near.write_all(&vote).await.unwrap();
    let refused = read_frame(&mut near).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&refused[1..]);
    assert!(text.contains("100000 bytes is larger"), "{text}");
    assert_eq!(port.status().most_bytes, 0);
    near.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    let ended = served.await.unwrap().unwrap_err();
    assert!(ended.to_string().contains("larger than"), "{ended}");
    assert_eq!(port.status().refused["message"], 3);
}

#[tokio::test]
async fn peers_with_one_secret_understand_each_other_and_all_others_are_refused() {
    let (address, port, _peer) = peer_with(Some(secret("the cluster's secret"))).await;
    let call = async |secret: Option<Secret>| {
        let mut link = Link::new(address.clone(), secret);
        link.call(Topic::Append, 1, b"said", LONG).await
    };
    assert_eq!(
        call(Some(secret("the cluster's secret"))).await.unwrap(),
        b"said"
    );
    let refused = call(Some(secret("another secret, as long"))).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("another secret than this replica"), "{text}");
    let text = call(None).await.unwrap_err().to_string();
    assert!(text.contains("the peer has none"), "{text}");
    let status = port.status();
    assert_eq!(status.refused["secret"], 2);
    assert_eq!(status.last.unwrap().reason, "secret");
    // One that has no secret listens to nobody who asks for one; to be listened to by a stranger is no better.
    let (open, ..) = peer().await;
    let mut link = Link::new(open, Some(secret("the cluster's secret")));
    let text = link.call(Topic::Append, 1, b"", LONG).await.unwrap_err();
    assert!(text.to_string().contains("this replica has none"), "{text}");
}

/// One who knows what was said on an earlier link is no peer, whichever end he plays.
#[tokio::test]
async fn what_was_overheard_proves_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 41];
        stream.read_exact(&mut hello).await.unwrap();
        let nonce = answer_frame(Ok(&[5; 32])).unwrap();
        stream.write_all(&nonce).await.unwrap();
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).await.unwrap();
        // It gives the proof that it got back as its own.
        let proof = answer_frame(Ok(&proof)).unwrap();
        stream.write_all(&proof).await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        assert!(said.is_empty(), "told to one who has no secret");
    });
    let mut link = Link::new(address, Some(secret("the cluster's secret")));
    let refused = link.call(Topic::Append, 1, b"entries", LONG).await;
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("does not have the cluster's secret"),
        "{text}"
    );
}

/// A link to `Echo` on which `body` bytes of a request are said, but for the last one.
async fn say_most(port: Arc<Port>, body: usize) -> (DuplexStream, JoinHandle<io::Result<()>>) {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let served = tokio::spawn(async move { serve(far, FROM, &port, None, &Echo).await });
    let head = u32::try_from(body + HEAD).unwrap().to_le_bytes();
    near.write_all(&PREFACE).await.unwrap();
    near.write_all(&[0]).await.unwrap();
    near.write_all(&head).await.unwrap();
    near.write_all(&[Topic::Append as u8]).await.unwrap();
    near.write_all(&1_u64.to_le_bytes()).await.unwrap();
    let part = vec![0; 1 << 16];
    let mut left = body - 1;
    while left > 0 {
        let count = left.min(part.len());
        near.write_all(&part[..count]).await.unwrap();
        left -= count;
    }
    (near, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_large_bodies_at_once_are_held_one_after_the_other_and_heartbeats_do_not_wait() {
    const BODY: usize = 60 << 20;
    let port = Arc::new(Port::new(None, PortLimits::default()));
    let mut saying: FuturesUnordered<_> =
        (0..20).map(|_| say_most(Arc::clone(&port), BODY)).collect();
    let mut answered = 0;
    while let Some((mut near, _served)) = saying.next().await {
        // While it has not said its last byte, a heartbeat is answered, and a message of some hundred entries.
        for small in [100, 300_000] {
            let (mut other, _served) = say_most(Arc::clone(&port), small).await;
            other.write_all(&[0]).await.unwrap();
            let answer = read_frame(&mut other).await.unwrap().unwrap();
            assert_eq!(answer.len(), small + 1);
        }
        near.write_all(&[0]).await.unwrap();
        let answer = read_frame(&mut near).await.unwrap().unwrap();
        assert_eq!(answer.len(), BODY + 1);
        answered += 1;
    }
    assert_eq!(answered, 20);
    let most = port.status().most_bytes;
    assert!(most < 82 << 20, "{most} bytes were in hand at once");
    assert_eq!(port.status().bytes, 0);
}

#[tokio::test]
async fn a_checkpoint_goes_in_pieces_and_one_that_breaks_off_is_no_checkpoint() {
    let (address, port, _peer) = peer().await;
    let (sender, pieces) = mpsc::channel(4);
    tokio::spawn(async move {
        for piece in [vec![1; PIECE_BYTES], vec![2; 10]] {
            sender.send(Ok(piece)).await.unwrap();
        }
    });
    let answer = link(&address).send(1, b"head", pieces).await.unwrap();
    let sent = [b"head".as_slice(), &vec![1; PIECE_BYTES], &[2; 10]].concat();
    assert!(answer == sent);
    let (sender, pieces) = mpsc::channel(4);
    sender.send(Ok(vec![1; 10])).await.unwrap();
    sender.send(Err(io::ErrorKind::Other.into())).await.unwrap();
    let broken = link(&address).send(1, b"head", pieces).await;
    assert!(matches!(broken, Err(CallError::Broken(_))), "{broken:?}");
    // To another identity nothing is sent.
    let (sender, pieces) = mpsc::channel(4);
    let refused = link(&address).send(9, b"head", pieces).await;
    assert!(matches!(refused, Err(CallError::Refused(_))), "{refused:?}");
    assert!(sender.is_closed());
    assert_eq!(port.status().refused["target"], 1);
}

#[tokio::test]
async fn connections_that_do_not_say_who_they_are_have_a_bound() {
    let port = Port::new(None, PortLimits::default());
    let places: Vec<_> = (0..1000).filter_map(|_| port.enter(FROM)).collect();
    assert_eq!(places.len(), 128);
    assert_eq!(port.status().refused["full"], 872);
    drop(places);
    assert!(port.enter(FROM).is_some());
}

#[tokio::test]
async fn one_who_says_nothing_is_not_waited_for() {
    let mut port = Port::new(Some(secret("the cluster's secret")), PortLimits::default());
    port.greeting = Duration::from_millis(20);
    for said in [PREFACE.to_vec(), [&PREFACE[..], &[1], &[0; 32]].concat()] {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(&said).await.unwrap();
        let ended = serve(far, FROM, &port, None, &Echo).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
    assert_eq!(port.status().refused["late"], 2);
}

#[test]
fn frames_are_those_of_the_golden_bytes() {
    let request = request_frame(Topic::Transfer, 0x0102_0304_0506_0708, b"body").unwrap();
    let answers = [
        answer_frame(Ok(b"body")).unwrap(),
        answer_frame(Err(&Refusal::Misdirected)).unwrap(),
        answer_frame(Err(&Refusal::Unreadable("why".to_owned()))).unwrap(),
        answer_frame(Err(&Refusal::Stopped("why".to_owned()))).unwrap(),
        answer_frame(Err(&Refusal::Stranger("why".to_owned()))).unwrap(),
    ];
    golden::bytes("link-request-4", &[&PREFACE[..], &[0], &request].concat());
    golden::bytes("link-answers-4", &answers.concat());
    // With a secret: the proof of each end for two known nonces.
    let secret = secret("the cluster's secret");
    let ends = [secret::End::Asks, secret::End::Answers];
    let proofs = ends.map(|end| secret.proof(end, &[1; 32], &[2; 32]));
    golden::bytes("link-proofs-4", &proofs.concat());
}
