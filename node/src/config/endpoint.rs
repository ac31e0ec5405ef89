//! Sources and sinks.
//!
//! What all replicas must agree on goes into the Raft log as canonical JSON: name, kind, topic or
//! directory. Brokers, credentials and other properties stay with each node.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::glob::check_pattern;
use super::name::check_name;
use super::properties::Properties;
use super::section::Section;
use crate::kafka::properties::{fixed_for_sinks, fixed_for_sources, is_fixed};
use crate::kafka::{self, reader};
use crate::likeness::did_you_mean;

/// A stream of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Unique among the sources.
    pub name: String,
    /// Where it is read.
    pub kind: SourceKind,
}

/// Where a source's lanes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A lane for each partition of a topic.
    Kafka(KafkaSource),
    /// A lane for each file of a directory.
    Files(FilesSource),
}

/// A topic that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSource {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// The topic's name.
    pub topic: String,
    /// Where reading begins.
    pub start: StartAt,
    /// Who reads it here: each node may do as it likes, for the records are the same.
    pub reader: KafkaReader,
    /// For the client; without those that Unisono fixes.
    pub properties: Properties,
}

/// What reads a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KafkaReader {
    /// Kafka's protocol, spoken by this process itself.
    Direct,
    /// The C library.
    Librdkafka,
}

/// Where the first replica starts in a partition that existed before the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the oldest record that is there.
    Earliest,
    /// Behind the newest record that is there.
    Latest,
}

/// A directory of append-only NDJSON files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesSource {
    /// As written, the same on every replica.
    pub dir: String,
    /// Which files of the directory, with `*` and `?`.
    pub pattern: String,
    /// `dir`, resolved against the config file's directory.
    pub path: PathBuf,
}

/// Where rows are published besides the built-in results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// Unique among the sinks, not `builtin`.
    pub name: String,
    /// Where rows go.
    pub kind: SinkKind,
}

/// What a sink is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// A topic, in transactions.
    Kafka(KafkaSink),
}

/// A topic that is written, in transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSink {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// Where rows go.
    pub topic: String,
    /// A compacted topic of one partition that holds how far was published.
    pub frontier_topic: String,
    /// What fences a former publisher.
    pub transactional_id: String,
    /// Where dead letters go, if anywhere.
    pub dead_letters: Option<String>,
    /// For the client; without those that Unisono fixes.
    pub properties: Properties,
}

/// Reads one `[[source]]`; `None` after reporting what is wrong.
pub fn read_source(mut section: Section<'_>, base: &Path) -> Option<SourceConfig> {
    let name = read_name(&mut section);
    let kafka = section.table("kafka");
    let files = section.table("files");
    let kind = match (kafka, files) {
        (Some(table), None) => {
            read_kafka_source(section.section("kafka", table)).map(SourceKind::Kafka)
        }
        (None, Some(table)) => {
            read_files_source(section.section("files", table), base).map(SourceKind::Files)
        }
        (Some(_), Some(_)) => {
            section.problem("", "has both kafka and files; keep one");
            None
        }
        (None, None) => {
            section.problem("", "has no usable kafka = {…} or files = {…}; write one");
            None
        }
    };
    section.finish();
    Some(SourceConfig {
        name: name?,
        kind: kind?,
    })
}

/// Reads one `[[sink]]`; `None` after reporting what is wrong.
pub fn read_sink(mut section: Section<'_>) -> Option<SinkConfig> {
    let name = read_name(&mut section);
    section.not_supported(&["postgres", "webhook", "prometheus"]);
    section.require("kafka", "kafka = { brokers = …, topic = … }");
    let table = section.table("kafka");
    let kind = table.and_then(|table| {
        read_kafka_sink(
            section.section("kafka", table),
            name.as_deref().unwrap_or("sink"),
        )
    });
    section.finish();
    Some(SinkConfig {
        name: name?,
        kind: SinkKind::Kafka(kind?),
    })
}

fn read_name(section: &mut Section<'_>) -> Option<String> {
    section.require("name", "name = \"orders\"");
    section.parsed("name", |text| check_name(text).map(|()| text.to_owned()))
}

fn read_kafka_source(mut section: Section<'_>) -> Option<KafkaSource> {
    let brokers = section.required_string("brokers", "brokers = \"localhost:9092\"");
    let topic = read_topic(&mut section, "topic", true);
    let starts = [("earliest", StartAt::Earliest), ("latest", StartAt::Latest)];
    let start = read_choice(&mut section, "start", starts);
    let readers = [
        ("direct", KafkaReader::Direct),
        ("librdkafka", KafkaReader::Librdkafka),
    ];
    let reader = read_choice(&mut section, "reader", readers);
    let properties = match reader {
        KafkaReader::Direct => read_properties(&mut section, reader::refusal, |all| {
            reader::misfit(all.iter())
        }),
        KafkaReader::Librdkafka => read_properties(
            &mut section,
            |name, value| {
                let fixed = fixed_for_sources(name).map(is_fixed);
                fixed.or_else(|| kafka::fault_of(name, value))
            },
            |_| None,
        ),
    };
    section.finish();
    Some(KafkaSource {
        brokers: brokers?,
        topic: topic?,
        start,
        reader,
        properties,
    })
}

