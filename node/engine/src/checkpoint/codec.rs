//! The bytes of a checkpoint: whole numbers in groups of seven bits, texts with their length before
//! them.
//!
//! Reading trusts nothing: a checkpoint may come from a disk or a peer, and a fault in it is an
//! error, never a panic.

use crate::spec::Timestamp;

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) &'static str);

const TRUNCATED: Fault = Fault("it ends too early");

/// Appends values to a checkpoint.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn unsigned(&mut self, value: u64) {
        self.wide_unsigned(u128::from(value));
    }

    pub(crate) fn signed(&mut self, value: i64) {
        self.wide_signed(i128::from(value));
    }

    /// Small magnitudes of both signs take few bytes.
    pub(crate) fn wide_signed(&mut self, value: i128) {
        self.wide_unsigned(((value << 1) ^ (value >> 127)).cast_unsigned());
    }

    fn wide_unsigned(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub(crate) fn length(&mut self, value: usize) {
        self.wide_unsigned(value as u128);
    }

    pub(crate) fn slice(&mut self, value: &[u8]) {
        self.length(value.len());
        self.bytes.extend_from_slice(value);
    }

    /// Without a length: the reader knows it.
    pub(crate) fn fixed(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn time(&mut self, value: Option<Timestamp>) {
        match value {
            None => self.byte(0),
            Some(time) => {
                self.byte(1);
                self.signed(time.0);
            }
        }
    }
}

/// Reads values in the order in which they were written.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        let (&first, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.wide_unsigned()?).map_err(|_| Fault("a number is too large"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Fault> {
        i64::try_from(self.wide_signed()?).map_err(|_| Fault("a number is too large"))
    }

    pub(crate) fn wide_signed(&mut self) -> Result<i128, Fault> {
        let value = self.wide_unsigned()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn wide_unsigned(&mut self) -> Result<u128, Fault> {
        let mut value = 0_u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault("a number does not end"))
    }

    /// A count of things that take at least a byte each, so a damaged one cannot ask for more
    /// memory than there are bytes.
    pub(crate) fn length(&mut self) -> Result<usize, Fault> {
        let length = usize::try_from(self.wide_unsigned()?).map_err(|_| TRUNCATED)?;
        if length > self.rest.len() {
            Err(TRUNCATED)
        } else {
            Ok(length)
        }
    }

    pub(crate) fn slice(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.length()?;
        let (value, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(value)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (value, rest) = self.rest.split_first_chunk::<N>().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*value)
    }

    pub(crate) fn time(&mut self) -> Result<Option<Timestamp>, Fault> {
        match self.byte()? {
            0 => Ok(None),
            1 => Ok(Some(Timestamp(self.signed()?))),
            _ => Err(Fault("a time has an unknown mark")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut out = Writer::default();
        let wides = [0, 1, -1, 127, i128::MAX, i128::MIN, i128::from(i64::MIN)];
        for value in wides {
            out.wide_signed(value);
        }
        out.unsigned(u64::MAX);
        out.slice(b"abc");
        out.time(Some(Timestamp(-1)));
        out.time(None);
        let mut input = Reader::new(&out.bytes);
        for value in wides {
            assert_eq!(input.wide_signed(), Ok(value));
        }
        assert_eq!(input.unsigned(), Ok(u64::MAX));
        assert_eq!(input.slice(), Ok(&b"abc"[..]));
        assert_eq!(input.time(), Ok(Some(Timestamp(-1))));
        assert_eq!(input.time(), Ok(None));
        assert!(input.is_at_end());
        assert_eq!(input.byte(), Err(TRUNCATED));
    }

    #[test]
    fn a_damaged_length_asks_for_no_memory() {
        let mut out = Writer::default();
        out.unsigned(u64::MAX);
        assert_eq!(Reader::new(&out.bytes).slice(), Err(TRUNCATED));
        assert!(Reader::new(&[0xff; 40]).signed().is_err());
    }
}
