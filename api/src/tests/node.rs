//! A node for tests: two pipelines with rows in memory, and a server before it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::connections::{self, Patience};
use crate::dto::{
    CheckpointInfo, ClusterInfo, Done, FeedInfo, FeedState, NodeInfo, PipelineInfo, Readiness,
    Role, WindowInfo,
};
use crate::{
    Metric, OpenPage, OpenPlace, OpenQuery, Order, Service, ServiceError, WindowsPage, WindowsQuery,
};

/// Rows with digits and spaces that no parser would give back as they are.
pub(super) const ROWS: [&str; 4] = [
    r#"{"pipeline":"dns","seq":0,"start":"1970-01-01T00:00:00Z","end":"1970-01-01T00:01:00Z","group":{"rcode":"NOERROR"},"values":{"total":5.35400000000000000000000001}}"#,
    r#"{"pipeline":"dns","seq":1,"start":"1970-01-01T00:00:00Z","end":"1970-01-01T00:01:00Z","group":{"rcode":"NXDOMAIN"},"values":{"total":9223372036854775808}}"#,
    r#"{"pipeline":"dns","seq":2,"start":"1970-01-01T00:01:00Z","end":"1970-01-01T00:02:00Z","group":{"rcode":"NOERROR"},"values":{"total": 1.0}}"#,
    r#"{"pipeline":"dns","seq":3,"start":"1970-01-01T00:02:00Z","end":"1970-01-01T00:03:00Z","group":{"rcode":"Süd & Ost"},"values":{"total":null}}"#,
];
pub(super) const DEAD: [&str; 2] = [
    r#"{"lane":"p0","offset":17,"reason":"not_json"}"#,
    r#"{"lane":"p1","offset":3}"#,
];
pub(super) const OPEN: &str = r#"{"start":"1970-01-01T00:03:00Z","values":{"total":0.10}}"#;

/// What the node says; tests change it.
#[derive(Default)]
pub(super) struct Node {
    pub(super) readiness: Readiness,
    pub(super) published: u64,
    pub(super) fault: Option<ServiceError>,
}

pub(super) fn pipeline(name: &str, incarnation: u64) -> PipelineInfo {
    PipelineInfo {
        name: name.to_owned(),
        incarnation,
        sources: vec!["queries".into()],
        sink: "builtin".into(),
        window: WindowInfo {
            size_ms: 60_000,
            slide_ms: 60_000,
            kind: None,
        },
        group_fields: vec!["rcode".into(), "limit".into()],
        digest: "0".repeat(32),
        counters: BTreeMap::from([("late".into(), u64::MAX)]),
        ..PipelineInfo::default()
    }
}

pub(super) fn cluster() -> ClusterInfo {
    let stopped = FeedState::Stopped {
        error: "offsets 5 to 9 are gone".into(),
    };
    ClusterInfo {
        node: 1,
        nodes: vec![NodeInfo {
            id: 1,
            role: Role::Leader,
            voter: true,
            ..NodeInfo::default()
        }],
        term: 7,
        leader: Some(1),
        feeds: vec![
            FeedInfo {
                name: "a".into(),
                state: FeedState::Running,
                dispute: None,
                ended: Vec::new(),
            },
            FeedInfo {
                name: "b".into(),
                state: stopped,
                dispute: None,
                ended: Vec::new(),
            },
        ],
        frontier: BTreeMap::from([("dns".into(), None)]),
        checkpoint: Some(CheckpointInfo { index: 7 }),
        ..ClusterInfo::default()
    }
}

fn page(rows: &[&'static str], published: u64, after: u64, limit: usize) -> WindowsPage {
    let below = usize::try_from(published).unwrap().min(rows.len());
    let from = usize::try_from(after).unwrap().min(below);
    let to = below.min(from + limit);
    WindowsPage {
        rows: rows[from..to]
            .iter()
            .map(|row| Bytes::from_static(row.as_bytes()))
            .collect(),
        published,
        next: (to < below).then(|| u64::try_from(to).unwrap()),
    }
}

impl Service for Node {
    fn order(&self, order: &Order) -> Result<Done, ServiceError> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(Done {
                done: vec![format!("{order:?}")],
            }),
        }
    }

    fn pipelines(&self) -> Vec<PipelineInfo> {
        vec![pipeline("dns", 40), pipeline("a b/ü", 41)]
    }

    fn windows(&self, _name: &str, query: &WindowsQuery) -> Result<WindowsPage, ServiceError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        assert_ne!(query.limit, 666, "the test asked for a panic");
        let mut page = page(&ROWS, self.published, query.after, query.limit);
        let minute = |row: &Bytes| ROWS.iter().position(|it| it.as_bytes() == row).unwrap() / 2;
        page.rows.retain(|row| {
            let start = i64::try_from(minute(row)).unwrap() * 60_000;
            query.from.is_none_or(|from| start + 60_000 > from)
                && query.to.is_none_or(|to| start < to)
                && query.groups.iter().all(|(name, value)| {
                    let field = format!(r#""{name}":"{value}""#);
                    std::str::from_utf8(row).unwrap().contains(&field)
                })
        });
        Ok(page)
    }

    fn open_windows(&self, _name: &str, query: &OpenQuery) -> Result<OpenPage, ServiceError> {
        let place = OpenPlace {
            end: 60_000,
            group: 255,
        };
        let left = if query.after == Some(place) { 1 } else { 2 };
        let rows = vec![Bytes::from_static(OPEN.as_bytes()); query.limit.min(left)];
        Ok(OpenPage {
            rows,
            tick: Some(5),
            watermark: None,
            next: (query.limit < left).then_some(place),
        })
    }

    fn dead_letters(
        &self,
        _name: &str,
        after: u64,
        limit: usize,
    ) -> Result<WindowsPage, ServiceError> {
        Ok(page(&DEAD, 2, after, limit))
    }

    fn cluster(&self) -> ClusterInfo {
        cluster()
    }

    fn readiness(&self, pipeline: Option<&str>) -> Result<Readiness, ServiceError> {
        match pipeline {
            Some(name) if self.pipeline(name).is_none() => {
                Err(ServiceError::UnknownPipeline(name.to_owned()))
            }
            _ => Ok(self.readiness.clone()),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::counter("unisono_rows_total", "rows published", 4.0).label("pipeline", "dns")]
    }
}

/// Serves `node` until the test's runtime ends.
pub(super) async fn serve(node: Node) -> SocketAddr {
    serve_with(node, Patience::default()).await
}

pub(super) async fn serve_with(node: Node, patience: Patience) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = crate::router(Arc::new(node));
    let served = connections::serve_with(listener, router, patience);
    tokio::spawn(async move { served.await.unwrap() });
    address
}
