//! Bytes into lines, with their positions.

use std::ops::Range;

/// Longest line in bytes. Of a longer one only that much is given, so that it is no JSON and
/// becomes a dead letter: one line must not take all memory.
pub const MAX_LINE: usize = 1 << 20;

/// Lines in the order of their offsets.
#[derive(Debug, Default)]
pub struct FileChunk {
    bytes: Vec<u8>,
    lines: Vec<Span>,
}

#[derive(Clone, Debug)]
struct Span {
    offset: i64,
    end: i64,
    bytes: Range<usize>,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLine<'a> {
    /// Where the line starts in its file.
    pub offset: i64,
    /// Where the next one starts.
    pub end: i64,
    /// The line without its newline.
    pub payload: &'a [u8],
}

impl FileChunk {
    /// The lines in order.
    pub fn lines(&self) -> impl Iterator<Item = FileLine<'_>> {
        self.lines.iter().map(|line| FileLine {
            offset: line.offset,
            end: line.end,
            payload: &self.bytes[line.bytes.clone()],
        })
    }

    /// Number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Bytes of all lines, without newlines.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    fn push(&mut self, offset: u64, end: u64, parts: [&[u8]; 2]) {
        let start = self.bytes.len();
        for part in parts {
            let room = MAX_LINE - (self.bytes.len() - start);
            self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        }
        let bytes = start..self.bytes.len();
        self.lines.push(Span {
            offset: signed(offset),
            end: signed(end),
            bytes,
        });
    }
}

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

    /// Takes the next bytes; lines that they complete go to `chunk`.
    pub fn feed(&mut self, block: &[u8], chunk: &mut FileChunk) {
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', block) {
            let end = self.read_to + newline as u64 + 1;
            chunk.push(self.position, end, [&self.pending, &block[start..newline]]);
            self.pending.clear();
            self.position = end;
            start = newline + 1;
        }
        let room = MAX_LINE - self.pending.len();
        let rest = &block[start..];
        self.pending
            .extend_from_slice(&rest[..rest.len().min(room)]);
        self.read_to += block.len() as u64;
    }

    /// The stream has ended: what is left is a line too.
    pub fn finish(&mut self, chunk: &mut FileChunk) {
        if self.read_to > self.position {
            chunk.push(self.position, self.read_to, [&self.pending, &[]]);
            self.pending.clear();
            self.position = self.read_to;
        }
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

    fn split(blocks: &[&[u8]]) -> Vec<(i64, i64, Vec<u8>)> {
        let mut splitter = LineSplitter::new(0);
        let mut chunk = FileChunk::default();
        for block in blocks {
            splitter.feed(block, &mut chunk);
        }
        splitter.finish(&mut chunk);
        chunk
            .lines()
            .map(|line| (line.offset, line.end, line.payload.to_vec()))
            .collect()
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
