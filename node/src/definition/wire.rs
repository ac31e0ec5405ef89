//! Definitions as canonical JSON, for the Raft log.
//!
//! The text holds what a definition means, not what was written: an SQL parser of another version
//! must not read another meaning out of it. It carries a version, since an older replica can be
//! handed a newer one's text.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unisono_engine::spec::{
    CloseSpec, Column, Function, GroupColumn, PipelineSpec, TimeFormat, TimeSource, ValueSpec,
    WindowError, WindowSpec,
};

use super::PipelineDefinition;
use super::fields::{FieldPath, FieldSet, Key};

mod expr;

/// The newest version that this program reads. It writes the oldest that holds all of a definition:
/// so a text that stands in the log stays that of the same file.
const VERSION: u32 = 3;
/// The version without expressions but in `filter`, and without calls there.
const PLAIN_VERSION: u32 = 2;

/// Why a canonical text gives no definition.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// A newer program wrote it. Upgrade this replica.
    #[error("definition has version {found}, this program reads up to {VERSION}; upgrade it")]
    Newer {
        /// The text's version.
        found: u32,
    },
    /// It is damaged, or no definition at all.
    #[error("definition is damaged: {reason}")]
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pipeline {
    version: u32,
    name: String,
    sources: Vec<String>,
    /// Keys of each column.
    fields: Vec<Vec<Key>>,
    time: Time,
    filter: Option<Value>,
    /// Name and column; derived columns follow the fields.
    group_by: Vec<(String, usize)>,
    window: Window,
    close: Close,
    /// Name, function, column.
    values: Vec<(String, String, Option<usize>)>,
    max_future_ms: Option<i64>,
    group_bytes: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    derived: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    having: Option<Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Time {
    AppendTime,
    Field { column: usize, format: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    size_ms: i64,
    slide_ms: i64,
    offset_ms: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Close {
    lag_ms: i64,
    records: usize,
    idle_ms: Option<i64>,
}

const FORMATS: [(&str, TimeFormat); 6] = [
    ("auto", TimeFormat::Auto),
    ("rfc3339", TimeFormat::Rfc3339),
    ("s", TimeFormat::Seconds),
    ("ms", TimeFormat::Millis),
    ("us", TimeFormat::Micros),
    ("ns", TimeFormat::Nanos),
];

fn code_of<T: PartialEq>(codes: &[(&str, T)], value: &T) -> String {
    codes
        .iter()
        .find(|(_, known)| known == value)
        .map_or("", |(code, _)| code)
        .to_owned()
}

fn value_of<T: Copy>(codes: &[(&str, T)], code: &str) -> Result<T, String> {
    let found = codes.iter().find(|(known, _)| *known == code);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("unknown code {code:?}"))
}

/// The canonical text of `definition`; its own `canonical` is not looked at.
pub(super) fn write(definition: &PipelineDefinition) -> String {
    let PipelineDefinition {
        name,
        sources,
        sink: _,
        fields,
        spec,
        warnings: _,
        canonical: _,
    } = definition;
    let is_index = |key: &Key| matches!(key, Key::Index(_));
    let has_index = fields
        .paths()
        .iter()
        .any(|path| path.keys().iter().any(is_index));
    let is_plain = spec.derived.is_empty()
        && spec.having.is_none()
        && spec.filter.as_ref().is_none_or(expr::is_old)
        && !has_index;
    let place = |column: Column| place_of(column, fields.len());
    let pipeline = Pipeline {
        version: if is_plain { PLAIN_VERSION } else { VERSION },
        name: name.clone(),
        sources: sources.clone(),
        fields: fields
            .paths()
            .iter()
            .map(|path| path.keys().to_vec())
            .collect(),
        time: match spec.time {
            TimeSource::AppendTime => Time::AppendTime,
            TimeSource::Field { column, format } => Time::Field {
                column: column.0,
                format: code_of(&FORMATS, &format),
            },
        },
        filter: spec.filter.as_ref().map(expr::write_condition),
        group_by: spec
            .group_by
            .iter()
            .map(|g| (g.name.clone(), place(g.column)))
            .collect(),
        window: Window {
            size_ms: spec.window.size_ms(),
            slide_ms: spec.window.slide_ms(),
            offset_ms: spec.window.offset_ms(),
        },
        close: Close {
            lag_ms: spec.close.lag_ms,
            records: spec.close.records,
            idle_ms: spec.close.idle_ms,
        },
        values: spec
            .values
            .iter()
            .map(|it| write_value(it, &place))
            .collect(),
        max_future_ms: spec.max_future_ms,
        group_bytes: spec.group_bytes,
        derived: spec.derived.iter().map(expr::write).collect(),
        having: spec.having.as_ref().map(expr::write_condition),
    };
    to_json(&pipeline)
}

/// Texts, numbers and lists alone: nothing in them that JSON cannot hold.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data is always JSON")
}

/// Derived columns follow the fields.
fn place_of(column: Column, fields: usize) -> usize {
    column.derived().map_or(column.0, |at| fields + at)
}

fn write_value(
    value: &ValueSpec,
    place: &impl Fn(Column) -> usize,
) -> (String, String, Option<usize>) {
    let (code, column) = match value.function {
        Function::CountAll => ("count", None),
        Function::Count(column) => ("count", Some(place(column))),
        Function::Sum(column) => ("sum", Some(place(column))),
        Function::Avg(column) => ("avg", Some(place(column))),
        Function::Min(column) => ("min", Some(place(column))),
        Function::Max(column) => ("max", Some(place(column))),
    };
    (value.name.clone(), code.to_owned(), column)
}

/// The definition that `text` holds, whose rows go to `sink`.
pub(super) fn read(text: &str, sink: &str) -> Result<PipelineDefinition, CanonicalError> {
    let damaged = |reason: String| CanonicalError::Damaged { reason };
    let Versioned { version: found } =
        serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    if found > VERSION {
        return Err(CanonicalError::Newer { found });
    }
    let pipeline: Pipeline =
        serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    let (fields, spec) = read_spec(&pipeline).map_err(damaged)?;
    Ok(PipelineDefinition {
        name: pipeline.name,
        sources: pipeline.sources,
        sink: sink.to_owned(),
        fields,
        spec,
        warnings: Vec::new(),
        canonical: text.to_owned(),
    })
}

fn read_spec(pipeline: &Pipeline) -> Result<(FieldSet, PipelineSpec), String> {
    let mut fields = FieldSet::new();
    for keys in &pipeline.fields {
        fields.insert(FieldPath::of_keys(keys.clone()).ok_or("a field without keys")?);
    }
    if fields.len() != pipeline.fields.len() {
        return Err("a field stands twice".to_owned());
    }
    let count = fields.len();
    let time = match &pipeline.time {
        Time::AppendTime => TimeSource::AppendTime,
        Time::Field { column, format } => TimeSource::Field {
            column: read_column(*column, count)?,
            format: value_of(&FORMATS, format)?,
        },
    };
    let columns = (count, count + pipeline.derived.len());
    let read_expr = |value: &Value| expr::read(value, count);
    let group_by = pipeline.group_by.iter().map(|(name, column)| {
        Ok(GroupColumn {
            name: name.clone(),
            column: read_derived(*column, columns)?,
        })
    });
    let values = pipeline.values.iter();
    let values = values.map(|value| read_value(value, columns));
    let derived = pipeline.derived.iter().map(read_expr);
    let row_columns = pipeline.values.len() + pipeline.group_by.len();
    let having = pipeline.having.as_ref();
    let having = having.map(|having| expr::read(having, row_columns));
    let Window {
        size_ms,
        slide_ms,
        offset_ms,
    } = pipeline.window;
    let Close {
        lag_ms,
        records,
        idle_ms,
    } = pipeline.close;
    if records == 0 {
        return Err("close.records is 0".to_owned());
    }
    let spec = PipelineSpec {
        name: pipeline.name.clone(),
        time,
        filter: pipeline.filter.as_ref().map(read_expr).transpose()?,
        derived: derived.collect::<Result<_, _>>()?,
        having: having.transpose()?,
        group_by: group_by.collect::<Result<_, String>>()?,
        window: WindowSpec::new(size_ms, slide_ms, offset_ms)
            .map_err(|error: WindowError| error.to_string())?,
        close: CloseSpec {
            lag_ms,
            records,
            idle_ms,
        },
        values: values.collect::<Result<_, String>>()?,
        max_future_ms: pipeline.max_future_ms,
        group_bytes: pipeline.group_bytes,
    };
    Ok((fields, spec))
}

fn read_column(column: usize, count: usize) -> Result<Column, String> {
    if column < count {
        Ok(Column(column))
    } else {
        Err(format!("no column {column}"))
    }
}

/// A field, or a derived column; `fields` of all.
fn read_derived(column: usize, (fields, all): (usize, usize)) -> Result<Column, String> {
    match column.checked_sub(fields) {
        None => Ok(Column(column)),
        Some(at) if column < all => Ok(Column::of_derived(at)),
        Some(_) => Err(format!("no column {column}")),
    }
}

fn read_value(
    (name, code, column): &(String, String, Option<usize>),
    columns: (usize, usize),
) -> Result<ValueSpec, String> {
    let function = match (
        code.as_str(),
        column.map(|c| read_derived(c, columns)).transpose()?,
    ) {
        ("count", None) => Function::CountAll,
        ("count", Some(column)) => Function::Count(column),
        ("sum", Some(column)) => Function::Sum(column),
        ("avg", Some(column)) => Function::Avg(column),
        ("min", Some(column)) => Function::Min(column),
        ("max", Some(column)) => Function::Max(column),
        _ => return Err(format!("unknown function {code:?}")),
    };
    Ok(ValueSpec {
        name: name.clone(),
        function,
    })
}
