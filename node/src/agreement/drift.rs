//! Where a node's file is not what is agreed.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unisono_replication::command::SourceEntry;
use unisono_replication::machine::Machine;

use super::{Kind, is_renamed, own_pipeline};
use crate::config::NodeConfig;
use crate::definition::as_written;

/// One definition that differs between a node's file and what is agreed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Drift {
    /// What it is of.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// How.
    pub state: DriftState,
}

/// How a file drifts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DriftState {
    /// The keys that differ, and what the file and the cluster have there.
    Differs(Vec<DifferingKey>),
    /// The file lacks what is agreed.
    Absent,
    /// The file names what an operator removed.
    Removed,
    /// The file has what is not agreed: no majority of the files has it, or it cannot be created yet.
    NotAgreed,
    /// The agreed sink has another name.
    Renamed(String),
}

/// A key of a definition that is different.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DifferingKey {
    /// With dots between levels, as in `close.lag_ms`.
    pub key: String,
    /// In the node's file.
    pub file: String,
    /// As it is agreed.
    pub agreed: String,
}

impl DriftState {
    /// A word for programs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Differs(_) => "differs",
            Self::Absent => "absent",
            Self::Removed => "removed",
            Self::NotAgreed => "not_agreed",
            Self::Renamed(_) => "renamed",
        }
    }

    /// The keys that differ.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        match self {
            Self::Differs(keys) => keys.iter().map(|differing| differing.key.clone()).collect(),
            Self::Renamed(_) => vec!["name".to_owned()],
            Self::Absent | Self::Removed | Self::NotAgreed => Vec::new(),
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.kind.name(), self.name)?;
        match &self.state {
            DriftState::Differs(keys) => {
                let told = keys.iter().map(|differing| {
                    let DifferingKey { key, file, agreed } = differing;
                    format!("{key} is {file} in the file and {agreed} as agreed")
                });
                f.write_str(&told.collect::<Vec<_>>().join(", "))
            }
            DriftState::Absent => f.write_str("is agreed and not in the file"),
            DriftState::Removed => f.write_str("was removed by a command and is in the file"),
            DriftState::NotAgreed => f.write_str("is in the file and not agreed"),
            DriftState::Renamed(name) => write!(f, "is agreed under the name {name}"),
        }
    }
}

/// All that a node's file has otherwise than it is agreed, in order.
#[must_use]
pub fn of_node(config: &NodeConfig, machine: &Machine) -> Vec<Drift> {
    if machine.cluster().is_none() {
        return Vec::new();
    }
    let mut drifts = Vec::new();
    sources(config, machine, &mut drifts);
    sinks(config, machine, &mut drifts);
    pipelines(config, machine, &mut drifts);
    drifts.sort();
    drifts
}

fn push(drifts: &mut Vec<Drift>, kind: Kind, name: &str, state: DriftState) {
    drifts.push(Drift {
        kind,
        name: name.to_owned(),
        state,
    });
}

/// What a feed reads is agreed; a source that no feed reads yet is nobody's business.
fn sources(config: &NodeConfig, machine: &Machine, drifts: &mut Vec<Drift>) {
    let feeds = machine.feeds().values();
    let agreed: BTreeSet<(&str, &str)> = feeds
        .flat_map(|feed| &feed.sources)
        .map(|SourceEntry { name, definition }| (name.as_str(), definition.as_str()))
        .collect();
    for (name, definition) in agreed {
        match config.sources.iter().find(|own| own.name == name) {
            None => push(drifts, Kind::Source, name, DriftState::Absent),
            Some(own) => differs(drifts, Kind::Source, name, &own.canonical(), definition),
        }
    }
}

