//! Arithmetic: exact, or rounded half away from zero where it says so. What a [`Decimal`] cannot
//! hold is `None`.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "mantissas are below 10^36, scales at most 30, and divisors are not 0"
)]

use ethnum::I256;

use super::{Decimal, MAX_DIGITS, MAX_SCALE, power_of_ten, power_of_ten_wide};

/// Significant digits of a quotient that does not end before; an average has as many.
const QUOTIENT_DIGITS: u32 = 20;

impl Decimal {
    /// The sum.
    #[must_use]
    #[inline]
    pub fn plus(self, other: Self) -> Option<Self> {
        let (left, right, scale) = self.aligned(other)?;
        trimmed(left.checked_add(right)?, scale)
    }

    /// The difference.
    #[must_use]
    #[inline]
    pub fn minus(self, other: Self) -> Option<Self> {
        self.plus(other.negate())
    }

    /// The number with the other sign.
    #[must_use]
    #[inline]
    pub fn negate(self) -> Self {
        Self::pack(-self.mantissa(), self.scale())
    }

    /// The number without its sign.
    #[must_use]
    pub fn abs(self) -> Self {
        Self::pack(self.mantissa().abs(), self.scale())
    }

    /// The product.
    #[must_use]
    #[inline]
    pub fn multiply(self, other: Self) -> Option<Self> {
        let (left, right) = (self.mantissa(), other.mantissa());
        let scale = self.scale() + other.scale();
        match left.checked_mul(right) {
            Some(product) => trimmed(product, scale),
            None => trimmed_wide(I256::from(left) * I256::from(right), scale),
        }
    }

    /// The quotient, rounded half away from zero: about 20 significant digits, and no fewer after
    /// the point than the two numbers have. `None` for a division by 0.
    #[must_use]
    pub fn divide(self, by: Self) -> Option<Self> {
        if by.mantissa() == 0 {
            return None;
        }
        if self.mantissa() == 0 {
            return Some(Self::ZERO);
        }
        let whole = |number: Self| {
            let digits = number.mantissa().unsigned_abs().ilog10().cast_signed() + 1;
            digits - number.scale().cast_signed()
        };
        // The quotient has so many digits before the point, or one more.
        let before = whole(self) - whole(by);
        let wanted = QUOTIENT_DIGITS.cast_signed() - before;
        let wanted = wanted.max(self.scale().max(by.scale()).cast_signed());
        let most = MAX_SCALE
            .cast_signed()
            .min(MAX_DIGITS.cast_signed() - 1 - before);
        let scale = wanted.min(most).max(0).cast_unsigned();
        let shift = (scale + by.scale()).cast_signed() - self.scale().cast_signed();
        let factor = power_of_ten_wide(shift.unsigned_abs());
        let (mut top, mut bottom) = (I256::from(self.mantissa()), I256::from(by.mantissa()));
        if shift >= 0 {
            top = top.checked_mul(factor)?;
        } else {
            bottom = bottom.checked_mul(factor)?;
        }
        let (quotient, rest) = match (i128::try_from(top), i128::try_from(bottom)) {
            (Ok(top), Ok(bottom)) => (I256::from(top / bottom), I256::from(top % bottom)),
            _ => (top / bottom, top % bottom),
        };
        let up = rest.abs() >= bottom.abs() - rest.abs();
        let step = match (up, (top < I256::ZERO) != (bottom < I256::ZERO)) {
            (false, _) => I256::ZERO,
            (true, false) => I256::ONE,
            (true, true) => I256::MINUS_ONE,
        };
        trimmed_wide(quotient + step, scale)
    }

    /// What is left of a division whose quotient is cut to a whole number; it has the sign of the
    /// number. `None` for a division by 0.
    #[must_use]
    pub fn remainder(self, by: Self) -> Option<Self> {
        if by.mantissa() == 0 {
            return None;
        }
        let scale = self.scale().max(by.scale());
        let wide = |number: Self| {
            I256::from(number.mantissa()) * power_of_ten_wide(scale - number.scale())
        };
        trimmed_wide(wide(self) % wide(by), scale)
    }

