//! Definitions as canonical JSON, for the Raft log.
//!
//! The text holds what a definition means, not what was written: an SQL parser of another version
//! must not read another meaning out of it. It carries a version, since an older replica can be
//! handed a newer one's text.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unisono_engine::spec::{
    CloseSpec, Column, GroupColumn, LateSpec, PipelineSpec, TimeFormat, TimeSource, WindowSpec,
};
use unisono_engine::timestamp::TimePattern;

mod dedup;
mod values;
mod window;

use super::fields::{FieldPath, FieldSet, Key};
use super::format::{Decoding, Format, MOST_RECORD_BYTES};
use super::{PipelineDefinition, Terms, dedup_clash};
use window::Window;

mod expr;

/// The newest version that this program reads. It writes the oldest that holds all of a definition:
/// so a text that stands in the log stays that of the same file.
const VERSION: u32 = 3;
/// The version without calendars, `lanes` and `at_most`, newer functions, expressions but in `filter`, and calls there.
const FIRST_VERSION: u32 = 2;

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
    values: Vec<values::Value>,
    max_future_ms: Option<i64>,
    group_bytes: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    derived: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    having: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_skew_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record_bytes: Option<usize>,
    /// Late records correct rows for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revise_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dedup: Option<dedup::Dedup>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Time {
    AppendTime,
    Field {
        column: usize,
        /// A code, or a pattern, which has a `%`.
        format: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<window::ZoneData>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Close {
    lag_ms: i64,
    records: usize,
    idle_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lanes: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most_ms: Option<i64>,
}

const FORMATS: [(&str, TimeFormat); 7] = [
    ("auto", TimeFormat::Auto),
    ("rfc3339", TimeFormat::Rfc3339),
    ("rfc2822", TimeFormat::Rfc2822),
    ("s", TimeFormat::Seconds),
    ("ms", TimeFormat::Millis),
    ("us", TimeFormat::Micros),
    ("ns", TimeFormat::Nanos),
];

impl Time {
    fn of(time: &TimeSource) -> Self {
        match time {
            TimeSource::AppendTime => Self::AppendTime,
            TimeSource::Field {
                column,
                format,
                zone,
            } => Self::Field {
                column: column.0,
                format: match format {
                    TimeFormat::Pattern(pattern) => pattern.as_str().to_owned(),
                    _ => code_of(&FORMATS, format),
                },
                zone: zone.as_deref().map(window::ZoneData::of),
            },
        }
    }

    /// `columns` is how many fields there are.
    fn read(&self, columns: usize) -> Result<TimeSource, String> {
        Ok(match self {
            Self::AppendTime => TimeSource::AppendTime,
            Self::Field {
                column,
                format,
                zone,
            } => TimeSource::Field {
                column: read_column(*column, columns)?,
                format: match format.contains('%') {
                    true => TimePattern::new(format)
                        .map(TimeFormat::Pattern)
                        .map_err(|error| error.to_string())?,
                    false => value_of(&FORMATS, format)?,
                },
                zone: match zone {
                    Some(zone) => Some(Arc::new(zone.read()?)),
                    None => None,
                },
            },
        })
    }
}

/// Whether older programs know it.
fn is_old_time(time: &TimeSource) -> bool {
    let TimeSource::Field { format, zone, .. } = time else {
        return true;
    };
    let is_new = matches!(format, TimeFormat::Rfc2822 | TimeFormat::Pattern(_));
    !is_new && zone.is_none()
}

fn code_of<T: PartialEq>(codes: &[(&str, T)], value: &T) -> String {
    codes
        .iter()
        .find(|(_, known)| known == value)
        .map_or("", |(code, _)| code)
        .to_owned()
}

fn value_of<T: Clone>(codes: &[(&str, T)], code: &str) -> Result<T, String> {
    let found = codes.iter().find(|(known, _)| *known == code);
    found
        .map(|(_, value)| value.clone())
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
        max_skew_ms,
        decoding,
        warnings: _,
        canonical: _,
    } = definition;
    let place = |column: Column| place_of(column, fields.len());
    let pipeline = Pipeline {
        version: version_of(definition),
        name: name.clone(),
        sources: sources.clone(),
        fields: fields
            .paths()
            .iter()
            .map(|path| path.keys().to_vec())
            .collect(),
        time: Time::of(&spec.time),
        filter: spec.filter.as_ref().map(expr::write_condition),
        group_by: spec
            .group_by
            .iter()
            .map(|g| (g.name.clone(), place(g.column)))
            .collect(),
        window: Window::of(&spec.window),
        close: Close {
            lag_ms: spec.close.lag_ms,
            records: spec.close.records,
            idle_ms: spec.close.idle_ms,
            lanes: Some(spec.close.lanes).filter(|&lanes| lanes > 0),
            at_most_ms: spec.close.at_most_ms,
        },
        values: spec
            .values
            .iter()
            .map(|value| values::write(value, &place))
            .collect(),
        max_future_ms: spec.max_future_ms,
        group_bytes: spec.group_bytes,
        derived: spec.derived.iter().map(expr::write).collect(),
        having: spec.having.as_ref().map(expr::write_condition),
        dedup: spec.dedup.as_ref().map(|it| dedup::Dedup::of(it, &place)),
        max_skew_ms: *max_skew_ms,
        format: Some(decoding.format.clone()).filter(|format| *format != Format::default()),
        record_bytes: Some(decoding.record_bytes).filter(|&bytes| bytes != MOST_RECORD_BYTES),
        revise_ms: spec.late.keep_ms(),
    };
    to_json(&pipeline)
}

