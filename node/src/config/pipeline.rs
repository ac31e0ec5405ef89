//! The definition of a pipeline.

use std::path::Path;

use toml::Value;
use unisono_engine::spec::{CloseSpec, Expr, GroupColumn, PipelineSpec, ValueSpec};

use super::name::check_name;
use super::place::Places;
use super::problem::ConfigErrors;
use super::section::{Section, parse_toml};
use crate::definition::{
    BUILTIN_SINK, Decoding, MOST_RECORD_BYTES, Names, PipelineDefinition, Terms, parse_condition,
    parse_group, parse_having, parse_value,
};

mod dedup;
mod format;
mod late;
mod time;
mod window;

use dedup::{check_dedup, read_dedup};
use format::{check_fields, read_format};
use late::read_late;
use time::read_time;
use window::read_window;

/// The watermark keeps that many event times for each lane at most.
const MAX_RECORDS: i64 = 10_000;
/// More lanes than a feed has.
const MAX_LANES: i64 = 100_000;
const DEFAULT_IDLE_MS: i64 = 10_000;
const DEFAULT_GROUP_BYTES: usize = 1 << 10;
const MOST_GROUP_BYTES: usize = 64 << 10;
const DEFAULT_MAX_FUTURE_MS: i64 = 300_000;

impl PipelineDefinition {
    /// Reads and checks a pipeline file.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let label = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigErrors::of_file(&label, format!("cannot read: {error}")))?;
        Self::parse(&label, &text)
    }

    /// Checks the text of a pipeline file; `file` names it in errors.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigErrors> {
        let table = parse_toml(text).map_err(|message| ConfigErrors::of_file(file, message))?;
        let mut problems = Vec::new();
        let definition = read_pipeline(Section::new(file, "", table, &mut problems));
        let places = Places::of(text);
        problems
            .iter_mut()
            .for_each(|problem| places.locate(problem));
        match definition {
            Some(definition) if problems.is_empty() => Ok(definition),
            _ => Err(ConfigErrors { problems }),
        }
    }
}

/// Reads a pipeline; `None` after reporting what is wrong.
pub fn read_pipeline(mut section: Section<'_>) -> Option<PipelineDefinition> {
    let mut names = Names::default();
    section.require("name", "name = \"orders_per_minute\"");
    let name = section.parsed("name", |text| check_name(text).map(|()| text.to_owned()));
    let sources = read_sources(&mut section);
    let time = read_time(&mut section, &mut names.fields);
    let filter = read_where(&mut section, &mut names);
    let group_by = read_group_by(&mut section, &mut names);
    let window = read_window(&mut section);
    let close = read_close(&mut section);
    let late = read_late(&mut section, window.as_ref());
    let max_future_ms = read_limit(&mut section, "max_future", DEFAULT_MAX_FUTURE_MS);
    let (group_bytes, record_bytes) = read_limits(&mut section);
    let sink = section
        .string("sink")
        .unwrap_or_else(|| BUILTIN_SINK.to_owned());
    let values = read_values(&mut section, &mut names);
    let having = read_having(&mut section, &values, &group_by);
    let dedup = read_dedup(&mut section, &mut names);
    let format = read_format(&mut section);
    if let Some(format) = &format {
        check_fields(&mut section, format, &names.fields);
    }
    if dedup.is_some() {
        check_dedup(&mut section, window.as_ref(), late, format.as_ref());
    }
    let max_skew_ms = read_align(&mut section);
    section.finish();
    let spec = PipelineSpec {
        name: name?,
        time: time?,
        filter,
        derived: names.derived,
        group_by,
        window: window?,
        close: close?,
        late: late?,
        values,
        max_future_ms,
        group_bytes,
        having,
        dedup,
    };
    let terms = Terms {
        max_skew_ms,
        decoding: Decoding {
            format: format?,
            record_bytes,
        },
    };
    let mut definition = PipelineDefinition::new(sources?, sink, names.fields, spec, terms);
    definition.warnings = names.warnings;
    Some(definition)
}

/// One condition, or several that must all hold.
fn read_where(section: &mut Section<'_>, names: &mut Names) -> Option<Expr> {
    let mut conditions = Vec::new();
    for text in section.one_or_more("where")? {
        match parse_condition(&text, names) {
            Ok(condition) => conditions.push(condition),
            Err(message) => section.problem("where", message),
        }
    }
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Expr::And(conditions)),
    }
}

fn read_having(
    section: &mut Section<'_>,
    values: &[ValueSpec],
    groups: &[GroupColumn],
) -> Option<Expr> {
    let values: Vec<String> = values.iter().map(|value| value.name.clone()).collect();
    let groups: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let mut conditions = Vec::new();
    for text in section.one_or_more("having")? {
        match parse_having(&text, &values, &groups) {
            Ok(condition) => conditions.push(condition),
            Err(message) => section.problem("having", message),
        }
    }
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Expr::And(conditions)),
    }
}

