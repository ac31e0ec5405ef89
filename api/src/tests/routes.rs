use std::net::SocketAddr;

use reqwest::Method;
use serde_json::{Value, json};

use super::node::{DEAD, Node, OPEN, ROWS, serve};
use crate::ServiceError;
use crate::dto::Readiness;

struct Answer {
    status: u16,
    content_type: String,
    published: Option<String>,
    next: Option<String>,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn ask(method: Method, address: SocketAddr, path: &str, accept: &str) -> Answer {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client
        .request(method, format!("http://{address}{path}"))
        .header("accept", accept);
    let response = request.send().await.unwrap();
    let header = |name: &str| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    Answer {
        status: response.status().as_u16(),
        content_type: header("content-type").unwrap_or_default(),
        published: header("unisono-published"),
        next: header("unisono-next-cursor"),
        body: response.text().await.unwrap(),
    }
}

async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(Method::GET, address, path, "*/*").await
}

async fn all_published() -> SocketAddr {
    serve(Node {
        published: 4,
        ..Node::default()
    })
    .await
}

#[tokio::test]
async fn pipelines_are_listed_with_null_before_the_first_event() {
    let answer = get(all_published().await, "/v1/pipelines").await;
    let pipelines = &answer.json()["pipelines"];
    assert_eq!(
        (answer.status, pipelines.as_array().unwrap().len()),
        (200, 2)
    );
    assert_eq!(pipelines[0]["name"], "dns");
    for field in ["watermark", "published", "closed_through"] {
        assert_eq!(pipelines[0].get(field), Some(&Value::Null), "{field}");
    }
    assert_eq!(pipelines[0]["counters"]["late"], u64::MAX);
}

#[tokio::test]
async fn windows_in_json_are_the_rows_bytes_and_say_up_to_where_they_know() {
    let answer = get(all_published().await, "/v1/pipelines/dns/windows").await;
    let rows = ROWS.join(",");
    let expected =
        format!(r#"{{"pipeline":"dns","published":4,"rows":[{rows}],"next_cursor":null}}"#);
    assert_eq!((answer.status, answer.body), (200, expected));
    assert_eq!(answer.content_type, "application/json");
}

#[tokio::test]
async fn windows_in_ndjson_are_the_rows_bytes_one_a_line() {
    let address = all_published().await;
    let path = "/v1/pipelines/dns/windows";
    let accepted = ask(
        Method::GET,
        address,
        path,
        "text/html, application/x-ndjson;q=0.9",
    )
    .await;
    let named = get(address, "/v1/pipelines/dns/windows?format=ndjson").await;
    for answer in [accepted, named] {
        assert_eq!(answer.body, ROWS.map(|row| format!("{row}\n")).concat());
        assert_eq!(answer.content_type, "application/x-ndjson");
        assert_eq!(
            (answer.published.as_deref(), answer.next),
            (Some("4"), None)
        );
    }
    let format = "/v1/pipelines/dns/windows?format=json";
    let format = ask(Method::GET, address, format, "application/x-ndjson").await;
    assert_eq!(format.content_type, "application/json");
}

#[tokio::test]
async fn nothing_published_is_an_empty_answer() {
    let address = serve(Node::default()).await;
    let answer = get(address, "/v1/pipelines/dns/windows").await;
    let empty = json!({"pipeline": "dns", "published": 0, "rows": [], "next_cursor": null});
    assert_eq!(answer.json(), empty);
    let answer = get(address, "/v1/pipelines/dns/windows?format=ndjson").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
}

#[tokio::test]
async fn pages_follow_each_other_by_the_cursor() {
    let address = all_published().await;
    let mut seen = String::new();
    let mut path = "/v1/pipelines/dns/windows?limit=3&format=ndjson".to_owned();
    let mut pages = 0;
    loop {
        let answer = get(address, &path).await;
        seen.push_str(&answer.body);
        pages += 1;
        let Some(next) = answer.next else { break };
        path = format!("/v1/pipelines/dns/windows?limit=3&format=ndjson&cursor={next}");
    }
    assert_eq!(
        (seen, pages),
        (ROWS.map(|row| format!("{row}\n")).concat(), 2)
    );
    let in_json = get(address, "/v1/pipelines/dns/windows?limit=1")
        .await
        .json();
    assert_eq!(in_json["next_cursor"], "w.28.1");
}

#[tokio::test]
async fn times_and_group_fields_select_rows() {
    let address = all_published().await;
    let check = async |query: &str, expected: &[usize]| {
        let answer = get(
            address,
            &format!("/v1/pipelines/dns/windows?{query}&format=ndjson"),
        )
        .await;
        let rows: String = expected
            .iter()
            .map(|at| format!("{}\n", ROWS[*at]))
            .collect();
        assert_eq!((answer.status, answer.body), (200, rows), "{query}");
    };
    check("rcode=NOERROR", &[0, 2]).await;
    check("group.rcode=S%C3%BCd+%26+Ost", &[3]).await;
    check("from=1970-01-01T00:01:00Z", &[2, 3]).await;
    check("from=1970-01-01T01:01:00%2B01:00&to=180000", &[2, 3]).await;
    check("to=60000&rcode=NXDOMAIN", &[1]).await;
}

#[tokio::test]
async fn a_bad_query_is_refused_with_code_and_hint() {
    let address = all_published().await;
    let check = async |query: &str, code: &str, hint: &str| {
        let answer = get(address, &format!("/v1/pipelines/dns/windows?{query}")).await;
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status, &error["code"]),
            (400, &json!(code)),
            "{query}"
        );
        assert!(
            error["hint"].as_str().unwrap().contains(hint),
            "{query}: {error}"
        );
    };
    check("from=yesterday", "bad_query", "2018-03-24T17:15:00Z").await;
    check("to=2018-03-24T17:15:00", "bad_query", "with a zone").await;
    check("from=2&to=1", "bad_query", "swap").await;
    check("limit=0", "bad_query", "1 to 10000").await;
    check("limit=10001", "bad_query", "1 to 10000").await;
    check("limit=-1", "bad_query", "1 to 10000").await;
    check("cursor=5", "bad_query", "next_cursor").await;
    check("cursor=d.28.1", "bad_query", "next_cursor").await;
    check("cursor=w.29.1", "bad_query", "next_cursor").await;
    check("format=xml", "bad_query", "ndjson").await;
    check("rcode=a&rcode=b", "bad_query", "once").await;
    check("rcod=NOERROR", "unknown_parameter", "rcode, limit").await;
    check("group.from=1", "unknown_parameter", "rcode, limit").await;
}

