use super::node::{Node, OPEN, ROWS, cluster, pipeline, serve};
use crate::client::{Client, ClientError, RowsRequest};
use crate::dto::Readiness;

async fn client(node: Node) -> Client {
    Client::new(&format!("http://{}", serve(node).await)).unwrap()
}

#[tokio::test]
async fn what_the_node_says_arrives_whole() {
    let readiness = Readiness {
        ready: false,
        reasons: vec!["behind".into()],
        notices: vec!["a transaction is open".into()],
    };
    let client = client(Node {
        published: 4,
        readiness: readiness.clone(),
        fault: None,
    })
    .await;
    assert_eq!(client.pipelines().await.unwrap()[0], pipeline("dns", 40));
    assert_eq!(client.cluster().await.unwrap(), cluster());
    assert_eq!(client.readiness().await.unwrap(), readiness);
    assert!(client.metrics().await.unwrap().starts_with(b"# HELP"));
    let open = client.open_windows("a b/ü").await.unwrap();
    assert!(std::str::from_utf8(&open).unwrap().contains(OPEN));
    let dead = client
        .dead_letters("dns", &RowsRequest::default())
        .await
        .unwrap();
    assert_eq!(dead.lines().count(), 2);
}

#[tokio::test]
async fn rows_are_the_published_bytes_page_by_page() {
    let client = client(Node {
        published: 4,
        ..Node::default()
    })
    .await;
    let mut request = RowsRequest {
        limit: Some(3),
        ..RowsRequest::default()
    };
    let first = client.windows("dns", &request).await.unwrap();
    assert_eq!((first.published, first.lines().count()), (4, 3));
    request.cursor = first.next_cursor.clone();
    let second = client.windows("dns", &request).await.unwrap();
    let rows: Vec<&[u8]> = first.lines().chain(second.lines()).collect();
    assert_eq!(
        (rows, second.next_cursor.clone()),
        (ROWS.map(str::as_bytes).to_vec(), None)
    );
    let request = RowsRequest {
        groups: vec![("rcode".to_owned(), "Süd & Ost".to_owned())],
        from: Some("1970-01-01T00:00:00+00:00".to_owned()),
        ..RowsRequest::default()
    };
    let chosen = client.windows("dns", &request).await.unwrap();
    assert_eq!(chosen.lines().collect::<Vec<_>>(), [ROWS[3].as_bytes()]);
}

#[tokio::test]
async fn a_refusal_carries_the_nodes_words() {
    let client = client(Node::default()).await;
    let error = client
        .windows("nothing", &RowsRequest::default())
        .await
        .unwrap_err();
    let ClientError::Refused {
        status: 404,
        detail,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(detail.code, "unknown_pipeline");
    assert!(detail.hint.contains("dns"));
}

#[tokio::test]
async fn a_node_that_is_down_is_told_from_one_that_refuses() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(&format!("http://{address}/")).unwrap();
    let error = client.pipelines().await.unwrap_err();
    assert!(matches!(&error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn an_address_that_cannot_be_one_is_refused_before_anything_is_sent() {
    for wrong in ["", "127.0.0.1:8101", "https://a", "file:///etc", "http://"] {
        let error = Client::new(wrong).unwrap_err();
        assert!(
            matches!(error, ClientError::Address { .. }),
            "{wrong}: {error}"
        );
    }
}
