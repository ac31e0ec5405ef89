//! What batches may be compressed with, each undone within a limit.

use std::io::Read;

use super::batch::BatchError;

/// A batch that holds more than this is not read. By Kafka's defaults one takes at most 1 MiB compressed.
pub const MOST: usize = 128 << 20;
/// How much a buffer grows at least.
const STEP: usize = 64 << 10;
/// What Java's Snappy writes before its blocks.
const XERIAL: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEAD: usize = 16;

/// How a batch is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// By a batch's attributes; `None`: unknown.
    pub fn of(attributes: i16) -> Option<Self> {
        Some(match attributes & 7 {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            _ => return None,
        })
    }
}

/// Why it cannot be undone.
#[derive(Debug, PartialEq, Eq)]
pub enum Unpacking {
    Damaged(String),
    TooLarge(usize),
}

impl Unpacking {
    /// The same, of the batch at that offset.
    pub fn of_batch(self, offset: i64) -> BatchError {
        match self {
            Self::Damaged(what) => BatchError::Damaged { offset, what },
            Self::TooLarge(most) => BatchError::TooLarge { offset, most },
        }
    }

    fn damaged(error: impl std::fmt::Display) -> Self {
        Self::Damaged(format!("it cannot be decompressed: {error}"))
    }
}

/// Undoes compression; what it needs for that is made once.
pub struct Decompressor {
    most: usize,
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::stream::raw::Decoder<'static>>,
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::limited(MOST)
    }
}

impl Decompressor {
    /// One that gives up beyond so many bytes.
    pub fn limited(most: usize) -> Self {
        Self {
            most,
            snappy: snap::raw::Decoder::new(),
            zstd: None,
        }
    }

    /// Appends what `packed` holds.
    pub fn append(
        &mut self,
        compression: Compression,
        packed: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), Unpacking> {
        match compression {
            Compression::None => {
                to.extend_from_slice(packed);
                Ok(())
            }
            Compression::Gzip => self.read(flate2::bufread::MultiGzDecoder::new(packed), to),
            Compression::Lz4 => self.read(lz4_flex::frame::FrameDecoder::new(packed), to),
            Compression::Snappy => self.snappy(packed, to),
            Compression::Zstd => self.zstd(packed, to),
        }
    }

    fn read(&self, from: impl Read, to: &mut Vec<u8>) -> Result<(), Unpacking> {
        let read = from
            .take(self.most as u64 + 1)
            .read_to_end(to)
            .map_err(Unpacking::damaged)?;
        match read > self.most {
            true => Err(Unpacking::TooLarge(self.most)),
            false => Ok(()),
        }
    }

