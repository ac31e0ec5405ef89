//! A client for the routes of one node: for the command line, the demo and tests.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Response, StatusCode, Url, header};
use serde::de::DeserializeOwned;

use crate::dto::{
    ClusterInfo, Done, Drain, ErrorBody, ErrorDetail, PipelineInfo, Pipelines, Readiness, Transfer,
};
use crate::routes::rows::{NDJSON, NEXT_CURSOR, PUBLISHED};
use crate::service::Order;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a request may take in all.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a command may take: it is answered when it is agreed.
const ORDER_TIMEOUT: Duration = Duration::from_secs(45);

/// Why a request gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address cannot be used; nothing was sent.
    #[error("{url:?} is no address of a node: {reason}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The node gave no answer. Ask another.
    #[error("no answer from {url}: {reason}")]
    Unreachable {
        /// The request.
        url: String,
        /// The cause, down to the operating system's words.
        reason: String,
    },
    /// The node refused and said why.
    #[error("{} ({})", detail.message, detail.code)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the node said.
        detail: ErrorDetail,
    },
    /// Something answered that is no node, or one of another version.
    #[error("{url} answers what no node of this version would: {reason}")]
    Foreign {
        /// The request.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// Which rows are wanted; texts go to the node as they are, which checks them.
#[derive(Clone, Debug, Default)]
pub struct RowsRequest {
    /// Only windows that end after this: RFC 3339 or milliseconds since 1970.
    pub from: Option<String>,
    /// Only windows that start before this: RFC 3339 or milliseconds since 1970.
    pub to: Option<String>,
    /// Fields of the group and the value each must have.
    pub groups: Vec<(String, String)>,
    /// The greatest number of rows.
    pub limit: Option<usize>,
    /// Where to go on.
    pub cursor: Option<String>,
}

/// Rows as the node holds them, to the byte.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Rows below this number are published, as far as the node knows.
    pub published: u64,
    /// Where to go on; `None` at the end.
    pub next_cursor: Option<String>,
    /// One row a line.
    pub body: Bytes,
}

impl Rows {
    /// The rows, each one JSON object.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
    }
}

/// Talks to one node; cheap to clone, connections are kept.
#[derive(Clone, Debug)]
pub struct Client {
    base: Url,
    http: reqwest::Client,
}