#[tokio::test]
async fn what_is_not_there_is_a_json_error_too() {
    let address = all_published().await;
    for route in ["windows", "open", "dead-letters"] {
        let answer = get(address, &format!("/v1/pipelines/dnss/{route}")).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["code"]),
            (404, &json!("unknown_pipeline")),
            "{route}"
        );
        assert!(
            error["hint"].as_str().unwrap().contains("dns, a b/ü"),
            "{error}"
        );
    }
    let answer = get(address, "/v1/nothing").await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (404, &json!("unknown_route"))
    );
    let answer = ask(Method::POST, address, "/v1/pipelines", "*/*").await;
    assert_eq!(answer.status, 405);
    assert_eq!(answer.json()["error"]["code"], "method_not_allowed");
    let answer = get(address, "/v1/pipelines/%FF/windows").await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!("bad_query"))
    );
}

#[tokio::test]
async fn faults_of_the_node_have_their_status() {
    let check = async |fault: ServiceError, status: u16, code: &str| {
        let address = serve(Node {
            fault: Some(fault),
            ..Node::default()
        })
        .await;
        let answer = get(address, "/v1/pipelines/dns/windows").await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (status, &json!(code))
        );
    };
    check(ServiceError::Gone { first: 5, asked: 1 }, 410, "gone").await;
    check(
        ServiceError::Unavailable("no leader".into()),
        503,
        "unavailable",
    )
    .await;
    check(ServiceError::Internal("disk".into()), 500, "internal").await;
    check(
        ServiceError::UnknownPipeline("dns".into()),
        404,
        "unknown_pipeline",
    )
    .await;
    let answer = get(all_published().await, "/v1/pipelines/dns/windows?limit=666").await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (500, &json!("internal"))
    );
}