fn sinks(config: &NodeConfig, machine: &Machine, drifts: &mut Vec<Drift>) {
    let mut renamed = BTreeSet::new();
    for own in &config.sinks {
        let name = own.name.as_str();
        match (machine.sinks().get(name), is_renamed(machine, own)) {
            (Some(agreed), _) => {
                differs(
                    drifts,
                    Kind::Sink,
                    name,
                    &own.canonical(),
                    &agreed.definition,
                );
            }
            (None, Some(other)) => {
                renamed.insert(other.clone());
                push(drifts, Kind::Sink, name, DriftState::Renamed(other));
            }
            (None, None) => push(drifts, Kind::Sink, name, DriftState::NotAgreed),
        }
    }
    for name in machine.sinks().keys() {
        let has = config.sinks.iter().any(|own| own.name == *name);
        if !has && !renamed.contains(name) {
            push(drifts, Kind::Sink, name, DriftState::Absent);
        }
    }
}

fn pipelines(config: &NodeConfig, machine: &Machine, drifts: &mut Vec<Drift>) {
    let kind = Kind::Pipeline;
    for own in &config.pipelines {
        let name = own.name.as_str();
        let agreed = machine.pipeline_named(name).map(|(_, agreed)| agreed);
        let wanted = machine.wanted().get(name);
        let agreed = agreed
            .map(|agreed| (&agreed.definition, &agreed.sink))
            .or_else(|| wanted.map(|wanted| (&wanted.definition, &wanted.sink)));
        let Some((definition, sink)) = agreed else {
            let state = match machine.removed().contains(name) {
                true => DriftState::Removed,
                false => DriftState::NotAgreed,
            };
            push(drifts, kind, name, state);
            continue;
        };
        let mut keys = differing_keys(&as_written(&own.canonical), &as_written(definition));
        if own.sink != *sink {
            keys.push(DifferingKey {
                key: "sink".to_owned(),
                file: own.sink.clone(),
                agreed: sink.clone(),
            });
        }
        if !keys.is_empty() {
            push(drifts, kind, name, DriftState::Differs(keys));
        }
    }
    for pipeline in machine.pipelines().values() {
        if own_pipeline(config, &pipeline.name).is_none() {
            push(drifts, kind, &pipeline.name, DriftState::Absent);
        }
    }
}

fn differs(drifts: &mut Vec<Drift>, kind: Kind, name: &str, own: &str, agreed: &str) {
    let keys = differing_keys(own, agreed);
    if !keys.is_empty() {
        push(drifts, kind, name, DriftState::Differs(keys));
    }
}

/// The keys at which two canonical texts differ.
fn differing_keys(own: &str, agreed: &str) -> Vec<DifferingKey> {
    if own == agreed {
        return Vec::new();
    }
    let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let mut keys = Vec::new();
    compare("", &read(own), &read(agreed), &mut keys);
    if keys.is_empty() {
        // Texts of other versions need not be read alike, but they do differ.
        keys.push(DifferingKey {
            key: "version".to_owned(),
            file: short(own.to_owned()),
            agreed: short(agreed.to_owned()),
        });
    }
    keys
}

/// Peers are told of it five times a second.
fn short(mut text: String) -> String {
    const MOST: usize = 200;
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}

fn compare(at: &str, own: &Value, agreed: &Value, keys: &mut Vec<DifferingKey>) {
    if own == agreed {
        return;
    }
    let (Value::Object(one), Value::Object(other)) = (own, agreed) else {
        keys.push(DifferingKey {
            key: at.to_owned(),
            file: short(own.to_string()),
            agreed: short(agreed.to_string()),
        });
        return;
    };
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for name in names {
        let key = match at {
            "" => name.clone(),
            at => format!("{at}.{name}"),
        };
        let value = |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or_default();
        compare(&key, &value(one), &value(other), keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_differing_keys_are_named_with_what_stands_there() {
        let keys = differing_keys(
            r#"{"window":{"size_ms":1000,"slide_ms":1000},"name":"p","filter":null}"#,
            r#"{"window":{"size_ms":2000,"slide_ms":1000},"name":"p","max":3}"#,
        );
        let told: Vec<_> = keys
            .iter()
            .map(|it| (it.key.as_str(), it.file.as_str(), it.agreed.as_str()))
            .collect();
        assert_eq!(
            told,
            [("max", "null", "3"), ("window.size_ms", "1000", "2000")]
        );
        assert!(differing_keys("{}", "{}").is_empty());
        assert_eq!(differing_keys("{}", "{ }").len(), 1);
    }
}
