//! Where strings, numbers and words of JSON end, and whether they are valid: UTF-8 included.

mod stops;

use stops::{CHUNK, WIDTH, is_stop, stops};

/// A string of JSON whose syntax and encoding have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Where its closing quote stands.
    pub end: usize,
    /// Whether it holds a backslash.
    pub escaped: bool,
}

/// The string whose opening quote stands just before `from`; `None` if it is not valid.
#[inline]
pub fn string(doc: &[u8], from: usize) -> Option<Text> {
    let at = find::<true>(doc, from)?;
    if doc[at] == b'"' {
        return Some(Text {
            end: at,
            escaped: false,
        });
    }
    rare_string(doc, from, at)
}

/// A string with bytes that need a closer look, the first of them at `at`.
#[inline(never)]
fn rare_string(doc: &[u8], from: usize, mut at: usize) -> Option<Text> {
    let mut escaped = false;
    loop {
        at = find::<false>(doc, at)?;
        match doc[at] {
            b'"' => break,
            b'\\' => at += escape_len(&doc[at..])?,
            _ => return None,
        }
        escaped = true;
    }
    std::str::from_utf8(&doc[from..at]).ok()?;
    Some(Text { end: at, escaped })
}

/// The length of the escape at the start of `text`.
fn escape_len(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => text
            .get(2..6)?
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then_some(6),
        _ => None,
    }
}

/// The first byte from `at` on that is a quote, a backslash or a control character, or, if `WIDE`,
/// not ASCII.
#[inline]
fn find<const WIDE: bool>(doc: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = doc.get(at..).and_then(<[u8]>::first_chunk::<CHUNK>) {
        let found = stops::<WIDE>(chunk);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / WIDTH);
        }
        at += CHUNK;
    }
    find_at_end::<WIDE>(doc, at)
}

/// [`find`] where fewer bytes than a chunk are left: the last chunk of the whole text is looked at
/// once more.
#[inline]
fn find_at_end<const WIDE: bool>(doc: &[u8], at: usize) -> Option<usize> {
    let rest = doc.get(at..).filter(|rest| !rest.is_empty())?;
    let Some(last) = doc.last_chunk::<CHUNK>() else {
        return Some(at + rest.iter().position(|&byte| is_stop::<WIDE>(byte))?);
    };
    let found = stops::<WIDE>(last) >> (WIDTH * (CHUNK - rest.len()));
    (found != 0).then(|| at + found.trailing_zeros() as usize / WIDTH)
}

/// The first and the second eight bytes as numbers.
#[inline]
pub fn halves(chunk: &[u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *chunk;
    [
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes([i, j, k, l, m, n, o, p]),
    ]
}

/// Whether a scalar can begin with this byte.
#[inline]
pub fn begins_scalar(byte: u8) -> bool {
    matches!(byte, b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')
}

/// Where the number that begins at `at` ends; `None` if it is not valid.
#[inline]
pub fn number(doc: &[u8], at: usize) -> Option<usize> {
    let first = at + usize::from(doc.get(at) == Some(&b'-'));
    let mut end = digits(doc, first)?;
    if doc[first] == b'0' && end > first + 1 {
        return None;
    }
    if doc.get(end) == Some(&b'.') {
        end = digits(doc, end + 1)?;
    }
    if let Some(b'e' | b'E') = doc.get(end) {
        let sign = matches!(doc.get(end + 1), Some(b'+' | b'-'));
        end = digits(doc, end + 1 + usize::from(sign))?;
    }
    Some(end)
}

/// Where the digits that begin at `from` end; `None` if there is none.
#[inline]
fn digits(doc: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(b'0'..=b'9') = doc.get(at) {
        at += 1;
    }
    (at > from).then_some(at)
}

/// Where the whitespace that begins at `at` ends.
#[inline]
pub fn whitespace(doc: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = doc.get(at) {
        at += 1;
    }
    at
}

/// Appends what the inside of a valid string says to `out`; false if it holds half of a surrogate
/// pair.
pub fn unescape(mut inner: &[u8], out: &mut Vec<u8>) -> bool {
    while let Some(plain) = memchr::memchr(b'\\', inner) {
        out.extend_from_slice(&inner[..plain]);
        let (escape, rest) = inner[plain + 1..].split_at(1);
        inner = rest;
        out.push(match escape[0] {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let Some((character, rest)) = code_point(inner) else {
                    return false;
                };
                inner = rest;
                let mut bytes = [0; 4];
                out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                continue;
            }
            same => same,
        });
    }
    out.extend_from_slice(inner);
    true
}

/// The character that begins with four hexadecimal digits, and what follows it.
fn code_point(text: &[u8]) -> Option<(char, &[u8])> {
    let (unit, rest) = code_unit(text)?;
    if !(0xd800..0xe000).contains(&unit) {
        return Some((char::from_u32(unit)?, rest));
    }
    let (second, rest) = code_unit(rest.strip_prefix(b"\\u")?)?;
    if unit >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    let joined = 0x1_0000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
    Some((char::from_u32(joined)?, rest))
}

fn code_unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(4)?;
    let value = digits.iter().try_fold(0, |value, &digit| {
        Some(value * 16 + char::from(digit).to_digit(16)?)
    })?;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_its_quote_wherever_the_text_ends() {
        for len in 0..50 {
            for after in 0..40 {
                let text = format!("{}\"{}", "x".repeat(len), "\"".repeat(after));
                let found = string(text.as_bytes(), 0).map(|text| text.end);
                assert_eq!(found, Some(len));
                assert_eq!(string(&text.as_bytes()[..len], 0), None);
            }
        }
    }
}
