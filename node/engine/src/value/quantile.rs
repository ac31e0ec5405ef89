//! `quantile(field, q, …)`: DDSketch with counts in bins of fixed ends, whatever the numbers are. No
//! number is further than one percent from what stands for its bin; the least and the largest are exact.
//!
//! A quantile is the least number with at least the part `q` of all numbers at or below it, as SQL's
//! `percentile_disc`.

use std::sync::Arc;

use ethnum::I256;

use super::{NULL, State, WindowLength};
use crate::decimal::{Decimal, power_of_ten, power_of_ten_wide, write_digits};
use crate::part::codec::{Fault, Reader, Writer};

mod bins;
mod mapping;

use bins::Bins;
use mapping::{ALL_BINS, Middle, bin, middle};

/// Most digits after the point of a `q`.
pub const QUANTILE_DIGITS: u32 = 12;

/// Which quantiles are shown.
#[derive(Clone, Debug)]
pub(crate) enum Quantiles {
    One(Decimal),
    List(Arc<[Decimal]>),
}

/// How often each bin was hit; nothing, if no number was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sketch(Option<Box<Seen>>);

#[derive(Clone, Debug)]
struct Seen {
    least: Decimal,
    largest: Decimal,
    bins: Bins,
}

impl Sketch {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        let seen = self.seen(number, number);
        seen.bins.add(bin(number), 1);
    }

    /// What was seen, among it numbers from `least` to `largest`.
    #[inline]
    fn seen(&mut self, least: Decimal, largest: Decimal) -> &mut Seen {
        let seen = self.0.get_or_insert_with(|| {
            Box::new(Seen {
                least,
                largest,
                bins: Bins::default(),
            })
        });
        seen.least = seen.least.min(least);
        seen.largest = seen.largest.max(largest);
        seen
    }
}

impl Seen {
    /// Appends the quantiles, which may come in any order.
    fn write_to(&self, quantiles: &[Decimal], mut write: impl FnMut(usize, Shown)) {
        let counts = || self.bins.iter().map(|(_, count)| count);
        let all = counts().fold(0, u64::saturating_add);
        for (at, q) in quantiles.iter().enumerate() {
            let rank = rank(*q, all);
            let mut below = 0_u64;
            let bin = self.bins.iter().find(|(_, count)| {
                below = below.saturating_add(*count);
                below >= rank
            });
            let shown = match bin {
                _ if rank <= 1 => Shown::Exact(self.least),
                _ if rank >= all => Shown::Exact(self.largest),
                Some((bin, _)) => self.within(middle(bin)),
                None => Shown::Exact(self.largest),
            };
            write(at, shown);
        }
    }

    /// The same, but not beyond the least and the largest number.
    fn within(&self, middle: Middle) -> Shown {
        if is_less(middle, self.least) {
            Shown::Exact(self.least)
        } else if is_less(middle, self.largest) {
            Shown::Middle(middle)
        } else {
            Shown::Exact(self.largest)
        }
    }
}

enum Shown {
    Exact(Decimal),
    Middle(Middle),
}

impl Shown {
    #[allow(clippy::arithmetic_side_effects, reason = "exponents are small")]
    fn write_to(&self, out: &mut Vec<u8>) {
        let (mut digits, mut exponent) = match self {
            Self::Exact(number) => return number.write_to(out),
            Self::Middle(Middle { digits: 0, .. }) => return out.push(b'0'),
            Self::Middle(middle) => (middle.digits, middle.exponent),
        };
        while exponent < 0 && digits % 10 == 0 {
            digits /= 10;
            exponent += 1;
        }
        let mut text = digits.unsigned_abs().to_string();
        while exponent > 0 {
            text.push('0');
            exponent -= 1;
        }
        write_digits(digits < 0, &text, exponent.unsigned_abs(), out);
    }
}

/// `ceil(q · all)`, at least 1.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "at most 10^12 times 2^64, by a power of ten"
)]
fn rank(q: Decimal, all: u64) -> u64 {
    let unit = power_of_ten(q.scale());
    let rank = (q.mantissa() * i128::from(all) + unit - 1) / unit;
    u64::try_from(rank).unwrap_or(all).max(1)
}

