//! `min(field)` and `max(field)`: of the numbers, or, where there is none, of the texts by their
//! bytes. So one text among numbers hides none of them, and times as RFC 3339 have a least and a
//! largest.

use super::kept::Kept;
use super::{Input, State, TEXT_BYTES, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};

/// The least number seen, else the least text; nothing, if neither was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Min(Kept);

/// The largest number seen, else the largest text; nothing, if neither was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Max(Kept);

impl Min {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        match &self.0 {
            Kept::Number(least) if *least <= number => {}
            _ => self.0 = Kept::Number(number),
        }
    }

    #[inline]
    pub(crate) fn add_text(&mut self, text: &[u8]) {
        add_text(&mut self.0, text, |text, least| text < least);
    }
}

impl Max {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        match &self.0 {
            Kept::Number(largest) if *largest >= number => {}
            _ => self.0 = Kept::Number(number),
        }
    }

    #[inline]
    pub(crate) fn add_text(&mut self, text: &[u8]) {
        add_text(&mut self.0, text, |text, largest| text > largest);
    }
}

#[inline]
fn add_text(kept: &mut Kept, text: &[u8], is_beyond: impl FnOnce(&[u8], &[u8]) -> bool) {
    let replaces = match &*kept {
        Kept::Number(_) => false,
        Kept::Text(kept) => is_beyond(text, kept),
        Kept::Nothing | Kept::Bool(_) => true,
    };
    if replaces && text.len() <= TEXT_BYTES {
        kept.set(Input::Text(text));
    }
}

fn decode(input: &mut Reader<'_>) -> Result<Kept, Fault> {
    match Kept::decode(input)? {
        Kept::Bool(_) => Err(Fault::Damaged("a boolean is neither least nor largest")),
        kept => Ok(kept),
    }
}

/// Both are the same but for the side.
macro_rules! extreme {
    ($kind:ident) => {
        impl State for $kind {
            type How = ();

            fn merge(&mut self, other: &Self) {
                match &other.0 {
                    Kept::Number(number) => self.add(*number),
                    Kept::Text(text) => self.add_text(text),
                    Kept::Nothing | Kept::Bool(_) => {}
                }
            }

            fn write_to(&self, (): &(), _: WindowLength, out: &mut Vec<u8>) {
                self.0.write_to(out);
            }

            fn encode(&self, out: &mut Writer<'_>) {
                self.0.encode(out);
            }

            fn decode((): &(), input: &mut Reader<'_>) -> Result<Self, Fault> {
                Ok(Self(decode(input)?))
            }

            fn heap(&self) -> usize {
                self.0.heap()
            }
        }
    };
}

extreme!(Min);
extreme!(Max);