impl Client {
    /// A client for the node at `url`, such as `http://127.0.0.1:8101`. Connects with the first request, never by a proxy.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let wrong = |reason: String| ClientError::Address {
            url: url.to_owned(),
            reason,
        };
        let base = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        if base.scheme() != "http" || !base.has_host() {
            return Err(wrong(
                "it must begin with http:// and name a host".to_owned(),
            ));
        }
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|error| wrong(causes(&error)))?;
        Ok(Self { base, http })
    }

    /// The address that requests go to.
    #[must_use]
    pub fn url(&self) -> &str {
        self.base.as_str()
    }

    /// All pipelines.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn pipelines(&self) -> Result<Vec<PipelineInfo>, ClientError> {
        let answer: Pipelines = self.json(&["v1", "pipelines"]).await?;
        Ok(answer.pipelines)
    }

    /// Published rows of a pipeline, one page.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn windows(
        &self,
        pipeline: &str,
        request: &RowsRequest,
    ) -> Result<Rows, ClientError> {
        self.rows(&["v1", "pipelines", pipeline, "windows"], request)
            .await
    }

    /// Dead letters of a pipeline, one page; only `limit` and `cursor` count.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn dead_letters(
        &self,
        pipeline: &str,
        request: &RowsRequest,
    ) -> Result<Rows, ClientError> {
        self.rows(&["v1", "pipelines", pipeline, "dead-letters"], request)
            .await
    }

    /// Windows that are still open, as the node's JSON.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn open_windows(&self, pipeline: &str) -> Result<Bytes, ClientError> {
        let url = self.address(&["v1", "pipelines", pipeline, "open"])?;
        let response = accepted(self.send(url.clone(), "application/json").await?).await?;
        body(&url, response).await
    }

    /// The cluster as the node sees it.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn cluster(&self) -> Result<ClusterInfo, ClientError> {
        self.json(&["v1", "cluster"]).await
    }

    /// Gives a command; the answer comes when it is committed and applied.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn order(&self, order: &Order) -> Result<Done, ClientError> {
        let pipeline =
            |name: &str, action| self.address(&["v1", "admin", "pipelines", name, action]);
        let nothing = || b"{}".to_vec();
        let feed = |name: &str, action| self.address(&["v1", "admin", "feeds", name, action]);
        let (url, body) = match order {
            Order::Apply(apply) => (self.address(&["v1", "admin", "apply"])?, json(apply)),
            Order::RemovePipeline(name) => (pipeline(name, "remove")?, nothing()),
            Order::PausePipeline(name) => (pipeline(name, "pause")?, nothing()),
            Order::ResumePipeline(name) => (pipeline(name, "resume")?, nothing()),
            Order::RemoveMember(number) => {
                let number = number.to_string();
                let url = self.address(&["v1", "admin", "members", &number, "remove"])?;
                (url, nothing())
            }
            Order::Transfer(to) => {
                let url = self.address(&["v1", "admin", "transfer"])?;
                (url, json(&Transfer { to: *to }))
            }
            Order::HoldFeed(name) => (feed(name, "hold")?, nothing()),
            Order::AcceptTicks(name) => (feed(name, "accept")?, nothing()),
            Order::EndTicks(name, end) => (feed(name, "end")?, json(end)),
        };
        self.post(url, body).await
    }

    /// Has the node that is asked lead only while no other can, or like any other again.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn drain(&self, drained: bool) -> Result<Done, ClientError> {
        self.post(
            self.address(&["v1", "admin", "drain"])?,
            json(&Drain { drained }),
        )
        .await
    }

    async fn post(&self, url: Url, body: Vec<u8>) -> Result<Done, ClientError> {
        let request = self
            .http
            .post(url.clone())
            .timeout(ORDER_TIMEOUT)
            .body(body);
        let sent = request
            .header(header::CONTENT_TYPE, "application/json")
            .send();
        let response = sent.await.map_err(|error| unreachable_node(&url, &error))?;
        let response = accepted(response).await?;
        parse(&url, &self::body(&url, response).await?)
    }

    /// Whether the node serves, and if not, why.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        let url = self.address(&["readyz"])?;
        let response = self.send(url.clone(), "application/json").await?;
        let is_verdict =
            [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status());
        let response = if is_verdict {
            response
        } else {
            accepted(response).await?
        };
        parse(&url, &body(&url, response).await?)
    }

    /// The metrics, in Prometheus' text format.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn metrics(&self) -> Result<Bytes, ClientError> {
        let url = self.address(&["metrics"])?;
        let response = accepted(self.send(url.clone(), "text/plain").await?).await?;
        body(&url, response).await
    }

    async fn json<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, ClientError> {
        let url = self.address(path)?;
        let response = accepted(self.send(url.clone(), "application/json").await?).await?;
        parse(&url, &body(&url, response).await?)
    }

    async fn rows(&self, path: &[&str], request: &RowsRequest) -> Result<Rows, ClientError> {
        let mut url = self.address(path)?;
        let limit = request.limit.map(|limit| limit.to_string());
        let named = [
            ("from", &request.from),
            ("to", &request.to),
            ("limit", &limit),
            ("cursor", &request.cursor),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        for (field, value) in &request.groups {
            url.query_pairs_mut()
                .append_pair(&format!("group.{field}"), value);
        }
        let response = accepted(self.send(url.clone(), NDJSON).await?).await?;
        let text = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let Some(published) = text(PUBLISHED).and_then(|value| value.parse().ok()) else {
            let reason = format!("the header {PUBLISHED} is missing");
            return Err(ClientError::Foreign {
                url: url.to_string(),
                reason,
            });
        };
        let next_cursor = text(NEXT_CURSOR);
        Ok(Rows {
            published,
            next_cursor,
            body: body(&url, response).await?,
        })
    }

    fn address(&self, path: &[&str]) -> Result<Url, ClientError> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => {
                let reason = "it has no path".to_owned();
                return Err(ClientError::Address {
                    url: self.base.to_string(),
                    reason,
                });
            }
        };
        Ok(url)
    }

    async fn send(&self, url: Url, accept: &'static str) -> Result<Response, ClientError> {
        let request = self.http.get(url.clone()).header(header::ACCEPT, accept);
        request
            .send()
            .await
            .map_err(|error| unreachable_node(&url, &error))
    }
}

fn json<T: serde::Serialize>(body: &T) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

async fn body(url: &Url, response: Response) -> Result<Bytes, ClientError> {
    response
        .bytes()
        .await
        .map_err(|error| unreachable_node(url, &error))
}

fn unreachable_node(url: &Url, error: &reqwest::Error) -> ClientError {
    ClientError::Unreachable {
        url: url.to_string(),
        reason: causes(error),
    }
}

async fn accepted(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let url = response.url().clone();
    let bytes = body(&url, response).await?;
    match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(body) => Err(ClientError::Refused {
            status: status.as_u16(),
            detail: body.error,
        }),
        Err(_) => Err(ClientError::Foreign {
            url: url.to_string(),
            reason: format!("status {status}"),
        }),
    }
}

fn parse<T: DeserializeOwned>(url: &Url, bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::Foreign {
        url: url.to_string(),
        reason: error.to_string(),
    })
}

/// The innermost cause says most: "connection refused" rather than "error sending request".
fn causes(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
