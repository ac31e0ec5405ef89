//! Sums that never round: 128 bits as long as that suffices, then 256.

use ethnum::I256;

use crate::decimal::{Decimal, MAX_SCALE, power_of_ten, power_of_ten_wide, write_digits};
use crate::part::codec::{Fault, Reader, Writer};

/// An exact sum of decimal numbers. The order of additions shows neither in its value nor in its
/// bytes.
///
/// The numbers' limits leave room for 2^60 of them in 256 bits.
#[derive(Clone, Debug)]
pub(crate) enum ExactSum {
    /// `mantissa · 10^-scale`. The mantissa is in two halves: state is aligned to 8 bytes instead
    /// of 16.
    Small { high: i64, low: u64, scale: u8 },
    /// `mantissa · 10^-30`.
    Wide(Box<I256>),
}

impl Default for ExactSum {
    fn default() -> Self {
        Self::Small {
            high: 0,
            low: 0,
            scale: 0,
        }
    }
}

impl ExactSum {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        self.add_parts(number.mantissa(), number.scale());
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        match other {
            Self::Small { high, low, scale } => {
                self.add_parts(join(*high, *low), u32::from(*scale));
            }
            Self::Wide(other) => self.add_wide(**other),
        }
    }

    #[inline]
    fn add_parts(&mut self, mantissa: i128, scale: u32) {
        if let Self::Small {
            high,
            low,
            scale: own_scale,
        } = self
        {
            let own = (join(*high, *low), u32::from(*own_scale));
            if let Some((sum, scale)) = add_small(own, (mantissa, scale)) {
                (*high, *low) = split(sum);
                *own_scale = scale as u8;
                return;
            }
        }
        self.add_wide(widen(mantissa, scale));
    }

    #[cold]
    fn add_wide(&mut self, number: I256) {
        match self {
            // The limits of numbers leave room for 2^60 of them.
            Self::Wide(sum) => **sum = sum.wrapping_add(number),
            Self::Small { high, low, scale } => {
                let own = widen(join(*high, *low), u32::from(*scale));
                *self = Self::Wide(Box::new(own.wrapping_add(number)));
            }
        }
    }

    /// Bytes that it holds beside itself.
    pub(crate) fn heap(&self) -> usize {
        match self {
            Self::Small { .. } => 0,
            Self::Wide(sum) => size_of_val(&**sum),
        }
    }

    /// Mantissa and scale, the scale as small as can be.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "a number is divided by ten while it has a scale"
    )]
    pub(crate) fn parts(&self) -> (I256, u32) {
        match self {
            Self::Small { high, low, scale } => {
                let (mut mantissa, mut scale) = (join(*high, *low), u32::from(*scale));
                while scale > 0 && mantissa % 10 == 0 {
                    mantissa /= 10;
                    scale -= 1;
                }
                (I256::from(mantissa), scale)
            }
            Self::Wide(sum) => {
                let (mut mantissa, mut scale) = (**sum, MAX_SCALE);
                while scale > 0 && mantissa % I256::new(10) == I256::ZERO {
                    mantissa /= I256::new(10);
                    scale -= 1;
                }
                (mantissa, scale)
            }
        }
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        let (mantissa, scale) = self.parts();
        let digits = mantissa.unsigned_abs().to_string();
        write_digits(mantissa.is_negative(), &digits, scale, out);
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        let (mantissa, scale) = self.parts();
        // A scale is at most 30; the mark of a wide sum is the next bits.
        let scale = scale as u8;
        match i128::try_from(mantissa) {
            Ok(mantissa) => {
                out.byte(scale);
                out.wide_signed(mantissa);
            }
            Err(_) => {
                out.byte(scale | WIDE);
                out.fixed(&mantissa.to_be_bytes());
            }
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let mark = input.byte()?;
        let scale = mark & !WIDE;
        if u32::from(scale) > MAX_SCALE {
            return Err(Fault::Damaged("a sum has too many digits"));
        }
        if mark & WIDE == 0 {
            let (high, low) = split(input.wide_signed()?);
            return Ok(Self::Small { high, low, scale });
        }
        let mantissa = I256::from_be_bytes(input.fixed::<32>()?);
        let factor = power_of_ten_wide(MAX_SCALE.saturating_sub(u32::from(scale)));
        let sum = mantissa
            .checked_mul(factor)
            .ok_or(Fault::Damaged("a sum is too large"))?;
        Ok(Self::Wide(Box::new(sum)))
    }
}

