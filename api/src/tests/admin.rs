use super::node::{Node, serve};
use crate::client::{Client, ClientError};
use crate::dto::{AppliedPipeline, Apply, EndTicks, LaneStart};
use crate::{Order, ServiceError};

async fn client(node: Node) -> Client {
    Client::new(&format!("http://{}", serve(node).await)).unwrap()
}

#[tokio::test]
async fn every_command_reaches_the_node_as_it_was_given() {
    let client = client(Node::default()).await;
    let apply = Apply {
        sinks: Vec::new(),
        pipelines: vec![AppliedPipeline {
            name: "p".into(),
            sink: "builtin".into(),
            definition: "{\"a\":1}".into(),
        }],
    };
    let end = EndTicks {
        starts: vec![LaneStart {
            lane: "0".into(),
            offset: 7,
        }],
    };
    for order in [
        Order::Apply(apply),
        Order::RemovePipeline("a b/ü".into()),
        Order::PausePipeline("p".into()),
        Order::ResumePipeline("p".into()),
        Order::RemoveMember(3),
        Order::Transfer(None),
        Order::Transfer(Some(2)),
        Order::HoldFeed("a+b#7".into()),
        Order::AcceptTicks("a+b#7".into()),
        Order::EndTicks("7".into(), end),
    ] {
        let done = client.order(&order).await.unwrap();
        assert_eq!(done.done, [format!("{order:?}")]);
    }
}

#[tokio::test]
async fn what_does_not_fit_is_a_conflict_and_an_unknown_pipeline_is_not_found() {
    for (fault, status) in [
        (ServiceError::Conflict("no".into()), 409),
        (ServiceError::UnknownPipeline("p".into()), 404),
        (ServiceError::Unavailable("no leader".into()), 503),
    ] {
        let node = Node {
            fault: Some(fault),
            ..Node::default()
        };
        let refused = client(node).await.order(&Order::RemoveMember(3)).await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, ClientError::Refused { status: found, .. } if *found == status),
            "{refused}"
        );
    }
}

/// A page in a browser can send a form or a text to any address, but not JSON without being asked first.
#[tokio::test]
async fn a_command_is_json_and_posted_or_it_is_none() {
    let address = serve(Node::default()).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = |path: &str| format!("http://{address}/v1/admin/{path}");
    let json = "application/json";
    for (path, kind, body, status) in [
        ("pipelines/p/pause", "text/plain", "{}", 400),
        ("pipelines/p/pause", json, "{\"more\":1}", 400),
        ("pipelines/p/pause", json, "{}", 200),
        ("pipelines/p/forget", json, "{}", 404),
        ("members/x/remove", json, "{}", 400),
        ("apply", json, "{\"pipeline\":[]}", 400),
        ("apply", "application/x-www-form-urlencoded", "{}", 400),
        ("transfer", json, "{\"to\":\"two\"}", 400),
        ("drain", json, "{}", 400),
    ] {
        let request = http.post(url(path)).header("content-type", kind);
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path} {kind} {body}");
    }
    let answer = http.get(url("apply")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 405);
    assert!(answer.text().await.unwrap().contains("use POST"));
}