fn read_sources(section: &mut Section<'_>) -> Option<Vec<String>> {
    section.require("sources", "sources = [\"orders\"]");
    let sources = section.strings("sources")?;
    if sources.is_empty() {
        section.problem("sources", "is empty; name at least one source");
    }
    for (index, source) in sources.iter().enumerate() {
        if sources[..index].contains(source) {
            section.problem("sources", format!("\"{source}\" is named twice"));
        }
    }
    Some(sources)
}

fn read_group_by(section: &mut Section<'_>, names: &mut Names) -> Vec<GroupColumn> {
    let mut groups: Vec<GroupColumn> = Vec::new();
    for text in section.strings("group_by").unwrap_or_default() {
        match parse_group(&text, names) {
            Ok((name, column)) => {
                if groups.iter().any(|group| group.name == name) {
                    section.problem("group_by", format!("{name} is named twice"));
                }
                groups.push(GroupColumn { name, column });
            }
            Err(message) => section.problem("group_by", format!("\"{text}\" {message}")),
        }
    }
    groups
}

fn read_close(section: &mut Section<'_>) -> Option<CloseSpec> {
    let table = section.table("close").unwrap_or_default();
    let mut close = section.section("close", table);
    let lag_ms = close.positive_ms("lag").unwrap_or(0);
    let records = close.integer("records", 1..=MAX_RECORDS).unwrap_or(1);
    let idle_ms = read_limit(&mut close, "idle", DEFAULT_IDLE_MS);
    let lanes = close.integer("lanes", 1..=MAX_LANES).unwrap_or(0);
    let at_most_ms = close.positive_ms("at_most");
    if at_most_ms == Some(0) {
        close.problem(
            "at_most",
            "must be greater than 0; leave it out to wait as long as it takes",
        );
    }
    close.finish();
    Some(CloseSpec {
        lag_ms,
        records: usize::try_from(records).ok()?,
        idle_ms,
        lanes: usize::try_from(lanes).ok()?,
        at_most_ms,
    })
}

/// How far a lane may be ahead of the slowest one; `None` without a section: as far as it is read.
fn read_align(section: &mut Section<'_>) -> Option<i64> {
    let table = section.table("align")?;
    let mut align = section.section("align", table);
    align.require("max_skew", "max_skew = \"10m\"");
    let max_skew_ms = align.positive_ms("max_skew");
    if max_skew_ms == Some(0) {
        align.problem("max_skew", "must be greater than 0");
    }
    align.finish();
    max_skew_ms
}

/// A duration greater than 0, or `never`.
fn read_limit(section: &mut Section<'_>, key: &'static str, default: i64) -> Option<i64> {
    if section.peek_string(key).as_deref() == Some("never") {
        section.string(key);
        return None;
    }
    match section.positive_ms(key) {
        Some(0) => {
            section.problem(key, "must be greater than 0, or \"never\"");
            Some(default)
        }
        Some(millis) => Some(millis),
        None => Some(default),
    }
}

/// How large a group and a record may be: a row holds its group once more as its key, and must fit into what
/// sinks take.
fn read_limits(section: &mut Section<'_>) -> (usize, usize) {
    let table = section.table("limits").unwrap_or_default();
    let mut limits = section.section("limits", table);
    let mut read = |key: &'static str, most: usize, shown: &str| {
        let size = limits.bytes(key).map(usize::try_from)?;
        let size = size.ok().filter(|size| (1..=most).contains(size));
        if size.is_none() {
            limits.problem(key, format!("must be 1 B to {shown}"));
        }
        size
    };
    let group_bytes = read("group_bytes", MOST_GROUP_BYTES, "64KiB");
    let record_bytes = read("record_bytes", MOST_RECORD_BYTES, "16MiB");
    limits.finish();
    (
        group_bytes.unwrap_or(DEFAULT_GROUP_BYTES),
        record_bytes.unwrap_or(MOST_RECORD_BYTES),
    )
}

fn read_values(section: &mut Section<'_>, names: &mut Names) -> Vec<ValueSpec> {
    section.require("values", "[values] with, say, n = \"count()\"");
    let Some(table) = section.table("values") else {
        return Vec::new();
    };
    let mut values = section.section("values", table);
    let entries = values.take_all();
    if entries.is_empty() {
        values.problem("", "is empty; write, say, n = \"count()\"");
    }
    let mut specs = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let Value::String(text) = &value else {
            let _: Option<()> = values.wrong_type(&name, "a function, as \"sum(amount)\"", &value);
            continue;
        };
        match parse_value(text, names) {
            Ok(function) => specs.push(ValueSpec { name, function }),
            Err(message) => values.problem(&name, message),
        }
    }
    values.finish();
    specs
}

#[cfg(test)]
mod tests;
