//! The node behind the HTTP interface.

mod cluster;
mod config;
mod metrics;
mod open;
mod ready;

use std::sync::Arc;

use bytes::Bytes;
use unisono_api::dto::{ClusterInfo, Done, PipelineInfo, Readiness, WindowInfo};
use unisono_api::{
    Metric, OpenPage, OpenQuery, Order, Service, ServiceError, WindowsPage, WindowsQuery,
};
use unisono_engine::PipelineStats;
use unisono_engine::row::{Incarnation, Seq, StreamId, StreamKind};
use unisono_engine::spec::{Timestamp, WindowSpec};
use unisono_engine::timestamp;
use unisono_replication::machine::Pipeline;
use unisono_replication::rt::Handle;

use crate::admin::{self, Refusal};
use crate::alike;
use crate::core::{Agreed, Core};
use crate::ids::key_of;
use crate::results::{ResultsError, ScanFilter};
use crate::status;
use crate::threads::lock;

/// Answers from what this node knows; any replica can.
pub struct NodeService {
    core: Arc<Core>,
}

impl NodeService {
    #[must_use]
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    fn find(&self, name: &str) -> Result<Incarnation, ServiceError> {
        let agreed = self.core.agreed();
        let found = agreed.machine.pipeline_named(name).map(|(id, _)| id);
        drop(agreed);
        let unknown = || match status::has_read_log(&self.core) {
            true => ServiceError::UnknownPipeline(name.to_owned()),
            false => log_unread(),
        };
        found.map(Incarnation).ok_or_else(unknown)
    }

    fn rows(
        &self,
        stream: StreamId,
        filter: &ScanFilter,
        after: u64,
        limit: usize,
    ) -> Result<WindowsPage, ServiceError> {
        let agreed = self.core.agreed();
        let hole = status::hole(&self.core, &agreed, stream);
        let published = alike::served(&self.core, &agreed, stream);
        drop(agreed);
        let published = Seq(published.map_err(ServiceError::Unavailable)?);
        if published == Seq(0) && !status::has_read_log(&self.core) {
            return Err(log_unread());
        }
        if let Some((first, end)) = hole.filter(|(first, _)| after >= *first) {
            let last = end.saturating_sub(1);
            let reason = format!("rows {first} to {last} are published and not here yet");
            return Err(ServiceError::Unavailable(reason));
        }
        let first = self.core.results.first_seq(stream);
        // An answer that begins later than the rows do would look like a gap; other replicas have them.
        if after < first.0 && self.core.results.lacks_older(stream) {
            let reason = format!("rows before {} are being copied from a peer", first.0);
            return Err(ServiceError::Unavailable(reason));
        }
        if after > 0 && after < first.0 {
            return Err(ServiceError::Gone {
                first: first.0,
                asked: after,
            });
        }
        let page = self
            .core
            .results
            .scan(stream, published, filter, Seq(after), limit);
        let page = page.map_err(|error| internal(&error))?;
        Ok(WindowsPage {
            rows: page
                .rows
                .into_iter()
                .map(|row| Bytes::from(row.json))
                .collect(),
            published: published.0,
            next: page.next.map(|next| next.0).or(after_hole(hole, published)),
        })
    }

    fn info(&self, agreed: &Agreed, incarnation: u64, pipeline: &Pipeline) -> PipelineInfo {
        let id = Incarnation(incarnation);
        let stream = StreamId {
            incarnation: id,
            kind: StreamKind::Rows,
        };
        let feed = agreed.feeds.get(&pipeline.feed);
        let stats = feed.and_then(|feed| feed.status().pipelines.get(&id).copied());
        let frontier = agreed.machine.frontier(key_of(stream));
        let mut info = PipelineInfo {
            name: pipeline.name.clone(),
            incarnation,
            sink: pipeline.sink.clone(),
            published: (frontier > 0).then_some(frontier),
            paused: pipeline.paused,
            ..PipelineInfo::default()
        };
        if let Some(definition) = agreed.definitions.get(&incarnation) {
            info.window = window_info(&definition.spec.window);
            let groups = definition.spec.group_by.iter();
            info.group_fields = groups.map(|group| group.name.clone()).collect();
            info.sources.clone_from(&definition.sources);
        }
        info.notes
            .extend(feed.map(|feed| feed.notes(id)).into_iter().flatten());
        match stats {
            Some(stats) => fill(&mut info, &stats),
            // Its feed does not run here: its rows are here all the same.
            None => {
                let rows = self.core.results.position(stream);
                (info.next_seq, info.digest) = (rows.next.0, rows.digest.to_string());
            }
        }
        info
    }
}

/// Where to go on after the last row before a hole: there are more. Rows that come before the hole and are not compared with
/// another replica's yet must not be passed over, and rows that came into the hole meanwhile not told twice: then this is the
/// end for now.
fn after_hole(hole: Option<(u64, u64)>, published: Seq) -> Option<u64> {
    hole.map(|(first, _)| first)
        .filter(|first| *first == published.0)
}

fn log_unread() -> ServiceError {
    let reason =
        "this node has not read the agreed log to its end yet: ask again, or ask another one";
    ServiceError::Unavailable(reason.to_owned())
}

impl Service for NodeService {
    fn pipelines(&self) -> Vec<PipelineInfo> {
        let agreed = self.core.agreed();
        let pipelines = agreed.machine.pipelines().iter();
        let mut infos: Vec<_> = pipelines
            .map(|(&id, pipeline)| self.info(&agreed, id, pipeline))
            .collect();
        infos.sort_by(|one, other| one.name.cmp(&other.name));
        infos
    }

