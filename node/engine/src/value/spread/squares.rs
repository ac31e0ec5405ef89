//! A sum of squares that never rounds: 128 bits as long as that suffices, then 512.
//!
//! A number is below 10^28 with 30 digits after the point, its square below 10^56 with 60 of them:
//! 10^116, less than 2^386. 2^60 squares take less than 2^446.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "limbs of a number in 512 bits, whose bound is above; scales of at most 60"
)]

use num_bigint::BigUint;

use super::ten_to;
use crate::decimal::{Decimal, MAX_SCALE};
use crate::part::codec::{Fault, Reader, Writer};

const LIMBS: usize = 8;
/// The scale of wide sums.
const WIDE_SCALE: u32 = 2 * MAX_SCALE;
const WIDE: u8 = 0x80;

/// The exact sum of squares.
#[derive(Clone, Debug)]
pub(super) enum Squares {
    /// `mantissa · 10^-scale`. In two halves: state is aligned to 8 bytes instead of 16.
    Small { high: u64, low: u64, scale: u8 },
    /// `limbs · 10^-60`, the least first.
    Wide(Box<[u64; LIMBS]>),
}

impl Default for Squares {
    fn default() -> Self {
        Self::small(0, 0)
    }
}

impl PartialEq for Squares {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Squares {
    fn small(mantissa: u128, scale: u32) -> Self {
        Self::Small {
            high: (mantissa >> 64) as u64,
            low: mantissa as u64,
            scale: scale as u8,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, number: Decimal) {
        let (mantissa, scale) = (number.mantissa().unsigned_abs(), 2 * number.scale());
        match mantissa.checked_mul(mantissa) {
            Some(square) => self.add_parts(square, scale),
            None => self.add_wide(&wide(square(mantissa), scale)),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        match other {
            Self::Small { high, low, scale } => {
                self.add_parts(join(*high, *low), u32::from(*scale));
            }
            Self::Wide(other) => self.add_wide(other),
        }
    }

    #[inline]
    fn add_parts(&mut self, square: u128, scale: u32) {
        if let Self::Small {
            high,
            low,
            scale: own_scale,
        } = self
        {
            let own = (join(*high, *low), u32::from(*own_scale));
            if let Some((sum, scale)) = add_small(own, (square, scale)) {
                *self = Self::small(sum, scale);
                return;
            }
        }
        self.add_wide(&wide(limbs(square), scale));
    }

    #[cold]
    fn add_wide(&mut self, other: &[u64; LIMBS]) {
        if let Self::Small { high, low, scale } = self {
            let own = wide(limbs(join(*high, *low)), u32::from(*scale));
            *self = Self::Wide(Box::new(own));
        }
        let Self::Wide(sum) = self else { return };
        let mut carry = false;
        for (limb, other) in sum.iter_mut().zip(other) {
            let (sum, first) = limb.overflowing_add(*other);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = first || second;
        }
    }

    /// The number and its scale, which is as small as can be.
    pub(super) fn parts(&self) -> (BigUint, u32) {
        let (mut number, mut scale) = match self {
            Self::Small { high, low, scale } => {
                (BigUint::from(join(*high, *low)), u32::from(*scale))
            }
            Self::Wide(limbs) => {
                let bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
                (BigUint::from_bytes_le(&bytes), WIDE_SCALE)
            }
        };
        // Large steps first: a wide number is divided few times.
        for step in [32, 16, 8, 4, 2, 1] {
            let unit = ten_to(u64::from(step));
            if scale >= step && number.bits() > 0 && (&number % &unit).bits() == 0 {
                number /= unit;
                scale -= step;
            }
        }
        (
            number,
            if scale > 0 && self.is_zero() {
                0
            } else {
                scale
            },
        )
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Small { high, low, .. } => (*high, *low) == (0, 0),
            Self::Wide(limbs) => limbs.iter().all(|limb| *limb == 0),
        }
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        let (number, scale) = self.parts();
        // A scale is at most 60; the mark of a wide sum is the next bit.
        let scale = scale as u8;
        match u128::try_from(&number) {
            Ok(small) => {
                out.byte(scale);
                out.wide_unsigned(small);
            }
            Err(_) => {
                out.byte(scale | WIDE);
                out.slice(&number.to_bytes_le());
            }
        }
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let mark = input.byte()?;
        let scale = u32::from(mark & !WIDE);
        if scale > WIDE_SCALE {
            return Err(Fault::Damaged("a sum of squares has too many digits"));
        }
        if mark & WIDE == 0 {
            return Ok(Self::small(input.wide_unsigned()?, scale));
        }
        let bytes = input.slice()?;
        let too_large = Fault::Damaged("a sum of squares is too large");
        if bytes.len() > LIMBS * 8 {
            return Err(too_large);
        }
        let number = BigUint::from_bytes_le(bytes) * ten_to(u64::from(WIDE_SCALE - scale));
        let mut limbs = [0; LIMBS];
        let digits = number.iter_u64_digits();
        if digits.len() > LIMBS {
            return Err(too_large);
        }
        limbs
            .iter_mut()
            .zip(digits)
            .for_each(|(limb, digit)| *limb = digit);
        Ok(Self::Wide(Box::new(limbs)))
    }

    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Small { .. } => 0,
            Self::Wide(limbs) => size_of_val(&**limbs),
        }
    }
}

#[inline]
fn join(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// At the larger of both scales; `None` if that takes more than 128 bits.
#[inline]
fn add_small(left: (u128, u32), right: (u128, u32)) -> Option<(u128, u32)> {
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
        .checked_mul(10_u128.checked_pow(fine.1 - coarse.1)?)?;
    Some((raised.checked_add(fine.0)?, fine.1))
}

fn limbs(number: u128) -> [u64; LIMBS] {
    let mut limbs = [0; LIMBS];
    (limbs[0], limbs[1]) = (number as u64, (number >> 64) as u64);
    limbs
}

/// The square of a number of at most 128 bits.
fn square(number: u128) -> [u64; LIMBS] {
    let factors = [number as u64, (number >> 64) as u64];
    let mut square = [0; LIMBS];
    for (at, left) in factors.iter().enumerate() {
        let mut carry = 0;
        for (next, right) in factors.iter().enumerate() {
            let sum =
                u128::from(*left) * u128::from(*right) + carry + u128::from(square[at + next]);
            square[at + next] = sum as u64;
            carry = sum >> 64;
        }
        square[at + 2] = carry as u64;
    }
    square
}

/// The number at the scale of wide sums.
fn wide(mut limbs: [u64; LIMBS], scale: u32) -> [u64; LIMBS] {
    let mut missing = WIDE_SCALE - scale;
    while missing > 0 {
        let step = missing.min(19);
        let factor = 10_u64.pow(step);
        let mut carry = 0;
        for limb in &mut limbs {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        missing -= step;
    }
    limbs
}
