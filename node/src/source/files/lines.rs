//! Bytes into lines, with their positions.

use crate::definition::MOST_RECORD_BYTES;
use crate::source::Block;
use unisono_engine::record::Stamp;

/// Of a longer line only so many bytes are given: more than any pipeline allows a record, so that it becomes a
/// dead letter of its own kind. One line must not take all memory.
pub const MAX_LINE: usize = MOST_RECORD_BYTES + 1;
/// What is kept of the memory for a line from line to line.
const KEPT: usize = 1 << 20;

/// No file is longer than that.
fn signed(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub struct LineSplitter {
    /// Where the line starts whose end was not seen yet.
    position: u64,
    /// How far the stream was fed.
    read_to: u64,
    /// What there is of that line, up to [`MAX_LINE`].
    pending: Vec<u8>,
}

impl LineSplitter {
    /// Starts at a line's start, `position` bytes into the stream.
    #[must_use]
    pub fn new(position: u64) -> Self {
        Self {
            position,
            read_to: position,
            pending: Vec::new(),
        }
    }

    /// Takes the next bytes; lines that they complete go to `block`, until it weighs `max_weight`. Gives how many bytes
    /// were taken.
    pub fn feed(&mut self, bytes: &[u8], block: &mut Block, max_weight: usize) -> usize {
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', bytes) {
            self.read_to += (newline + 1 - start) as u64;
            self.complete(&bytes[start..newline], block);
            start = newline + 1;
            if block.weight() >= max_weight {
                return start;
            }
        }
        let rest = &bytes[start..];
        self.keep(rest);
        self.read_to += rest.len() as u64;
        bytes.len()
    }

    /// The stream has ended: what is left is a line too.
    pub fn finish(&mut self, block: &mut Block) {
        if self.read_to > self.position {
            self.complete(&[], block);
        }
    }

    /// Gives the line that ends where the stream was read to, after its last bytes.
    fn complete(&mut self, last: &[u8], block: &mut Block) {
        let (offset, next) = (signed(self.position), signed(self.read_to));
        if self.pending.is_empty() {
            block.push(
                offset,
                next,
                Stamp::None,
                Some(&last[..last.len().min(MAX_LINE)]),
            );
        } else {
            self.keep(last);
            block.push(offset, next, Stamp::None, Some(&self.pending));
            self.pending.clear();
            self.pending.shrink_to(KEPT);
        }
        self.position = self.read_to;
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.pending.len();
        self.pending
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Where the line starts whose end was not seen yet.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How far the stream was fed.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.read_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(parts: &[&[u8]]) -> Vec<(i64, i64, Vec<u8>)> {
        split_into_blocks_of(usize::MAX, parts)
    }

    fn split_into_blocks_of(weight: usize, parts: &[&[u8]]) -> Vec<(i64, i64, Vec<u8>)> {
        let mut splitter = LineSplitter::new(0);
        let (mut block, mut lines) = (Block::default(), Vec::new());
        let line = |record: crate::source::RawRecord<'_>| {
            let payload = record.payload.unwrap_or_default();
            (record.offset, record.next, payload.to_vec())
        };
        for mut part in parts.iter().copied() {
            while !part.is_empty() {
                let taken = splitter.feed(part, &mut block, weight);
                part = &part[taken..];
                lines.extend(block.records().map(line));
                block.clear();
            }
        }
        splitter.finish(&mut block);
        lines.extend(block.records().map(line));
        lines
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let text = b"one\n\ntwo\r\nthree";
        let whole = split(&[text]);
        let expected: [(i64, i64, &[u8]); 4] = [
            (0, 4, b"one"),
            (4, 5, b""),
            (5, 10, b"two\r"),
            (10, 15, b"three"),
        ];
        assert_eq!(
            whole,
            expected.map(|(from, to, line)| (from, to, line.to_vec()))
        );
        for cut in 0..text.len() {
            assert_eq!(split(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(split(&single), whole);
        for weight in [1, 50, 100] {
            assert_eq!(split_into_blocks_of(weight, &[text]), whole, "{weight}");
        }
    }

    #[test]
    fn a_line_longer_than_the_limit_is_given_cut_with_its_true_end() {
        let long = vec![b'x'; MAX_LINE + 10];
        for blocks in [
            vec![&long[..], b"\nnext\n"],
            vec![&long[..5], &long[5..], b"\nnext\n"],
        ] {
            let lines = split(&blocks);
            assert_eq!(lines[0].2.len(), MAX_LINE);
            let end = i64::try_from(MAX_LINE + 11).unwrap_or_default();
            assert_eq!(
                (lines[0].1, lines[1].0, lines[1].2.as_slice()),
                (end, end, &b"next"[..])
            );
        }
    }
}
