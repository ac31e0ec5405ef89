//! `min(field)` and `max(field)` over numbers.

use super::State;
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};

/// The least number seen; nothing, if none was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Min(Option<Decimal>);

/// The largest number seen; nothing, if none was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Max(Option<Decimal>);

impl Min {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        if self.0.is_none_or(|least| number < least) {
            self.0 = Some(number);
        }
    }
}

impl Max {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        if self.0.is_none_or(|largest| number > largest) {
            self.0 = Some(number);
        }
    }
}

impl State for Min {
    fn merge(&mut self, other: &Self) {
        if let Some(number) = other.0 {
            self.add(number);
        }
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        write(self.0, out);
    }

    fn encode(&self, out: &mut Writer<'_>) {
        encode(self.0, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self(decode(input)?))
    }
}

impl State for Max {
    fn merge(&mut self, other: &Self) {
        if let Some(number) = other.0 {
            self.add(number);
        }
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        write(self.0, out);
    }

    fn encode(&self, out: &mut Writer<'_>) {
        encode(self.0, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self(decode(input)?))
    }
}

fn write(number: Option<Decimal>, out: &mut Vec<u8>) {
    match number {
        Some(number) => number.write_to(out),
        None => out.extend_from_slice(super::NULL),
    }
}

fn encode(number: Option<Decimal>, out: &mut Writer<'_>) {
    match number {
        None => out.byte(u8::MAX),
        Some(number) => {
            // A scale is at most 30.
            out.byte(u8::try_from(number.scale()).unwrap_or(u8::MAX));
            out.wide_signed(number.mantissa());
        }
    }
}

fn decode(input: &mut Reader<'_>) -> Result<Option<Decimal>, Fault> {
    match input.byte()? {
        u8::MAX => Ok(None),
        scale => {
            let number = Decimal::from_parts(input.wide_signed()?, u32::from(scale));
            Ok(Some(number.map_err(|_| {
                Fault::Damaged("a number is out of its limits")
            })?))
        }
    }
}
