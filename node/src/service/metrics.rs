//! Metrics for Prometheus.

mod lanes;
mod state;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unisono_api::Metric;
use unisono_engine::PipelineStats;
use unisono_engine::row::{Incarnation, StreamId, StreamKind};
use unisono_replication::rt;

use super::config;
use crate::agreement;
use crate::core::{Agreed, Core, Counters};
use crate::ids::key_of;
use crate::status;
use crate::threads::lock;
use lanes::lanes;

/// A pipeline's counters by name.
pub(super) fn counters(stats: &PipelineStats) -> Vec<(&'static str, u64)> {
    let mut counters = vec![
        ("records", stats.records),
        ("counted", stats.counted),
        ("filtered", stats.filtered),
        ("duplicates", stats.duplicates),
        ("partly_late", stats.partly_late),
        ("bad_fields", stats.bad_fields),
        ("rounded_fields", stats.rounded_fields),
        ("revising", stats.revising),
        ("revisions", stats.revisions),
        ("withheld_rows", stats.withheld),
        ("dead_letters_suppressed", stats.dead_letters_suppressed),
    ];
    let letters = stats.dead_letters.iter();
    counters.extend(letters.map(|(reason, count)| (reason.name(), count)));
    counters
}

pub(super) fn all(core: &Core) -> Vec<Metric> {
    let mut metrics = node(core);
    metrics.extend(confirming(&core.counters));
    metrics.extend(counted(core));
    metrics.extend(ages(core));
    metrics.extend(state::of(&core.state_room));
    takeovers(core, &mut metrics);
    peers_port(core, &mut metrics);
    log(core, &mut metrics);
    drifts(core, &mut metrics);
    let agreed = core.agreed();
    lanes(core, &agreed, &mut metrics);
    pipelines(core, &agreed, &mut metrics);
    refused(core, &agreed, &mut metrics);
    metrics
}

/// This node's last takeover of each sink.
fn takeovers(core: &Core, metrics: &mut Vec<Metric>) {
    let help = "How long after the evidence against the leader before, or after its own election where the lead was given to it, this node \
                came to each step of its last takeover.";
    for (sink, steps) in core.successions.all() {
        for (step, after) in steps {
            let metric = Metric::gauge("unisono_takeover_seconds", help, after.as_secs_f64());
            metrics.push(metric.label("sink", &sink).label("step", step));
        }
    }
}

/// What it costs this node, while it leads, that another one confirms ticks and rows.
fn confirming(counters: &Counters) -> impl Iterator<Item = Metric> {
    let of = [
        ("tick", &counters.tick_waits),
        ("rows", &counters.row_waits),
    ];
    of.into_iter().flat_map(|(what, waits)| {
        let counted = waits.counted();
        let metrics = Metric::histogram(
            "unisono_confirmation_seconds",
            "How long this node, leading, waited for another one's word before ticks and before it published rows.",
            &counted.up_to,
            counted.seconds,
        );
        metrics
            .into_iter()
            .map(move |metric| metric.label("of", what))
    })
}

fn node(core: &Core) -> Vec<Metric> {
    let view = core.replica.view().borrow().clone();
    let seat = status::seat(core, &view);
    let leads = if seat.leads(status::contact(core)) {
        1.0
    } else {
        0.0
    };
    vec![
        Metric::gauge(
            "unisono_leader",
            "1 if this node leads and a quorum has acknowledged it of late, else 0.",
            leads,
        ),
        Metric::gauge("unisono_raft_term", "The Raft term.", number(view.term)),
        Metric::gauge(
            "unisono_raft_applied_index",
            "The last entry of the agreed log that may be read here.",
            number(view.applied),
        ),
        Metric::gauge(
            "unisono_log_held_entries",
            "Entries of the agreed log that are kept for a feed that does not move here; 0: there is none.",
            number(held_entries(core)),
        ),
        Metric::gauge(
            "unisono_checkpoint_index",
            "The entry at which the last checkpoint stands.",
            number(view.snapshot),
        ),
    ]
}

fn held_entries(core: &Core) -> u64 {
    let first = lock(&core.health.held).values().min().copied();
    let read = core.agreed().index;
    first.map_or(0, |first| read.saturating_sub(first))
}

type Counted<'a> = (&'a str, &'a str, &'a AtomicU64);

fn counted(core: &Core) -> Vec<Metric> {
    let metric = |(name, help, counter): Counted<'_>| {
        Metric::counter(name, help, number(counter.load(Ordering::Relaxed)))
    };
    let counters = &core.counters;
    let all = of_log(counters).into_iter().chain(of_sinks(counters));
    all.chain(of_doubts(counters)).map(metric).collect()
}

