//! Which kind of config file a file is.

use std::path::Path;

use super::problem::ConfigErrors;
use super::section::parse_toml;

/// The two kinds of config files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `unisono.toml`: the config of a node.
    Node,
    /// The definition of a pipeline.
    Pipeline,
}

const NODE_KEYS: [&str; 8] = [
    "data_dir",
    "node",
    "cluster",
    "results",
    "source",
    "sink",
    "pipelines",
    "pipeline",
];
const PIPELINE_KEYS: [&str; 12] = [
    "name",
    "sources",
    "time",
    "where",
    "group_by",
    "window",
    "close",
    "late",
    "max_future",
    "limits",
    "values",
    "align",
];

impl FileKind {
    /// Tells by the keys of the file at `path`: the kind that more of them fit.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has no key of either kind.
    pub fn of(path: &Path) -> Result<Self, ConfigErrors> {
        let label = path.display().to_string();
        let table = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read: {error}"))
            .and_then(|text| parse_toml(&text))
            .map_err(|message| ConfigErrors::of_file(&label, message))?;
        let fitting = |keys: &[&str]| keys.iter().filter(|key| table.contains_key(**key)).count();
        match (fitting(&NODE_KEYS), fitting(&PIPELINE_KEYS)) {
            (0, 0) => Err(ConfigErrors::of_file(
                &label,
                "is neither a node's config ([node], [cluster], [[source]]) nor a pipeline (name, \
                 sources, window, values)",
            )),
            (node, pipeline) if node > pipeline => Ok(Self::Node),
            _ => Ok(Self::Pipeline),
        }
    }
}
