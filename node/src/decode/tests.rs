#![allow(clippy::unwrap_used)]

use unisono_engine::record::Cell;
use unisono_engine::spec::Column;

use super::*;
use crate::definition::{FieldPath, Layout, TextFormat};

/// Records as text: state, cells, and the element if there is one.
fn decode(format: &Format, names: &[&str], framing: Framing, payload: &[u8]) -> Vec<String> {
    let mut fields = FieldSet::new();
    for name in names {
        fields.insert(FieldPath::parse(name).unwrap());
    }
    let decoding = Decoding {
        format: format.clone(),
        record_bytes: 1000,
    };
    let mut decoder = Decoder::new(&fields, &decoding, framing).over(&fields);
    let mut shown = Vec::new();
    // The memory of one record must not show in the next.
    for _ in 0..2 {
        shown.clear();
        decoder.each(7, None, Some(payload), &mut |record| {
            assert_eq!(record.offset, 7);
            shown.push(show(record, names.len()));
        });
    }
    shown
}

fn show(record: &Record<'_>, columns: usize) -> String {
    if record.state != RecordState::Decoded {
        return format!("{:?}", record.state);
    }
    let cells = (0..columns).map(|column| match record.cell(Column(column)) {
        Cell::Missing => "-".to_owned(),
        Cell::Null => "null".to_owned(),
        Cell::Bool(value) => value.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => format!("'{}'", std::str::from_utf8(text).unwrap()),
        Cell::Nested => "nested".to_owned(),
        Cell::Bad => "bad".to_owned(),
    });
    cells.collect::<Vec<_>>().join(" ")
}

fn text(layout: Layout) -> Format {
    Format::Text(TextFormat {
        layout,
        nulls: vec!["NULL".to_owned()],
        texts: Vec::new(),
    })
}

fn csv() -> Format {
    text(Layout::Separated {
        delimiter: ',',
        quote: Some('"'),
        columns: ["a", "b", "c.d"].map(str::to_owned).to_vec(),
    })
}

fn pattern(pattern: &str) -> Format {
    text(Layout::Regex {
        pattern: pattern.to_owned(),
    })
}

#[track_caller]
fn check(format: &Format, names: &[&str], payload: &str, expected: &[&str]) {
    let found = decode(format, names, Framing::Line, payload.as_bytes());
    assert_eq!(found, expected, "{payload}");
}

#[test]
fn csv_has_its_fields_by_place() {
    let all = ["a", "b", "c.d"];
    check(&csv(), &all, "1,x,2.50\r\n", &["1 'x' 2.5"]);
    check(&csv(), &["c.d"], "1,x,true", &["true"]);
    check(&csv(), &all, ",\"\",NULL", &["null '' null"]);
    check(
        &csv(),
        &all,
        "\"a,\"\"b\"\"\n\",\"7\",\"NULL\"",
        &["'a,\"b\"\n' 7 'NULL'"],
    );
    check(&csv(), &all, "\u{feff}ä,b c,d\"e", &["'ä' 'b c' 'd\"e'"]);
}

#[test]
fn a_line_with_the_names_of_the_columns_is_a_header_wherever_it_stands() {
    check(&csv(), &["a"], "a,b,c.d\r", &[]);
    check(&csv(), &["a"], "\u{feff}\"a\",\"b\",c.d", &[]);
    check(&csv(), &["a"], "a,b,c", &["'a'"]);
}

#[test]
fn a_line_of_csv_with_another_number_of_fields_or_an_open_quote_is_refused() {
    for broken in [
        "1,2",
        "1,2,3,",
        "1,2,3,4",
        "1,\"2,3",
        "1,\"2\"x,3",
        "1,2\n3,4,5",
        "1,2,3\n4,5,6",
    ] {
        check(&csv(), &["a"], broken, &["BadFormat"]);
    }
}

#[test]
fn tsv_has_no_quotes() {
    let tsv = text(Layout::Separated {
        delimiter: '\t',
        quote: None,
        columns: vec!["a".to_owned(), "b".to_owned()],
    });
    check(&tsv, &["a", "b"], "\"x\t 1", &["'\"x' ' 1'"]);
}

/// What may be an identifier is never changed.
#[test]
fn a_value_is_a_number_only_if_it_is_one_exactly() {
    let logfmt = text(Layout::Logfmt);
    for (written, expected) in [
        ("200", "200"),
        ("-0.5", "-0.5"),
        ("1.50", "1.5"),
        ("007", "'007'"),
        ("+1", "'+1'"),
        (".5", "'.5'"),
        ("1.", "'1.'"),
        ("12e4567", "'12e4567'"),
        ("1e5", "'1e5'"),
        ("-", "'-'"),
        ("1.2.3.4", "'1.2.3.4'"),
        ("NaN", "'NaN'"),
        ("true", "true"),
        ("True", "'True'"),
        (
            "12345678901234567890123456789012345678901",
            "'12345678901234567890123456789012345678901'",
        ),
    ] {
        check(&logfmt, &["x"], &format!("x={written}"), &[expected]);
    }
    let Format::Text(mut stays) = logfmt else {
        return;
    };
    stays.texts.push("x".to_owned());
    check(&Format::Text(stays), &["x", "y"], "x=1 y=1", &["'1' 1"]);
}

