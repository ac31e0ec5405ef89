//! From a number to its bin and back: the cubic mapping of DDSketch (Masson, Rim and Lee, "DDSketch:
//! a fast and fully-mergeable quantile sketch with relative-error guarantees", 2019), by whole numbers
//! alone, which are the same on every machine.
//!
//! A magnitude is `2^e · (1 + s)` with `0 <= s < 1`. Its bin is `35 e + floor(6 s³ - 21 s² + 50 s)`: the
//! cubic stands for a logarithm, and grows by 50 or more while the magnitude grows e-fold. So a bin's ends are
//! at most e^0.02 apart, and what lies between is within tanh(0.01) < 1 % of `2 l u / (l + u)`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "bits of numbers whose limits are those of decimals; tests take the least and the largest"
)]

use crate::decimal::{Decimal, MAX_SCALE};

/// Bins of an octave.
const PER_OCTAVE: i32 = 35;
/// 10^-30 is in the octave of 2^-100.
const LEAST_OCTAVE: i32 = -100;
/// 10^28 is in the octave of 2^93.
const LARGEST_OCTAVE: i32 = 93;
/// Bins of one sign.
const BINS: i32 = (LARGEST_OCTAVE - LEAST_OCTAVE + 1) * PER_OCTAVE;
/// The bin of 0; below it those of negative numbers, the largest magnitude first.
pub(super) const ZERO: u16 = BINS as u16;
/// Bins in all, in the order of their numbers.
pub(super) const ALL_BINS: usize = 2 * BINS as usize + 1;

/// Significant digits of what a bin stands for.
const DIGITS: u32 = 6;

/// The bin of a number.
#[inline]
pub(super) fn bin(number: Decimal) -> u16 {
    let mantissa = number.mantissa();
    if mantissa == 0 {
        return ZERO;
    }
    let (octave, fraction) = octave(mantissa.unsigned_abs(), number.scale());
    let octave = octave.clamp(LEAST_OCTAVE, LARGEST_OCTAVE) - LEAST_OCTAVE;
    let magnitude = octave * PER_OCTAVE + step(fraction) + 1;
    let signed = if mantissa < 0 { -magnitude } else { magnitude };
    (i32::from(ZERO) + signed) as u16
}

/// `e` and the 64 leading bits of `s`, of `mantissa · 10^-scale`, which is not 0.
#[inline]
fn octave(mantissa: u128, scale: u32) -> (i32, u64) {
    let zeros = mantissa.leading_zeros();
    let leading = (mantissa << zeros >> 64) as u64;
    let (reciprocal, exponent) = RECIPROCALS[scale as usize];
    let product = u128::from(leading) * u128::from(reciprocal);
    let more = product.leading_zeros();
    let fraction = (product << more << 1 >> 64) as u64;
    // The product's highest bit stands for 2^127, the leading bits for 2^(64 - zeros).
    let octave = 127 + 64 - zeros as i32 + exponent - more as i32;
    (octave, fraction)
}

/// `floor(6 s³ - 21 s² + 50 s)`, 0 to 34.
#[inline]
const fn step(fraction: u64) -> i32 {
    let one = fraction as u128;
    let two = (one * one) >> 64;
    let three = (two * one) >> 64;
    let sum = 6 * three + 50 * one - 21 * two;
    let step = (sum >> 64) as i32;
    if step < PER_OCTAVE {
        step
    } else {
        PER_OCTAVE - 1
    }
}

/// `10^-scale` as 64 bits, the highest of them set, times a power of two; cut, not rounded.
const RECIPROCALS: [(u64, i32); MAX_SCALE as usize + 1] = {
    let mut reciprocals = [(0, 0); MAX_SCALE as usize + 1];
    let mut scale = 0;
    while scale < reciprocals.len() {
        let divisor = 10_u128.pow(scale as u32);
        let (mut bits, mut rest, mut exponent) = (0_u64, 1_u128, 0);
        if divisor == 1 {
            (bits, rest) = (1, 0);
        }
        while bits < 1 << 63 {
            bits <<= 1;
            rest <<= 1;
            exponent -= 1;
            if rest >= divisor {
                rest -= divisor;
                bits |= 1;
            }
        }
        reciprocals[scale] = (bits, exponent);
        scale += 1;
    }
    reciprocals
};

/// Where each step begins, as `1 + s` times 2^62; and the end of the last.
const BEGINS: [u64; PER_OCTAVE as usize + 1] = {
    let mut begins = [1 << 62; PER_OCTAVE as usize + 1];
    let mut at = 1;
    while at < begins.len() - 1 {
        // The least fraction of the step, by halving.
        let (mut below, mut at_least) = (0, u64::MAX);
        while below + 1 < at_least {
            let middle = below + (at_least - below) / 2;
            if step(middle) < at as i32 {
                below = middle;
            } else {
                at_least = middle;
            }
        }
        begins[at] += at_least >> 2;
        at += 1;
    }
    begins[at] = 1 << 63;
    begins
};

