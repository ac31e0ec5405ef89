//! `min(field)` and `max(field)` over numbers.

use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::decimal::Decimal;

/// The least or the largest number seen; nothing, if none was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extreme(Option<Decimal>);

impl Extreme {
    #[inline]
    pub(crate) fn keep_least(&mut self, number: Decimal) {
        if self.0.is_none_or(|least| number < least) {
            self.0 = Some(number);
        }
    }

    #[inline]
    pub(crate) fn keep_largest(&mut self, number: Decimal) {
        if self.0.is_none_or(|largest| number > largest) {
            self.0 = Some(number);
        }
    }

    pub(crate) fn merge_least(&mut self, other: &Self) {
        if let Some(number) = other.0 {
            self.keep_least(number);
        }
    }

    pub(crate) fn merge_largest(&mut self, other: &Self) {
        if let Some(number) = other.0 {
            self.keep_largest(number);
        }
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        match self.0 {
            Some(number) => number.write_to(out),
            None => out.extend_from_slice(super::NULL),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        match self.0 {
            None => out.byte(u8::MAX),
            Some(number) => {
                // A scale is at most 30.
                out.byte(u8::try_from(number.scale()).unwrap_or(u8::MAX));
                out.wide_signed(number.mantissa());
            }
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        match input.byte()? {
            u8::MAX => Ok(Self(None)),
            scale => {
                let number = Decimal::from_parts(input.wide_signed()?, u32::from(scale));
                Ok(Self(Some(
                    number.map_err(|_| Fault("a number is out of its limits"))?,
                )))
            }
        }
    }
}
