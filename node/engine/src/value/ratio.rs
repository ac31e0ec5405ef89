//! Quotients and square roots of quotients as decimals, rounded once: whole numbers alone, so that
//! they are the same on every machine.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "numbers that grow as needed; exponents are those of numbers below 10^200"
)]

use std::cmp::Ordering;

use num_bigint::BigUint;

use super::avg::AVERAGE_DIGITS;
use crate::decimal::write_digits;

/// Appends `numerator / denominator · 10^-scale` with [`AVERAGE_DIGITS`] significant digits, half
/// rounded to the even one. The denominator is not 0.
pub(crate) fn write_quotient(
    negative: bool,
    numerator: &BigUint,
    denominator: &BigUint,
    scale: i64,
    out: &mut Vec<u8>,
) {
    if numerator.bits() == 0 {
        out.push(b'0');
        return;
    }
    let mut more = i64::from(AVERAGE_DIGITS) - digits(numerator) + digits(denominator);
    let (quotient, rest, divisor) = loop {
        let (numerator, denominator) = shifted(numerator, denominator, more);
        let quotient = &numerator / &denominator;
        if digits(&quotient) <= i64::from(AVERAGE_DIGITS) {
            let rest = numerator - &quotient * &denominator;
            break (quotient, rest, denominator);
        }
        more -= 1;
    };
    let rounds_up = match (rest * 2_u32).cmp(&divisor) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => quotient.bit(0),
    };
    let quotient = quotient + u32::from(rounds_up);
    write_scaled(negative, quotient.to_string(), scale + more, out);
}

/// Appends the square root of `numerator / denominator`, times `10^-scale`, in the same way.
pub(crate) fn write_root(
    numerator: &BigUint,
    denominator: &BigUint,
    scale: i64,
    out: &mut Vec<u8>,
) {
    if numerator.bits() == 0 {
        out.push(b'0');
        return;
    }
    // The root of a number with 39 or 40 digits has 20.
    let wanted = i64::from(AVERAGE_DIGITS);
    let mut more = (2 * wanted - digits(numerator) + digits(denominator)).div_euclid(2) + 1;
    let (root, numerator, denominator) = loop {
        let (numerator, denominator) = shifted(numerator, denominator, 2 * more);
        let root = (&numerator / &denominator).sqrt();
        if digits(&root) <= wanted {
            break (root, numerator, denominator);
        }
        more -= 1;
    };
    // Is it more than the half between the root and the next one? (2·root + 1)² against 4 times it.
    let middle = &root * 2_u32 + 1_u32;
    let middle = &middle * &middle * denominator;
    let rounds_up = match (numerator * 4_u32).cmp(&middle) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => root.bit(0),
    };
    let root = root + u32::from(rounds_up);
    write_scaled(false, root.to_string(), scale + more, out);
}

/// Both, so that the quotient is `10^more` times as large.
fn shifted(numerator: &BigUint, denominator: &BigUint, more: i64) -> (BigUint, BigUint) {
    let factor = ten_to(more.unsigned_abs());
    if more >= 0 {
        (numerator * factor, denominator.clone())
    } else {
        (numerator.clone(), denominator * factor)
    }
}

pub(crate) fn ten_to(exponent: u64) -> BigUint {
    BigUint::from(10_u32).pow(u32::try_from(exponent).unwrap_or(u32::MAX))
}

fn digits(number: &BigUint) -> i64 {
    i64::try_from(number.to_string().len()).unwrap_or(i64::MAX)
}

/// Appends a number, given by its digits, times `10^-scale`, without zeros that say nothing. It is not 0.
pub(super) fn write_scaled(negative: bool, mut text: String, mut scale: i64, out: &mut Vec<u8>) {
    while scale > 0 && text.ends_with('0') {
        text.pop();
        scale -= 1;
    }
    while scale < 0 {
        text.push('0');
        scale += 1;
    }
    write_digits(
        negative,
        &text,
        u32::try_from(scale).unwrap_or_default(),
        out,
    );
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn quotient(numerator: u128, denominator: u128, scale: i64) -> String {
        let mut out = Vec::new();
        let (numerator, denominator) = (numerator.into(), denominator.into());
        write_quotient(false, &numerator, &denominator, scale, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn root(numerator: u128, denominator: u128, scale: i64) -> String {
        let mut out = Vec::new();
        write_root(&numerator.into(), &denominator.into(), scale, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn quotients_have_twenty_digits_half_rounded_to_even() {
        for (numerator, denominator, scale, expected) in [
            (1, 3, 0, "0.33333333333333333333"),
            (2, 3, 2, "0.0066666666666666666667"),
            (15, 10, 1, "0.15"),
            (100, 1, 0, "100"),
            (0, 7, 3, "0"),
            (200_000_000_000_000_000_001, 2, 0, "100000000000000000000"),
            (200_000_000_000_000_000_003, 2, 0, "100000000000000000000"),
            (100_000_000_000_000_000_015, 1, 0, "100000000000000000020"),
            (999_999_999_999_999_999_999, 1, 1, "100000000000000000000"),
        ] {
            assert_eq!(quotient(numerator, denominator, scale), expected);
        }
    }

    #[test]
    fn roots_have_twenty_digits() {
        // sqrt 2 = 1.41421356237309504880168..., sqrt 3 = 1.73205080756887729352744...
        for (numerator, denominator, scale, expected) in [
            (2, 1, 0, "1.4142135623730950488"),
            (3, 1, 0, "1.7320508075688772935"),
            (1, 2, 0, "0.7071067811865475244"),
            (20, 1, 0, "4.4721359549995793928"),
            (4, 1, 0, "2"),
            (4, 9, 0, "0.66666666666666666667"),
            (10_000, 1, 2, "1"),
            (0, 1, 0, "0"),
        ] {
            assert_eq!(root(numerator, denominator, scale), expected);
        }
        assert_eq!(root(10_u128.pow(38), 1, 0), "10000000000000000000");
        assert_eq!(root(10_u128.pow(36) * 2, 1, 0), "1414213562373095048.8");
    }
}
