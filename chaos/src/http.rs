//! What a replica answers over HTTP, read as a stranger would read it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::order::PIPELINE;

/// How long a replica may take to answer; a frozen one never does.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// A client that keeps its connections and uses no proxy.
///
/// # Errors
/// The client could not be made.
pub fn client() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .tcp_nodelay(true)
        .timeout(ANSWER_WITHIN)
        .build()
        .context("cannot make an HTTP client")
}

/// `GET /v1/cluster`, as far as drills use it.
#[derive(Clone, Debug, Deserialize)]
pub struct ClusterView {
    /// The node that answers.
    pub node: u16,
    /// Whom it takes for the leader.
    pub leader: Option<u16>,
    /// The Raft term.
    pub term: u64,
    /// `leader`, `follower`, `candidate` or `learner`.
    pub role: String,
    /// The members as it sees them.
    #[serde(default)]
    pub nodes: Vec<NodeView>,
    /// Where nodes' files are not what is agreed.
    #[serde(default)]
    pub drifts: Vec<serde_json::Value>,
}

/// One member in `GET /v1/cluster`, as far as drills use it.
#[derive(Clone, Debug, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub id: u16,
    /// How long a question to it and its answer took, in microseconds.
    pub round_trip_us: Option<u64>,
}

/// One pipeline in `GET /v1/pipelines`, as far as drills use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineView {
    /// Rows computed so far.
    pub next_seq: u64,
    /// The running digest over them.
    pub digest: String,
}

async fn get(client: &reqwest::Client, url: &str) -> Result<String> {
    let answer = client
        .get(url)
        .send()
        .await
        .with_context(|| format!("no answer from {url}"))?;
    let status = answer.status();
    let body = answer
        .text()
        .await
        .with_context(|| format!("answer of {url} broke off"))?;
    if !status.is_success() {
        bail!("{url} answered {status}: {body}");
    }
    Ok(body)
}

/// Asks a node how it sees the cluster.
///
/// # Errors
/// No answer within a second, or one of another shape.
pub async fn cluster_view(client: &reqwest::Client, address: &str) -> Result<ClusterView> {
    let body = get(client, &format!("http://{address}/v1/cluster")).await?;
    serde_json::from_str(&body).with_context(|| format!("{address}: not a cluster: {body}"))
}

/// Why a node says that it is not ready; empty: it is.
///
/// # Errors
/// No answer within a second, or one of another shape.
pub async fn not_ready(client: &reqwest::Client, address: &str) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Readiness {
        reasons: Vec<String>,
    }
    let url = format!("http://{address}/readyz");
    let body = client.get(&url).send().await?.text().await?;
    let answer: Readiness =
        serde_json::from_str(&body).with_context(|| format!("{url} answered {body}"))?;
    Ok(answer.reasons)
}

/// A figure of a node's metrics that has no labels.
///
/// # Errors
/// No answer within a second, or one without that figure.
pub async fn metric(client: &reqwest::Client, address: &str, name: &str) -> Result<f64> {
    let url = format!("http://{address}/metrics");
    let body = get(client, &url).await?;
    let value = body
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("{url} has no {name}"))?;
    Ok(value.parse()?)
}

/// Asks a node for the state of a pipeline.
///
/// # Errors
/// No answer within a second, or one of another shape.
pub async fn pipeline_view(
    client: &reqwest::Client,
    address: &str,
    name: &str,
) -> Result<PipelineView> {
    let body = get(client, &format!("http://{address}/v1/pipelines")).await?;
    let answer: serde_json::Value = serde_json::from_str(&body)?;
    let list = answer.get("pipelines").unwrap_or(&answer).as_array();
    let named = |pipeline: &&serde_json::Value| pipeline["name"] == name;
    let pipeline = list.and_then(|list| list.iter().find(named));
    let view = pipeline.and_then(|pipeline| {
        let next_seq = pipeline["next_seq"].as_u64()?;
        Some(PipelineView {
            next_seq,
            digest: pipeline["digest"].as_str()?.to_owned(),
        })
    });
    view.with_context(|| format!("{address} does not list the pipeline {name}: {body}"))
}

#[derive(Deserialize)]
struct RawPage<'a> {
    published: Option<u64>,
    #[serde(borrow)]
    rows: Vec<&'a RawValue>,
    next_cursor: Option<String>,
}

/// New rows of one node.
#[derive(Debug, Default)]
pub struct Step {
    /// Up to which number the node knows rows as published.
    pub published: u64,
    /// The rows' bytes.
    pub rows: Vec<String>,
    /// What had been read before and now reads differently.
    pub broken: Vec<String>,
}