fn of_log(counters: &Counters) -> [Counted<'_>; 7] {
    [
        (
            "unisono_entries_total",
            "Entries read from the agreed log.",
            &counters.entries,
        ),
        ("unisono_ticks_total", "Ticks taken in.", &counters.ticks),
        (
            "unisono_void_entries_total",
            "Entries that did not count: proposed on an older state or in an older term.",
            &counters.void_entries,
        ),
        (
            "unisono_proposals_lost_total",
            "Proposals that were not committed, or whose outcome is unknown.",
            &counters.proposals_lost,
        ),
        (
            "unisono_checkpoints_total",
            "Checkpoints made.",
            &counters.checkpoints,
        ),
        (
            "unisono_checkpoints_installed_total",
            "Checkpoints taken from a peer.",
            &counters.checkpoints_installed,
        ),
        (
            "unisono_feeds_healed_total",
            "Feeds that did not move here and took their state from a peer's checkpoint.",
            &counters.feeds_healed,
        ),
    ]
}

fn of_sinks(counters: &Counters) -> [Counted<'_>; 4] {
    [
        (
            "unisono_takeovers_total",
            "Times a sink was acquired.",
            &counters.takeovers,
        ),
        (
            "unisono_published_rows_total",
            "Rows that this node published to sinks other than the built-in one.",
            &counters.published_rows,
        ),
        (
            "unisono_publish_retries_total",
            "Publications that failed.",
            &counters.publish_retries,
        ),
        (
            "unisono_fenced_total",
            "Times another publisher fenced this one.",
            &counters.fenced,
        ),
    ]
}

/// What happens only while not all replicas are well.
fn of_doubts(counters: &Counters) -> [Counted<'_>; 9] {
    [
        (
            "unisono_ticks_alone_total",
            "Ticks taken in by the word of the leader alone, while no other replica could confirm them.",
            &counters.ticks_alone,
        ),
        (
            "unisono_rows_alone_total",
            "Rows that this node published though no other replica had confirmed them.",
            &counters.rows_alone,
        ),
        (
            "unisono_disagreements_total",
            "Times another replica held other records or rows than this node, which led.",
            &counters.disagreements,
        ),
        (
            "unisono_odd_total",
            "Times this node's rows of a feed were not those of most voters.",
            &counters.odd,
        ),
        (
            "unisono_feeds_replayed_total",
            "Feeds that were computed again from the last checkpoint, because their rows were in dispute.",
            &counters.feeds_replayed,
        ),
        (
            "unisono_checkpoints_alone_total",
            "Checkpoints whose states no other replica could compare.",
            &counters.checkpoints_alone,
        ),
        (
            "unisono_states_disputed_total",
            "Checkpoints that were not kept, for another replica had other states, and there was no majority.",
            &counters.states_disputed,
        ),
        (
            "unisono_rows_served_alone_total",
            "Times rows were served that no other replica had, for none had computed them.",
            &counters.rows_served_alone,
        ),
        (
            "unisono_unfit_total",
            "Times this node gave the lead to a fitter replica.",
            &counters.unfit,
        ),
    ]
}

/// How old the newest is of what must keep coming; what never came is not shown.
fn ages(core: &Core) -> Vec<Metric> {
    let pulse = core.replica.pulse();
    let since = |at: &Mutex<Option<Instant>>| lock(at).map(rt::since);
    let ages: [(&str, &str, Option<Duration>); 6] = [
        (
            "unisono_commit_age_seconds",
            "Since the last entry of the agreed log was read here.",
            since(&core.health.committed),
        ),
        (
            "unisono_checkpoint_age_seconds",
            "Since the last checkpoint was made or taken here, since the process started.",
            since(&core.health.checkpoint),
        ),
        (
            "unisono_durable_write_age_seconds",
            "Since the last write of the agreed log was durable on this disk.",
            pulse.written,
        ),
        (
            "unisono_write_seconds",
            "For how long the present write of the agreed log has taken; 0: there is none.",
            Some(pulse.writing.unwrap_or_default()),
        ),
        (
            "unisono_leader_heard_age_seconds",
            "Since the leader was heard, where this node follows one.",
            pulse.heard,
        ),
        (
            "unisono_quorum_age_seconds",
            "Since a quorum acknowledged this node, where it leads.",
            pulse.quorum,
        ),
    ];
    let known = ages
        .into_iter()
        .filter_map(|(name, help, age)| Some((name, help, age?)));
    known
        .map(|(name, help, age)| Metric::gauge(name, help, age.as_secs_f64()))
        .collect()
}

fn drifts(core: &Core, metrics: &mut Vec<Metric>) {
    let drifts = agreement::drift_of(&core.config, &core.agreed().machine);
    metrics.push(Metric::gauge(
        "unisono_config_drifts",
        "Definitions of this node's file that are not what is agreed.",
        number(drifts.len() as u64),
    ));
    for drift in drifts {
        let keys = drift.state.keys().join(",");
        let metric = Metric::gauge(
            "unisono_config_drift",
            "1 for each definition of this node's file that is not what is agreed.",
            1.0,
        );
        metrics.push(
            metric
                .label("kind", drift.kind.name())
                .label("name", &drift.name)
                .label("state", drift.state.word())
                .label("keys", keys),
        );
    }
}

fn peers_port(core: &Core, metrics: &mut Vec<Metric>) {
    let port = core.replica.port();
    let help = "Connections and messages that were refused at the peers' port.";
    for (reason, count) in port.refused {
        let metric = Metric::counter("unisono_peers_refused_total", help, number(count));
        metrics.push(metric.label("reason", reason));
    }
    metrics.push(Metric::gauge(
        "unisono_peers_links",
        "Connections of peers that are open.",
        number(port.links),
    ));
    metrics.push(Metric::gauge(
        "unisono_peers_bytes",
        "Bytes of requests and answers in hand at the peers' port.",
        number(port.bytes),
    ));
}

