//! `count()` and `count(field)`.

use crate::checkpoint::codec::{Fault, Reader, Writer};

/// How many records were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Count(u64);

impl Count {
    #[inline]
    pub(crate) fn add(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.to_string().as_bytes());
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.unsigned(self.0);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self(input.unsigned()?))
    }
}