    fn pipeline(&self, name: &str) -> Option<PipelineInfo> {
        let agreed = self.core.agreed();
        let (incarnation, pipeline) = agreed.machine.pipeline_named(name)?;
        Some(self.info(&agreed, incarnation, pipeline))
    }

    fn knows_all(&self) -> bool {
        lock(&self.core.health.memory).is_whole()
    }

    fn windows(&self, pipeline: &str, query: &WindowsQuery) -> Result<WindowsPage, ServiceError> {
        let stream = StreamId {
            incarnation: self.find(pipeline)?,
            kind: StreamKind::Rows,
        };
        let filter = ScanFilter {
            from: query.from.map(Timestamp),
            to: query.to.map(Timestamp),
            groups: query.groups.clone(),
        };
        self.rows(stream, &filter, query.after, query.limit)
    }

    fn open_windows(&self, pipeline: &str, query: &OpenQuery) -> Result<OpenPage, ServiceError> {
        let incarnation = self.find(pipeline)?;
        let feed = {
            let agreed = self.core.agreed();
            let known = agreed.machine.pipelines().get(&incarnation.0);
            let feed = known.and_then(|known| agreed.feeds.get(&known.feed));
            feed.cloned().ok_or_else(|| {
                let name = pipeline.to_owned();
                ServiceError::Unavailable(format!("the feed of {name} does not run on this node"))
            })?
        };
        let snapshot = feed.look().map_err(|error| {
            ServiceError::Unavailable(format!("open windows of {pipeline}: {error}"))
        })?;
        let Some(stats) = snapshot.stats(incarnation) else {
            return Err(ServiceError::Unavailable(format!(
                "{pipeline} is on its way from one feed to another; ask again"
            )));
        };
        let mut page = open::Page::new(query);
        snapshot
            .open_windows(incarnation, &mut |row| page.take(&row))
            .map_err(|error| {
                ServiceError::Unavailable(format!("open windows of {pipeline}: {error}"))
            })?;
        let (rows, next) = page.end();
        Ok(OpenPage {
            rows,
            next,
            tick: Some(feed.ticks()).filter(|&ticks| ticks > 0),
            watermark: stats.watermark.map(timestamp::format),
        })
    }

    fn dead_letters(
        &self,
        pipeline: &str,
        after: u64,
        limit: usize,
    ) -> Result<WindowsPage, ServiceError> {
        let kind = StreamKind::DeadLetters;
        let stream = StreamId {
            incarnation: self.find(pipeline)?,
            kind,
        };
        self.rows(stream, &ScanFilter::default(), after, limit)
    }

    fn cluster(&self) -> ClusterInfo {
        cluster::info(&self.core)
    }

    fn order(&self, order: &Order) -> Result<Done, ServiceError> {
        // The router calls on a thread of its runtime that may block.
        let outcome = Handle::current().block_on(admin::order(&self.core, order));
        outcome
            .map(|outcome| Done { done: outcome.told })
            .map_err(|refusal| match refusal {
                Refusal::NoPipeline(name) => ServiceError::UnknownPipeline(name),
                Refusal::Conflict(reason) => ServiceError::Conflict(reason),
                Refusal::NotLeader | Refusal::Unknown(_) => {
                    ServiceError::Unavailable(refusal.to_string())
                }
            })
    }

    fn drain(&self, drained: bool) -> Result<Done, ServiceError> {
        let drain = admin::drain(&self.core, drained);
        Ok(Done {
            done: vec![Handle::current().block_on(drain)],
        })
    }

    fn readiness(&self, pipeline: Option<&str>) -> Result<Readiness, ServiceError> {
        let found = pipeline.map(|name| self.find(name)).transpose()?;
        Ok(ready::readiness(&self.core, found))
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics::all(&self.core)
    }
}

fn window_info(window: &WindowSpec) -> WindowInfo {
    match window {
        WindowSpec::Fixed(fixed) => WindowInfo {
            size_ms: fixed.size_ms(),
            slide_ms: fixed.slide_ms(),
            kind: None,
        },
        WindowSpec::Calendar(calendar) => WindowInfo {
            kind: Some(format!(
                "{} of {}",
                calendar.unit().name(),
                calendar.zone().name()
            )),
            ..WindowInfo::default()
        },
        WindowSpec::Sessions(sessions) => WindowInfo {
            kind: Some(format!(
                "sessions that a pause of {} ms ends",
                sessions.gap_ms()
            )),
            ..WindowInfo::default()
        },
    }
}

fn fill(info: &mut PipelineInfo, stats: &PipelineStats) {
    info.next_seq = stats.next_row_seq.0;
    info.digest = stats.row_digest.to_string();
    info.watermark = stats.watermark.map(timestamp::format);
    info.closed_through = stats.closed_through.map(timestamp::format);
    info.open_windows = stats.open_windows;
    info.counters = metrics::counters(stats)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
}

fn internal(error: &ResultsError) -> ServiceError {
    tracing::error!(%error, "rows cannot be read");
    ServiceError::Internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_before_a_hole_is_passed_over_though_it_is_not_served_yet() {
        assert_eq!(after_hole(None, Seq(7)), None);
        assert_eq!(after_hole(Some((7, 9)), Seq(7)), Some(7));
        assert_eq!(after_hole(Some((9, 12)), Seq(7)), None);
        // Filled since it was looked at, up to there.
        assert_eq!(after_hole(Some((5, 9)), Seq(7)), None);
    }
}
