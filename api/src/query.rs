//! Parameters of the routes that give rows: what was written, and what it means.

use std::fmt;

use crate::dto::PipelineInfo;
use crate::error::ApiError;
use crate::service::{OpenPlace, OpenQuery, WindowsQuery};

/// Rows of a page where the request names no limit.
pub const DEFAULT_LIMIT: usize = 1_000;
/// The greatest limit.
pub const MAX_LIMIT: usize = 10_000;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Ndjson,
}

/// Which stream a cursor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CursorKind {
    Windows,
    DeadLetters,
}

/// A place in one incarnation's stream. Opaque to users: how it is written may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) kind: CursorKind,
    pub(crate) incarnation: u64,
    pub(crate) seq: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            CursorKind::Windows => 'w',
            CursorKind::DeadLetters => 'd',
        };
        write!(f, "{kind}.{:x}.{:x}", self.incarnation, self.seq)
    }
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let kind = match parts.next()? {
            "w" => CursorKind::Windows,
            "d" => CursorKind::DeadLetters,
            _ => return None,
        };
        let incarnation = u64::from_str_radix(parts.next()?, 16).ok()?;
        let seq = u64::from_str_radix(parts.next()?, 16).ok()?;
        let cursor = Self {
            kind,
            incarnation,
            seq,
        };
        // Exactly what was given out: no sign, no zeros in front, nothing behind.
        (cursor.to_string() == text).then_some(cursor)
    }
}

/// The parameters of a request for rows, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowsRequest {
    pub(crate) query: WindowsQuery,
    /// `None`: as the request's `accept` header says.
    pub(crate) format: Option<Format>,
}

/// Checks the parameters of a request for rows of `pipeline`. Dead letters have neither times nor groups.
pub(crate) fn parse(
    pairs: &[(String, String)],
    pipeline: &PipelineInfo,
    kind: CursorKind,
) -> Result<RowsRequest, ApiError> {
    let mut query = WindowsQuery {
        limit: DEFAULT_LIMIT,
        ..WindowsQuery::default()
    };
    let mut format = None;
    let windows = kind == CursorKind::Windows;
    for (at, (name, value)) in pairs.iter().enumerate() {
        if pairs[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(ApiError::bad_query(
                format!("{name} is given twice"),
                "give it once",
            ));
        }
        match name.as_str() {
            "from" if windows => query.from = Some(parse_time(name, value)?),
            "to" if windows => query.to = Some(parse_time(name, value)?),
            "limit" => query.limit = parse_limit(value)?,
            "cursor" => query.after = parse_cursor(value, pipeline.incarnation, kind)?,
            "format" => format = Some(parse_format(value)?),
            _ => query
                .groups
                .push((group_field(name, pipeline, kind)?, value.clone())),
        }
    }
    if let (Some(from), Some(to)) = (query.from, query.to)
        && from >= to
    {
        return Err(ApiError::bad_query(
            "from is not before to",
            "swap them, or leave one out",
        ));
    }
    Ok(RowsRequest { query, format })
}

impl fmt::Display for OpenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o.{}.{:x}", self.end, self.group)
    }
}

fn parse_open_place(text: &str) -> Result<OpenPlace, ApiError> {
    let parsed = || {
        let (end, group) = text.strip_prefix("o.")?.split_once('.')?;
        Some(OpenPlace {
            end: end.parse().ok()?,
            group: u64::from_str_radix(group, 16).ok()?,
        })
    };
    parsed().ok_or_else(|| {
        ApiError::bad_query(
            format!("{text:?} is no cursor of open windows"),
            "give a next_cursor as it came, or leave it out",
        )
    })
}

/// Checks the parameters of a request for open windows.
pub(crate) fn parse_open(pairs: &[(String, String)]) -> Result<OpenQuery, ApiError> {
    let (mut limit, mut after) = (None, None);
    for (name, value) in pairs {
        match name.as_str() {
            "limit" if limit.is_none() => limit = Some(parse_limit(value)?),
            "cursor" if after.is_none() => after = Some(parse_open_place(value)?),
            _ => {
                return Err(ApiError::unknown_parameter(
                    "open windows take no such parameter, or not twice".to_owned(),
                    "the parameters are limit and cursor".to_owned(),
                ));
            }
        }
    }
    Ok(OpenQuery {
        limit: limit.unwrap_or(MAX_LIMIT),
        after,
    })
}

/// Checks the parameters of `/readyz`; gives the pipeline that is asked for.
pub(crate) fn parse_ready(pairs: &[(String, String)]) -> Result<Option<String>, ApiError> {
    match pairs {
        [] => Ok(None),
        [(name, value)] if name == "pipeline" => Ok(Some(value.clone())),
        _ => Err(ApiError::unknown_parameter(
            "/readyz takes no such parameter".to_owned(),
            "the parameter is pipeline".to_owned(),
        )),
    }
}

