//! `histogram(field, 10, 100, …)`: how many numbers are at or below each bound and above the one
//! before it, and how many above all.

use std::sync::Arc;

use super::{State, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::render::write_unsigned;
use crate::stats::count;

/// The upper bounds, ascending.
pub(crate) type Bounds = Arc<[Decimal]>;

/// A count for each bound, and one for what is above; empty, if no number was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram(Box<[u64]>);

impl Histogram {
    #[inline]
    pub(crate) fn add(&mut self, bounds: &Bounds, number: Decimal) {
        if self.0.is_empty() {
            self.0 = vec![0; bounds.len().saturating_add(1)].into();
        }
        let at = bounds.partition_point(|bound| *bound < number);
        count(&mut self.0[at], 1);
    }
}

impl State for Histogram {
    type How = Bounds;

    fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            *self = other.clone();
            return;
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            count(own, *other);
        }
    }

    fn write_to(&self, bounds: &Bounds, _: WindowLength, out: &mut Vec<u8>) {
        for at in 0..=bounds.len() {
            out.extend_from_slice(if at == 0 { b"[{\"le\":" } else { b",{\"le\":" });
            match bounds.get(at) {
                Some(bound) => bound.write_to(out),
                None => out.extend_from_slice(super::NULL),
            }
            out.extend_from_slice(b",\"count\":");
            write_unsigned(self.0.get(at).copied().unwrap_or_default(), out);
            out.push(b'}');
        }
        out.push(b']');
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.length(self.0.len());
        self.0.iter().for_each(|count| out.unsigned(*count));
    }

    fn decode(bounds: &Bounds, input: &mut Reader<'_>) -> Result<Self, Fault> {
        let length = input.length()?;
        if length == 0 {
            return Ok(Self::default());
        }
        if length != bounds.len().saturating_add(1) as u64 {
            return Err(Fault::Damaged("a histogram has other bounds"));
        }
        let counts: Result<Box<[u64]>, Fault> = (0..length).map(|_| input.unsigned()).collect();
        Ok(Self(counts?))
    }

    fn heap(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_laws, number, shown, state};
    use super::*;

    fn bounds() -> Bounds {
        ["-1", "0.1", "10"].map(number).into()
    }

    fn add(histogram: &mut Histogram, text: &str) {
        histogram.add(&bounds(), number(text));
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let numbers = [
            "-1",
            "-1.5",
            "-0.9999",
            "0.1",
            "0.10000000001",
            "10",
            "10.1",
            "1e27",
        ];
        let expected = r#"[{"le":-1,"count":2},{"le":0.1,"count":2},{"le":10,"count":2},{"le":null,"count":2}]"#;
        assert_eq!(shown(&state(&numbers, add), &bounds()), expected);
        let nothing = expected.replace("\"count\":2", "\"count\":0");
        assert_eq!(shown(&state(&[], add), &bounds()), nothing);
    }

    #[test]
    fn neither_order_nor_grouping_shows() {
        check_laws(
            &["-1", "0.05", "7", "7", "9", "100", "1e-30"],
            &bounds(),
            add,
        );
        check_laws(&[], &bounds(), add);
    }
}
