//! `increase(field)` and `rate(field)` of a counter: by how much it grew from sample to sample; one
//! that is less than the one before it began again at 0. Which samples follow each other is known
//! when all of them are there, so all are kept: 24 bytes for each, until the window closes.

use num_bigint::BigUint;

use super::exact::ExactSum;
use super::ratio::write_quotient;
use super::{NULL, State, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::spec::Timestamp;

/// What is shown of the growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Whole,
    PerSecond,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    time: i64,
    value: Decimal,
}

/// Samples are sorted when there are as many again: so a sample costs the logarithm of their number
/// at most, in whatever order they come.
const UNSORTED: usize = 64;

/// The samples seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    samples: Vec<Sample>,
    /// So many are in order, with one for each time: of several the greatest.
    sorted: usize,
}

impl Counter {
    #[inline]
    pub(crate) fn add(&mut self, time: Timestamp, value: Decimal) {
        self.push(Sample {
            time: time.0,
            value,
        });
    }

    #[inline]
    fn push(&mut self, sample: Sample) {
        let in_order = self.sorted == self.samples.len()
            && self
                .samples
                .last()
                .is_none_or(|last| last.time < sample.time);
        self.samples.push(sample);
        if in_order {
            self.sorted = self.samples.len();
        } else if self.samples.len().saturating_sub(self.sorted) > UNSORTED.max(self.sorted) {
            self.sort();
        }
    }

    #[cold]
    fn sort(&mut self) {
        put_in_order(&mut self.samples);
        self.sorted = self.samples.len();
    }

    fn in_order(&self) -> Vec<Sample> {
        let mut samples = self.samples.clone();
        if self.sorted != samples.len() {
            put_in_order(&mut samples);
        }
        samples
    }

    /// `None` with fewer than two samples.
    fn increase(&self) -> Option<ExactSum> {
        let samples = self.in_order();
        if samples.len() < 2 {
            return None;
        }
        let mut sum = ExactSum::default();
        for pair in samples.windows(2) {
            let [before, after] = pair else { continue };
            sum.add(after.value);
            if after.value >= before.value {
                sum.add(before.value.negated());
            }
        }
        Some(sum)
    }
}

/// By time; of several at one time the greatest stays.
fn put_in_order(samples: &mut Vec<Sample>) {
    samples.sort_by(|left, right| {
        let by_time = left.time.cmp(&right.time);
        by_time.then_with(|| right.value.cmp(&left.value))
    });
    samples.dedup_by_key(|sample| sample.time);
}

impl State for Counter {
    type How = Growth;

    fn merge(&mut self, other: &Self) {
        self.samples.reserve(other.samples.len());
        other.samples.iter().for_each(|sample| self.push(*sample));
    }

    fn write_to(&self, how: &Growth, window: WindowLength, out: &mut Vec<u8>) {
        match (self.increase(), how) {
            (None, _) => out.extend_from_slice(NULL),
            (Some(sum), Growth::Whole) => sum.write_to(out),
            (Some(sum), Growth::PerSecond) => match u64::try_from(window.0) {
                Ok(millis @ 1..) => write_per_second(&sum, millis, out),
                _ => out.extend_from_slice(NULL),
            },
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let samples = self.in_order();
        out.length(samples.len());
        let mut before = 0_i64;
        for Sample { time, value } in samples {
            out.signed(time.wrapping_sub(before));
            // A scale is at most 30.
            out.byte(u8::try_from(value.scale()).unwrap_or(u8::MAX));
            out.wide_signed(value.mantissa());
            before = time;
        }
    }

    fn decode(_: &Growth, input: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut state = Self::default();
        let mut time = 0_i64;
        for _ in 0..input.length()? {
            time = time.wrapping_add(input.signed()?);
            let scale = input.byte()?;
            let value = Decimal::from_parts(input.wide_signed()?, u32::from(scale));
            let damaged = |_| Fault::Damaged("a sample is out of its limits");
            state.add(Timestamp(time), value.map_err(damaged)?);
        }
        Ok(state)
    }

    fn heap(&self) -> usize {
        self.samples.capacity().saturating_mul(size_of::<Sample>())
    }
}

#[allow(clippy::arithmetic_side_effects, reason = "it grows as needed")]
fn write_per_second(sum: &ExactSum, millis: u64, out: &mut Vec<u8>) {
    let (sum, scale) = sum.parts();
    let thousandfold = BigUint::from_bytes_be(&sum.unsigned_abs().to_be_bytes()) * 1000_u32;
    let (negative, millis) = (sum.is_negative(), BigUint::from(millis));
    write_quotient(negative, &thousandfold, &millis, i64::from(scale), out);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_laws, number, shown, state};
    use super::*;

    /// `5=x` is x at second 5.
    fn add(counter: &mut Counter, text: &str) {
        let (time, value) = text.split_once('=').unwrap_or(("0", text));
        counter.add(Timestamp(time.parse().unwrap_or(0)), number(value));
    }

    fn check(texts: &[&str], increase: &str, rate: &str) {
        let counter = state(texts, add);
        assert_eq!(shown(&counter, &Growth::Whole), increase, "{texts:?}");
        assert_eq!(shown(&counter, &Growth::PerSecond), rate, "{texts:?}");
    }

    #[test]
    fn growth_goes_on_through_resets() {
        check(&[], "null", "null");
        check(&["1=100"], "null", "null");
        check(&["1=100", "1=100"], "null", "null");
        check(&["1=100", "2=100"], "0", "0");
        check(&["1=100", "2=130", "3=160.5"], "60.5", "6.05");
        // 20 up, then from 0 to 5, then 3 more.
        check(&["1=100", "2=120", "3=5", "4=8"], "28", "2.8");
        check(&["4=8", "1=100", "3=5", "2=120"], "28", "2.8");
        // At second 2 there are two samples: the greater counts.
        check(&["1=10", "2=5", "2=20", "3=30"], "20", "2");
        check(&["1=0", "2=1"], "1", "0.1");
        let third = ["1=0", "2=0.0000000000000000000000000001"];
        check(
            &third,
            "0.0000000000000000000000000001",
            "0.00000000000000000000000000001",
        );
    }

    #[test]
    fn neither_order_nor_grouping_shows() {
        let texts: Vec<String> = (0..400)
            .map(|at| format!("{}={}", at * 37 % 350, at * 53 % 97))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        check_laws(&texts[..7], &Growth::Whole, add);
        check_laws(&texts, &Growth::PerSecond, add);
    }

    #[test]
    fn samples_in_the_worst_order_cost_little_more_than_sorted_ones() {
        let mut counter = Counter::default();
        for at in (0..200_000).rev() {
            counter.add(Timestamp(at), Decimal::from_i64(at));
        }
        assert_eq!(shown(&counter, &Growth::Whole), "199999");
    }
}
