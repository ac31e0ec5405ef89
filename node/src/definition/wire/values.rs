//! Values in the canonical text.

use serde::{Deserialize, Serialize};
use unisono_engine::decimal::Decimal;
use unisono_engine::spec::{Column, ValueSpec};

use super::super::functions::{Argument, function, parts};
use super::read_derived;

/// The functions of version 2.
const OLD: [&str; 5] = ["count", "sum", "avg", "min", "max"];

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Value {
    /// Name, function, column.
    Plain(String, String, Option<usize>),
    /// The same, and numbers.
    With(String, String, Option<usize>, Vec<String>),
}

/// `place` gives the place of a column among the fields and what is derived of them.
pub(super) fn write(value: &ValueSpec, place: &impl Fn(Column) -> usize) -> Value {
    let (code, column, numbers) = parts(&value.function);
    let (name, code) = (value.name.clone(), code.to_owned());
    let column = column.map(place);
    if numbers.is_empty() {
        return Value::Plain(name, code, column);
    }
    let numbers = numbers.iter().map(ToString::to_string).collect();
    Value::With(name, code, column, numbers)
}

/// Whether programs that read version 2 know it.
pub(super) fn is_old(value: &ValueSpec) -> bool {
    OLD.contains(&parts(&value.function).0)
}

/// The value that `value` means, among so many fields and so many columns in all.
pub(super) fn read(value: &Value, columns: (usize, usize)) -> Result<ValueSpec, String> {
    let (name, code, column, numbers) = match value {
        Value::Plain(name, code, column) => (name, code, column, &[][..]),
        Value::With(name, code, column, numbers) => (name, code, column, &numbers[..]),
    };
    let mut arguments = Vec::new();
    if let Some(column) = *column {
        arguments.push(Argument::Column(read_derived(column, columns)?));
    }
    for digits in numbers {
        let number = Decimal::parse(digits.as_bytes());
        let number = number.map_err(|error| format!("{digits}: {error}"))?;
        arguments.push(Argument::Number(number));
    }
    let function = function(code, &arguments).map_err(|refused| refused.what)?;
    if parts(&function).0 != code {
        return Err(format!("unknown function {code:?}"));
    }
    Ok(ValueSpec {
        name: name.clone(),
        function,
    })
}
