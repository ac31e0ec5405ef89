//! Configuration: what was written (TOML). What a pipeline means is `definition`.
//!
//! A file is read section by section; every problem is collected with its file, its key and what to do about it, so
//! that a person corrects a file in one go. Nothing binds, connects or reads data before the whole config is checked.

mod apart;
mod cluster;
mod endpoint;
mod glob;
mod identity;
mod kind;
mod name;
mod node;
mod pipeline;
mod place;
mod problem;
mod properties;
mod section;
mod units;

pub use cluster::{ClusterSettings, NodeSettings, ResultsSettings};
pub use endpoint::{
    FilesSource, KafkaReader, KafkaSink, KafkaSource, SinkConfig, SinkKind, SourceConfig,
    SourceKind, StartAt,
};
pub use glob::matches_pattern;
pub use kind::FileKind;
pub use node::NodeConfig;
pub use place::Places;
pub use problem::{ConfigErrors, ConfigProblem};
pub use properties::Properties;
pub use units::parse_bytes;