    /// The number with so many digits after the point, half rounded away from zero; a negative
    /// number of digits rounds before the point.
    #[must_use]
    pub fn round(self, digits: i32) -> Option<Self> {
        let dropped = self.scale().cast_signed() - digits.clamp(-40, 40);
        if dropped <= 0 {
            return Some(self);
        }
        let Some(unit) = (dropped <= 38).then(|| power_of_ten(dropped.unsigned_abs())) else {
            return Some(Self::ZERO);
        };
        let (quotient, rest) = (self.mantissa() / unit, self.mantissa() % unit);
        let up = rest.unsigned_abs() >= unit.unsigned_abs() - rest.unsigned_abs();
        let quotient = quotient + i128::from(up) * self.mantissa().signum();
        match digits {
            0.. => trimmed(quotient, digits.unsigned_abs().min(40)),
            _ => trimmed(
                quotient.checked_mul(power_of_ten(digits.unsigned_abs().min(38)))?,
                0,
            ),
        }
    }

    /// The largest whole number that is not above it.
    #[must_use]
    pub fn floor(self) -> Self {
        Self::pack(self.mantissa().div_euclid(power_of_ten(self.scale())), 0)
    }

    /// The least whole number that is not below it.
    #[must_use]
    pub fn ceil(self) -> Option<Self> {
        // 10^28 is one more than the largest.
        Self::from_parts(
            -(-self.mantissa()).div_euclid(power_of_ten(self.scale())),
            0,
        )
        .ok()
    }

    /// The number, if it is whole and fits.
    #[must_use]
    #[inline]
    pub fn whole(self) -> Option<i64> {
        match self.scale() {
            0 => i64::try_from(self.mantissa()).ok(),
            _ => None,
        }
    }

    /// Both mantissas at the larger of the two scales; what does not fit has more digits than a
    /// [`Decimal`] holds.
    #[inline]
    fn aligned(self, other: Self) -> Option<(i128, i128, u32)> {
        let (scale, others) = (self.scale(), other.scale());
        if scale == others {
            return Some((self.mantissa(), other.mantissa(), scale));
        }
        let common = scale.max(others);
        let left = self.mantissa().checked_mul(power_of_ten(common - scale))?;
        let right = other
            .mantissa()
            .checked_mul(power_of_ten(common - others))?;
        Some((left, right, common))
    }
}

/// `mantissa · 10^-scale`; the common case is cheap.
#[inline]
fn trimmed(mantissa: i128, scale: u32) -> Option<Decimal> {
    let Ok(mut small) = i64::try_from(mantissa) else {
        return Decimal::from_parts(mantissa, scale).ok();
    };
    let mut scale = scale;
    if small == 0 {
        return Some(Decimal::ZERO);
    }
    while scale > 0 && small % 10 == 0 {
        small /= 10;
        scale -= 1;
    }
    // At most 19 digits: below 10^28.
    (scale <= MAX_SCALE).then(|| Decimal::pack(i128::from(small), scale))
}