// A field named like a parameter is reached by `group.` in front of it.
fn group_field(name: &str, pipeline: &PipelineInfo, kind: CursorKind) -> Result<String, ApiError> {
    let windows = kind == CursorKind::Windows;
    let fields = if windows {
        pipeline.group_fields.as_slice()
    } else {
        &[]
    };
    let known = |name: &str| fields.iter().any(|field| field == name);
    if let Some(field) = name.strip_prefix("group.").filter(|field| known(field)) {
        return Ok(field.to_owned());
    }
    if known(name) {
        return Ok(name.to_owned());
    }
    let mut parameters = if windows {
        "from, to, limit, cursor, format"
    } else {
        "limit, cursor, format"
    }
    .to_owned();
    if !fields.is_empty() {
        parameters.push_str("; fields of the group are ");
        parameters.push_str(&fields.join(", "));
    }
    let shown = name.strip_prefix("group.").unwrap_or(name);
    Err(ApiError::unknown_parameter(
        format!(
            "pipeline {:?} has no parameter or group field {shown:?}",
            pipeline.name
        ),
        format!("the parameters are {parameters}"),
    ))
}

fn parse_limit(value: &str) -> Result<usize, ApiError> {
    let limit = value
        .parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| {
        let hint = format!("give a whole number from 1 to {MAX_LIMIT}, and go on with next_cursor");
        ApiError::bad_query(format!("limit {value:?} cannot be used"), hint)
    })
}

fn parse_format(value: &str) -> Result<Format, ApiError> {
    match value {
        "json" => Ok(Format::Json),
        "ndjson" => Ok(Format::Ndjson),
        _ => {
            let message = format!("there is no format {value:?}");
            Err(ApiError::bad_query(message, "give json or ndjson"))
        }
    }
}

fn parse_cursor(value: &str, incarnation: u64, kind: CursorKind) -> Result<u64, ApiError> {
    let hint = "give the next_cursor of an answer as it is, or leave it out to begin anew";
    match Cursor::parse(value) {
        Some(cursor) if (cursor.incarnation, cursor.kind) == (incarnation, kind) => Ok(cursor.seq),
        Some(_) => Err(ApiError::bad_query(
            "the cursor is one of another pipeline or route",
            hint,
        )),
        None => Err(ApiError::bad_query(format!("{value:?} is no cursor"), hint)),
    }
}

fn parse_time(name: &str, value: &str) -> Result<i64, ApiError> {
    if let Ok(millis) = value.parse::<i64>() {
        return Ok(millis);
    }
    let parse = |text: &str| match text.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(time.as_millisecond()),
        Err(error) => beyond_timestamps(text).ok_or(error),
    };
    // A plus sign that was not escaped arrives as a space: 17:15:00 01:00.
    let with_plus = || {
        let at = value.rfind(' ')?;
        parse(&format!("{}+{}", &value[..at], &value[at + 1..])).ok()
    };
    parse(value).ok().or_else(with_plus).ok_or_else(|| {
        let hint = "give RFC 3339 with a zone (2018-03-24T17:15:00Z), or milliseconds since 1970";
        ApiError::bad_query(format!("{name} {value:?} is no time"), hint)
    })
}

/// A time of the last days of the year 9999, which people write for "no end": jiff's time stamps end before, so that
/// each is a date in every zone.
fn beyond_timestamps(text: &str) -> Option<i64> {
    let pieces = jiff::fmt::temporal::Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    let local = pieces.date().to_datetime(pieces.time()?);
    let since = local
        .duration_since(jiff::civil::date(1970, 1, 1).to_datetime(jiff::civil::Time::midnight()));
    let since = i64::try_from(since.as_millis()).ok()?;
    since.checked_sub(i64::from(offset.seconds()).checked_mul(1_000)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_or_milliseconds() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse_time("from", text).ok(), expected, "{text}");
        };
        check("1521911700000", Some(1_521_911_700_000));
        check("-1", Some(-1));
        check("2018-03-24T17:15:00Z", Some(1_521_911_700_000));
        check("2018-03-24T18:15:00+01:00", Some(1_521_911_700_000));
        check("2018-03-24T18:15:00 01:00", Some(1_521_911_700_000));
        check("2018-03-24 17:15:00.250Z", Some(1_521_911_700_250));
        check("2018-03-24T17:15:00", None);
        check("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999));
        check("9999-12-31 23:59:59+01:00", Some(253_402_297_199_000));
        check("9999-12-31", None);
        check("10000-01-01T00:00:00Z", None);
        check("300.5", None);
        check("", None);
        check("now", None);
    }

    #[test]
    fn a_cursor_is_taken_back_only_as_it_was_given() {
        let cursor = Cursor {
            kind: CursorKind::Windows,
            incarnation: 300,
            seq: u64::MAX,
        };
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        for wrong in [
            "", "w", "w.1", "w.1.2.3", "x.1.2", "w.01.2", "w.+1.2", "W.1.2", "w.1.G",
        ] {
            assert_eq!(Cursor::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_field_named_like_a_parameter_is_reached_by_its_prefix() {
        let pipeline = PipelineInfo {
            group_fields: vec!["limit".into(), "city".into()],
            ..PipelineInfo::default()
        };
        let pairs = [("limit", "5"), ("group.limit", "a"), ("group.city", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = parse(&pairs, &pipeline, CursorKind::Windows).unwrap();
        assert_eq!(request.query.limit, 5);
        let groups = [("limit", "a"), ("city", "b")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(request.query.groups, groups);
    }
}