/// Reads a node's published rows page by page, and goes on at the end as they grow.
#[derive(Debug)]
pub struct RowReader {
    client: reqwest::Client,
    address: String,
    cursor: Option<String>,
    /// Rows after the cursor that were handed out already: at the end of the rows there is no next cursor yet.
    handed_out: Vec<String>,
}

impl RowReader {
    /// Starts at the first row that the node retains.
    #[must_use]
    pub fn new(client: reqwest::Client, address: &str) -> Self {
        let address = address.to_owned();
        Self {
            client,
            address,
            cursor: None,
            handed_out: Vec::new(),
        }
    }

    /// Asks for one more page.
    ///
    /// # Errors
    /// No answer within a second, or one of another shape; the next call asks for the same page again.
    pub async fn advance(&mut self, limit: usize) -> Result<Step> {
        let mut url = format!(
            "http://{}/v1/pipelines/{PIPELINE}/windows?limit={limit}",
            self.address
        );
        if let Some(cursor) = &self.cursor {
            url.push_str("&cursor=");
            url.push_str(cursor);
        }
        let body = get(&self.client, &url).await?;
        let page: RawPage<'_> =
            serde_json::from_str(&body).with_context(|| format!("{url}: not a page: {body}"))?;
        Ok(self.take(&page))
    }

    fn take(&mut self, page: &RawPage<'_>) -> Step {
        let mut step = Step {
            published: page.published.unwrap_or(0),
            ..Step::default()
        };
        for (row, before) in page.rows.iter().zip(&self.handed_out) {
            if row.get() != before {
                step.broken
                    .push(format!("{before} reads {} later", row.get()));
            }
        }
        let rows = page.rows.iter().map(|row| row.get().to_owned());
        step.rows = rows.skip(self.handed_out.len()).collect();
        match &page.next_cursor {
            // A page shorter than what was handed out comes from a replica that is still catching up.
            Some(next) if page.rows.len() >= self.handed_out.len() => {
                self.cursor = Some(next.clone());
                self.handed_out.clear();
            }
            _ => self.handed_out.extend(step.rows.iter().cloned()),
        }
        step
    }

    /// Everything that the node has published until now.
    ///
    /// # Errors
    /// As for `advance`.
    pub async fn read_all(mut self, limit: usize) -> Result<Step> {
        let mut whole = Step::default();
        loop {
            let step = self.advance(limit).await?;
            // Without a next cursor the last page was the end, and its rows are remembered as handed out.
            let at_end = step.rows.is_empty() || !self.handed_out.is_empty();
            whole.published = step.published;
            whole.rows.extend(step.rows);
            whole.broken.extend(step.broken);
            if at_end {
                return Ok(whole);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn step(reader: &mut RowReader, page: &str) -> String {
        let page: RawPage<'_> = serde_json::from_str(page).unwrap();
        let step = reader.take(&page);
        format!("{} {}", step.rows.join(","), step.broken.len())
    }

    #[test]
    fn rows_are_handed_out_once_while_the_end_grows() {
        let mut reader = RowReader::new(client().unwrap(), "127.0.0.1:1");
        let reader = &mut reader;
        assert_eq!(
            step(reader, r#"{"published":2,"rows":[0,1],"next_cursor":"a"}"#),
            "0,1 0"
        );
        assert_eq!(
            step(reader, r#"{"published":3,"rows":[2],"next_cursor":null}"#),
            "2 0"
        );
        assert_eq!(
            step(reader, r#"{"published":4,"rows":[2,3],"next_cursor":null}"#),
            "3 0"
        );
        assert_eq!(
            step(reader, r#"{"published":1,"rows":[],"next_cursor":null}"#),
            " 0"
        );
        assert_eq!(
            step(
                reader,
                r#"{"published":5,"rows":[2,3,4],"next_cursor":"b"}"#
            ),
            "4 0"
        );
        assert_eq!(
            step(reader, r#"{"published":5,"rows":[],"next_cursor":null}"#),
            " 0"
        );
    }

    #[test]
    fn a_row_that_changes_after_it_was_read_is_told() {
        let mut reader = RowReader::new(client().unwrap(), "127.0.0.1:1");
        assert_eq!(
            step(
                &mut reader,
                r#"{"published":1,"rows":[7],"next_cursor":null}"#
            ),
            "7 0"
        );
        assert_eq!(
            step(
                &mut reader,
                r#"{"published":1,"rows":[8],"next_cursor":null}"#
            ),
            " 1"
        );
    }
}