/// `2^e` as up to 19 digits times a power of ten, for each octave; cut, not rounded.
const OCTAVES: [(u64, i32); (LARGEST_OCTAVE - LEAST_OCTAVE + 1) as usize] = {
    let mut octaves = [(0, 0); (LARGEST_OCTAVE - LEAST_OCTAVE + 1) as usize];
    let mut at = 0;
    while at < octaves.len() {
        // 37 digits, while halving or doubling; then the leading 18 or 19.
        let (mut digits, mut exponent) = (10_u128.pow(36), -36);
        let mut octave = at as i32 + LEAST_OCTAVE;
        while octave != 0 {
            if octave > 0 {
                digits *= 2;
                octave -= 1;
            } else {
                digits /= 2;
                octave += 1;
            }
            if digits >= 10_u128.pow(37) {
                digits /= 10;
                exponent += 1;
            }
            if digits < 10_u128.pow(36) {
                digits *= 10;
                exponent -= 1;
            }
        }
        octaves[at] = ((digits / 10_u128.pow(18)) as u64, exponent + 18);
        at += 1;
    }
    octaves
};

/// What a bin stands for: a sign, six digits, and a power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Middle {
    pub(super) digits: i64,
    pub(super) exponent: i32,
}

/// The number that is within one percent of all in the bin.
pub(super) fn middle(bin: u16) -> Middle {
    let signed = i32::from(bin) - i32::from(ZERO);
    if signed == 0 {
        return Middle {
            digits: 0,
            exponent: 0,
        };
    }
    let magnitude = (signed.abs() - 1).min(BINS - 1);
    let (octave, step) = (magnitude / PER_OCTAVE, (magnitude % PER_OCTAVE) as usize);
    let (lower, upper) = (u128::from(BEGINS[step]), u128::from(BEGINS[step + 1]));
    let ratio = 2 * lower * upper / (lower + upper);
    let (digits, mut exponent) = OCTAVES[octave as usize];
    let mut digits = (ratio * u128::from(digits)) >> 62;
    let mut unit = 1;
    while digits / unit >= 10_u128.pow(DIGITS) {
        unit *= 10;
        exponent += 1;
    }
    digits = (digits + unit / 2) / unit;
    Middle {
        digits: digits as i64 * i64::from(signed.signum()),
        exponent,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::number;
    use super::*;

    fn approximate(middle: Middle) -> f64 {
        format!("{}e{}", middle.digits, middle.exponent)
            .parse()
            .unwrap_or(f64::NAN)
    }

    #[track_caller]
    fn check(text: &str) {
        let middle = approximate(middle(bin(number(text))));
        let exact: f64 = text.parse().unwrap_or(f64::NAN);
        let error = (middle / exact - 1.0).abs();
        assert!(error <= 0.010_000_5, "{text}: {middle} is off by {error}");
    }

    #[test]
    fn a_bin_stands_within_a_percent_of_each_of_its_numbers() {
        for exponent in -30..28 {
            for digits in [1, 2, 3, 5, 7, 9] {
                check(&format!("{digits}e{exponent}"));
                check(&format!("-{digits}e{exponent}"));
            }
        }
        for step in 0..20_000_i64 {
            check(&format!("{}", 1_000_000 + step * 733));
            check(&format!("0.{:012}", 1_000_000 + step * 733_733));
        }
        for power in 0..93 {
            let octave = 1_i128 << power;
            [octave - 1, octave, octave + 1]
                .iter()
                .filter(|number| **number > 0)
                .for_each(|number| check(&number.to_string()));
        }
        check("9999999999999999999999999999.99999999");
    }

    #[test]
    fn bins_grow_with_numbers() {
        let mut last = bin(number("-9999999999999999999999999999"));
        assert_eq!(bin(number("0")), ZERO);
        for exponent in (-30..28).rev() {
            let next = bin(number(&format!("-1e{exponent}")));
            assert!(next > last, "{exponent}");
            last = next;
        }
        assert!(last < ZERO);
        last = ZERO;
        for exponent in -30..28 {
            for digits in 1..10 {
                let next = bin(number(&format!("{digits}e{exponent}")));
                assert!(next > last, "{digits}e{exponent}");
                last = next;
            }
        }
        assert!(usize::from(last) < ALL_BINS);
    }

    /// An independent way: the cubic of the exact fraction in floats, far from where it could round.
    #[test]
    fn bins_are_those_of_the_cubic() {
        for whole in 1..20_000_u32 {
            let number = f64::from(whole) * 1.37;
            let octave = number.log2().floor();
            let s = number / octave.exp2() - 1.0;
            let cubic = 6.0 * s * s * s - 21.0 * s * s + 50.0 * s;
            if (cubic - cubic.round()).abs() < 1e-9 {
                continue;
            }
            let expected = 35.0 * (octave + 100.0) + cubic.floor() + 1.0;
            let text = format!(
                "{}.{:02}",
                u64::from(whole) * 137 / 100,
                u64::from(whole) * 137 % 100
            );
            let found = bin(super::super::super::testing::number(&text)) - ZERO;
            assert_eq!(f64::from(found), expected, "{text}");
        }
    }
}
