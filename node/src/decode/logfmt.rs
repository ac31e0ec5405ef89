//! `key=value key="a value" key`: lines of logs as many programs write them.

use unisono_engine::record::Cells;

use super::text::{Found, Target};
use crate::definition::{FieldSet, TextFormat};

/// Reads fields by their keys; of one that stands twice the last one counts.
#[derive(Clone, Debug)]
pub(super) struct Logfmt {
    fields: Vec<(Box<[u8]>, Target)>,
}

impl Logfmt {
    pub(super) fn new(fields: &FieldSet, format: &TextFormat) -> Self {
        let mut names: Vec<String> = fields.paths().iter().map(|path| path.label()).collect();
        names.sort_unstable();
        names.dedup();
        let field = |name: String| {
            let target = Target::of_name(fields, format, &name);
            (name.into_bytes().into_boxed_slice(), target)
        };
        Self {
            fields: names.into_iter().map(field).collect(),
        }
    }

    /// Fills the cells; a text without any `=` is no record of this kind.
    pub(super) fn read(&self, text: &str, cells: &mut Cells) -> Found {
        let bytes = text.as_bytes();
        let (mut at, mut has_value) = (0, false);
        loop {
            at += spaces(&bytes[at..]);
            if at == bytes.len() {
                break;
            }
            let Some(key) = until(&bytes[at..], |byte| byte == b'=' || byte == b'"') else {
                return Found::Nothing;
            };
            let field = self
                .fields
                .iter()
                .find(|(name, _)| **name == bytes[at..at + key]);
            let target = field.map(|(_, target)| target);
            at += key;
            match bytes.get(at) {
                Some(b'=') => {
                    has_value = true;
                    match value(text, at + 1, target, cells) {
                        Some(end) => at = end,
                        None => return Found::Nothing,
                    }
                }
                Some(b'"') => return Found::Nothing,
                // A key alone says that it is there.
                _ => {
                    if let Some(target) = target {
                        target.set_true(cells);
                    }
                }
            }
        }
        match has_value {
            true => Found::Fields,
            false => Found::Nothing,
        }
    }
}

fn spaces(text: &[u8]) -> usize {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    text.iter()
        .position(|byte| !is_space(byte))
        .unwrap_or(text.len())
}

/// How far it is to a space or to what `ends` says; `None` if that stands at once.
fn until(text: &[u8], ends: impl Fn(u8) -> bool) -> Option<usize> {
    let found = text
        .iter()
        .position(|&byte| byte.is_ascii_whitespace() || ends(byte));
    let len = found.unwrap_or(text.len());
    (len > 0).then_some(len)
}

/// Reads the value that begins at `at`; gives where it ends.
fn value(text: &str, at: usize, target: Option<&Target>, cells: &mut Cells) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'"') {
        let len = until(&bytes[at..], |byte| byte == b'"').unwrap_or(0);
        let end = at + len;
        if bytes.get(end) == Some(&b'"') {
            return None;
        }
        if let Some(target) = target {
            match len {
                0 => target.set_null(cells),
                _ => target.set_bare(text, at..end, cells),
            }
        }
        return Some(end);
    }
    let start = at + 1;
    let (mut end, mut escaped) = (start, false);
    loop {
        end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
        if bytes[end] == b'"' {
            break;
        }
        escaped = true;
        end += 2;
    }
    if let Some(target) = target {
        match escaped {
            true => target.set_with(cells, |out| unescape(&text[start..end], out)),
            false => target.set(text, start..end, cells),
        }
    }
    let after = bytes.get(end + 1);
    after.is_none_or(u8::is_ascii_whitespace).then_some(end + 1)
}

/// Appends what a quoted value says; an escape that is none stays as it is.
fn unescape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        let mut chars = rest.chars();
        chars.next();
        let plain = match chars.next() {
            Some('n') => Some(b'\n'),
            Some('t') => Some(b'\t'),
            Some('r') => Some(b'\r'),
            Some('"') => Some(b'"'),
            Some('\\') => Some(b'\\'),
            _ => None,
        };
        if let Some(plain) = plain {
            out.push(plain);
            rest = &rest[2..];
        } else if let Some((char, len)) = code_point(rest) {
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[len..];
        } else {
            out.push(b'\\');
            rest = &rest[1..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
}

/// The character that `\u` and four digits stand for, or two of them for one, and their length.
fn code_point(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let first = unit(text)?;
    if let Some(char) = char::from_u32(u32::from(first)) {
        return Some((char, 6));
    }
    let pair = [first, unit(text.get(6..)?)?];
    let char = char::decode_utf16(pair).next()?.ok()?;
    Some((char, 12))
}
