//! Kafka's wire types, read where they lie and written.
//!
//! Lengths come from outside: none is believed before its bytes are there, and nothing is set aside for what was only
//! announced. Where the types are described: <https://kafka.apache.org/protocol#protocol_types>.

use std::ops::Range;

/// What was read is not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker's answer is malformed: {0}")]
pub struct Malformed(pub &'static str);

const SHORT: Malformed = Malformed("it ends too early");
const VARINT: Malformed = Malformed("a number is too long");
const TEXT: Malformed = Malformed("a text is not UTF-8");
const NULL: Malformed = Malformed("something is missing that must be there");

/// Reads a message from its beginning on.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let range = self.range(len)?;
        Ok(&self.bytes[range])
    }

    fn range(&mut self, len: usize) -> Result<Range<usize>, Malformed> {
        if len > self.left() {
            return Err(SHORT);
        }
        let range = self.at..self.at + len;
        self.at += len;
        Ok(range)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    pub fn i8(&mut self) -> Result<i8, Malformed> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    fn uvarint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(VARINT)
    }

    /// A compact length, one more than it is; `None`: there is nothing.
    fn length(&mut self) -> Result<Option<usize>, Malformed> {
        Ok(self.uvarint()?.checked_sub(1).map(|length| length as usize))
    }

    /// How many elements follow, each of which takes a byte at least; a null array has none.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.length()?.unwrap_or(0);
        if count > self.left() {
            return Err(SHORT);
        }
        Ok(count)
    }

    /// Elements of a compact array.
    pub fn each<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        // Grows as they come: how many there are is only what was said.
        let mut all = Vec::new();
        for _ in 0..self.count()? {
            all.push(read(self)?);
        }
        Ok(all)
    }

    pub fn text_or_none(&mut self) -> Result<Option<&'a str>, Malformed> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| TEXT)
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        self.text_or_none()?.ok_or(NULL)
    }

    /// A text as old messages have it.
    pub fn old_text(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::try_from(self.i16()?).map_err(|_| NULL)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| TEXT)
    }

    /// How many elements follow in an old message.
    pub fn old_count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.i32()?).unwrap_or(0);
        if count > self.left() {
            return Err(SHORT);
        }
        Ok(count)
    }

    /// Where bytes lie in the whole message; empty if there are none.
    pub fn bytes(&mut self) -> Result<Range<usize>, Malformed> {
        let length = self.length()?.unwrap_or(0);
        self.range(length)
    }

    /// Tagged fields: of each its number, and what it holds.
    pub fn tags(
        &mut self,
        mut read: impl FnMut(u32, Cursor<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let length = self.uvarint()? as usize;
            read(tag, Cursor::new(self.take(length)?))?;
        }
        Ok(())
    }

    /// Tagged fields that say nothing to us.
    pub fn skip_tags(&mut self) -> Result<(), Malformed> {
        self.tags(|_, _| Ok(()))
    }
}

/// Writes a message.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn i8(&mut self, value: i8) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub fn i16(&mut self, value: i16) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.i8(i8::from(value))
    }

    pub fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn uvarint(&mut self, mut value: usize) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    /// How many elements follow.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.uvarint(count + 1)
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len()).put(bytes)
    }

    /// A text as old messages write it.
    pub fn old_text(&mut self, text: &str) -> &mut Self {
        let length = i16::try_from(text.len()).unwrap_or(i16::MAX);
        self.i16(length);
        self.put(&text.as_bytes()[..length as usize])
    }

    pub fn no_tags(&mut self) -> &mut Self {
        self.uvarint(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut writer = Writer::default();
        writer.i8(-1).i16(-2).i32(3).i64(-4).text("topic").count(2);
        writer.i32(7).i32(8).bytes(&[1, 2, 3]).no_tags();
        let long = "x".repeat(300);
        writer.text(&long);
        let mut cursor = Cursor::new(&writer.0);
        assert_eq!(cursor.i8(), Ok(-1));
        assert_eq!(cursor.i16(), Ok(-2));
        assert_eq!(cursor.i32(), Ok(3));
        assert_eq!(cursor.i64(), Ok(-4));
        assert_eq!(cursor.text(), Ok("topic"));
        assert_eq!(cursor.each(Cursor::i32), Ok(vec![7, 8]));
        let range = cursor.bytes().unwrap();
        assert_eq!(writer.0[range], [1, 2, 3]);
        assert_eq!(cursor.skip_tags(), Ok(()));
        assert_eq!(cursor.text(), Ok(long.as_str()));
        assert_eq!(cursor.left(), 0);
        assert_eq!(cursor.i8(), Err(SHORT));
    }

    #[test]
    fn no_length_is_believed_before_its_bytes_are_there() {
        let announced = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(Cursor::new(&announced).count(), Err(SHORT));
        assert_eq!(Cursor::new(&announced).bytes(), Err(SHORT));
        assert_eq!(Cursor::new(&announced).text(), Err(SHORT));
        assert_eq!(Cursor::new(&announced).skip_tags(), Err(SHORT));
        assert_eq!(Cursor::new(&[0x7f, 0xff, 0, 0]).old_count(), Err(SHORT));
        assert_eq!(Cursor::new(&[0x7f, 0xff, 0]).old_text(), Err(SHORT));
        assert_eq!(Cursor::new(&[0xff, 0xff]).old_text(), Err(NULL));
        assert_eq!(Cursor::new(&[0xff; 5]).count(), Err(VARINT));
        assert_eq!(Cursor::new(&[0]).text(), Err(NULL));
        assert_eq!(Cursor::new(&[0]).text_or_none(), Ok(None));
        assert_eq!(Cursor::new(&[2, 0xff]).text(), Err(TEXT));
    }
}
