//! `sum(field)`: exact.

use super::exact::ExactSum;
use super::{State, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};

/// The sum of all numbers seen; nothing, if none was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum(Option<ExactSum>);

impl Sum {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        self.0.get_or_insert_default().add(number);
    }
}

impl State for Sum {
    type How = ();

    fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            self.0.get_or_insert_default().merge(other);
        }
    }

    fn write_to(&self, (): &(), _: WindowLength, out: &mut Vec<u8>) {
        match &self.0 {
            Some(sum) => sum.write_to(out),
            None => out.extend_from_slice(super::NULL),
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.byte(u8::from(self.0.is_some()));
        if let Some(sum) = &self.0 {
            sum.encode(out);
        }
    }

    fn decode((): &(), input: &mut Reader<'_>) -> Result<Self, Fault> {
        match input.byte()? {
            0 => Ok(Self(None)),
            1 => Ok(Self(Some(ExactSum::decode(input)?))),
            _ => Err(Fault::Damaged("a sum has an unknown mark")),
        }
    }

    fn heap(&self) -> usize {
        self.0.as_ref().map_or(0, ExactSum::heap)
    }
}
