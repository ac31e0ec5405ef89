//! The pipelines of the DNS drills, as text for the program and as questions for the reference.

use std::fmt::Write;

use crate::reference::Question;

/// Waits for all that is out of order: nothing is late, and most windows close at the end, when all partitions are idle.
pub(super) const PATIENT: Pipeline = Pipeline {
    name: "dns",
    size_ms: 60_000,
    lag_ms: 15 * 60_000,
};

/// Closes windows all the time, so that faults meet publications; some records are late.
pub(super) const PROMPT: Pipeline = Pipeline {
    name: "dns_prompt",
    size_ms: 1_000,
    lag_ms: 5_000,
};

/// All of them.
pub(super) const ALL: [Pipeline; 2] = [PATIENT, PROMPT];

/// How long a partition is silent before it counts as idle: far longer than the log ever pauses before its end, since what
/// an idle partition brings later could be late, which files never are.
const IDLE: &str = "5s";

/// Statistics of `rtt` by window and `rcode_name`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipeline {
    pub(super) name: &'static str,
    pub(super) size_ms: i64,
    pub(super) lag_ms: i64,
}

impl Pipeline {
    /// What the reference is asked.
    pub(super) fn question(&self) -> Question<'static> {
        Question {
            pipeline: self.name,
            time: "ts",
            group: "rcode_name",
            number: "rtt",
            size_ms: self.size_ms,
            slide_ms: self.size_ms,
            lag_ms: self.lag_ms,
        }
    }

    /// The definition for `eval`.
    pub(super) fn definition(&self) -> String {
        let Self {
            name,
            size_ms,
            lag_ms,
        } = self;
        format!(
            r#"name = "{name}"
sources = ["dns"]
time = {{ field = "ts", format = "rfc3339" }}
group_by = ["rcode_name"]
window = {{ size = "{size_ms}ms" }}
close = {{ lag = "{lag_ms}ms", idle = "{IDLE}" }}
values = {{ n = "count()", total = "sum(rtt)", average = "avg(rtt)", least = "min(rtt)", most = "max(rtt)" }}
"#
        )
    }
}

/// Source, sink and pipelines for the replicas' config.
pub(super) fn streams(brokers: &str, input: &str, output: &str) -> String {
    let mut text = format!(
        r#"[[source]]
name = "dns"
kafka = {{ brokers = "{brokers}", topic = "{input}", start = "earliest" }}

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
        let definition = pipeline.definition();
        // Writing to a text cannot fail.
        let _ = write!(text, "\n[[pipeline]]\nsink = \"out\"\n{definition}");
    }
    text
}
