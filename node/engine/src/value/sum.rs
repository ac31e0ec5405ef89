//! `sum(field)`: exact.

use super::exact::ExactSum;
use crate::checkpoint::codec::{Fault, Reader, Writer};
use crate::decimal::Decimal;

/// The sum of all numbers seen; nothing, if none was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum(Option<ExactSum>);

impl Sum {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        self.0.get_or_insert_default().add(number);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            self.0.get_or_insert_default().merge(other);
        }
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Some(sum) => sum.write_to(out),
            None => out.extend_from_slice(super::NULL),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.byte(u8::from(self.0.is_some()));
        if let Some(sum) = &self.0 {
            sum.encode(out);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        match input.byte()? {
            0 => Ok(Self(None)),
            1 => Ok(Self(Some(ExactSum::decode(input)?))),
            _ => Err(Fault("a sum has an unknown mark")),
        }
    }
}
