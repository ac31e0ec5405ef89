//! Functions of texts, which count characters, not bytes.

use super::compile::Node;
use super::value;
use super::value::{Limited, Text, Value, Work};
use crate::decimal::Decimal;
use crate::record::Record;
use crate::spec::Call;
use crate::timestamp;

/// The number that a text holds, as SQL writes it: with blanks around it, a `+`, a bare point.
pub(super) fn number(text: &[u8]) -> Option<Decimal> {
    let text = text.trim_ascii();
    if let Ok(number) = Decimal::parse(text) {
        return Some(number);
    }
    let (negative, digits) = match text.split_first()? {
        (b'+', rest) => (false, rest),
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let end = digits.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = digits.split_at(end.unwrap_or(digits.len()));
    let zeros = mantissa.iter().take_while(|byte| **byte == b'0').count();
    let mantissa = &mantissa[zeros..];
    if zeros == 0 && (mantissa.is_empty() || mantissa == b".") {
        return None;
    }
    // Longer is more than can be held.
    let mut plain = [0; 128];
    let mut len = 0_usize;
    let head: &[u8] = match mantissa.first() {
        None | Some(b'.') => b"0",
        _ => b"",
    };
    let tail: &[u8] = match mantissa.last() {
        Some(b'.') => b"0",
        _ => b"",
    };
    for part in [head, mantissa, tail, exponent] {
        let end = len.checked_add(part.len())?;
        plain.get_mut(len..end)?.copy_from_slice(part);
        len = end;
    }
    let number = Decimal::parse(&plain[..len]).ok()?;
    Some(if negative { number.negate() } else { number })
}

/// The value as a text; `None` for an array or an object.
pub(super) fn of_value<'a>(value: Value<'a>, work: &mut Work) -> Option<Text<'a>> {
    match value {
        Value::Text(text) => Some(text),
        Value::Null | Value::Nested => None,
        other => work.make(|work, out| push_value(other, work, out)),
    }
}

fn push_value(value: Value<'_>, work: &Work, out: &mut Limited<'_>) {
    match value {
        Value::Text(text) => out.push(work.bytes(text)),
        Value::Bool(true) => out.push(b"true"),
        Value::Bool(false) => out.push(b"false"),
        Value::Number(number) => out.push_with(|out| number.write_to(out)),
        Value::Time(time) => out.push_with(|out| timestamp::write_to(time, out)),
        Value::Null | Value::Nested => {}
    }
}

/// All arguments, one after the other. With `strict` one that is null makes the result null, else
/// it is left out.
pub(super) fn concatenate<'a>(
    strict: bool,
    arguments: &'a [Node],
    site: usize,
    record: &Record<'a>,
    work: &mut Work,
) -> Value<'a> {
    let mut whole = Text::Given(b"");
    for (at, argument) in arguments.iter().enumerate() {
        let part = value(argument, record, work);
        match part {
            Value::Null if strict => return Value::Null,
            Value::Null => continue,
            Value::Nested => {
                work.miss(site);
                return Value::Null;
            }
            Value::Text(text) if at == 0 => {
                whole = text;
                continue;
            }
            _ => {}
        }
        let longer = work.make(|work, out| {
            out.push(work.bytes(whole));
            push_value(part, work, out);
        });
        let Some(longer) = longer else {
            work.miss(site);
            return Value::Null;
        };
        whole = longer;
    }
    Value::Text(whole)
}

/// None of the arguments is null; `None` if one is of a wrong kind or cannot be used.
pub(super) fn call<'a>(
    call: Call,
    (first, second, third): (Value<'a>, Value<'a>, Value<'a>),
    given: usize,
    work: &mut Work,
) -> Option<Value<'a>> {
    let text = as_text(first)?;
    let optional = |value| match given {
        1 => Some(Text::Given(b" ")),
        _ => as_text(value),
    };
    let made = match call {
        Call::Upper | Call::Lower => change_case(call, text, work)?,
        Call::Trim => trim(text, optional(second)?, (true, true), work),
        Call::TrimStart => trim(text, optional(second)?, (true, false), work),
        Call::TrimEnd => trim(text, optional(second)?, (false, true), work),
        Call::Substr => {
            let count = match given {
                2 => None,
                _ => Some(as_whole(third)?),
            };
            substring(text, as_whole(second)?, count, work)?
        }
        Call::Replace => replace(text, as_text(second)?, as_text(third)?, work)?,
        Call::SplitPart => split_part(text, as_text(second)?, as_whole(third)?, work)?,
        Call::StartsWith => {
            let (text, start) = (work.bytes(text), work.bytes(as_text(second)?));
            return Some(Value::Bool(text.starts_with(start)));
        }
        Call::EndsWith => {
            let (text, end) = (work.bytes(text), work.bytes(as_text(second)?));
            return Some(Value::Bool(text.ends_with(end)));
        }
        Call::Length => {
            let bytes = work.bytes(text).iter();
            // All but those that go on with a character.
            let chars = bytes.filter(|byte| **byte & 0xc0 != 0x80).count();
            return Some(Value::Number(Decimal::from_i64(i64::try_from(chars).ok()?)));
        }
        _ => return None,
    };
    Some(Value::Text(made))
}