fn version_of(definition: &PipelineDefinition) -> u32 {
    let PipelineDefinition { spec, fields, .. } = definition;
    let is_index = |key: &Key| matches!(key, Key::Index(_));
    let mut paths = fields.paths().iter();
    let is_first = matches!(spec.window, WindowSpec::Fixed(_))
        && is_old_time(&spec.time)
        && spec.close.lanes == 0
        && spec.close.at_most_ms.is_none()
        && spec.values.iter().all(values::is_old)
        && spec.derived.is_empty()
        && spec.having.is_none()
        && spec.late == LateSpec::Drop
        && definition.terms() == Terms::default()
        && spec.dedup.is_none()
        && spec.filter.as_ref().is_none_or(expr::is_old)
        && !paths.any(|path| path.keys().iter().any(is_index));
    if is_first { FIRST_VERSION } else { VERSION }
}

/// A canonical text as far as its file decides it: the same for replicas whose time zone databases differ.
#[must_use]
pub fn as_written(text: &str) -> Cow<'_, str> {
    if !text.contains("\"zone\":{") {
        return Cow::Borrowed(text);
    }
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(text) else {
        return Cow::Borrowed(text);
    };
    for place in ["/window/zone", "/time/field/zone"] {
        if let Some(zone) = value.pointer_mut(place) {
            *zone = zone["name"].take();
        }
    }
    Cow::Owned(value.to_string())
}

/// Texts, numbers and lists alone: nothing in them that JSON cannot hold.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data is always JSON")
}

/// Derived columns follow the fields.
fn place_of(column: Column, fields: usize) -> usize {
    column.derived().map_or(column.0, |at| fields + at)
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
    let decoding = Decoding {
        record_bytes: pipeline.record_bytes.unwrap_or(MOST_RECORD_BYTES),
        format: pipeline.format.unwrap_or_default(),
    };
    let faulty = |(key, message)| damaged(format!("format: {key}: {message}"));
    decoding.format.check().map_err(faulty)?;
    Ok(PipelineDefinition {
        name: pipeline.name,
        sources: pipeline.sources,
        sink: sink.to_owned(),
        fields,
        spec,
        max_skew_ms: pipeline.max_skew_ms,
        decoding,
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
    let time = pipeline.time.read(count)?;
    let columns = (count, count + pipeline.derived.len());
    let read_expr = |value: &Value| expr::read(value, count);
    let group_by = pipeline.group_by.iter().map(|(name, column)| {
        Ok(GroupColumn {
            name: name.clone(),
            column: read_derived(*column, columns)?,
        })
    });
    let values = pipeline.values.iter();
    let values = values.map(|value| values::read(value, columns));
    let derived = pipeline.derived.iter().map(read_expr);
    let row_columns = pipeline.values.len() + pipeline.group_by.len();
    let dedup = pipeline.dedup.as_ref().map(|it| it.read(columns));
    let having = pipeline.having.as_ref();
    let having = having.map(|having| expr::read(having, row_columns));
    let Close {
        lag_ms,
        records,
        idle_ms,
        lanes,
        at_most_ms,
    } = pipeline.close;
    if records == 0 {
        return Err("close.records is 0".to_owned());
    }
    let window = pipeline.window.read()?;
    if window.gap_ms().is_some() && pipeline.revise_ms.is_some() {
        return Err("sessions are not revised".to_owned());
    }
    let late = match pipeline.revise_ms {
        None => LateSpec::Drop,
        Some(keep_ms) => LateSpec::Revise { keep_ms },
    };
    let format = pipeline.format.clone().unwrap_or_default();
    if let (Some(_), Some(clash)) = (&dedup, dedup_clash(&window, late, &format)) {
        return Err(format!("dedup {clash}"));
    }
    let spec = PipelineSpec {
        name: pipeline.name.clone(),
        time,
        filter: pipeline.filter.as_ref().map(read_expr).transpose()?,
        derived: derived.collect::<Result<_, _>>()?,
        having: having.transpose()?,
        group_by: group_by.collect::<Result<_, String>>()?,
        window,
        close: CloseSpec {
            lag_ms,
            records,
            idle_ms,
            lanes: lanes.unwrap_or(0),
            at_most_ms,
        },
        values: values.collect::<Result<_, String>>()?,
        late,
        max_future_ms: pipeline.max_future_ms,
        group_bytes: pipeline.group_bytes,
        dedup: dedup.transpose()?,
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
