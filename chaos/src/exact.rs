//! Exact decimal numbers for the checker: written apart from the engine's, in the plainest way, so that a fault in one
//! is not repeated by the other.

use std::cmp::Ordering;
use std::fmt;

/// How many significant digits an average has.
const AVERAGE_DIGITS: usize = 20;

/// `units / 10^scale`, without trailing zeros in the fraction, so equal numbers are equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exact {
    units: i128,
    scale: u32,
}

impl Exact {
    /// Zero.
    pub const ZERO: Self = Self { units: 0, scale: 0 };

    /// Takes a plain JSON number, without an exponent. `None` for anything else, and for more than 38 digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let empty_fraction = digits.contains('.') && fraction.is_empty();
        if whole.is_empty() || empty_fraction || !plain(whole) || !plain(fraction) {
            return None;
        }
        let units: i128 = format!("{whole}{fraction}").parse().ok()?;
        let units = if negative { -units } else { units };
        Some(Self::normalized(units, u32::try_from(fraction.len()).ok()?))
    }

    /// A whole number.
    #[must_use]
    pub fn whole(value: u64) -> Self {
        Self {
            units: i128::from(value),
            scale: 0,
        }
    }

    fn normalized(mut units: i128, mut scale: u32) -> Self {
        while scale > 0 && units % 10 == 0 {
            units /= 10;
            scale -= 1;
        }
        Self { units, scale }
    }

    /// Both numbers' units at the greater of the two scales; `None` on overflow.
    fn aligned(self, other: Self) -> Option<(i128, i128, u32)> {
        let scale = self.scale.max(other.scale);
        let raise = |number: Self| {
            number
                .units
                .checked_mul(10_i128.checked_pow(scale - number.scale)?)
        };
        Some((raise(self)?, raise(other)?, scale))
    }

    /// The exact sum; `None` where it has more than 38 digits.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        let (left, right, scale) = self.aligned(other)?;
        Some(Self::normalized(left.checked_add(right)?, scale))
    }

    /// Which of the two is greater; `None` where they are too far apart in size to tell in 38 digits.
    #[must_use]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        let (left, right, _) = self.aligned(other)?;
        Some(left.cmp(&right))
    }

    /// `self / count`, rounded half to even to 20 significant digits, by long division as on paper. `None` for a
    /// count of 0 and beyond 38 digits.
    #[must_use]
    pub fn divided_by(self, count: u64) -> Option<Self> {
        if count == 0 {
            return None;
        }
        let divisor = i128::from(count).checked_mul(10_i128.checked_pow(self.scale)?)?;
        let amount = self.units.checked_abs()?;
        let mut digits = amount / divisor;
        let mut remainder = amount % divisor;
        let mut significant = if digits == 0 {
            0
        } else {
            digits.to_string().len()
        };
        if significant > AVERAGE_DIGITS {
            return None;
        }
        let mut scale = 0;
        while significant < AVERAGE_DIGITS && remainder != 0 {
            remainder = remainder.checked_mul(10)?;
            digits = digits.checked_mul(10)?.checked_add(remainder / divisor)?;
            remainder %= divisor;
            scale += 1;
            if digits != 0 {
                significant += 1;
            }
        }
        let odd = digits % 2 == 1;
        match remainder.checked_mul(2)?.cmp(&divisor) {
            Ordering::Greater => digits += 1,
            Ordering::Equal if odd => digits += 1,
            Ordering::Equal | Ordering::Less => {}
        }
        Some(Self::normalized(
            if self.units < 0 { -digits } else { digits },
            scale,
        ))
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.units < 0 { "-" } else { "" };
        let scale = self.scale as usize;
        let digits = format!("{:0>width$}", self.units.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let point = if scale == 0 { "" } else { "." };
        // Padded as a text is: views align numbers.
        f.pad(&format!("{sign}{whole}{point}{fraction}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn number(text: &str) -> Exact {
        Exact::parse(text).unwrap()
    }

    #[test]
    fn equal_numbers_are_equal_however_they_are_written() {
        assert_eq!(number("12.50"), number("12.5"));
        assert_eq!(number("-0.0"), Exact::ZERO);
        assert_eq!(number("-12.050").to_string(), "-12.05");
        assert_eq!(number("0.07").to_string(), "0.07");
    }

    #[test]
    fn what_is_not_a_plain_number_is_refused() {
        for text in [
            "", "-", "1.", ".5", "1e3", "NaN", "+1", "1,0", "\"1\"", "null",
        ] {
            assert_eq!(Exact::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_sum_is_exact() {
        assert_eq!(number("0.1").plus(number("0.2")), Some(number("0.3")));
        let sum = number("9223372036854775807").plus(number("1"));
        assert_eq!(sum, Some(number("9223372036854775808")));
    }

    #[test]
    fn an_average_has_twenty_significant_digits_rounded_half_to_even() {
        let average = |sum: &str, count| number(sum).divided_by(count).unwrap().to_string();
        assert_eq!(average("10", 4), "2.5");
        assert_eq!(average("1", 3), "0.33333333333333333333");
        assert_eq!(average("2", 3), "0.66666666666666666667");
        assert_eq!(average("-200", 3), "-66.666666666666666667");
        assert_eq!(average("0.07", 7), "0.01");
        assert_eq!(average("0", 9), "0");
        // Exactly in the middle of two neighbours: the even one.
        assert_eq!(average("20000000000000000001", 2), "10000000000000000000");
        assert_eq!(average("20000000000000000003", 2), "10000000000000000002");
    }

    #[test]
    fn an_average_of_nothing_is_none() {
        assert_eq!(Exact::ZERO.divided_by(0), None);
    }
}