fn log(core: &Core, metrics: &mut Vec<Metric>) {
    let (bytes, entries) = core.replica.log_size();
    metrics.push(Metric::gauge(
        "unisono_log_bytes",
        "Bytes of the agreed log's files on this node's disk.",
        number(bytes),
    ));
    metrics.push(Metric::gauge(
        "unisono_log_max_bytes",
        "The budget for them: cluster.max_log.",
        number(core.config.cluster.max_log),
    ));
    metrics.push(Metric::gauge(
        "unisono_log_entries",
        "Entries of the agreed log that this node holds.",
        number(entries),
    ));
    for peer in core.replica.peers() {
        let Some(round_trip) = peer.round_trip else {
            continue;
        };
        let metric = Metric::gauge(
            "unisono_peer_round_trip_seconds",
            "How long a question to a peer and its answer took of late.",
            round_trip.as_secs_f64(),
        );
        metrics.push(metric.label("peer", peer.number));
    }
}

fn refused(core: &Core, agreed: &Agreed, metrics: &mut Vec<Metric>) {
    let help = "Rows that the sink refused for their size, and that are not in it, as this node knew when it published last.";
    for (sink, view) in core.sinks.all() {
        for of in config::refused(agreed, &view.refused) {
            let metric = Metric::gauge("unisono_sink_refused_rows", help, number(of.count));
            let metric = metric.label("sink", &sink).label("pipeline", of.pipeline);
            metrics.push(metric.label("kind", of.kind));
        }
    }
}

fn pipelines(core: &Core, agreed: &Agreed, metrics: &mut Vec<Metric>) {
    for (&incarnation, pipeline) in agreed.machine.pipelines() {
        let id = Incarnation(incarnation);
        let stream = StreamId {
            incarnation: id,
            kind: StreamKind::Rows,
        };
        let labelled = |metric: Metric| metric.label("pipeline", &pipeline.name);
        metrics.push(labelled(Metric::gauge(
            "unisono_published_seq",
            "The number of the next row to publish, as the agreed log has it.",
            number(agreed.machine.frontier(key_of(stream))),
        )));
        metrics.push(labelled(Metric::gauge(
            "unisono_next_seq",
            "The number of the next row to compute.",
            number(core.results.next_seq(stream).0),
        )));
        metrics.push(labelled(Metric::gauge(
            "unisono_unpublished_bytes",
            "About how many bytes of rows and dead letters wait to be published.",
            number(status::unpublished(core, agreed, incarnation)),
        )));
        metrics.push(labelled(Metric::gauge(
            "unisono_pipeline_held",
            "1 if its feed takes in nothing more because too many rows wait to be published, or an operator has to decide, else 0.",
            if status::held(core, agreed, pipeline.feed).is_some() {
                1.0
            } else {
                0.0
            },
        )));
        let waits = status::waits(core, incarnation).unwrap_or_default();
        metrics.push(labelled(Metric::gauge(
            "unisono_publish_wait_seconds",
            "For how long rows have waited to be published from here while none was; 0 where this node does not lead.",
            waits.as_secs_f64(),
        )));
        let feed = agreed.feeds.get(&pipeline.feed);
        let Some(stats) = feed.and_then(|feed| feed.status().pipelines.get(&id).copied()) else {
            continue;
        };
        for (name, value) in counters(&stats) {
            let help = "What became of the records of a pipeline, since its creation.";
            let metric = Metric::counter("unisono_records_total", help, number(value));
            metrics.push(labelled(metric).label("outcome", name));
        }
        let observed = feed.map(|feed| feed.status().observed.remove(&id));
        let observed = observed.flatten().unwrap_or_default();
        metrics.extend(met(&observed).map(labelled));
        metrics.push(labelled(Metric::gauge(
            "unisono_open_groups",
            "Groups in memory, over all lanes and panes.",
            number(stats.open_groups),
        )));
        if let Some(watermark) = stats.watermark {
            let help = "How far event time has come, seconds since 1970.";
            let seconds = watermark.0 as f64 / 1000.0;
            metrics.push(labelled(Metric::gauge(
                "unisono_watermark_seconds",
                help,
                seconds,
            )));
        }
    }
}

/// What a definition met in the records.
fn met(observed: &unisono_engine::Observed) -> [Metric; 2] {
    [
        Metric::gauge(
            "unisono_unseen_fields",
            "Fields that a pipeline names and no record has had since this node started.",
            number(observed.unseen.len() as u64),
        ),
        Metric::counter(
            "unisono_misfits_total",
            "Values that a pipeline's expressions could not use, as a text compared with a number, since this node started.",
            number(observed.misfits.iter().map(|(_, times)| times).sum()),
        ),
    ]
}

/// Prometheus knows floats alone; beyond 2^53 the last digits are lost there.
fn number(value: u64) -> f64 {
    value as f64
}