fn as_text(value: Value<'_>) -> Option<Text<'_>> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn as_whole(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Number(number) => number.whole(),
        _ => None,
    }
}

/// A part of a text, by places of bytes.
fn part<'a>(text: Text<'a>, from: usize, to: usize) -> Text<'a> {
    match text {
        Text::Given(bytes) => Text::Given(bytes.get(from..to).unwrap_or_default()),
        Text::Made { start, .. } => Text::Made {
            start: start.saturating_add(from),
            end: start.saturating_add(to.max(from)),
        },
    }
}

/// Each character apart: what one becomes does not hang on its neighbours.
fn change_case<'a>(call: Call, text: Text<'a>, work: &mut Work) -> Option<Text<'a>> {
    work.make(|work, out| {
        let upper = call == Call::Upper;
        let bytes = work.bytes(text);
        if bytes.is_ascii() {
            return out.push_with(|out| match upper {
                true => out.extend(bytes.iter().map(u8::to_ascii_uppercase)),
                false => out.extend(bytes.iter().map(u8::to_ascii_lowercase)),
            });
        }
        for char in work.str(text).chars() {
            match upper {
                true => char.to_uppercase().for_each(|char| out.push_char(char)),
                false => char.to_lowercase().for_each(|char| out.push_char(char)),
            }
        }
    })
}

fn trim<'a>(text: Text<'a>, of: Text<'a>, (start, end): (bool, bool), work: &Work) -> Text<'a> {
    let (whole, of) = (work.str(text), work.str(of));
    let is_cut = |char: char| of.contains(char);
    let left = match start {
        true => whole.trim_start_matches(is_cut),
        false => whole,
    };
    let from = whole.len().saturating_sub(left.len());
    let kept = match end {
        true => left.trim_end_matches(is_cut),
        false => left,
    };
    part(text, from, from.saturating_add(kept.len()))
}

/// From the character `from`, counted from 1, `count` characters, as far as there are any: what
/// lies before the text counts too. `None` for a negative number.
fn substring<'a>(text: Text<'a>, from: i64, count: Option<i64>, work: &Work) -> Option<Text<'a>> {
    let whole = work.str(text);
    let end = match count {
        None => i64::MAX,
        Some(count) if count < 0 => return None,
        Some(count) => from.saturating_add(count),
    };
    let byte_of = |char: i64| {
        let skipped = usize::try_from(char.saturating_sub(1)).unwrap_or(0);
        let place = whole.char_indices().nth(skipped);
        place.map_or(whole.len(), |(at, _)| at)
    };
    let start = byte_of(from);
    Some(part(text, start, byte_of(end).max(start)))
}

fn replace<'a>(text: Text<'a>, from: Text<'a>, to: Text<'a>, work: &mut Work) -> Option<Text<'a>> {
    if work.bytes(from).is_empty() {
        return Some(text);
    }
    work.make(|work, out| {
        let (whole, from, to) = (work.str(text), work.str(from), work.bytes(to));
        let mut pieces = whole.split(from);
        out.push(pieces.next().unwrap_or_default().as_bytes());
        for piece in pieces {
            out.push(to);
            out.push(piece.as_bytes());
        }
    })
}

/// The part at `at`, from 1, or from -1 at the end; empty where there is none. `None` for 0.
fn split_part<'a>(text: Text<'a>, by: Text<'a>, at: i64, work: &Work) -> Option<Text<'a>> {
    let (whole, by) = (work.str(text), work.str(by));
    let wanted = usize::try_from(at.unsigned_abs().checked_sub(1)?).ok()?;
    if by.is_empty() {
        let kept = if wanted == 0 { whole.len() } else { 0 };
        return Some(part(text, 0, kept));
    }
    let found = match at > 0 {
        true => whole.split(by).nth(wanted),
        false => whole.rsplit(by).nth(wanted),
    };
    let found = found.unwrap_or_default();
    // A piece of `whole`, or empty.
    let from = (found.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    Some(match found.is_empty() {
        true => part(text, 0, 0),
        false => part(text, from, from.saturating_add(found.len())),
    })
}
