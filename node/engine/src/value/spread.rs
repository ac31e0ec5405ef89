//! `variance(field)`, `stddev(field)` and the like: from the exact count, sum and sum of squares,
//! rounded once, when the row is written. No float, so five equal numbers have a variance of 0
//! however large they are.

use num_bigint::BigUint;

use super::exact::ExactSum;
use super::ratio::{ten_to, write_quotient, write_root};
use super::{NULL, State, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Fault, Reader, Writer};
use crate::spec;

mod squares;

use squares::Squares;

/// Count, sum and sum of squares of all numbers seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    numbers: u64,
    sum: ExactSum,
    squares: Squares,
}

impl Spread {
    #[inline]
    pub(crate) fn add(&mut self, number: Decimal) {
        self.numbers = self.numbers.saturating_add(1);
        self.sum.add(number);
        self.squares.add(number);
    }

    /// The sum of squared distances from the average, times the count, as a number and its scale:
    /// `count · squares - sum²`.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "numbers that grow as needed, and scales of at most 60"
    )]
    fn distances(&self) -> (BigUint, i64) {
        let (sum, scale) = self.sum.parts();
        let sum = BigUint::from_bytes_be(&sum.unsigned_abs().to_be_bytes());
        let (squares, squares_scale) = self.squares.parts();
        let common = squares_scale.max(2 * scale);
        let squares = squares * self.numbers * ten_to(u64::from(common - squares_scale));
        let square = &sum * &sum * ten_to(u64::from(common - 2 * scale));
        // Never below 0, but for a damaged state.
        let distances = if squares > square {
            squares - square
        } else {
            BigUint::ZERO
        };
        (distances, i64::from(common))
    }
}

impl State for Spread {
    type How = spec::Spread;

    fn merge(&mut self, other: &Self) {
        self.numbers = self.numbers.saturating_add(other.numbers);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    fn write_to(&self, how: &spec::Spread, _: WindowLength, out: &mut Vec<u8>) {
        use spec::Spread::{Deviation, PopulationDeviation, PopulationVariance, Variance};
        let divisor = match how {
            Variance | Deviation => self.numbers.saturating_sub(1),
            PopulationVariance | PopulationDeviation => self.numbers,
        };
        if divisor == 0 {
            out.extend_from_slice(NULL);
            return;
        }
        let (distances, scale) = self.distances();
        #[allow(clippy::arithmetic_side_effects, reason = "it grows as needed")]
        let divisor = BigUint::from(self.numbers) * divisor;
        match how {
            Variance | PopulationVariance => {
                write_quotient(false, &distances, &divisor, scale, out);
            }
            Deviation | PopulationDeviation => {
                // The root halves the scale: make it even.
                let odd = scale.rem_euclid(2);
                #[allow(clippy::arithmetic_side_effects, reason = "it grows as needed")]
                let distances = distances * ten_to(odd.unsigned_abs());
                let half = scale.saturating_add(odd).div_euclid(2);
                write_root(&distances, &divisor, half, out);
            }
        }
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.unsigned(self.numbers);
        if self.numbers > 0 {
            self.sum.encode(out);
            self.squares.encode(out);
        }
    }

    fn decode(_: &spec::Spread, input: &mut Reader<'_>) -> Result<Self, Fault> {
        let numbers = input.unsigned()?;
        if numbers == 0 {
            return Ok(Self::default());
        }
        Ok(Self {
            numbers,
            sum: ExactSum::decode(input)?,
            squares: Squares::decode(input)?,
        })
    }

    fn heap(&self) -> usize {
        self.sum.heap().saturating_add(self.squares.heap())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{bytes, check_laws, number, shown, state};
    use super::*;
    use crate::spec::Spread::{Deviation, PopulationDeviation, PopulationVariance, Variance};

    fn spread(texts: &[&str]) -> Spread {
        state(texts, |spread: &mut Spread, text| spread.add(number(text)))
    }

    #[test]
    fn spreads_are_those_worked_out_by_hand() {
        let large = ["1783468800000"; 5];
        let near = ["999999999999", "1000000000000", "1000000000001"];
        let classic = ["2", "4", "4", "4", "5", "5", "7", "9"];
        for (numbers, how, expected) in [
            (&[][..], Variance, "null"),
            (&[], PopulationDeviation, "null"),
            (&["7.5"], Variance, "null"),
            (&["7.5"], PopulationVariance, "0"),
            (&large, Deviation, "0"),
            (&near, Deviation, "1"),
            (&near, PopulationVariance, "0.66666666666666666667"),
            (&classic, PopulationDeviation, "2"),
            (&classic, PopulationVariance, "4"),
            // 32 / 7, and its root: 2.13808993529939517...
            (&classic, Variance, "4.5714285714285714286"),
            (&classic, Deviation, "2.1380899352993950775"),
            // Distance 0.1 from the average, twice; by one, and by two.
            (&["0.1", "0.3"], Variance, "0.02"),
            (&["0.1", "0.3"], PopulationDeviation, "0.1"),
            (
                &["1e-30", "-1e-30"],
                PopulationDeviation,
                "0.000000000000000000000000000001",
            ),
            (
                &[
                    "9999999999999999999999999999",
                    "-9999999999999999999999999999",
                ],
                PopulationDeviation,
                "10000000000000000000000000000",
            ),
            (
                &[
                    "1000000000000000000000000000",
                    "-1000000000000000000000000000",
                    "1e-30",
                ],
                PopulationVariance,
                "666666666666666666670000000000000000000000000000000000",
            ),
        ] {
            assert_eq!(
                shown(&spread(numbers), &how),
                expected,
                "{numbers:?} {how:?}"
            );
        }
    }

    #[test]
    fn neither_order_nor_grouping_shows() {
        let numbers = [
            "9999999999999999999999999999",
            "1e-30",
            "-5.5",
            "0.001",
            "123456789",
            "-1e-29",
            "12345678901234567890.5",
        ];
        check_laws(&numbers, &Deviation, |spread: &mut Spread, text| {
            spread.add(number(text))
        });
        check_laws(
            &["1.5", "2.25", "-3"],
            &Variance,
            |spread: &mut Spread, text| {
                spread.add(number(text));
            },
        );
    }

    #[test]
    fn squares_of_the_largest_number_fit_two_to_the_sixty_times() {
        let mut spread = spread(&["9999999999999999999999999999.99999999", "1e-30"]);
        for _ in 0..60 {
            let same = spread.clone();
            spread.merge(&same);
        }
        // Half of the numbers are nearly 0, half nearly 10^28.
        assert_eq!(
            shown(&spread, &PopulationDeviation),
            "5000000000000000000000000000"
        );
        assert!(bytes(&spread).len() < 200);
    }
}
