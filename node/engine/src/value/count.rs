//! `count()` and `count(field)`.

use super::{State, WindowLength};
use crate::part::codec::{Fault, Reader, Writer};

/// How many records were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Count(u64);

impl Count {
    #[inline]
    pub(crate) fn add(&mut self) {
        self.0 = self.0.saturating_add(1);
    }
}

impl State for Count {
    type How = ();
    const FLAT: bool = true;

    #[inline]
    fn merge(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    fn write_to(&self, (): &(), _: WindowLength, out: &mut Vec<u8>) {
        crate::render::write_unsigned(self.0, out);
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.unsigned(self.0);
    }

    fn decode((): &(), input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self(input.unsigned()?))
    }
}