impl PartialEq for ExactSum {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

const WIDE: u8 = 0x80;

#[inline]
fn join(high: i64, low: u64) -> i128 {
    (i128::from(high) << 64) | i128::from(low)
}

#[inline]
fn split(mantissa: i128) -> (i64, u64) {
    ((mantissa >> 64) as i64, mantissa as u64)
}

/// At the larger of both scales; `None` if that takes more than 128 bits.
#[inline]
fn add_small(left: (i128, u32), right: (i128, u32)) -> Option<(i128, u32)> {
    if left.1 == right.1 {
        return Some((left.0.checked_add(right.0)?, left.1));
    }
    let (coarse, fine) = if left.1 < right.1 {
        (left, right)
    } else {
        (right, left)
    };
    let raised = coarse
        .0
        .checked_mul(power_of_ten(fine.1.saturating_sub(coarse.1)))?;
    Some((raised.checked_add(fine.0)?, fine.1))
}

/// The caller's numbers are sums in 128 bits of numbers below 10^28: this fits.
fn widen(mantissa: i128, scale: u32) -> I256 {
    I256::from(mantissa).wrapping_mul(power_of_ten_wide(MAX_SCALE.saturating_sub(scale)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sum_of(numbers: &[&str]) -> ExactSum {
        let mut sum = ExactSum::default();
        for number in numbers {
            sum.add(Decimal::parse(number.as_bytes()).unwrap());
        }
        sum
    }

    fn shown(sum: &ExactSum) -> String {
        let mut out = Vec::new();
        sum.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn bytes(sum: &ExactSum) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        sum.encode(&mut out);
        out.finish().unwrap();
        bytes
    }

    #[test]
    fn sums_are_exact() {
        for (numbers, expected) in [
            (&["9223372036854775807", "1"][..], "9223372036854775808"),
            (&["0.1", "0.2"], "0.3"),
            (&["1.25", "-0.25"], "1"),
            (
                &["9999999999999999999999999999", "1e-30"],
                "9999999999999999999999999999.000000000000000000000000000001",
            ),
            (
                &[
                    "9999999999999999999999999999",
                    "1e-30",
                    "-9999999999999999999999999999",
                ],
                "0.000000000000000000000000000001",
            ),
            (&["1e-30", "-1e-30"], "0"),
            (&[], "0"),
        ] {
            assert_eq!(shown(&sum_of(numbers)), expected, "{numbers:?}");
        }
    }

    #[test]
    fn neither_order_nor_grouping_shows_in_the_bytes() {
        let numbers = [
            "9999999999999999999999999999",
            "1e-30",
            "-5.5",
            "0.001",
            "123456789",
            "-1e-29",
        ];
        let whole = sum_of(&numbers);
        for cut in 0..=numbers.len() {
            let (left, right) = (sum_of(&numbers[..cut]), sum_of(&numbers[cut..]));
            for (into, from) in [(&left, &right), (&right, &left)] {
                let mut merged = into.clone();
                merged.merge(from);
                assert_eq!(bytes(&merged), bytes(&whole), "{cut}");
            }
        }
    }

    #[test]
    fn a_sum_comes_back_from_its_bytes() {
        for numbers in [
            &["-12.5"][..],
            &["9999999999999999999999999999", "1e-30"],
            &[],
        ] {
            let sum = sum_of(numbers);
            let restored = ExactSum::decode(&mut Reader::new(&mut &bytes(&sum)[..]));
            assert_eq!(restored.unwrap(), sum);
        }
    }

    #[test]
    fn the_largest_number_fits_two_to_the_sixty_times() {
        let mut sum = sum_of(&["9999999999999999999999999999.99999999", "1e-30", "-1e-30"]);
        for _ in 0..60 {
            let same = sum.clone();
            sum.merge(&same);
        }
        assert_eq!(
            shown(&sum),
            "11529215046068469759999999999999999988470784953.93153024"
        );
    }
}
