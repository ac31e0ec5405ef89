//! `format`: how records are written.

use toml::{Table, Value};

use crate::config::section::Section;
use crate::definition::{FieldSet, Format, Layout, TextFormat};

const KINDS: &str =
    "json, csv, tsv, logfmt, msgpack, regex, apache_common, apache_combined or nginx_combined";

/// What a request line is made of, if it is one; quotes within are escaped.
const REQUEST: &str = r#""(?<request>(?<method>[A-Za-z]+) (?<path>(?:[^"\\ ]|\\.)*)(?: (?<protocol>HTTP/[0-9.]+))?|(?:[^"\\]|\\.)*)""#;

/// Reads `format`, which is a kind or a table with one; `None` after reporting what is wrong.
pub(super) fn read_format(section: &mut Section<'_>) -> Option<Format> {
    let table = match section.take("format") {
        None => return Some(Format::default()),
        Some(Value::String(kind)) => Table::from_iter([("kind".to_owned(), Value::String(kind))]),
        Some(Value::Table(table)) => table,
        Some(other) => return section.wrong_type("format", "a kind in quotes, or a table", &other),
    };
    let mut format = section.section("format", table);
    let read = read_kind(&mut format);
    if let Some(read) = &read
        && let Err((key, message)) = read.check()
    {
        format.problem(key, message);
    }
    format.finish();
    read
}

fn read_kind(format: &mut Section<'_>) -> Option<Format> {
    let kind = format.required_string("kind", "kind = \"csv\"")?;
    let layout = match kind.as_str() {
        "json" => {
            let array = match format.take("array") {
                None => false,
                Some(Value::Boolean(array)) => array,
                Some(other) => return format.wrong_type("array", "true or false", &other),
            };
            return Some(Format::Json { array });
        }
        "msgpack" => return Some(Format::MessagePack),
        "csv" => read_separated(format, ',', Some('"'))?,
        "tsv" => read_separated(format, '\t', None)?,
        "logfmt" => Layout::Logfmt,
        "regex" => Layout::Regex {
            pattern: format
                .required_string("pattern", "pattern = '^(?<time>\\S+) (?<status>\\d+)'")?,
        },
        ready_made => match pattern_of(ready_made) {
            Some(pattern) => Layout::Regex { pattern },
            None => {
                format.problem(
                    "kind",
                    format!("\"{ready_made}\" is not known; write {KINDS}"),
                );
                return None;
            }
        },
    };
    let mut nulls = format.one_or_more("null").unwrap_or_default();
    if pattern_of(&kind).is_some() {
        nulls.push("-".to_owned());
    }
    let texts = format.one_or_more("text").unwrap_or_default();
    Some(Format::Text(TextFormat {
        layout,
        nulls,
        texts,
    }))
}

fn read_separated(
    format: &mut Section<'_>,
    delimiter: char,
    quote: Option<char>,
) -> Option<Layout> {
    format.require(
        "columns",
        "columns = [\"time\", \"city\", \"amount\"], in their order",
    );
    Some(Layout::Separated {
        delimiter: read_char(format, "delimiter").unwrap_or(delimiter),
        quote: read_char(format, "quote").or(quote),
        columns: format.strings("columns")?,
    })
}

fn read_char(format: &mut Section<'_>, key: &'static str) -> Option<char> {
    format.parsed(key, |text| {
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(char), None) => Ok(char),
            _ => Err("must be one character".to_owned()),
        }
    })
}

