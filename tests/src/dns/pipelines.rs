//! The pipelines of the DNS drills, as text for the program and as questions for the reference.

use std::fmt::Write;

use crate::reference::Question;

/// Waits for all that is out of order: nothing is late, and most windows close at the end, when all partitions are idle.
pub(super) const PATIENT: Pipeline = Pipeline {
    name: "dns",
    of: Of::Numbers {
        size_ms: 60_000,
        lag_ms: 15 * 60_000,
    },
};

/// Closes windows all the time, so that faults meet publications; some records are late.
pub(super) const PROMPT: Pipeline = Pipeline {
    name: "dns_prompt",
    of: Of::Numbers {
        size_ms: 1_000,
        lag_ms: 5_000,
    },
};

/// Every kind of value, in windows of many panes: their states go through checkpoints and restarts. What they must be is
/// tested elsewhere; here, that faults change nothing.
const EVERY: Pipeline = Pipeline {
    name: "dns_every",
    of: Of::Text(
        r#"where = ['"id.orig_h" is not null', "ts > timestamp '2001-01-01'"]
group_by = ["code = coalesce(lower(rcode_name), 'none')"]
window = { size = "20s", slide = "2s" }
having = "n > 1"

[pipeline.close]
lag = "5s"
idle = "5s"

[pipeline.values]
n = "count()"
spread = "stddev(rtt)"
parts = "quantile(rtt, 0.5, 0.99)"
hosts = 'count(distinct "id.orig_h")'
best = 'top("id.orig_h", 3)'
sizes = "histogram(rtt, 0.001, 1, 1000)"
earliest = "first(rtt)"
latest = "last(rtt)"
grown = "increase(rtt)"
by_second = "rate(rtt)"
slow = "count() where rtt > 0.1"
twice = "sum(rtt * 2) filter (where rtt < 1000)"
last_code = "max(rcode_name)"
"#,
    ),
};

/// Days of a time zone, which close when all partitions are idle.
const DAILY: Pipeline = Pipeline {
    name: "dns_daily",
    of: Of::Text(
        r#"group_by = ['"id.orig_h"']
window = { size = "1 day", time_zone = "America/New_York" }
close = { lag = "15m", idle = "5s" }
values = { n = "count()", total = "sum(rtt)" }
"#,
    ),
};

/// Sessions of the hosts, over all partitions: they close, and are open, at all times.
const SESSIONS: Pipeline = Pipeline {
    name: "dns_sessions",
    of: Of::Text(
        r#"group_by = ['"id.orig_h"']
window = { session = "7s" }
close = { lag = "5s", idle = "5s" }
values = { n = "count()", total = "sum(rtt)", codes = "count(distinct rcode_name)", by_second = "rate(rtt)" }
"#,
    ),
};

/// All of them.
pub(super) const ALL: [Pipeline; 5] = [PATIENT, PROMPT, EVERY, DAILY, SESSIONS];

/// How long a partition is silent before it counts as idle: far longer than the log ever pauses before its end, since what
/// an idle partition brings later could be late, which files never are.
const IDLE: &str = "5s";

/// A pipeline over the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipeline {
    pub(super) name: &'static str,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    /// Statistics of `rtt` by window and `rcode_name`.
    Numbers { size_ms: i64, lag_ms: i64 },
    /// What the definition says beside name, sources and time.
    Text(&'static str),
}

impl Pipeline {
    /// What the reference is asked, if it can answer.
    pub(super) fn question(&self) -> Option<Question<'static>> {
        let Of::Numbers { size_ms, lag_ms } = self.of else {
            return None;
        };
        Some(Question {
            pipeline: self.name,
            time: "ts",
            group: "rcode_name",
            number: "rtt",
            size_ms,
            slide_ms: size_ms,
            lag_ms,
        })
    }

    /// The definition for `eval`.
    pub(super) fn definition(&self) -> String {
        self.text().replace("[pipeline.", "[")
    }

    /// The definition within a node's config.
    fn text(&self) -> String {
        let name = self.name;
        let more = match self.of {
            Of::Text(text) => text.to_owned(),
            Of::Numbers { size_ms, lag_ms } => format!(
                r#"group_by = ["rcode_name"]
window = {{ size = "{size_ms}ms" }}
close = {{ lag = "{lag_ms}ms", idle = "{IDLE}" }}
values = {{ n = "count()", total = "sum(rtt)", average = "avg(rtt)", least = "min(rtt)", most = "max(rtt)" }}
"#
            ),
        };
        format!(
            "name = \"{name}\"\nsources = [\"dns\"]\ntime = {{ field = \"ts\", format = \"rfc3339\" }}\n{more}"
        )
    }
}

/// Source, sink and pipelines for the replicas' config. `UNISONO_DRILL_READER=librdkafka` has the other reader read.
pub(super) fn streams(brokers: &str, input: &str, output: &str) -> String {
    let reader = std::env::var("UNISONO_DRILL_READER").unwrap_or_else(|_| "direct".to_owned());
    let mut text = format!(
        r#"[[source]]
name = "dns"
kafka = {{ brokers = "{brokers}", topic = "{input}", start = "earliest", reader = "{reader}" }}

[[sink]]
name = "out"
[sink.kafka]
brokers = "{brokers}"
topic = "{output}"
frontier_topic = "{output}-frontier"
transactional_id = "{output}"
"#
    );
    for pipeline in ALL {
        let definition = pipeline.text();
        // Writing to a text cannot fail.
        let _ = write!(text, "\n[[pipeline]]\nsink = \"out\"\n{definition}");
    }
    text
}
