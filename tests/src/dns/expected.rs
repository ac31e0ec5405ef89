//! What must come out: computed by `unisono eval`, and where it can by the reference, which must agree.

use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use super::LANES;
use super::pipelines::{ALL, Pipeline};
use crate::events::{deal, dns_log, real_log};
use crate::{reference, unisono_binary};

/// The log and what it must give.
pub(super) struct Expected {
    /// Line `n` goes to lane `n % LANES`.
    pub(super) log: String,
    pub(super) lines: usize,
    pub(super) streams: Vec<Stream>,
}

/// The rows of one pipeline.
pub(super) struct Stream {
    pub(super) pipeline: &'static str,
    pub(super) rows: Vec<String>,
    /// The digest over all of them, as `eval` tells it.
    pub(super) digest: String,
}

impl Expected {
    /// Computed once for each test process.
    ///
    /// # Panics
    /// If `eval` and the reference differ.
    pub(super) fn get() -> &'static Self {
        static EXPECTED: OnceLock<Expected> = OnceLock::new();
        EXPECTED.get_or_init(|| match Self::compute() {
            Ok(expected) => expected,
            Err(error) => panic!("{error:#}"),
        })
    }

    fn compute() -> Result<Self> {
        let log = real_log("zeek_dns.json.gz").unwrap_or_else(|| dns_log(1, 60_000));
        let lanes = deal(&log, LANES);
        let streams = ALL.iter().map(|pipeline| Stream::compute(pipeline, &lanes));
        Ok(Self {
            lines: log.lines().count(),
            streams: streams.collect::<Result<_>>()?,
            log,
        })
    }
}

impl Stream {
    fn compute(pipeline: &Pipeline, lanes: &[String]) -> Result<Self> {
        let (rows, digest) = eval(pipeline, lanes)?;
        if let Some(question) = pipeline.question() {
            ensure!(
                rows == reference::answer(&question, lanes).rows,
                "pipeline {}: eval differs from the reference",
                pipeline.name
            );
        }
        ensure!(!rows.is_empty(), "pipeline {}: no row", pipeline.name);
        Ok(Self {
            pipeline: pipeline.name,
            rows,
            digest,
        })
    }
}

/// The rows and the digest that `unisono eval` gives for the lanes, a file each.
fn eval(pipeline: &Pipeline, lanes: &[String]) -> Result<(Vec<String>, String)> {
    let dir = tempfile::tempdir()?;
    let definition = dir.path().join("pipeline.toml");
    std::fs::write(&definition, pipeline.definition())?;
    let mut command = Command::new(unisono_binary());
    command
        .arg("eval")
        .arg(&definition)
        .args(["--format", "ndjson"]);
    for (number, lane) in lanes.iter().enumerate() {
        let file = dir.path().join(format!("{number}.ndjson"));
        std::fs::write(&file, lane)?;
        command.arg(file);
    }
    let output = command.output().context("cannot run unisono eval")?;
    let summary = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "unisono eval: {summary}");
    let (_, digest) = summary
        .trim_end()
        .rsplit_once("digest ")
        .with_context(|| format!("no digest in {summary:?}"))?;
    let rows = String::from_utf8(output.stdout)?;
    Ok((rows.lines().map(str::to_owned).collect(), digest.to_owned()))
}