/// The last of a middle's digits stands for 10^-35 at least.
const FINEST: i32 = 36;

#[allow(
    clippy::arithmetic_side_effects,
    reason = "below 10^28, in steps of 10^-36: 2^213"
)]
fn is_less(middle: Middle, number: Decimal) -> bool {
    let ten_to = |exponent: i32| power_of_ten_wide(exponent.unsigned_abs());
    let middle = I256::from(middle.digits) * ten_to(FINEST + middle.exponent);
    let scale = i32::try_from(number.scale()).unwrap_or(FINEST);
    middle < I256::from(number.mantissa()) * ten_to(FINEST - scale)
}

impl State for Sketch {
    type How = Quantiles;

    fn merge(&mut self, other: &Self) {
        let Some(other) = &other.0 else { return };
        if self.0.is_none() {
            self.0 = Some(other.clone());
            return;
        }
        let seen = self.seen(other.least, other.largest);
        for (bin, count) in other.bins.iter() {
            seen.bins.add(bin, count);
        }
    }

    fn write_to(&self, how: &Quantiles, _: WindowLength, out: &mut Vec<u8>) {
        match (how, &self.0) {
            (Quantiles::One(_), None) => out.extend_from_slice(NULL),
            (Quantiles::One(q), Some(seen)) => {
                seen.write_to(&[*q], |_, shown| shown.write_to(out));
            }
            (Quantiles::List(list), seen) => {
                out.push(b'[');
                match seen {
                    None => out.extend_from_slice(&vec![NULL; list.len()].join(&b',')),
                    Some(seen) => seen.write_to(list, |at, shown| {
                        if at > 0 {
                            out.push(b',');
                        }
                        shown.write_to(out);
                    }),
                }
                out.push(b']');
            }
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let Some(seen) = &self.0 else {
            return out.length(0);
        };
        out.length(seen.bins.iter().count());
        for number in [seen.least, seen.largest] {
            // A scale is at most 30.
            out.byte(u8::try_from(number.scale()).unwrap_or(u8::MAX));
            out.wide_signed(number.mantissa());
        }
        let mut before = 0;
        for (bin, count) in seen.bins.iter() {
            out.unsigned(u64::from(bin.wrapping_sub(before)));
            out.unsigned(count);
            before = bin;
        }
    }

    fn decode(_: &Quantiles, input: &mut Reader<'_>) -> Result<Self, Fault> {
        let damaged = Fault::Damaged("a quantile's bins are damaged");
        let length = input.length()?;
        if length == 0 {
            return Ok(Self::default());
        }
        let mut number = || {
            let scale = input.byte()?;
            let number = Decimal::from_parts(input.wide_signed()?, u32::from(scale));
            number.map_err(|_| Fault::Damaged("a number is out of its limits"))
        };
        let (least, largest) = (number()?, number()?);
        let mut sketch = Self::default();
        let seen = sketch.seen(least, largest);
        let mut bin = 0_u64;
        for _ in 0..length {
            bin = bin.saturating_add(input.unsigned()?);
            let count = input.unsigned()?;
            match u16::try_from(bin) {
                Ok(bin) if usize::from(bin) < ALL_BINS => seen.bins.add(bin, count),
                _ => return Err(damaged),
            }
        }
        Ok(sketch)
    }

    fn heap(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |seen| size_of::<Seen>().saturating_add(seen.bins.heap()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{bytes, check_laws, number, shown, state};
    use super::*;

    fn add(sketch: &mut Sketch, text: &str) {
        sketch.add(number(text));
    }

    fn one(q: &str) -> Quantiles {
        Quantiles::One(number(q))
    }

    fn list(qs: &[&str]) -> Quantiles {
        Quantiles::List(qs.iter().map(|q| number(q)).collect())
    }

    #[test]
    fn the_least_and_the_largest_are_exact() {
        let sketch = state(&["1.23456789", "77", "-3"], add);
        assert_eq!(shown(&sketch, &list(&["0", "1"])), "[-3,77]");
        assert_eq!(shown(&sketch, &one("0.01")), "-3");
        // Half of three numbers: the second; 1.23456789 to one percent, in six digits.
        let median: f64 = shown(&sketch, &one("0.5")).parse().unwrap();
        assert!((median / 1.234_567_89 - 1.0).abs() <= 0.01, "{median}");
        assert_eq!(
            shown(&state(&["5.5"], add), &list(&["0.5", "0.99"])),
            "[5.5,5.5]"
        );
        assert_eq!(shown(&state(&["7", "7", "7"], add), &one("0.5")), "7");
        assert_eq!(shown(&state(&["0", "0", "0", "1"], add), &one("0.75")), "0");
        assert_eq!(shown(&state(&[], add), &one("0.5")), "null");
        assert_eq!(
            shown(&state(&[], add), &list(&["0.5", "0.9"])),
            "[null,null]"
        );
    }

    #[test]
    fn tiny_and_huge_numbers_of_both_signs_are_told_apart() {
        let numbers = [
            "-9e27", "-9e27", "-1e-30", "-1e-30", "0", "2e-30", "2e-30", "9e27", "9e27",
        ];
        let qs = ["0.1", "0.2", "0.4", "0.5", "0.7", "0.8", "0.9"];
        let shown = shown(&state(&numbers, add), &list(&qs));
        let shown: Vec<f64> = shown[1..shown.len() - 1]
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect();
        let exact = [-9e27, -9e27, -1e-30, 0.0, 2e-30, 9e27, 9e27];
        for (shown, exact) in shown.iter().zip(exact) {
            assert!(
                (shown - exact).abs() <= exact.abs() * 0.01,
                "{shown} {exact}"
            );
        }
    }

    /// Response times with a heavy tail, from a Pareto law, against the sorted numbers.
    #[test]
    fn quantiles_are_within_a_percent_of_the_exact_ones() {
        let mut seed = 7_u64;
        let mut numbers: Vec<f64> = Vec::new();
        let mut sketch = Sketch::default();
        for _ in 0..50_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = ((seed >> 33) as f64 + 1.0) / (1_u64 << 31) as f64;
            let text = format!("{:.6}", 0.001 * uniform.powf(-1.1));
            numbers.push(text.parse().unwrap());
            sketch.add(number(&text));
        }
        numbers.sort_by(f64::total_cmp);
        let mut worst = 0.0_f64;
        let mut before = f64::MIN;
        for thousandth in 0..=1000 {
            let q = format!("{}e-3", thousandth);
            let quantile: f64 = shown(&sketch, &one(&q)).parse().unwrap();
            let rank = (thousandth * 50_000_usize).div_ceil(1000).max(1);
            let exact = numbers[rank - 1];
            worst = worst.max((quantile / exact - 1.0).abs());
            assert!(quantile >= before, "quantiles grow with q");
            before = quantile;
        }
        assert!(worst <= 0.010_000_5, "{worst}");
        assert!(worst > 0.005, "the measure measures nothing: {worst}");
        assert!(sketch.heap() < 20_000, "{}", sketch.heap());
    }

    #[test]
    fn neither_order_nor_grouping_shows() {
        let texts: Vec<String> = (0..500)
            .map(|at| format!("{}e{}", at * 31 % 97 - 40, at % 29 - 20))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let how = list(&["0.01", "0.5", "0.99"]);
        for numbers in [&texts[..5], &texts[..40], &texts] {
            check_laws(numbers, &how, add);
        }
    }

    #[test]
    fn a_sketch_takes_few_bytes() {
        let texts: Vec<String> = (1..=1000).map(|at| format!("{at}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let sketch = state(&texts, add);
        assert!(bytes(&sketch).len() < 1200, "{}", bytes(&sketch).len());
        assert!(sketch.heap() < 4000, "{}", sketch.heap());
        assert_eq!(size_of::<Sketch>(), 8);
    }
}
