//! What a pipeline means: its fields, its conditions and values, and the one text by which all replicas know it.

mod fields;
mod format;
mod functions;
mod notes;
mod show;
mod sql;
mod wire;
mod zone;

use unisono_engine::spec::{LateSpec, PipelineSpec, WindowSpec};

pub use fields::{FieldPath, FieldPathError, FieldSet, Key, remap};
pub use format::{Decoding, Format, Layout, MOST_RECORD_BYTES, TextFormat};
pub use notes::notes;
pub use show::show;
pub use sql::{Names, parse_condition, parse_group, parse_having, parse_value};
pub use wire::{CanonicalError, as_written};
pub use zone::zone_named;

/// The sink that needs no config.
pub use unisono_replication::machine::BUILTIN_SINK;

/// What of a definition is done once for a whole feed: pipelines that differ in it are read apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How far a lane may be ahead of the slowest one.
    pub max_skew_ms: Option<i64>,
    /// How payloads become records.
    pub decoding: Decoding,
}

/// A pipeline, checked.
#[derive(Clone, Debug)]
pub struct PipelineDefinition {
    /// Unique in the cluster at one time.
    pub name: String,
    /// Names of sources, at least one.
    pub sources: Vec<String>,
    /// Name of a sink, or [`BUILTIN_SINK`].
    pub sink: String,
    /// The fields that `spec`'s columns mean.
    pub fields: FieldSet,
    /// What the engine computes.
    pub spec: PipelineSpec,
    /// How far, in milliseconds of event time, a lane may be ahead of the slowest one; `None`: as far as it is read.
    pub max_skew_ms: Option<i64>,
    /// How the records of its sources are written.
    pub decoding: Decoding,
    /// What is right in its file, and probably not what was meant.
    pub warnings: Vec<String>,
    /// All of the above but the sink and the warnings as JSON: the same text for the same definition. It stands in the Raft log.
    pub canonical: String,
}

impl PipelineDefinition {
    /// A definition of these parts, with its canonical text.
    #[must_use]
    pub fn new(
        sources: Vec<String>,
        sink: String,
        fields: FieldSet,
        spec: PipelineSpec,
        terms: Terms,
    ) -> Self {
        let mut definition = Self {
            name: spec.name.clone(),
            sources,
            sink,
            fields,
            spec,
            max_skew_ms: terms.max_skew_ms,
            decoding: terms.decoding,
            warnings: Vec::new(),
            canonical: String::new(),
        };
        definition.canonical = wire::write(&definition);
        definition
    }

    /// What its feed has to do for it.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            max_skew_ms: self.max_skew_ms,
            decoding: self.decoding.clone(),
        }
    }

    /// Rebuilds the definition of a pipeline whose rows go to `sink` from its canonical text: the same `fields` and `spec`
    /// on every replica.
    ///
    /// # Errors
    /// The text is of a newer version, or damaged.
    pub fn from_canonical(text: &str, sink: &str) -> Result<Self, CanonicalError> {
        wire::read(text, sink)
    }
}

/// Why copies of records cannot be told in such windows, with such late records, of such records; `None`: they can.
#[must_use]
pub fn dedup_clash(window: &WindowSpec, late: LateSpec, format: &Format) -> Option<&'static str> {
    if window.gap_ms().is_some() {
        return Some("does not go with sessions: leave one of the two out");
    }
    if late.keep_ms().is_some() {
        return Some("does not go with late.policy = \"revise\": leave one of the two out");
    }
    let is_array = matches!(format, Format::Json { array: true });
    is_array.then_some("does not go with arrays of documents: a copy is known by its record's offset, which they share")
}