    fn snappy(&mut self, packed: &[u8], to: &mut Vec<u8>) -> Result<(), Unpacking> {
        if !packed.starts_with(XERIAL) {
            return self.snappy_block(packed, to, self.most).map(drop);
        }
        let mut rest = packed.get(XERIAL_HEAD..).unwrap_or_default();
        let mut left = self.most;
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some((block, after)) = after.split_at_checked(length) else {
                return Err(Unpacking::damaged("a block of Snappy is cut short"));
            };
            left -= self.snappy_block(block, to, left)?;
            rest = after;
        }
        Ok(())
    }

    /// Gives how much it was.
    fn snappy_block(
        &mut self,
        block: &[u8],
        to: &mut Vec<u8>,
        left: usize,
    ) -> Result<usize, Unpacking> {
        // What it says of itself, before it is believed.
        let length = snap::raw::decompress_len(block).map_err(Unpacking::damaged)?;
        if length > left {
            return Err(Unpacking::TooLarge(self.most));
        }
        let start = to.len();
        to.resize(start + length, 0);
        let unpacked = self.snappy.decompress(block, &mut to[start..]);
        unpacked.map_err(Unpacking::damaged)
    }

    fn zstd(&mut self, packed: &[u8], to: &mut Vec<u8>) -> Result<(), Unpacking> {
        use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
        let decoder = match &mut self.zstd {
            Some(decoder) => {
                decoder.reinit().map_err(Unpacking::damaged)?;
                decoder
            }
            none => none.insert(Decoder::new().map_err(Unpacking::damaged)?),
        };
        let start = to.len();
        let mut input = InBuffer::around(packed);
        loop {
            if to.len() - start > self.most {
                return Err(Unpacking::TooLarge(self.most));
            }
            // Producers that stream do not say how much it is: what is left of the buffer, then more.
            to.reserve(STEP.max(packed.len()));
            let filled = to.len();
            let mut output = OutBuffer::around_pos(to, filled);
            let hint = decoder.run(&mut input, &mut output);
            let hint = hint.map_err(Unpacking::damaged)?;
            let is_full = output.pos() == output.capacity();
            if hint == 0 && input.pos() == packed.len() {
                return match to.len() - start > self.most {
                    true => Err(Unpacking::TooLarge(self.most)),
                    false => Ok(()),
                };
            }
            if input.pos() == packed.len() && !is_full {
                return Err(Unpacking::damaged("a frame of Zstandard is cut short"));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(compression: Compression, plain: &[u8]) -> Vec<u8> {
        match compression {
            Compression::None => plain.to_vec(),
            Compression::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Snappy => snap::raw::Encoder::new().compress_vec(plain).unwrap(),
            Compression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => {
                // As a stream, which does not say its size.
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    fn xerial(plain: &[u8]) -> Vec<u8> {
        let mut framed = [XERIAL, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for part in plain.chunks(1000) {
            let block = packed(Compression::Snappy, part);
            framed.extend_from_slice(&(block.len() as u32).to_be_bytes());
            framed.extend_from_slice(&block);
        }
        framed
    }

    fn unpacked(
        most: usize,
        compression: Compression,
        packed: &[u8],
    ) -> Result<Vec<u8>, Unpacking> {
        let mut bytes = b"before".to_vec();
        let mut decompressor = Decompressor::limited(most);
        // The second time with what the first one left.
        decompressor.append(compression, packed, &mut Vec::new())?;
        decompressor.append(compression, packed, &mut bytes)?;
        assert!(bytes.starts_with(b"before"));
        Ok(bytes.split_off(6))
    }

    const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    #[test]
    fn all_kinds_are_undone() {
        for length in [0, 1, 1_000, 1_000_000] {
            let plain: Vec<u8> = (0..length)
                .map(|at: u32| (at % 251 + at / 7000) as u8)
                .collect();
            for compression in ALL {
                let packed = packed(compression, &plain);
                let bytes = unpacked(MOST, compression, &packed);
                assert_eq!(bytes.as_deref(), Ok(&plain[..]), "{compression:?} {length}");
            }
            let bytes = unpacked(MOST, Compression::Snappy, &xerial(&plain));
            assert_eq!(bytes.as_deref(), Ok(&plain[..]));
        }
    }

    #[test]
    fn what_grows_beyond_the_limit_is_given_up() {
        let plain = vec![b'x'; 300_000];
        for compression in &ALL[1..] {
            let packed = packed(*compression, &plain);
            let most = plain.len() - 1;
            assert_eq!(
                unpacked(most, *compression, &packed),
                Err(Unpacking::TooLarge(most)),
                "{compression:?}"
            );
            assert!(
                unpacked(plain.len(), *compression, &packed).is_ok(),
                "{compression:?}"
            );
        }
        let most = plain.len() - 1;
        let framed = unpacked(most, Compression::Snappy, &xerial(&plain));
        assert_eq!(framed, Err(Unpacking::TooLarge(most)));
    }

    #[test]
    fn what_is_cut_or_no_such_thing_is_damaged() {
        let plain: Vec<u8> = (0..50_000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for compression in &ALL[1..] {
            let packed = packed(*compression, &plain);
            for bytes in [
                &packed[..packed.len() / 2],
                b"no such thing at all, whatever it is",
            ] {
                let found = unpacked(MOST, *compression, bytes);
                let is_told = matches!(found, Err(Unpacking::Damaged(_)));
                assert!(
                    is_told,
                    "{compression:?}: {:?}",
                    found.map(|found| found.len())
                );
            }
        }
        let framed = xerial(&plain);
        let cut = unpacked(MOST, Compression::Snappy, &framed[..framed.len() - 10]);
        assert!(matches!(cut, Err(Unpacking::Damaged(_))));
    }
}