/// One of two, the first if nothing is said.
fn read_choice<T: Copy>(section: &mut Section<'_>, key: &'static str, of: [(&str, T); 2]) -> T {
    let [(first, default), (second, _)] = of;
    let chosen = section.parsed(key, |text| {
        let found = of.into_iter().find(|(name, _)| *name == text);
        let like = did_you_mean(text, [first, second]);
        let unknown = || format!("\"{text}\" is neither {first} nor {second}{like}");
        found.map(|(_, value)| value).ok_or_else(unknown)
    });
    chosen.unwrap_or(default)
}

fn read_files_source(mut section: Section<'_>, base: &Path) -> Option<FilesSource> {
    let dir = section.required_string("dir", "dir = \"/var/log/dns\"");
    let pattern = section
        .string("pattern")
        .unwrap_or_else(|| "*.ndjson".to_owned());
    if dir.as_deref() == Some("") {
        section.problem(
            "dir",
            "is empty; write \".\" for the config's own directory",
        );
    }
    if let Err(message) = check_pattern(&pattern) {
        section.problem("pattern", message);
    }
    section.finish();
    let dir = dir?;
    let path = base.join(&dir);
    Some(FilesSource { dir, pattern, path })
}

fn read_kafka_sink(mut section: Section<'_>, sink: &str) -> Option<KafkaSink> {
    let brokers = section.required_string("brokers", "brokers = \"localhost:9092\"");
    let topic = read_topic(&mut section, "topic", true);
    let frontier_topic = read_topic(&mut section, "frontier_topic", false)
        .unwrap_or_else(|| "unisono_frontier".to_owned());
    let transactional_id = section
        .string("transactional_id")
        .unwrap_or_else(|| format!("unisono-{sink}"));
    if transactional_id.is_empty() {
        section.problem(
            "transactional_id",
            "must not be empty; it is what fences old publishers",
        );
    }
    let dead_letters = read_topic(&mut section, "dead_letters", false);
    if topic.as_ref() == Some(&frontier_topic) || dead_letters.as_ref() == Some(&frontier_topic) {
        section.problem("frontier_topic", "must be a topic of its own");
    }
    let properties = read_properties(
        &mut section,
        |name, value| {
            let fixed = fixed_for_sinks(name).map(is_fixed);
            fixed.or_else(|| kafka::fault_of(name, value))
        },
        |_| None,
    );
    section.finish();
    Some(KafkaSink {
        brokers: brokers?,
        topic: topic?,
        frontier_topic,
        transactional_id,
        dead_letters,
        properties,
    })
}

/// Kafka's own rule for the names of topics.
fn read_topic(section: &mut Section<'_>, key: &'static str, required: bool) -> Option<String> {
    if required {
        section.require(key, &format!("{key} = \"orders\""));
    }
    section.parsed(key, |text| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if text.is_empty()
            || text.len() > 249
            || !text.chars().all(allowed)
            || matches!(text, "." | "..")
        {
            return Err(format!(
                "\"{text}\" is not a topic; use 1 to 249 of the characters a-z A-Z 0-9 _ - ."
            ));
        }
        Ok(text.to_owned())
    })
}

fn read_properties(
    section: &mut Section<'_>,
    refusal: impl Fn(&str, &str) -> Option<String>,
    misfit: impl Fn(&Properties) -> Option<(String, String)>,
) -> Properties {
    let Some(table) = section.table("properties") else {
        return Properties::default();
    };
    let mut section = section.section("properties", table);
    let table: Table = section.take_all();
    let mut entries = std::collections::BTreeMap::new();
    let mut all_are_good = true;
    for (name, value) in table {
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            Value::Float(number) => number.to_string(),
            // TOML reads an unquoted a.b as a table.
            other => {
                let wanted = "a text; put a name with dots in quotes, as \"fetch.wait.max.ms\"";
                let _: Option<()> = section.wrong_type(&name, wanted, &other);
                all_are_good = false;
                continue;
            }
        };
        match refusal(&name, &text) {
            Some(reason) => {
                section.problem(&name, reason);
                all_are_good = false;
            }
            None => _ = entries.insert(name, text),
        }
    }
    let properties = Properties::new(entries);
    // What was refused by itself would be missed.
    if let Some((name, reason)) = misfit(&properties).filter(|_| all_are_good) {
        section.problem(&name, reason);
    }
    section.finish();
    properties
}
