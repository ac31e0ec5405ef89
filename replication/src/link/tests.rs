#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::golden;

/// A peer that answers with what was said, refuses what is said to node 9, and never answers a vote.
async fn echo(request: Request) -> Result<Vec<u8>, Refusal> {
    match (request.topic, request.target) {
        (Topic::Vote, _) => std::future::pending().await,
        (_, 9) => Err(Refusal::Misdirected),
        _ => Ok(request.body),
    }
}

fn listen(listener: TcpListener) -> JoinHandle<()> {
    tokio::spawn(async move {
        // One at a time is enough here; the listener goes with the task.
        while let Ok((stream, _)) = listener.accept().await {
            let stream = Stream::Tcp(stream);
            if is_link(&stream).await.unwrap() {
                let _ = serve(stream, echo).await;
            }
        }
    })
}

async fn peer() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap(), listen(listener))
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn answers_come_in_order_on_one_link_and_a_refusal_does_not_end_it() {
    let (address, _peer) = peer().await;
    let mut link = Link::new(address.to_string());
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
}

#[tokio::test]
async fn a_call_that_is_late_closes_the_link_and_its_answer_is_not_taken_for_the_next() {
    let (address, _peer) = peer().await;
    let mut link = Link::new(address.to_string());
    let late = link
        .call(Topic::Vote, 1, b"", Duration::from_millis(50))
        .await;
    assert!(matches!(late, Err(CallError::Broken(_))));
    assert!(link.stream.is_none());
}

#[tokio::test]
async fn a_link_that_the_peer_has_closed_is_made_again() {
    let (address, peer) = peer().await;
    let mut link = Link::new(address.to_string());
    link.call(Topic::Append, 1, b"before", LONG).await.unwrap();
    peer.abort();
    assert!(peer.await.unwrap_err().is_cancelled());
    let gone = link.call(Topic::Append, 1, b"meanwhile", LONG).await;
    assert!(matches!(gone, Err(CallError::Unreachable(_))), "{gone:?}");
    let _peer = listen(TcpListener::bind(address).await.unwrap());
    link.call(Topic::Append, 1, b"first", LONG).await.unwrap();
    assert_eq!(
        link.call(Topic::Append, 1, b"after", LONG).await.unwrap(),
        b"after"
    );
}

#[tokio::test]
async fn another_versions_link_is_refused_with_both_versions() {
    let (mut near, far) = tokio::io::duplex(1024);
    let mut preface = PREFACE;
    preface[7] = 9;
    near.write_all(&preface).await.unwrap();
    let error = serve(far, echo).await.unwrap_err().to_string();
    assert!(
        error.contains("version 9") && error.contains("version 3"),
        "{error}"
    );
    let answer = read_frame(&mut BufReader::new(near))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((answer[0], &answer[1..]), (2, error.as_bytes()));
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_a_length_beyond_the_bound_ends_the_link() {
    let (near, far) = tokio::io::duplex(1024);
    let served = tokio::spawn(serve(far, echo));
    let mut near = BufReader::new(near);
    near.write_all(&PREFACE).await.unwrap();
    near.write_all(&frame(&[&[77], &[0; 8]]).unwrap())
        .await
        .unwrap();
    assert_eq!(read_frame(&mut near).await.unwrap().unwrap()[0], 2);
    near.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    let ended = served.await.unwrap().unwrap_err();
    assert!(ended.to_string().contains("larger than"), "{ended}");
}

#[test]
fn frames_are_those_of_the_golden_bytes() {
    let request = request_frame(Topic::Transfer, 0x0102_0304_0506_0708, b"body").unwrap();
    let answers = [
        answer_frame(Ok(b"body".to_vec())).unwrap(),
        answer_frame(Err(Refusal::Misdirected)).unwrap(),
        answer_frame(Err(Refusal::Unreadable("why".to_owned()))).unwrap(),
        answer_frame(Err(Refusal::Stopped("why".to_owned()))).unwrap(),
    ];
    let said = [PREFACE.to_vec(), request].concat();
    let bytes = golden::bytes("link-request", &said);
    let read = parse_request(bytes[12..].to_vec()).unwrap();
    assert_eq!(
        (read.topic, read.target),
        (Topic::Transfer, 0x0102_0304_0506_0708)
    );
    assert_eq!(read.body, b"body");
    golden::bytes("link-answers", &answers.concat());
}
