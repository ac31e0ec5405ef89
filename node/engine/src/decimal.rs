//! Exact decimal numbers, as JSON writes them.
//!
//! Limits: the magnitude is below 10^28, at most [`MAX_SCALE`] = 30 digits follow the decimal
//! point, and at most 36 significant digits are held (trailing zeros count for neither). What lies
//! outside is an error in a definition; in a record, what is too precise is rounded, and said so. The limits make the sum of 2^60 numbers fit into 256 bits
//! exactly: 10^28 · 10^30 · 2^60 < 2^255.

use std::cmp::Ordering;
use std::fmt;

use ethnum::I256;

mod arithmetic;
mod parse;

pub use parse::Prefix;

/// Most digits after the decimal point.
pub const MAX_SCALE: u32 = 30;
/// Most digits before the decimal point.
pub const MAX_INTEGER_DIGITS: u32 = 28;
/// Most significant digits.
pub const MAX_DIGITS: u32 = 36;

const SCALE_BITS: u32 = 5;

/// An exact decimal number: `mantissa · 10^-scale`.
///
/// Invariant: the scale is the least possible, so equal numbers are equal bits. Mantissa (123 bits)
/// and scale (5 bits) share 16 bytes, aligned to 8: batches hold a cell for each record and column.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    high: i64,
    low: u64,
}

/// Why a text is not a number that [`Decimal`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// Not a number in JSON's syntax.
    #[error("not a number")]
    Syntax,
    /// 10^28 or more.
    #[error("number too large: its magnitude must be below 10^28")]
    TooLarge,
    /// More digits than can be held exactly.
    #[error("number too precise: at most 30 digits after the point and 36 significant digits")]
    TooPrecise,
}

impl Decimal {
    /// The number 0.
    pub const ZERO: Self = Self { high: 0, low: 0 };

    /// Reads a number in JSON's syntax, exponents included: `-12.50e-1`.
    ///
    /// # Errors
    /// The text is no JSON number, or the number lies outside of the limits.
    #[inline]
    pub fn parse(text: &[u8]) -> Result<Self, NumberError> {
        match parse::short(text) {
            Some((mantissa, scale)) => Ok(Self::pack(i128::from(mantissa), scale)),
            None => parse::any(text),
        }
    }

    /// A whole number.
    #[must_use]
    pub fn from_i64(value: i64) -> Self {
        Self::pack(i128::from(value), 0)
    }

    /// The number with the other sign.
    pub(crate) fn negated(self) -> Self {
        Self::pack(self.mantissa().saturating_neg(), self.scale())
    }

    /// `mantissa · 10^-scale`, where that lies within the limits.
    ///
    /// # Errors
    /// The number lies outside of the limits.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "a number is divided by ten while it has a scale; 39 digits at most"
    )]
    pub fn from_parts(mantissa: i128, scale: u32) -> Result<Self, NumberError> {
        let (mut mantissa, mut scale) = (mantissa, scale);
        if mantissa == 0 {
            return Ok(Self::ZERO);
        }
        while scale > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            scale -= 1;
        }
        let digits = mantissa.unsigned_abs().ilog10() + 1;
        if digits.saturating_sub(scale) > MAX_INTEGER_DIGITS {
            return Err(NumberError::TooLarge);
        }
        if scale > MAX_SCALE || digits > MAX_DIGITS {
            return Err(NumberError::TooPrecise);
        }
        Ok(Self::pack(mantissa, scale))
    }

    /// The caller keeps the limits: 36 digits are less than 2^122, and 30 less than 2^5.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    fn pack(mantissa: i128, scale: u32) -> Self {
        let packed = (mantissa << SCALE_BITS) | i128::from(scale);
        Self {
            high: (packed >> 64) as i64,
            low: packed as u64,
        }
    }

    /// The digits: the number times `10^scale`.
    #[must_use]
    #[inline]
    pub fn mantissa(self) -> i128 {
        ((i128::from(self.high) << 64) | i128::from(self.low)) >> SCALE_BITS
    }

    /// How many digits follow the decimal point.
    #[must_use]
    #[inline]
    pub fn scale(self) -> u32 {
        // Masked to five bits.
        (self.low & 31) as u32
    }

    /// The number as a text, appended to `out`: all digits, no exponent.
    pub fn write_to(self, out: &mut Vec<u8>) {
        let mantissa = self.mantissa();
        let magnitude = mantissa.unsigned_abs();
        match u64::try_from(magnitude) {
            Ok(small) => write_digits(mantissa < 0, &small.to_string(), self.scale(), out),
            Err(_) => write_digits(mantissa < 0, &magnitude.to_string(), self.scale(), out),
        }
    }
}