#[tokio::test]
async fn open_windows_and_dead_letters_are_given_as_they_are() {
    let address = all_published().await;
    let open = get(address, "/v1/pipelines/dns/open").await;
    let head = r#"{"pipeline":"dns","tick":5,"watermark":null,"truncated":false,"rows":["#;
    assert_eq!(
        open.body,
        format!(r#"{head}{OPEN},{OPEN}],"next_cursor":null}}"#)
    );
    let first = get(address, "/v1/pipelines/dns/open?limit=1").await.body;
    assert!(
        first.ends_with(&format!(
            r#""truncated":true,"rows":[{OPEN}],"next_cursor":"o.60000.ff"}}"#
        )),
        "{first}"
    );
    let second = get(address, "/v1/pipelines/dns/open?limit=1&cursor=o.60000.ff").await;
    let end = format!(r#""truncated":false,"rows":[{OPEN}],"next_cursor":null}}"#);
    assert!(second.body.ends_with(&end), "{}", second.body);
    for wrong in [
        "limit=0",
        "limit=10001",
        "from=1",
        "limit=1&limit=2",
        "cursor=w.28.1",
        "cursor=o.1.x",
    ] {
        let answer = get(address, &format!("/v1/pipelines/dns/open?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    let dead = get(address, "/v1/pipelines/dns/dead-letters?limit=1").await;
    let rows = DEAD[0];
    let expected =
        format!(r#"{{"pipeline":"dns","published":2,"rows":[{rows}],"next_cursor":"d.28.1"}}"#);
    assert_eq!(dead.body, expected);
    let next = "/v1/pipelines/dns/dead-letters?cursor=d.28.1&format=ndjson";
    assert_eq!(get(address, next).await.body, format!("{}\n", DEAD[1]));
    let wrong = get(address, "/v1/pipelines/dns/dead-letters?from=1").await;
    assert_eq!(wrong.json()["error"]["code"], "unknown_parameter");
}

#[tokio::test]
async fn a_name_with_signs_is_reached_escaped() {
    let answer = get(
        all_published().await,
        "/v1/pipelines/a%20b%2F%C3%BC/windows?limit=1",
    )
    .await;
    assert_eq!(
        (answer.status, &answer.json()["pipeline"]),
        (200, &json!("a b/ü"))
    );
}

#[tokio::test]
async fn the_cluster_names_stopped_feeds_and_what_is_not_known_is_null() {
    let cluster = get(all_published().await, "/v1/cluster").await.json();
    let feeds = json!([
        {"name": "a", "state": "running"},
        {"name": "b", "state": "stopped", "error": "offsets 5 to 9 are gone"},
    ]);
    assert_eq!(cluster["feeds"], feeds);
    assert_eq!(
        (&cluster["leader"], &cluster["nodes"][0]["role"]),
        (&json!(1), &json!("leader"))
    );
    assert_eq!(
        (&cluster["tick"], &cluster["agreed_time"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(cluster["frontier"], json!({"dns": null}));
}

#[tokio::test]
async fn a_node_that_is_not_ready_lives() {
    let readiness = Readiness {
        ready: false,
        reasons: vec!["no leader is known".into()],
        notices: Vec::new(),
    };
    let address = serve(Node {
        readiness,
        ..Node::default()
    })
    .await;
    assert_eq!(get(address, "/healthz").await.status, 200);
    let answer = get(address, "/readyz").await;
    let expected = json!({"ready": false, "reasons": ["no leader is known"]});
    assert_eq!((answer.status, answer.json()), (503, expected));
    let readiness = Readiness {
        ready: true,
        ..Readiness::default()
    };
    let address = serve(Node {
        readiness,
        ..Node::default()
    })
    .await;
    assert_eq!(get(address, "/readyz").await.status, 200);
    assert_eq!(get(address, "/readyz?pipeline=dns").await.status, 200);
    assert_eq!(get(address, "/readyz?pipeline=no").await.status, 404);
    assert_eq!(get(address, "/readyz?feed=dns").await.status, 400);
}

#[tokio::test]
async fn an_address_that_is_escaped_badly_is_refused() {
    let address = all_published().await;
    for path in [
        "/v1/pipelines/%zz/windows",
        "/v1/pipelines/dns/windows?city=%f",
        "/v1/pipelines/dns/windows?city=%ff",
    ] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert_eq!(answer.json()["error"]["code"], "bad_query");
    }
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let answer = get(all_published().await, "/metrics").await;
    let expected = "# HELP unisono_rows_total rows published\n\
                    # TYPE unisono_rows_total counter\n\
                    unisono_rows_total{pipeline=\"dns\"} 4\n";
    assert_eq!((answer.status, answer.body.as_str()), (200, expected));
    assert_eq!(
        answer.content_type,
        "text/plain; version=0.0.4; charset=utf-8"
    );
}
