//! The pieces of MessagePack.

use std::ops::Range;

/// The type of an extension that is an instant.
const INSTANT: i8 = -1;

/// One piece: a scalar, or the head of a map or an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Nil,
    Bool(bool),
    Integer(i128),
    Float32(f32),
    Float64(f64),
    /// Where its bytes stand; they may be anything.
    Text(Range<usize>),
    /// Since 1970; the nanoseconds may be too many.
    Instant {
        seconds: i64,
        nanos: u32,
    },
    /// Bytes, or another extension.
    Opaque,
    /// So many elements follow.
    Array(u32),
    /// So many keys follow, each with its value.
    Map(u32),
}

/// Goes through bytes from piece to piece.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next piece; `None` if the bytes end within it, or nothing begins so.
    pub(super) fn token(&mut self) -> Option<Token> {
        let head = self.u8()?;
        Some(match head {
            0x00..=0x7f => Token::Integer(i128::from(head)),
            0x80..=0x8f => Token::Map(u32::from(head & 0x0f)),
            0x90..=0x9f => Token::Array(u32::from(head & 0x0f)),
            0xa0..=0xbf => self.text(u32::from(head & 0x1f))?,
            0xc0 => Token::Nil,
            0xc1 => return None,
            0xc2 | 0xc3 => Token::Bool(head == 0xc3),
            0xc4..=0xc6 => {
                let len = self.length(head - 0xc4)?;
                self.opaque(len)?
            }
            0xc7..=0xc9 => {
                let len = self.length(head - 0xc7)?;
                self.extension(len)?
            }
            0xca => Token::Float32(f32::from_be_bytes(self.array()?)),
            0xcb => Token::Float64(f64::from_be_bytes(self.array()?)),
            0xcc => Token::Integer(i128::from(self.u8()?)),
            0xcd => Token::Integer(i128::from(self.u16()?)),
            0xce => Token::Integer(i128::from(self.u32()?)),
            0xcf => Token::Integer(i128::from(u64::from_be_bytes(self.array()?))),
            0xd0 => Token::Integer(i128::from(i8::from_be_bytes(self.array()?))),
            0xd1 => Token::Integer(i128::from(i16::from_be_bytes(self.array()?))),
            0xd2 => Token::Integer(i128::from(i32::from_be_bytes(self.array()?))),
            0xd3 => Token::Integer(i128::from(i64::from_be_bytes(self.array()?))),
            0xd4..=0xd8 => self.extension(1 << (head - 0xd4))?,
            0xd9..=0xdb => {
                let len = self.length(head - 0xd9)?;
                self.text(len)?
            }
            0xdc => Token::Array(u32::from(self.u16()?)),
            0xdd => Token::Array(self.u32()?),
            0xde => Token::Map(u32::from(self.u16()?)),
            0xdf => Token::Map(self.u32()?),
            0xe0..=0xff => Token::Integer(i128::from(head.cast_signed())),
        })
    }

    /// A length of 1, 2 or 4 bytes.
    fn length(&mut self, width: u8) -> Option<u32> {
        match width {
            0 => self.u8().map(u32::from),
            1 => self.u16().map(u32::from),
            _ => self.u32(),
        }
    }

    fn text(&mut self, len: u32) -> Option<Token> {
        let start = self.at;
        self.take(usize::try_from(len).ok()?)?;
        Some(Token::Text(start..self.at))
    }

    fn opaque(&mut self, len: u32) -> Option<Token> {
        self.take(usize::try_from(len).ok()?)?;
        Some(Token::Opaque)
    }

    fn extension(&mut self, len: u32) -> Option<Token> {
        let kind = i8::from_be_bytes(self.array()?);
        let body = self.take(usize::try_from(len).ok()?)?;
        if kind != INSTANT {
            return Some(Token::Opaque);
        }
        let mut inner = Cursor::new(body);
        let (seconds, nanos) = match len {
            4 => (i64::from(inner.u32()?), 0),
            8 => {
                // 30 bits of nanoseconds, 34 of seconds.
                let both = u64::from_be_bytes(inner.array()?);
                let seconds = (both & ((1 << 34) - 1)).cast_signed();
                (seconds, u32::try_from(both >> 34).ok()?)
            }
            12 => {
                let nanos = inner.u32()?;
                (i64::from_be_bytes(inner.array()?), nanos)
            }
            _ => return Some(Token::Opaque),
        };
        Some(Token::Instant { seconds, nanos })
    }
}

/// Where the first value of some bytes ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Behind so many bytes.
    Whole(usize),
    /// Behind what there is.
    Beyond,
    /// Nowhere: it is not MessagePack.
    Broken,
}

/// Finds the end of the first value of `bytes`, for what lies one behind the other in a file.
#[must_use]
pub fn length(bytes: &[u8]) -> Length {
    let mut cursor = Cursor::new(bytes);
    let mut left: u64 = 1;
    while left > 0 {
        let start = cursor.at;
        let Some(token) = cursor.token() else {
            return match bytes.get(start) {
                Some(0xc1) => Length::Broken,
                _ => Length::Beyond,
            };
        };
        left = left - 1
            + match token {
                Token::Array(count) => u64::from(count),
                Token::Map(count) => 2 * u64::from(count),
                _ => 0,
            };
    }
    Length::Whole(cursor.at)
}
