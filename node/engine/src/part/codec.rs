//! The bytes of a part: whole numbers in groups of seven bits, texts with their length before them.
//! Both directions stream: a part of gigabytes takes kilobytes of memory here.
//!
//! Reading trusts nothing: a part may come from a disk or a peer, and a fault in it is an error,
//! never a panic.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "lengths and places of what is in memory"
)]

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::Xxh3;

use crate::spec::Timestamp;

/// Bytes that are gathered before they go on.
const BUFFER: usize = 64 << 10;
const CHECKSUM_BYTES: usize = 16;

/// Why a part cannot be read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// What is wrong with the bytes.
    Damaged(&'static str),
    /// They do not come.
    Io(io::Error),
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damaged(what) => Self::new(
                io::ErrorKind::InvalidData,
                format!("state on disk is damaged: {what}"),
            ),
            Fault::Io(error) => error,
        }
    }
}

const TRUNCATED: Fault = Fault::Damaged("it ends too early");

/// Writes values one after another. The first error of what is written to is kept for the end.
pub(crate) struct Writer<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    checksum: Xxh3,
    failed: Option<io::Error>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(BUFFER),
            checksum: Xxh3::new(),
            failed: None,
        }
    }

    /// Ends with XXH3-128 of all that was written, as 16 bytes (big endian).
    ///
    /// # Errors
    /// The first that happened.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush();
        let checksum = self.checksum.digest128();
        self.fixed(&checksum.to_be_bytes());
        self.flush();
        self.failed.map_or(Ok(()), Err)
    }

    fn flush(&mut self) {
        self.checksum.update(&self.buffer);
        if self.failed.is_none() {
            self.failed = self.out.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.fixed(&[value]);
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

    pub(crate) fn wide_unsigned(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.byte((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    pub(crate) fn length(&mut self, value: usize) {
        self.wide_unsigned(value as u128);
    }

    pub(crate) fn slice(&mut self, value: &[u8]) {
        self.length(value.len());
        self.fixed(value);
    }

    /// Without a length: the reader knows it.
    pub(crate) fn fixed(&mut self, value: &[u8]) {
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
        self.buffer.extend_from_slice(value);
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
    input: &'a mut dyn Read,
    buffer: Vec<u8>,
    /// How long the buffer is.
    ahead: usize,
    at: usize,
    /// Of all that was read, but for the buffer from `summed` on.
    checksum: Xxh3,
    summed: usize,
    text: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: &'a mut dyn Read) -> Self {
        Self::reading_ahead(input, BUFFER)
    }

    /// One that reads so many bytes at a time.
    pub(crate) fn reading_ahead(input: &'a mut dyn Read, ahead: usize) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            ahead,
            at: 0,
            checksum: Xxh3::new(),
            summed: 0,
            text: Vec::new(),
        }
    }

    /// The end: nothing follows but the right checksum.
    ///
    /// # Errors
    /// Something else follows, or another checksum.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        self.sum_up();
        let computed = self.checksum.digest128();
        if u128::from_be_bytes(self.fixed()?) != computed {
            return Err(Fault::Damaged("its checksum is wrong"));
        }
        if !self.is_at_end()? {
            return Err(Fault::Damaged("it goes on after its end"));
        }
        Ok(())
    }

    /// Reads on to the end, whatever stands there; then as [`Reader::finish`]. What looked like
    /// something else may have been damage.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub(crate) fn skip_to_end(&mut self) -> Result<(), Fault> {
        let mut last = Vec::new();
        self.sum_up();
        let mut checksum = self.checksum.clone();
        loop {
            last.extend_from_slice(&self.buffer[self.at..]);
            self.at = self.buffer.len();
            let sure = last.len().saturating_sub(CHECKSUM_BYTES);
            checksum.update(&last[..sure]);
            last.drain(..sure);
            if self.is_at_end()? {
                break;
            }
        }
        if *last == checksum.digest128().to_be_bytes() {
            return Ok(());
        }
        Err(Fault::Damaged("its checksum is wrong"))
    }

    fn sum_up(&mut self) {
        self.checksum.update(&self.buffer[self.summed..self.at]);
        self.summed = self.at;
    }

    /// Reads on; `false` at the end.
    fn refill(&mut self) -> Result<bool, Fault> {
        self.sum_up();
        self.buffer.resize(self.ahead, 0);
        (self.at, self.summed) = (0, 0);
        let read = loop {
            match self.input.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        // After an error nothing is left to read.
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        Ok(read.map_err(Fault::Io)? > 0)
    }

    pub(crate) fn is_at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.at == self.buffer.len() && !self.refill()?)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        if self.is_at_end()? {
            return Err(TRUNCATED);
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, Fault> {
        u64::try_from(self.wide_unsigned()?).map_err(|_| Fault::Damaged("a number is too large"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Fault> {
        i64::try_from(self.wide_signed()?).map_err(|_| Fault::Damaged("a number is too large"))
    }

    pub(crate) fn wide_signed(&mut self) -> Result<i128, Fault> {
        let value = self.wide_unsigned()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(crate) fn wide_unsigned(&mut self) -> Result<u128, Fault> {
        let mut value = 0_u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Damaged("a number does not end"))
    }

    /// A count of things that follow. Nothing may be reserved for it: it may be damaged.
    pub(crate) fn length(&mut self) -> Result<u64, Fault> {
        self.unsigned()
    }

    /// Bytes with their length before them. A damaged length asks for no more memory than there are
    /// bytes.
    pub(crate) fn slice(&mut self) -> Result<&[u8], Fault> {
        let mut missing = self.length()?;
        self.text.clear();
        while missing > 0 {
            if self.is_at_end()? {
                return Err(TRUNCATED);
            }
            let here = &self.buffer[self.at..];
            let take = usize::try_from(missing).map_or(here.len(), |most| most.min(here.len()));
            self.text.extend_from_slice(&here[..take]);
            self.at += take;
            missing -= take as u64;
        }
        Ok(&self.text)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut value = [0; N];
        for byte in &mut value {
            *byte = self.byte()?;
        }
        Ok(value)
    }

    pub(crate) fn time(&mut self) -> Result<Option<Timestamp>, Fault> {
        match self.byte()? {
            0 => Ok(None),
            1 => Ok(Some(Timestamp(self.signed()?))),
            _ => Err(Fault::Damaged("a time has an unknown mark")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let wides = [0, 1, -1, 127, i128::MAX, i128::MIN, i128::from(i64::MIN)];
        let long = vec![7; 3 * BUFFER];
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        for value in wides {
            out.wide_signed(value);
        }
        out.unsigned(u64::MAX);
        out.slice(b"abc");
        out.slice(&long);
        out.time(Some(Timestamp(-1)));
        out.time(None);
        out.finish().unwrap();
        let mut bytes = &bytes[..];
        let mut input = Reader::new(&mut bytes);
        for value in wides {
            assert_eq!(input.wide_signed().unwrap(), value);
        }
        assert_eq!(input.unsigned().unwrap(), u64::MAX);
        assert_eq!(input.slice().unwrap(), b"abc");
        assert_eq!(input.slice().unwrap(), long);
        assert_eq!(input.time().unwrap(), Some(Timestamp(-1)));
        assert_eq!(input.time().unwrap(), None);
        input.finish().unwrap();
        assert!(matches!(
            input.byte(),
            Err(Fault::Damaged("it ends too early"))
        ));
    }

    #[test]
    fn a_damaged_length_asks_for_no_memory() {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.unsigned(u64::MAX);
        out.finish().unwrap();
        assert!(Reader::new(&mut &bytes[..]).slice().is_err());
        assert!(Reader::new(&mut &[0xff; 40][..]).signed().is_err());
    }

    /// A disk that is full, or a peer that went away.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("full"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_the_disk_is_told_at_the_end() {
        let mut broken = Broken;
        let mut out = Writer::new(&mut broken);
        out.fixed(&vec![0; 3 * BUFFER]);
        out.byte(1);
        assert_eq!(out.finish().unwrap_err().to_string(), "full");
    }
}