#[test]
fn logfmt_has_its_fields_by_key() {
    let logfmt = text(Layout::Logfmt);
    let line = r#"ts=2026-01-02T03:04:05Z level=info msg="a \"b\"\n\\ \u00e4\ud83d\ude00" http.status=200 cached empty= "#;
    check(
        &logfmt,
        &["level", "msg", "http.status", "cached", "empty", "no"],
        line,
        &["'info' 'a \"b\"\n\\ ä😀' 200 true null -"],
    );
    check(&logfmt, &["a"], "a=1 a=2", &["2"]);
    check(
        &logfmt,
        &["a"],
        "a=\"\\ud800 \\x \\u00\"",
        &["'\\ud800 \\x \\u00'"],
    );
    check(&logfmt, &["a", "b"], "a=NULL b=\"NULL\"", &["null 'NULL'"]);
    check(&logfmt, &["a"], "a=b=c", &["'b=c'"]);
    for broken in [
        "hello world",
        "=1",
        "a=\"x",
        "a=\"x\\",
        "a=\"x\"y",
        "a=x\"y\"",
        "\"a\"=1",
    ] {
        check(&logfmt, &["a"], broken, &["BadFormat"]);
    }
}

#[test]
fn a_regular_expression_has_a_field_for_each_named_group() {
    let format = pattern(r"^(?<level>[A-Z]+) (?:(?<ms>\d+)ms )?(?<rest>.*)$");
    let all = ["level", "ms", "rest"];
    check(&format, &all, "INFO 12ms done\r\n", &["'INFO' 12 'done'"]);
    check(&format, &all, "INFO NULL", &["'INFO' - null"]);
    check(&format, &all, "info", &["BadFormat"]);
    check(&pattern(r"(?<x>(?-u:\xc3))"), &["x"], "ä", &["BadFormat"]);
}

#[test]
fn an_array_holds_records_of_their_own() {
    let array = Format::Json { array: true };
    check(
        &array,
        &["a"],
        r#"[{"a":1}, {"a":"],"},{}]"#,
        &["1", "'],'", "-"],
    );
    check(
        &array,
        &["a"],
        r#"[{"a":1},7,{"a":x}]"#,
        &["1", "NotAnObject", "NotJson"],
    );
    check(&array, &["a"], " [ ] ", &[]);
    check(&array, &["a"], r#"{"a":1}"#, &["1"]);
    check(&array, &["a"], r#"[{"a":1},"#, &["NotJson"]);
    check(&Format::default(), &["a"], r#"[{"a":1}]"#, &["NotAnObject"]);
}

#[test]
fn a_blank_line_of_a_file_is_nothing_and_an_empty_message_is_something() {
    for format in [Format::default(), Format::Json { array: true }, csv()] {
        for blank in ["", "\r", " \t", "\u{feff}\r\n"] {
            check(&format, &["a"], blank, &[]);
            let message = decode(&format, &["a"], Framing::Message, blank.as_bytes());
            assert_eq!(message, ["EmptyPayload"], "{blank:?}");
        }
    }
}

#[test]
fn a_record_above_the_limit_is_not_looked_at() {
    let document = |len: usize| format!("{{\"a\":1}}{}", " ".repeat(len - 7));
    for format in [Format::default(), Format::Json { array: true }] {
        check(&format, &["a"], &document(1000), &["1"]);
        check(&format, &["a"], &document(1001), &["TooLarge"]);
    }
    check(&csv(), &["a"], &" ".repeat(1001), &["TooLarge"]);
}

#[test]
fn texts_of_other_encodings_have_states_of_their_own() {
    for format in [csv(), text(Layout::Logfmt), pattern("(?<a>.)")] {
        let state = |payload: &[u8]| decode(&format, &["a"], Framing::Message, payload);
        assert_eq!(state(b"\xff\xfea\0"), ["ByteOrderMark"]);
        assert_eq!(state(b"a=\xff"), ["NotUtf8"]);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let spread = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(spread).unwrap() % bound
    }

    fn text(&mut self, alphabet: &str, most: usize) -> String {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let length = self.below(most);
        (0..length)
            .map(|_| alphabet[self.below(alphabet.len())])
            .collect()
    }
}

#[test]
fn no_bytes_are_too_much() {
    let formats = [
        Format::Json { array: true },
        csv(),
        text(Layout::Logfmt),
        pattern(r"^(?<a>\S+) (?<b>.*?)(?<c>\d+)?$"),
    ];
    let mut random = Random(7);
    for _ in 0..20_000 {
        let payload = match random.below(3) {
            0 => (0..random.below(60))
                .map(|_| u8::try_from(random.below(256)).unwrap())
                .collect(),
            1 => random.text("abc=,\"\\ \nä\u{feff}019u.-", 40).into_bytes(),
            _ => format!("[{}]", random.text("[]{}\",\\ a1:", 30)).into_bytes(),
        };
        for format in &formats {
            let names = ["a", "b", "c"];
            let names = if *format == formats[1] {
                &names[..2]
            } else {
                &names[..]
            };
            decode(format, names, Framing::Message, &payload);
        }
    }
}

/// What a writer of CSV writes is read back.
#[test]
fn quoted_fields_come_back() {
    let mut random = Random(11);
    for _ in 0..5000 {
        let values = [0; 3].map(|_| random.text("xyz,\" \nä", 8) + "x");
        let quoted = values
            .clone()
            .map(|value| format!("\"{}\"", value.replace('"', "\"\"")));
        let expected = values.map(|value| format!("'{value}'")).join(" ");
        let payload = quoted.join(",");
        let found = decode(
            &csv(),
            &["a", "b", "c.d"],
            Framing::Message,
            payload.as_bytes(),
        );
        assert_eq!(found, [expected], "{payload}");
    }
}
