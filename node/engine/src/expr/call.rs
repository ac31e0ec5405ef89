//! Functions of values. With null they give null, unless it says otherwise; what cannot be used
//! gives null too, and is counted.

use super::compile::Node;
use super::text;
use super::time as times;
use super::value::{Text, Value, Work, compare};
use super::{truth, value};
use crate::decimal::Decimal;
use crate::record::Record;
use crate::spec::{Call, Timestamp};

/// The text that is needed here.
#[inline]
pub(super) fn text<'a>(value: Value<'a>, site: usize, work: &mut Work) -> Option<Text<'a>> {
    match value {
        Value::Text(text) => Some(text),
        Value::Null => None,
        _ => missed(site, work),
    }
}

/// The number that is needed here.
#[inline]
pub(super) fn number(value: Value<'_>, site: usize, work: &mut Work) -> Option<Decimal> {
    match value {
        Value::Number(number) => Some(number),
        Value::Null => None,
        _ => missed(site, work),
    }
}

/// The time that is needed here; texts and numbers are read as event times are.
pub(super) fn time(value: Value<'_>, site: usize, work: &mut Work) -> Option<Timestamp> {
    if value.is_null() {
        return None;
    }
    let time = times::of_value(value, work);
    time.or_else(|| missed(site, work))
}

#[cold]
fn missed<T>(site: usize, work: &mut Work) -> Option<T> {
    work.miss(site);
    None
}

#[inline]
pub(super) fn arithmetic<'a>(
    call: Call,
    left: Value<'_>,
    right: Value<'_>,
    site: usize,
    work: &mut Work,
) -> Value<'a> {
    let (Value::Number(left), Value::Number(right)) = (left, right) else {
        if !left.is_null() && !right.is_null() {
            work.miss(site);
        }
        return Value::Null;
    };
    let result = match call {
        Call::Add => left.plus(right),
        Call::Subtract => left.minus(right),
        Call::Multiply => left.multiply(right),
        Call::Divide => left.divide(right),
        _ => left.remainder(right),
    };
    match result {
        Some(number) => Value::Number(number),
        None => Value::from(missed(site, work)),
    }
}

pub(super) fn call<'a>(
    call: Call,
    arguments: &'a [Node],
    site: usize,
    record: &Record<'a>,
    work: &mut Work,
) -> Value<'a> {
    match call {
        Call::IsTrue | Call::IsFalse => {
            let found = arguments.first().and_then(|node| truth(node, record, work));
            return Value::Bool(found == Some(call == Call::IsTrue));
        }
        Call::In => return is_in(arguments, site, record, work),
        Call::Concat | Call::Join => {
            return text::concatenate(call == Call::Join, arguments, site, record, work);
        }
        _ => {}
    }
    let mut values = [Value::Null; 3];
    for (place, node) in values.iter_mut().zip(arguments) {
        *place = value(node, record, work);
    }
    let [first, second, third] = values;
    let found = match call {
        Call::IsDistinct => Some(is_distinct(first, second, site, work)),
        Call::NullIf => Some(null_if(first, second, work)),
        _ if first.is_null() => None,
        Call::ToText => text::of_value(first, work).map(Value::Text),
        Call::ToNumber => to_number(first, work).map(Value::Number),
        Call::ToInteger => {
            let number = to_number(first, work).and_then(|number| number.round(0));
            number.map(Value::Number)
        }
        Call::ToBool => to_bool(first, work).map(Value::Bool),
        Call::ToTime => return time(first, site, work).map_or(Value::Null, Value::Time),
        Call::Negate | Call::Abs | Call::Round | Call::Floor | Call::Ceil => {
            return of_number(call, first, second, arguments.len(), site, work);
        }
        _ => {
            // All of these take texts, and places in them.
            if values.iter().take(arguments.len()).any(|it| it.is_null()) {
                return Value::Null;
            }
            text::call(call, (first, second, third), arguments.len(), work)
        }
    };
    match found {
        Some(value) => value,
        None if first.is_null() => Value::Null,
        None => Value::from(missed(site, work)),
    }
}

fn of_number<'a>(
    call: Call,
    first: Value<'_>,
    second: Value<'_>,
    given: usize,
    site: usize,
    work: &mut Work,
) -> Value<'a> {
    let Some(first) = number(first, site, work) else {
        return Value::Null;
    };
    let digits = match (given, second) {
        (2, Value::Null) => return Value::Null,
        (2, Value::Number(digits)) => digits.whole().and_then(|it| i32::try_from(it).ok()),
        (2, _) => None,
        _ => Some(0),
    };
    let result = digits.and_then(|digits| match call {
        Call::Negate => Some(first.negate()),
        Call::Abs => Some(first.abs()),
        Call::Floor => Some(first.floor()),
        Call::Ceil => first.ceil(),
        _ => first.round(digits),
    });
    Value::from(result.or_else(|| missed(site, work)))
}

fn is_distinct<'a>(left: Value<'_>, right: Value<'_>, site: usize, work: &mut Work) -> Value<'a> {
    Value::Bool(match (left.is_null(), right.is_null()) {
        (true, true) => false,
        (false, false) => match compare(left, right, work) {
            Some(ordering) => ordering.is_ne(),
            None => {
                work.miss(site);
                true
            }
        },
        _ => true,
    })
}

/// Unknown where it is equal to none, and one of them is unknown.
fn is_in<'a>(
    arguments: &'a [Node],
    site: usize,
    record: &Record<'a>,
    work: &mut Work,
) -> Value<'a> {
    let Some((tested, items)) = arguments.split_first() else {
        return Value::Null;
    };
    let tested = value(tested, record, work);
    let mut result = Value::Bool(false);
    for item in items {
        let item = value(item, record, work);
        match compare(tested, item, work) {
            Some(ordering) if ordering.is_eq() => return Value::Bool(true),
            Some(_) => {}
            None => {
                if !tested.is_null() && !item.is_null() {
                    work.miss(site);
                }
                result = Value::Null;
            }
        }
    }
    result
}

fn null_if<'a>(left: Value<'a>, right: Value<'_>, work: &Work) -> Value<'a> {
    match compare(left, right, work) {
        Some(ordering) if ordering.is_eq() => Value::Null,
        _ => left,
    }
}

fn to_number(value: Value<'_>, work: &Work) -> Option<Decimal> {
    match value {
        Value::Number(number) => Some(number),
        Value::Bool(value) => Some(Decimal::from_i64(i64::from(value))),
        Value::Text(text) => text::number(work.bytes(text)),
        _ => None,
    }
}

fn to_bool(value: Value<'_>, work: &Work) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(value),
        Value::Number(number) => Some(number != Decimal::ZERO),
        Value::Text(text) => {
            let text = work.bytes(text).trim_ascii();
            let is = |words: &[&str]| {
                words
                    .iter()
                    .any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
            };
            match () {
                () if is(&["true", "t", "yes", "y", "on", "1"]) => Some(true),
                () if is(&["false", "f", "no", "n", "off", "0"]) => Some(false),
                () => None,
            }
        }
        _ => None,
    }
}
