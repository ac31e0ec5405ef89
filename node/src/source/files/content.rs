//! Whether a file is the one that was read before.
//!
//! Its first bytes are in the lane's identity, and the fingerprints of its lines are agreed: a file of a few megabytes is
//! read again up to where it was read, of a larger one the beginning and the last megabytes. That is done when a file is
//! opened, and when it was written to without growing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use unisono_replication::machine::Mark;
use xxhash_rust::xxh3::xxh3_128;

use super::{LineSplitter, READ};
use crate::source::{Block, LaneTrail};

/// Bytes of a file that its identity is made of; less, if it was shorter then.
const HEAD: usize = 4096;
/// Up to this a file is read again as a whole: at a gigabyte a second, a hundred of them take two seconds.
const WHOLE: i64 = 16 << 20;

/// What a comparison says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It is the same file.
    Same,
    /// It is too short to be it, or to tell.
    Short { size: u64, wanted: u64 },
    /// It is another one.
    Other { what: String },
}

/// Reads up to `length` bytes from `from` on, fewer at the file's end.
pub(super) fn read(file: &File, from: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// By what a file is known again: the number of its first bytes that count, and their hash.
pub(super) fn identity(file: &File) -> io::Result<String> {
    let head = read(file, 0, HEAD)?;
    Ok(format!("{}:{:032x}", head.len(), xxh3_128(&head)))
}

/// Whether the file is the one that left the trail.
pub(super) fn compare(file: &File, trail: &LaneTrail) -> io::Result<Likeness> {
    let size = file.metadata()?.len();
    let next = u64::try_from(trail.next).unwrap_or(0);
    if size < next {
        return Ok(Likeness::Short { size, wanted: next });
    }
    if let Some((length, hash)) = parse(&trail.identity) {
        if size < length as u64 {
            let wanted = length as u64;
            return Ok(Likeness::Short { size, wanted });
        }
        if xxh3_128(&read(file, 0, length)?) != hash {
            let what = format!("its first {length} bytes");
            return Ok(Likeness::Other { what });
        }
    }
    for (from, to) in stretches(trail) {
        if !leads_to(file, from, to)? {
            let what = format!("bytes {} to {}", from.offset, to.offset);
            return Ok(Likeness::Other { what });
        }
    }
    Ok(Likeness::Same)
}

fn parse(identity: &str) -> Option<(usize, u128)> {
    let (length, hash) = identity.split_once(':')?;
    let length = length.parse().ok().filter(|length| *length <= HEAD)?;
    Some((length, u128::from_str_radix(hash, 16).ok()?))
}

/// The parts of the file that are read again.
fn stretches(trail: &LaneTrail) -> Vec<(Mark, Mark)> {
    let mark = |offset, fingerprint| Mark {
        offset,
        fingerprint,
    };
    let (start, end) = (
        mark(trail.marks.start, 0),
        mark(trail.next, trail.fingerprint),
    );
    match trail.marks.head {
        _ if start == end => Vec::new(),
        Some(head) if end.offset - start.offset > WHOLE => {
            vec![(start, head), (trail.marks.earlier, end)]
        }
        _ => vec![(start, end)],
    }
}

/// Whether the lines between two marks lead from the fingerprint of the one to that of the other.
fn leads_to(file: &File, from: Mark, to: Mark) -> io::Result<bool> {
    let offset = |mark: Mark| u64::try_from(mark.offset).unwrap_or(0);
    let (mut at, end) = (offset(from), offset(to));
    let mut splitter = LineSplitter::new(at);
    let (mut block, mut running) = (Block::default(), from.fingerprint);
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(READ).min(READ);
        let bytes = read(file, at, most)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        at += bytes.len() as u64;
        splitter.feed(&bytes, &mut block, usize::MAX);
        running = block.seal(running);
        block.clear();
    }
    Ok(splitter.position() == end && running == to.fingerprint)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(text, 0).unwrap();
        file
    }

    /// The trail of a reader that was given all lines of the text.
    fn trail(text: &[u8]) -> LaneTrail {
        let mut trail = LaneTrail::new("f", 0, &identity(&file(text)).unwrap());
        let mut splitter = LineSplitter::new(0);
        for part in text.chunks(READ) {
            let mut block = Block::default();
            splitter.feed(part, &mut block, usize::MAX);
            trail.pass(&mut block);
        }
        trail
    }

    #[test]
    fn a_small_file_is_known_by_every_byte_that_was_read() {
        let text = b"one\ntwo\nthree\nun";
        let trail = trail(text);
        assert_eq!(compare(&file(text), &trail).unwrap(), Likeness::Same);
        let longer = [text.as_slice(), b"finished\nfour\n"].concat();
        assert_eq!(compare(&file(&longer), &trail).unwrap(), Likeness::Same);
        for at in 0..text.len() {
            let mut other = text.to_vec();
            other[at] ^= 1;
            let found = compare(&file(&other), &trail).unwrap();
            assert!(matches!(found, Likeness::Other { .. }), "{at}: {found:?}");
            let short = compare(&file(&text[..at]), &trail).unwrap();
            assert!(matches!(short, Likeness::Short { .. }), "{at}: {short:?}");
        }
    }

    #[test]
    fn of_a_large_file_the_beginning_and_the_last_megabyte_tell() {
        let line = |number: u64| format!("{number:0>99}\n").into_bytes();
        let lines = WHOLE.unsigned_abs() / 100 + 40_000;
        let text: Vec<u8> = (0..lines).flat_map(line).collect();
        let trail = trail(&text);
        assert_eq!(compare(&file(&text), &trail).unwrap(), Likeness::Same);
        let end = text.len();
        for at in [5000, end - 1_000_000, end - 50] {
            let mut other = text.clone();
            other[at] ^= 1;
            let found = compare(&file(&other), &trail).unwrap();
            assert!(matches!(found, Likeness::Other { .. }), "{at}: {found:?}");
        }
    }

    #[test]
    fn a_file_that_was_empty_when_it_was_found_may_become_anything() {
        let trail = trail(b"");
        assert_eq!(compare(&file(b"one\n"), &trail).unwrap(), Likeness::Same);
    }
}
