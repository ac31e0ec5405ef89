//! What the leader asks a peer whose file has what its own lacks.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use unisono_replication::command::{LaneEntry, SourceEntry};

use super::{own_pipeline, source_entry};
use crate::config::{NodeConfig, SourceConfig};
use crate::source::{self, SourceError};

/// The first byte of a question, which tells it from others.
pub const TAG: u8 = b'A';
/// The version of questions and answers; the second byte of each.
const VERSION: u8 = 1;

/// Asked of a peer's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// A pipeline's canonical text and the name of its sink.
    Pipeline(String),
    /// A sink.
    Sink(String),
    /// Sources of these names.
    Sources(Vec<String>),
    /// All lanes of these sources, and where a new feed begins to read them. The peer asks the sources.
    Lanes(Vec<String>),
    /// That records of these sources are stamped when they are appended. The peer asks the sources.
    Stamps(Vec<String>),
}

impl Question {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = vec![TAG, VERSION];
        postcard::to_extend(self, head).expect("questions are plain data, which always encodes")
    }

    /// What this node's file says. Asks the sources where the question does.
    ///
    /// # Errors
    /// The file lacks it, or a source does not answer.
    pub fn ask(&self, config: &NodeConfig) -> Result<Vec<u8>, String> {
        match self {
            Self::Pipeline(name) => {
                let own = own_pipeline(config, name).ok_or_else(|| lacks("pipeline", name))?;
                encode(&(&own.canonical, &own.sink))
            }
            Self::Sink(name) => {
                let own = config.sinks.iter().find(|own| own.name == *name);
                encode(&own.ok_or_else(|| lacks("sink", name))?.entry())
            }
            Self::Sources(names) => {
                let entries: Vec<SourceEntry> =
                    sources(config, names)?.iter().map(source_entry).collect();
                encode(&entries)
            }
            Self::Lanes(names) => {
                let found = sources(config, names)?;
                encode(&lanes(&found).map_err(|error| error.to_string())?)
            }
            Self::Stamps(names) => {
                for source in &sources(config, names)? {
                    let mut survey = source::survey(source).map_err(|error| error.to_string())?;
                    survey.stamps().map_err(|error| error.to_string())?;
                }
                encode(&())
            }
        }
    }
}

/// Answers a peer's question; a refusal is an answer too.
///
/// # Errors
/// It cannot be read.
pub fn answer(config: &NodeConfig, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let question: Question = match bytes {
        [TAG, VERSION, body @ ..] => postcard::from_bytes(body).map_err(io::Error::other)?,
        _ => {
            return Err(io::Error::other(
                "another version's question: run the same Unisono on all replicas",
            ));
        }
    };
    encode(&question.ask(config)).map_err(io::Error::other)
}

/// Reads what [`answer`] gave.
///
/// # Errors
/// The peer refused, or its answer cannot be read.
pub fn read_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let answer: Result<Vec<u8>, String> = decode(bytes)?;
    decode(&answer?)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| error.to_string())
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    postcard::to_stdvec(value).map_err(|error| error.to_string())
}

fn lacks(kind: &str, name: &str) -> String {
    format!("the file of this node has no {kind} {name}")
}

fn sources(config: &NodeConfig, names: &[String]) -> Result<Vec<SourceConfig>, String> {
    let find = |name: &String| {
        let own = config.sources.iter().find(|own| own.name == *name);
        own.cloned().ok_or_else(|| lacks("source", name))
    };
    names.iter().map(find).collect()
}

/// All lanes of the sources, and where a new feed begins to read them. Asks the sources, and waits for them.
fn lanes(sources: &[SourceConfig]) -> Result<Vec<LaneEntry>, SourceError> {
    let mut lanes = Vec::new();
    for (index, config) in (0_u32..).zip(sources) {
        let found = source::survey(config)?.begin()?;
        lanes.extend(found.into_iter().map(|lane| LaneEntry {
            source: index,
            name: lane.name,
            start: lane.start,
            identity: lane.identity,
        }));
    }
    Ok(lanes)
}
