//! The config of a node: `unisono.toml`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::Value;
use unisono_engine::spec::TimeSource;

use super::apart;
use super::cluster::{self, ClusterSettings, NodeSettings, ResultsSettings};
use super::endpoint::{self, SinkConfig, SourceConfig, SourceKind};
use super::glob::{check_pattern, matches_pattern};
use super::pipeline::read_pipeline;
use super::place::Places;
use super::problem::{ConfigErrors, ConfigProblem};
use super::section::{Section, parse_toml};
use crate::definition::{BUILTIN_SINK, Format, PipelineDefinition};
use crate::likeness::did_you_mean;

/// A node's config, checked.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The config file.
    pub file: PathBuf,
    /// Where this node keeps its data, resolved against the config file's directory.
    pub data_dir: PathBuf,
    /// This node.
    pub node: NodeSettings,
    /// All members, and how fast they move.
    pub cluster: ClusterSettings,
    /// What is kept of published rows.
    pub results: ResultsSettings,
    /// With unique names.
    pub sources: Vec<SourceConfig>,
    /// With unique names, none of them `builtin`.
    pub sinks: Vec<SinkConfig>,
    /// With unique names, their sources and sinks all known; at least one.
    pub pipelines: Vec<PipelineDefinition>,
}

impl NodeConfig {
    /// Reads and checks the config file at `path` and the pipeline files that it names.
    ///
    /// # Errors
    /// Every problem of every file.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let label = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigErrors::of_file(&label, format!("cannot read: {error}")))?;
        Self::parse(path, &text)
    }

    /// Checks the text of the config file at `path`, and the pipeline files that it names.
    ///
    /// # Errors
    /// Every problem of every file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let label = path.display().to_string();
        let table = parse_toml(text).map_err(|message| ConfigErrors::of_file(&label, message))?;
        let mut problems = Vec::new();
        let config = read(path, Section::new(&label, "", table, &mut problems));
        let places = Places::of(text);
        let own = problems.iter_mut().filter(|problem| problem.file == label);
        own.for_each(|problem| places.locate(problem));
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigErrors { problems }),
        }
    }
}

fn read(path: &Path, mut root: Section<'_>) -> Option<NodeConfig> {
    let base = path.parent().unwrap_or(Path::new("")).to_owned();
    root.require(
        "data_dir",
        "data_dir = \"data/1\", a directory of this node alone",
    );
    let data_dir = root.string("data_dir");
    if data_dir.as_deref() == Some("") {
        root.problem("data_dir", "is empty; name a directory of this node alone");
    }
    let node = cluster::read_node(&mut root);
    let mut cluster = cluster::read_cluster(&mut root, node.as_ref().map(|node| node.id));
    if let Some(cluster) = &mut cluster {
        let resolve = |file: PathBuf| base.join(file);
        cluster.secret_file = cluster.secret_file.take().map(resolve);
        if let Some(node) = &node {
            apart::check_ports(&mut root, node, cluster);
        }
    }
    let results = cluster::read_results(&mut root);

    root.require(
        "source",
        "[[source]] with a name and kafka = {…} or files = {…}",
    );
    let mut named_sources = BTreeSet::new();
    let mut sources = Vec::new();
    for (index, table) in root.tables("source").into_iter().enumerate() {
        note_name(&mut root, "source", index, &table, &mut named_sources);
        let section = root.section(&format!("source[{index}]"), table);
        let source = endpoint::read_source(section, &base);
        sources.extend(source.map(|source| (index, source)));
    }
    let mut named_sinks = BTreeSet::from([BUILTIN_SINK.to_owned()]);
    let mut sinks = Vec::new();
    for (index, table) in root.tables("sink").into_iter().enumerate() {
        note_name(&mut root, "sink", index, &table, &mut named_sinks);
        let sink = endpoint::read_sink(root.section(&format!("sink[{index}]"), table));
        sinks.extend(sink.map(|sink| (index, sink)));
    }
    apart::check_sinks(&mut root, &sources, &sinks);
    let sources: Vec<SourceConfig> = sources.into_iter().map(|(_, source)| source).collect();
    let sinks = sinks.into_iter().map(|(_, sink)| sink).collect();
    let files = sources.iter().filter_map(files_source).collect();
    let references = References {
        sources: named_sources,
        files,
        sinks: named_sinks,
    };
    let pipelines = read_pipelines(&mut root, &base, &references);
    root.finish();
    Some(NodeConfig {
        file: path.to_owned(),
        data_dir: base.join(data_dir?),
        node: node?,
        cluster: cluster?,
        results,
        sources,
        sinks,
        pipelines,
    })
}

/// Notes a name before its section is checked: a source with a fault is still no unknown source.
fn note_name(
    root: &mut Section<'_>,
    kind: &str,
    index: usize,
    table: &toml::Table,
    names: &mut BTreeSet<String>,
) {
    if let Some(Value::String(name)) = table.get("name")
        && !names.insert(name.clone())
    {
        let taken = if name == BUILTIN_SINK {
            "is the built-in sink"
        } else {
            "is taken"
        };
        root.problem(
            &format!("{kind}[{index}].name"),
            format!("\"{name}\" {taken}; use another"),
        );
    }
}

