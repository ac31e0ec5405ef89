//! `avg(field)`: the exact sum by the count, rounded once, when the row is written.

use std::cmp::Ordering;

use ethnum::U256;

use super::exact::ExactSum;
use super::ratio::write_scaled;
use super::{State, WindowLength};
use crate::decimal::{Decimal, power_of_ten_wide};
use crate::part::codec::{Fault, Reader, Writer};

/// Significant digits of an average; half is rounded to the even digit.
pub const AVERAGE_DIGITS: u32 = 20;

/// The sum and the number of all numbers seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Avg {
    sum: ExactSum,
    numbers: u64,
}

impl Avg {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        self.sum.add(number);
        self.numbers = self.numbers.saturating_add(1);
    }
}

impl State for Avg {
    type How = ();

    fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        self.numbers = self.numbers.saturating_add(other.numbers);
    }

    fn write_to(&self, (): &(), _: WindowLength, out: &mut Vec<u8>) {
        if self.numbers == 0 {
            out.extend_from_slice(super::NULL);
            return;
        }
        let (sum, scale) = self.sum.parts();
        write_quotient(
            sum.is_negative(),
            sum.unsigned_abs(),
            self.numbers,
            scale,
            out,
        );
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.unsigned(self.numbers);
        if self.numbers > 0 {
            self.sum.encode(out);
        }
    }

    fn decode((): &(), input: &mut Reader<'_>) -> Result<Self, Fault> {
        let numbers = input.unsigned()?;
        let sum = if numbers > 0 {
            ExactSum::decode(input)?
        } else {
            ExactSum::default()
        };
        Ok(Self { sum, numbers })
    }

    fn heap(&self) -> usize {
        self.sum.heap()
    }
}

/// Appends `sum · 10^-scale / count` with [`AVERAGE_DIGITS`] significant digits. `count` is below
/// 2^60 and greater than 0, `sum` below 10^58 · `count`.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "the limits of sum and count: the last test takes the largest"
)]
fn write_quotient(negative: bool, sum: U256, count: u64, scale: u32, out: &mut Vec<u8>) {
    if sum == U256::ZERO {
        out.push(b'0');
        return;
    }
    let count = U256::from(count);
    let ten_to = |exponent: u32| power_of_ten_wide(exponent).unsigned_abs();
    // Below one, 19 more digits make the quotient at least one: the count has at most 19.
    let (sum, scale) = if sum < count {
        (sum * ten_to(19), scale + 19)
    } else {
        (sum, scale)
    };
    let digits = digit_count(sum / count);
    // Exactly as many digits as wanted stay before the point; then the rest rounds.
    let (sum, divisor, scale) = if digits <= AVERAGE_DIGITS {
        let more = AVERAGE_DIGITS - digits;
        (
            sum * ten_to(more),
            count,
            i64::from(scale) + i64::from(more),
        )
    } else {
        let fewer = digits - AVERAGE_DIGITS;
        (
            sum,
            count * ten_to(fewer),
            i64::from(scale) - i64::from(fewer),
        )
    };
    let quotient = divide_half_even(sum, divisor);
    write_scaled(negative, quotient.as_u128().to_string(), scale, out);
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "the divisor is positive, and a quotient by it leaves room for one"
)]
fn divide_half_even(sum: U256, divisor: U256) -> U256 {
    let quotient = sum / divisor;
    let rest = sum % divisor;
    // The rest is less than the divisor, so this cannot overflow, unlike twice the rest.
    let round_up = match rest.cmp(&(divisor - rest)) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => quotient % 2 == U256::ONE,
    };
    if round_up {
        quotient + U256::ONE
    } else {
        quotient
    }
}

#[allow(clippy::arithmetic_side_effects, reason = "256 bits hold 78 digits")]
fn digit_count(number: U256) -> u32 {
    let mut digits = 1;
    let mut rest = number;
    while rest >= U256::from(10_u64.pow(19)) {
        rest /= U256::from(10_u64.pow(19));
        digits += 19;
    }
    digits + rest.as_u64().checked_ilog10().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn average(numbers: &[&str]) -> String {
        let mut avg = Avg::default();
        for number in numbers {
            avg.add(Decimal::parse(number.as_bytes()).unwrap());
        }
        let mut out = Vec::new();
        avg.write_to(&(), WindowLength(0), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_average_has_twenty_significant_digits_half_rounded_to_even() {
        assert_eq!(average(&["1", "2"]), "1.5");
        assert_eq!(average(&["0.1", "0.2"]), "0.15");
        assert_eq!(average(&["1", "0", "0"]), "0.33333333333333333333");
        assert_eq!(average(&["2", "0", "0"]), "0.66666666666666666667");
        assert_eq!(average(&["-2", "0", "0"]), "-0.66666666666666666667");
        assert_eq!(average(&["100", "0", "0"]), "33.333333333333333333");
        assert_eq!(average(&["0", "0"]), "0");
        assert_eq!(average(&["1", "-1"]), "0");
        assert_eq!(average(&["1783468800000"; 5]), "1783468800000");
        assert_eq!(
            average(&["5e-30", "0"]),
            "0.0000000000000000000000000000025"
        );
        // 10000000000000000000.5 and ...1.5 lie halfway: both go to the even neighbour.
        assert_eq!(
            average(&["10000000000000000000", "10000000000000000001"]),
            "10000000000000000000"
        );
        assert_eq!(
            average(&["10000000000000000001", "10000000000000000002"]),
            "10000000000000000002"
        );
        assert_eq!(
            average(&["99999999999999999999.9"]),
            "100000000000000000000"
        );
        assert_eq!(
            average(&["9999999999999999999999999999"]),
            "10000000000000000000000000000"
        );
        assert_eq!(
            average(&["1234567890123456789012345678"]),
            "1234567890123456789000000000"
        );
        assert_eq!(average(&[]), "null");
    }

    #[test]
    fn the_largest_sum_and_count_do_not_overflow() {
        let largest = (U256::ONE << 255_u32) - U256::ONE;
        let mut out = Vec::new();
        write_quotient(false, largest, 1 << 60, 30, &mut out);
        assert_eq!(out, b"50216813883093446111000000000");
        out.clear();
        write_quotient(false, U256::ONE, 1 << 60, 30, &mut out);
        let expected = format!("0.{}86736173798840354721", "0".repeat(48));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
