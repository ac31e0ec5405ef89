use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::node::{Node, serve_with};
use crate::connections::Patience;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);
const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";

fn patience() -> Patience {
    Patience {
        connections: 2,
        head: LONG * 10,
        take: LONG * 10,
    }
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let read = timeout(LONG, stream.read(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes[..read.unwrap()]).into_owned()
}

#[tokio::test]
async fn a_client_that_does_not_say_what_it_wants_is_let_go() {
    let patience = Patience {
        head: SHORT,
        ..patience()
    };
    let address = serve_with(Node::default(), patience).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    silent.write_all(&REQUEST[..9]).await.unwrap();
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut idle).await.contains("200 OK"));
    for stream in [&mut silent, &mut idle] {
        let mut rest = Vec::new();
        let ended = timeout(LONG, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection is still open");
    }
}

#[tokio::test]
async fn beyond_the_greatest_number_of_connections_one_waits_for_another_to_end() {
    let address = serve_with(Node::default(), patience()).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    for stream in [&mut first, &mut second] {
        stream.write_all(REQUEST).await.unwrap();
        assert!(answer(stream).await.contains("200 OK"));
    }
    let mut third = TcpStream::connect(address).await.unwrap();
    third.write_all(REQUEST).await.unwrap();
    assert!(timeout(SHORT, third.readable()).await.is_err());
    drop(first);
    assert!(answer(&mut third).await.contains("200 OK"));
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answers_is_let_go() {
    let patience = Patience {
        take: SHORT,
        ..patience()
    };
    let address = serve_with(Node::default(), patience).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // More answers than the system holds for a client that reads none of them.
    let requests = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n".repeat(2000);
    let asks = async { while stream.write_all(&requests).await.is_ok() {} };
    timeout(LONG, asks).await.unwrap();
}