#[cold]
fn trimmed_wide(mantissa: I256, scale: u32) -> Option<Decimal> {
    let (mut mantissa, mut scale) = (mantissa, scale);
    let ten = I256::new(10);
    while scale > 0 && mantissa % ten == I256::ZERO {
        mantissa /= ten;
        scale -= 1;
        if mantissa == I256::ZERO {
            return Some(Decimal::ZERO);
        }
    }
    trimmed(i128::try_from(mantissa).ok()?, scale)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text.as_bytes()).unwrap()
    }

    fn shown(number: Option<Decimal>) -> String {
        number.map_or("none".to_owned(), |number| number.to_string())
    }

    #[test]
    fn sums_and_products_are_exact_or_none() {
        let most = "9999999999999999999999999999";
        let tiny = "0.000000000000000000000000000001";
        for (left, right, sum, product) in [
            ("0.1", "0.2", "0.3", "0.02"),
            ("1.5", "-1.5", "0", "-2.25"),
            ("19.99", "3", "22.99", "59.97"),
            ("2.50", "4", "6.5", "10"),
            ("0", "7", "7", "0"),
            (
                "12345678901234567890",
                "10",
                "12345678901234567900",
                "123456789012345678900",
            ),
            (
                "123456789012345678",
                "987654321098765432",
                "1111111110111111110",
                "none",
            ),
            (most, "1", "none", most),
            (most, tiny, "none", "0.009999999999999999999999999999"),
            (tiny, tiny, "0.000000000000000000000000000002", "none"),
            // The product of the mantissas takes 41 digits, and ends in zeros.
            (
                "1.25e-10",
                "80000000000000000000",
                "80000000000000000000.000000000125",
                "10000000000",
            ),
        ] {
            assert_eq!(
                shown(number(left).plus(number(right))),
                sum,
                "{left} + {right}"
            );
            assert_eq!(
                shown(number(left).multiply(number(right))),
                product,
                "{left} * {right}"
            );
        }
        assert_eq!(shown(number("0.3").minus(number("0.1"))), "0.2");
        let product = number("123456789012345678").multiply(number("98765432"));
        assert_eq!(shown(product), "12193263100137174221002896");
    }

    /// As PostgreSQL's numeric, but for the number of digits.
    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        for (left, right, quotient, rest) in [
            ("1", "3", "0.33333333333333333333", "1"),
            ("2", "3", "0.66666666666666666667", "2"),
            ("-2", "3", "-0.66666666666666666667", "-2"),
            ("10", "3", "3.3333333333333333333", "1"),
            ("7", "2", "3.5", "1"),
            ("-7", "2", "-3.5", "-1"),
            ("7", "-2", "-3.5", "1"),
            ("5.5", "2", "2.75", "1.5"),
            ("0", "5", "0", "0"),
            ("1", "0", "none", "none"),
            ("1", "0.5", "2", "0"),
            (
                "1000000000000000000000000000",
                "3",
                "333333333333333333333333333",
                "1",
            ),
            (
                "1",
                "1000000000000000000000000000",
                "0.000000000000000000000000001",
                "1",
            ),
            ("9999999999999999999999999999", "0.1", "none", "0"),
        ] {
            assert_eq!(
                shown(number(left).divide(number(right))),
                quotient,
                "{left} / {right}"
            );
            assert_eq!(
                shown(number(left).remainder(number(right))),
                rest,
                "{left} % {right}"
            );
        }
    }

    #[test]
    fn numbers_are_rounded_half_away_from_zero() {
        for (text, digits, rounded) in [
            ("2.5", 0, "3"),
            ("-2.5", 0, "-3"),
            ("2.4999", 0, "2"),
            ("1.005", 2, "1.01"),
            ("1.005", 3, "1.005"),
            ("1.005", 9, "1.005"),
            ("-0.4", 0, "0"),
            ("1250", -2, "1300"),
            ("1249", -2, "1200"),
            ("49", -2, "0"),
            ("50", -2, "100"),
            ("1", -38, "0"),
            ("9999999999999999999999999999", -1, "none"),
        ] {
            assert_eq!(
                shown(number(text).round(digits)),
                rounded,
                "{text} {digits}"
            );
        }
        for (text, floor, ceil) in [
            ("1.5", "1", "2"),
            ("-1.5", "-2", "-1"),
            ("3", "3", "3"),
            ("-0.1", "-1", "0"),
        ] {
            assert_eq!(shown(Some(number(text).floor())), floor, "{text}");
            assert_eq!(shown(number(text).ceil()), ceil, "{text}");
        }
    }
}
