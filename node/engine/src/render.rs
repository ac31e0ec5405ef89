//! Rows and dead letters as JSON: the bytes that everyone sees, the same on every replica.

use std::ops::Range;

use crate::dead_letter::DeadLetter;
use crate::group::{GroupValue, split_value};
use crate::revise::Standing;
use crate::row::Seq;
use crate::spec::{PipelineSpec, Timestamp};
use crate::timestamp;
use crate::value::{Column, WindowLength};

/// Writes rows, one after another into the same memory. What is the same for all rows of a pipeline,
/// or of a window, is written once.
pub(crate) struct RowWriter<'a> {
    spec: &'a PipelineSpec,
    /// Up to the number.
    head: Vec<u8>,
    /// From behind the revision up to the group.
    times: Vec<u8>,
    length: WindowLength,
    out: Vec<u8>,
}

impl<'a> RowWriter<'a> {
    pub(crate) fn new(spec: &'a PipelineSpec) -> Self {
        let mut head = b"{\"pipeline\":".to_vec();
        write_text(&spec.name, &mut head);
        head.extend_from_slice(b",\"seq\":");
        Self {
            spec,
            head,
            times: Vec::new(),
            length: WindowLength::default(),
            out: Vec::new(),
        }
    }

    /// The next rows are of the window with these bounds.
    pub(crate) fn window(&mut self, start: i64, end: i64) {
        self.length = WindowLength(end.saturating_sub(start));
        self.times.clear();
        let out = &mut self.times;
        out.extend_from_slice(b",\"start\":\"");
        timestamp::write_to(Timestamp(start), out);
        out.extend_from_slice(b"\",\"end\":\"");
        timestamp::write_to(Timestamp(end), out);
        out.extend_from_slice(b"\",\"group\":");
    }

    /// How long the window is.
    pub(crate) fn length(&self) -> WindowLength {
        self.length
    }

    /// The JSON of a row, and where in it the value of `group` lies. Without a number the window is
    /// open.
    pub(crate) fn row(
        &mut self,
        seq: Option<Seq>,
        standing: Standing,
        key: &[u8],
        columns: &[Column],
        place: usize,
    ) -> (&[u8], Range<usize>) {
        let out = &mut self.out;
        out.clear();
        out.extend_from_slice(&self.head);
        match seq {
            Some(seq) => write_unsigned(seq.0, out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"revision\":");
        write_unsigned(standing.revision, out);
        if standing.withdrawn {
            out.extend_from_slice(b",\"withdrawn\":true");
        }
        out.extend_from_slice(&self.times);
        let group_start = out.len();
        write_group(self.spec, key, out);
        let group = group_start..out.len();
        out.extend_from_slice(b",\"values\":{");
        for (at, (column, value)) in columns.iter().zip(&self.spec.values).enumerate() {
            write_name(at, &value.name, out);
            column.write_to(place, self.length, out);
        }
        out.extend_from_slice(b"}}");
        (out, group)
    }
}

/// Appends a number in decimal digits.
#[allow(clippy::arithmetic_side_effects, reason = "at most twenty digits")]
pub(crate) fn write_unsigned(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The JSON of a dead letter.
pub(crate) fn dead_letter(pipeline: &str, seq: Seq, lane: &str, letter: &DeadLetter) -> Vec<u8> {
    let mut out = Vec::with_capacity(letter.excerpt.len().saturating_add(128));
    out.extend_from_slice(b"{\"pipeline\":");
    write_text(pipeline, &mut out);
    out.extend_from_slice(format!(",\"seq\":{},\"lane\":", seq.0).as_bytes());
    write_text(lane, &mut out);
    out.extend_from_slice(format!(",\"offset\":{}", letter.offset).as_bytes());
    if let Some(element) = letter.element {
        out.extend_from_slice(format!(",\"element\":{element}").as_bytes());
    }
    let reason = letter.reason.name();
    out.extend_from_slice(format!(",\"reason\":\"{reason}\",\"excerpt\":").as_bytes());
    write_text(&String::from_utf8_lossy(&letter.excerpt), &mut out);
    out.push(b'}');
    out
}

fn write_group(spec: &PipelineSpec, key: &[u8], out: &mut Vec<u8>) {
    out.push(b'{');
    let mut rest = key;
    for (at, field) in spec.group_by.iter().enumerate() {
        write_name(at, &field.name, out);
        // Keys are written by the engine, and checked when they come from a checkpoint.
        let (value, after) = split_value(rest).unwrap_or((GroupValue::Null, &[]));
        rest = after;
        match value {
            GroupValue::Null => out.extend_from_slice(b"null"),
            GroupValue::Bool(true) => out.extend_from_slice(b"true"),
            GroupValue::Bool(false) => out.extend_from_slice(b"false"),
            GroupValue::Number(number) => number.write_to(out),
            GroupValue::Text(text) => write_text(&text, out),
        }
    }
    out.push(b'}');
}

fn write_name(at: usize, name: &str, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
    write_text(name, out);
    out.push(b':');
}

/// Appends a JSON string. What JSON lets stand for itself does.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| needs_escape(byte)) {
        let (plain, escaped) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, after)) = escaped.split_first() else {
            break;
        };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_json_asks() {
        let mut out = Vec::new();
        write_text("a\"b\\c\nd\u{1}é\u{2028}\u{7f}", &mut out);
        let expected = "\"a\\\"b\\\\c\\nd\\u0001é\u{2028}\u{7f}\"";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_dead_letter_shows_what_it_can_of_broken_bytes() {
        let mut letter = DeadLetter {
            offset: 123,
            element: None,
            reason: crate::dead_letter::Reason::NotUtf8,
            excerpt: b"{\"a\":\xff".to_vec(),
        };
        let json = dead_letter("dns", Seq(4), "dns/0", &letter);
        let expected = "{\"pipeline\":\"dns\",\"seq\":4,\"lane\":\"dns/0\",\"offset\":123,\
                        \"reason\":\"not_utf8\",\"excerpt\":\"{\\\"a\\\":\u{fffd}\"}";
        assert_eq!(String::from_utf8(json).unwrap(), expected);
        letter.element = Some(2);
        let json = dead_letter("dns", Seq(4), "dns/0", &letter);
        let expected = expected.replace("123,", "123,\"element\":2,");
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }
}
