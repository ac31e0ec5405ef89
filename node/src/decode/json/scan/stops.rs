//! Which of some bytes end or interrupt the plain text of a string: quotes, backslashes and control
//! characters, and, if `WIDE`, what is not ASCII.

/// How many bytes are looked at together, and how many bits of the answer stand for each.
#[cfg(not(target_arch = "x86_64"))]
pub use words::{CHUNK, WIDTH, stops};
#[cfg(target_arch = "x86_64")]
pub use words::{CHUNK, WIDTH, stops};

pub fn is_stop<const WIDE: bool>(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < b' ' || (WIDE && byte >= 0x80)
}

/// Eight bytes as one number.
mod words {
    pub const CHUNK: usize = 8;
    pub const WIDTH: usize = 8;
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

    /// The high bit of each stop is set. Of the bits above the first that is set, some may be
    /// wrong: a byte that is a stop borrows from its neighbour.
    #[inline]
    pub fn stops<const WIDE: bool>(chunk: &[u8; CHUNK]) -> u64 {
        let bytes = u64::from_le_bytes(*chunk);
        let quote = (bytes ^ (ONES * 0x22)).wrapping_sub(ONES);
        let backslash = (bytes ^ (ONES * 0x5c)).wrapping_sub(ONES);
        let control = bytes.wrapping_sub(ONES * 0x20);
        let found = quote | backslash | control;
        if WIDE {
            (found | bytes) & HIGH_BITS
        } else {
            found & !bytes & HIGH_BITS
        }
    }
}