/// The expression of a ready-made log format.
fn pattern_of(kind: &str) -> Option<String> {
    let head = |names: [&str; 4]| {
        let [host, ident, user, time] = names;
        format!(r"^(?<{host}>\S+) (?<{ident}>\S+) (?<{user}>.*?) \[(?<{time}>[^\]]*)\] {REQUEST}")
    };
    let apache = head(["host", "ident", "user", "time"]);
    let quoted = |name: &str| format!(r#" "(?<{name}>(?:[^"\\]|\\.)*)""#);
    // Servers cut a line that is too long: who asked is what is left of it.
    let last = |name: &str| format!(r#" "(?<{name}>(?:[^"\\]|\\.)*)(?:"|\\?)$"#);
    let common = format!(r"{apache} (?<status>\d{{3}}|-) (?<bytes>\d+|-)");
    match kind {
        "apache_common" => Some(common + "$"),
        "apache_combined" => Some(common + &quoted("referer") + &last("agent")),
        "nginx_combined" => {
            let nginx = head(["remote_addr", "ident", "remote_user", "time_local"]);
            let numbers = r" (?<status>\d{3}|-) (?<body_bytes_sent>\d+|-)";
            Some(nginx + numbers + &quoted("http_referer") + &last("http_user_agent"))
        }
        _ => None,
    }
}

/// Refuses fields that no record of the format can have: they would be null in all of them.
pub(super) fn check_fields(section: &mut Section<'_>, format: &Format, fields: &FieldSet) {
    let Some(names) = format.names() else { return };
    for path in fields.paths() {
        let label = path.label();
        if !names.contains(&label) {
            let known = names.join(", ");
            section.problem(
                "format",
                format!("has no field \"{label}\", which the pipeline uses; its fields: {known}"),
            );
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::definition::{Format, Layout, PipelineDefinition, Terms};

    fn parse(format: &str, rest: &str) -> Result<PipelineDefinition, String> {
        let text = format!(
            "name='p'\nsources=['s']\ntime={{field='time'}}\nwindow={{size='1m'}}\nformat={format}\n{rest}\n\
             [values]\nn='count()'\n"
        );
        PipelineDefinition::parse("p.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_format_stands_in_the_agreed_text_where_it_is_not_json() {
        let json = parse("'json'", "").unwrap();
        assert!(!json.canonical.contains("format\":{"), "{}", json.canonical);
        assert_eq!(json.terms(), Terms::default());
        for (format, rest) in [
            ("{kind='json', array=true}", ""),
            (
                "{kind='csv', columns=['time','b'], delimiter=';', text='b', null=['-']}",
                "",
            ),
            ("{kind='tsv', columns=['time','b']}", ""),
            ("'logfmt'", ""),
            ("{kind='regex', pattern='^(?<time>.*)$'}", ""),
            ("'apache_combined'", ""),
            ("'json'", "limits={record_bytes='2MiB'}"),
        ] {
            let read = parse(format, rest).unwrap();
            assert!(
                read.canonical.starts_with("{\"version\":3,"),
                "{}",
                read.canonical
            );
            assert_ne!(read.terms(), Terms::default());
            let again = PipelineDefinition::from_canonical(&read.canonical, &read.sink).unwrap();
            assert_eq!(again.terms(), read.terms());
            let damaged = read
                .canonical
                .replace("(?<", "(<")
                .replace("\"columns\":[", "\"columns\":[\"b\",");
            if damaged != read.canonical {
                assert!(PipelineDefinition::from_canonical(&damaged, &read.sink).is_err());
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_format_is_told() {
        for (format, rest, message) in [
            ("'cvs'", "", "\"cvs\" is not known; write json, csv"),
            ("{columns=['time']}", "", "format.kind: is missing"),
            ("'csv'", "", "format.columns: is missing"),
            ("{kind='csv', columns=['time','time']}", "", "named twice"),
            ("{kind='csv', columns=[]}", "", "1 to 1000 columns"),
            (
                "{kind='csv', columns=['time'], delimiter='ab'}",
                "",
                "one character",
            ),
            ("{kind='csv', columns=['time'], delimiter='ä'}", "", "ASCII"),
            (
                "{kind='csv', columns=['time'], quote=','}",
                "",
                "no delimiter",
            ),
            (
                "{kind='csv', columns=['time'], text=['tim']}",
                "",
                "\"tim\" is no field",
            ),
            ("{kind='csv', columns=['tim']}", "", "has no field \"time\""),
            (
                "{kind='json', delimiter=','}",
                "",
                "format.delimiter: unknown key",
            ),
            (
                "{kind='regex', pattern='('}",
                "",
                "format.pattern: unclosed group",
            ),
            ("{kind='regex', pattern='x'}", "", "names no group"),
            ("'nginx_combined'", "", "its fields: remote_addr"),
            (
                "'json'",
                "limits={record_bytes='17MiB'}",
                "must be 1 B to 16MiB",
            ),
        ] {
            let error = parse(format, rest).unwrap_err();
            assert!(error.contains(message), "{format} {rest}: {error}");
        }
    }

    /// A line of a real log, whose end the server has cut.
    #[test]
    fn a_line_that_was_cut_is_of_its_format() {
        let pattern = super::pattern_of("apache_combined").unwrap();
        let pattern = regex::Regex::new(&pattern).unwrap();
        let line = r#"46.118.127.106 - - [20/May/2015:12:05:17 +0000] "GET /a.py HTTP/1.1" 200 235 "-" "Mozilla/5.0 (+http"#;
        let agent = |line: &str| Some(pattern.captures(line)?["agent"].to_owned());
        assert_eq!(agent(line).as_deref(), Some("Mozilla/5.0 (+http"));
        assert_eq!(
            agent(&format!("{line}\"")).as_deref(),
            Some("Mozilla/5.0 (+http")
        );
        assert_eq!(
            agent(&format!("{line}\\")).as_deref(),
            Some("Mozilla/5.0 (+http")
        );
        assert_eq!(agent(&format!("{line}\" more")), None);
    }

    #[test]
    fn ready_made_formats_are_sound() {
        for kind in ["apache_common", "apache_combined", "nginx_combined"] {
            let pattern = super::pattern_of(kind).unwrap();
            let format = Format::Text(crate::definition::TextFormat {
                layout: Layout::Regex { pattern },
                nulls: Vec::new(),
                texts: Vec::new(),
            });
            assert_eq!(format.check(), Ok(()));
        }
    }
}