/// Appends `digits · 10^-scale` as a plain number; the caller has trimmed trailing zeros.
pub(crate) fn write_digits(negative: bool, digits: &str, scale: u32, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    let scale = scale as usize;
    let digits = digits.as_bytes();
    if digits.len() > scale {
        let (integer, fraction) = digits.split_at(digits.len().saturating_sub(scale));
        out.extend_from_slice(integer);
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        out.extend_from_slice(b"0.");
        let zeros = scale.saturating_sub(digits.len());
        out.extend(std::iter::repeat_n(b'0', zeros));
        out.extend_from_slice(digits);
    }
}

/// `10^exponent`; the caller keeps the exponent at or below 76, the largest that 256 bits hold.
pub(crate) fn power_of_ten_wide(exponent: u32) -> I256 {
    I256::new(10).pow(exponent)
}

/// `10^exponent`; the caller keeps the exponent at or below 38, the largest that 128 bits hold.
#[inline]
pub(crate) fn power_of_ten(exponent: u32) -> i128 {
    const POWERS: [i128; 39] = {
        let mut powers = [1; 39];
        let mut at = 1;
        while at < powers.len() {
            powers[at] = powers[at - 1] * 10;
            at += 1;
        }
        powers
    };
    POWERS[exponent as usize]
}

impl Ord for Decimal {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right) = (self.mantissa(), other.mantissa());
        let (left_scale, right_scale) = (self.scale(), other.scale());
        if left_scale == right_scale {
            return left.cmp(&right);
        }
        let common = left_scale.max(right_scale);
        let left_factor = power_of_ten(common.saturating_sub(left_scale));
        let right_factor = power_of_ten(common.saturating_sub(right_scale));
        match (
            left.checked_mul(left_factor),
            right.checked_mul(right_factor),
        ) {
            (Some(left), Some(right)) => left.cmp(&right),
            // At most 36 digits times 10^30: 256 bits hold that.
            _ => {
                let left = I256::from(left).wrapping_mul(I256::from(left_factor));
                left.cmp(&I256::from(right).wrapping_mul(I256::from(right_factor)))
            }
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self::from_i64(value)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(40);
        self.write_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Decimal::parse(text.as_bytes()) {
            Ok(number) => number.to_string(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn a_number_is_shown_plainly_with_all_its_digits() {
        for (text, expected) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("0e999", "0"),
            ("12.50", "12.5"),
            ("-0.063", "-0.063"),
            ("100", "100"),
            ("1.2e3", "1200"),
            ("1200e-2", "12"),
            ("-12.50e-1", "-1.25"),
            ("1E+2", "100"),
            ("0.000", "0"),
            ("5e-30", "0.000000000000000000000000000005"),
            ("327267327867168100000", "327267327867168100000"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            (
                "9999999999999999999999999999",
                "9999999999999999999999999999",
            ),
            (
                "123456789012345678.123456789012345678",
                "123456789012345678.123456789012345678",
            ),
            ("1.0000000000000000000000000000000000000000000000", "1"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_held_exactly_is_an_error() {
        for (text, expected) in [
            ("1e999", "TooLarge"),
            ("1e99999999999999999999", "TooLarge"),
            ("1e28", "TooLarge"),
            ("1e-31", "TooPrecise"),
            ("1e-99999999999999999999", "TooPrecise"),
            ("1234567890123456789.123456789012345678", "TooPrecise"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_json_does_not_call_a_number_is_none() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "1.e2",
            "NaN",
            "1 ",
            " 1",
            "1x",
            "--1",
            "0x1",
            "1.2.3",
            "-Infinity",
            "1e1.5",
        ] {
            assert_eq!(shown(text), "Syntax", "{text}");
        }
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let ordered = [
            "-9999999999999999999999999999",
            "-1.5",
            "-1",
            "-0.5",
            "0",
            "1e-30",
            "0.1",
            "0.25",
            "1",
            "1.0000001",
            "2",
            "10",
            "9999999999999999999999999999",
        ];
        for (left_at, left) in ordered.iter().enumerate() {
            for (right_at, right) in ordered.iter().enumerate() {
                let left = Decimal::parse(left.as_bytes()).unwrap();
                let right = Decimal::parse(right.as_bytes()).unwrap();
                assert_eq!(left.cmp(&right), left_at.cmp(&right_at), "{left} {right}");
            }
        }
    }

    #[test]
    fn the_fast_and_the_general_way_agree() {
        for text in [
            "0",
            "-0",
            "7",
            "-7.10",
            "0.001",
            "123456789.000001",
            "-100.0",
            "10",
        ] {
            let (mantissa, scale) = parse::short(text.as_bytes()).unwrap();
            let fast = Decimal::pack(i128::from(mantissa), scale);
            assert_eq!(parse::any(text.as_bytes()), Ok(fast), "{text}");
        }
    }

    #[test]
    fn neighbouring_large_ids_stay_distinct() {
        assert_ne!(shown("2882429806056571124"), shown("2882429806056571125"));
        assert_eq!(shown("2882429806056571125"), "2882429806056571125");
    }

    #[test]
    fn a_decimal_is_sixteen_bytes() {
        assert_eq!(size_of::<Decimal>(), 16);
    }
}