/// A pipeline's table, with the file and the place it came from.
struct Written {
    file: String,
    place: String,
    table: toml::Table,
    /// Of a file of its own.
    places: Option<Places>,
}

/// What pipelines may name.
struct References {
    sources: BTreeSet<String>,
    /// Those of the sources that are files.
    files: Vec<String>,
    sinks: BTreeSet<String>,
}

fn files_source(source: &SourceConfig) -> Option<String> {
    matches!(source.kind, SourceKind::Files(_)).then(|| source.name.clone())
}

fn read_pipelines(
    root: &mut Section<'_>,
    base: &Path,
    references: &References,
) -> Vec<PipelineDefinition> {
    let mut written = Vec::new();
    for (index, table) in root.tables("pipeline").into_iter().enumerate() {
        let place = format!("pipeline[{index}]");
        written.push(Written {
            file: root.file().to_owned(),
            place,
            table,
            places: None,
        });
    }
    let patterns = root.strings("pipelines").unwrap_or_default();
    for pattern in &patterns {
        match matching_files(base, pattern) {
            Ok(files) if files.is_empty() => {
                root.problem("pipelines", format!("no file matches \"{pattern}\""));
            }
            Ok(files) => written.extend(files.iter().filter_map(|file| open(root, file))),
            Err(message) => root.problem("pipelines", message),
        }
    }
    if written.is_empty() && patterns.is_empty() {
        root.problem(
            "pipelines",
            "is missing; write pipelines = [\"pipelines/*.toml\"]",
        );
    }
    let mut names = BTreeSet::new();
    let mut pipelines = Vec::new();
    for Written {
        file,
        place,
        table,
        places,
    } in written
    {
        let before = root.problems().len();
        let mut section = Section::new(&file, &place, table, root.problems());
        check_references(&mut section, references, &mut names);
        let pipeline = read_pipeline(section);
        if let Some(places) = places {
            let found = root.problems().iter_mut().skip(before);
            found.for_each(|problem| places.locate(problem));
        }
        let Some(pipeline) = pipeline else {
            continue;
        };
        let by_append_time = matches!(pipeline.spec.time, TimeSource::AppendTime);
        let without_lines = pipeline.decoding.format == Format::MessagePack;
        let is_file = |source: &&String| references.files.contains(source);
        if let Some(source) = pipeline
            .sources
            .iter()
            .find(is_file)
            .filter(|_| by_append_time || without_lines)
        {
            let of = |key| match place.as_str() {
                "" => String::from(key),
                place => format!("{place}.{key}"),
            };
            let (key, message) = if by_append_time {
                let message = format!(
                    "files have no append time, and source \"{source}\" has files; name a field that holds the \
                     time: time = {{ field = \"created_at\" }}"
                );
                (of("time.from"), message)
            } else {
                let message = format!(
                    "files are read by lines, which MessagePack has not, and source \"{source}\" has files; read \
                     it from Kafka (unisono eval reads files of it)"
                );
                (of("format"), message)
            };
            root.problems()
                .push(ConfigProblem::new(&file, &key, message));
        }
        pipelines.push(pipeline);
    }
    pipelines
}

fn open(root: &mut Section<'_>, path: &Path) -> Option<Written> {
    let file = path.display().to_string();
    let table = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read: {error}"))
        .and_then(|text| Ok((parse_toml(&text)?, Places::of(&text))));
    match table {
        Ok((table, places)) => Some(Written {
            file,
            place: String::new(),
            table,
            places: Some(places),
        }),
        Err(message) => {
            root.problems().push(ConfigProblem::new(&file, "", message));
            None
        }
    }
}

fn check_references(
    section: &mut Section<'_>,
    references: &References,
    names: &mut BTreeSet<String>,
) {
    if let Some(name) = section.peek_string("name")
        && !names.insert(name.clone())
    {
        section.problem(
            "name",
            format!("\"{name}\" is taken by another pipeline; use another"),
        );
    }
    for source in section.peek_strings("sources") {
        if !references.sources.contains(&source) {
            let like = did_you_mean(&source, references.sources.iter().map(String::as_str));
            let message = format!("\"{source}\" is not a [[source]] of the node's config{like}");
            section.problem("sources", message);
        }
    }
    if let Some(sink) = section.peek_string("sink")
        && !references.sinks.contains(&sink)
    {
        let like = did_you_mean(&sink, references.sinks.iter().map(String::as_str));
        let message = format!("\"{sink}\" is not a [[sink]] of the node's config{like}");
        section.problem("sink", message);
    }
}

/// The files that match `pattern`, whose last part can hold wildcards, ordered by name.
fn matching_files(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let (dir, file_pattern) = match pattern.rsplit_once('/') {
        Some((dir, file)) => (base.join(if dir.is_empty() { "/" } else { dir }), file),
        None => (base.to_owned(), pattern),
    };
    check_pattern(file_pattern)?;
    let dir = if dir.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        dir
    };
    let cannot = |error: std::io::Error| format!("cannot list {}: {error}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if name
            .to_str()
            .is_some_and(|name| matches_pattern(file_pattern, name))
        {
            files.push(dir.join(name));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
