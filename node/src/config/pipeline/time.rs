//! Where a pipeline's event time stands, and how it is written.

use std::sync::Arc;

use unisono_engine::spec::{TimeFormat, TimeSource, Zone};
use unisono_engine::timestamp::TimePattern;

use crate::config::section::Section;
use crate::definition::{FieldPath, FieldSet, zone_named};

pub(super) fn read_time(section: &mut Section<'_>, fields: &mut FieldSet) -> Option<TimeSource> {
    section.require(
        "time",
        "time = { field = \"created_at\" } or { from = \"append_time\" }",
    );
    let table = section.table("time")?;
    let mut time = section.section("time", table);
    let has_format = time.has("format");
    let format = read_format(&mut time);
    let zone = read_zone(&mut time, format.as_ref());
    let from = time.string("from");
    let field = time.parsed("field", |text| {
        FieldPath::parse(text).map_err(|e| e.to_string())
    });
    let source = match (from.as_deref(), field) {
        (None, Some(path)) => Some(TimeSource::Field {
            column: fields.insert(path),
            format: format?,
            zone,
        }),
        (Some("append_time"), None) => {
            if has_format {
                time.problem(
                    "format",
                    "goes with field; remove it, append time has one format",
                );
            }
            if zone.is_some() {
                time.problem(
                    "time_zone",
                    "goes with field; remove it, append time has none",
                );
            }
            Some(TimeSource::AppendTime)
        }
        (Some(other), None) => {
            time.problem(
                "from",
                format!("\"{other}\" is not known; write \"append_time\""),
            );
            None
        }
        (Some(_), Some(_)) => {
            time.problem("", "has both field and from; keep one");
            None
        }
        (None, None) => {
            time.problem("", "names no usable field; write field = \"created_at\"");
            None
        }
    };
    time.finish();
    source
}

fn read_format(time: &mut Section<'_>) -> Option<TimeFormat> {
    if !time.has("format") {
        time.string("format");
        return Some(TimeFormat::Auto);
    }
    time.parsed("format", |text| match text {
        "auto" => Ok(TimeFormat::Auto),
        "rfc3339" => Ok(TimeFormat::Rfc3339),
        "rfc2822" => Ok(TimeFormat::Rfc2822),
        "s" => Ok(TimeFormat::Seconds),
        "ms" => Ok(TimeFormat::Millis),
        "us" => Ok(TimeFormat::Micros),
        "ns" => Ok(TimeFormat::Nanos),
        pattern if pattern.contains('%') => TimePattern::new(pattern)
            .map(TimeFormat::Pattern)
            .map_err(|error| format!("\"{pattern}\" is no pattern for times: {error}")),
        other => Err(unknown(other)),
    })
}

fn unknown(name: &str) -> String {
    let meant = match name
        .to_ascii_lowercase()
        .replace(['-', '_', ' '], "")
        .as_str()
    {
        "sec" | "secs" | "second" | "seconds" | "unix" | "epoch" | "epochs" | "unixtime" => "s",
        "msec" | "milli" | "millis" | "millisecond" | "milliseconds" | "epochms" | "unixms" => "ms",
        "usec" | "micro" | "micros" | "microsecond" | "microseconds" => "us",
        "nsec" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => "ns",
        "iso" | "iso8601" | "rfc" | "datetime" | "timestamp" => "rfc3339",
        "rfc822" | "mail" => "rfc2822",
        _ => {
            return format!(
                "\"{name}\" is not known; write rfc3339, rfc2822, s, ms, us, ns, auto, or a pattern like \"%d/%b/%Y:%H:%M:%S %z\""
            );
        }
    };
    format!("\"{name}\" is not known; did you mean \"{meant}\"?")
}

/// Whose clocks a text without a zone means.
fn read_zone(time: &mut Section<'_>, format: Option<&TimeFormat>) -> Option<Arc<Zone>> {
    let zone = time.parsed("time_zone", zone_named)?;
    if format.is_some_and(is_of_numbers) {
        time.problem(
            "time_zone",
            "is for texts without a zone; numbers count from 1970-01-01T00:00:00Z, remove it",
        );
    }
    Some(Arc::new(zone))
}

fn is_of_numbers(format: &TimeFormat) -> bool {
    matches!(
        format,
        TimeFormat::Seconds | TimeFormat::Millis | TimeFormat::Micros | TimeFormat::Nanos
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::definition::PipelineDefinition;

    fn parse(time: &str) -> Result<PipelineDefinition, String> {
        let text = format!(
            "name='p'\nsources=['s']\ntime={{{time}}}\nwindow={{size='1m'}}\nvalues={{n='count()'}}"
        );
        PipelineDefinition::parse("p.toml", &text).map_err(|errors| errors.to_string())
    }

    #[track_caller]
    fn refused(time: &str, message: &str) {
        let errors = parse(time).unwrap_err();
        assert!(errors.contains(message), "{errors}");
    }

    #[test]
    fn newer_formats_stand_in_a_text_of_their_own_version() {
        for (time, version, text) in [
            (
                "field='t', format='rfc3339'",
                2,
                r#"{"field":{"column":0,"format":"rfc3339"}}"#,
            ),
            (
                "field='t', format='rfc2822'",
                3,
                r#"{"field":{"column":0,"format":"rfc2822"}}"#,
            ),
            (
                "field='t', format='%d/%b/%Y %z'",
                3,
                r#"{"field":{"column":0,"format":"%d/%b/%Y %z"}}"#,
            ),
            (
                "field='t', time_zone='Asia/Tokyo'",
                3,
                r#"{"field":{"column":0,"format":"auto","zone":{"name":"Asia/Tokyo","first_s":"#,
            ),
        ] {
            let definition = parse(time).unwrap();
            let start = format!("{{\"version\":{version},");
            assert!(
                definition.canonical.starts_with(&start),
                "{}",
                definition.canonical
            );
            assert!(
                definition.canonical.contains(text),
                "{}",
                definition.canonical
            );
            let again = PipelineDefinition::from_canonical(&definition.canonical, "builtin");
            assert_eq!(again.unwrap().spec.time, definition.spec.time);
        }
        let zoned = parse("field='t', time_zone='Asia/Tokyo'")
            .unwrap()
            .canonical;
        let written = crate::definition::as_written(&zoned).into_owned();
        assert!(written.contains(r#""zone":"Asia/Tokyo""#), "{written}");
    }

    #[test]
    fn what_is_no_format_says_what_was_meant() {
        refused("field='t', format='seconds'", "did you mean \"s\"?");
        refused("field='t', format='ISO-8601'", "did you mean \"rfc3339\"?");
        refused("field='t', format='epoch_ms'", "did you mean \"ms\"?");
        refused("field='t', format='sometime'", "or a pattern like");
        refused("field='t', format='%H:%M:%S'", "is no pattern for times");
        refused(
            "field='t', time_zone='Asia/Tokio'",
            "did you mean \"Asia/Tokyo\"?",
        );
        refused(
            "field='t', format='ms', time_zone='UTC'",
            "time.time_zone: is for texts",
        );
        refused(
            "from='append_time', time_zone='UTC'",
            "time.time_zone: goes with field",
        );
    }
}
