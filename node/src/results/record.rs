//! How a row lies in a segment: length, checksum, then the row. All integers little endian.
//!
//! ```text
//! u32 length of the body | u32 crc32 of the length and the body | body
//! body: u64 seq | i64 start | i64 end | u128 digest | u32 group start | u32 group end | json
//! ```

pub use unisono_engine::row::RowRef;
use unisono_engine::row::{Digest, Seq};
use unisono_engine::spec::Timestamp;

/// Bytes before a record's body.
pub(super) const PREFIX: usize = 8;
/// Bytes of a body before its JSON.
const FIXED: usize = 48;
/// The greatest row. Far above any sink's limit; it bounds what a damaged length can make a reader allocate.
pub(super) const MAX_JSON: usize = 64 * 1024 * 1024;

/// Bytes that `row` takes in a segment.
pub(super) fn encoded_len(row: &RowRef<'_>) -> u64 {
    (PREFIX + FIXED + row.json.len()) as u64
}

/// Appends `row` to `out`. The caller has checked its size against [`MAX_JSON`].
pub(super) fn encode(row: &RowRef<'_>, out: &mut Vec<u8>) {
    let length = u32_of(FIXED + row.json.len()).to_le_bytes();
    let prefix_at = out.len();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&row.seq.0.to_le_bytes());
    out.extend_from_slice(&row.start.0.to_le_bytes());
    out.extend_from_slice(&row.end.0.to_le_bytes());
    out.extend_from_slice(&row.digest.0.to_le_bytes());
    out.extend_from_slice(&u32_of(row.group.start).to_le_bytes());
    out.extend_from_slice(&u32_of(row.group.end).to_le_bytes());
    out.extend_from_slice(row.json);
    let checksum = checksum(length, &out[prefix_at + PREFIX..]);
    out[prefix_at + 4..prefix_at + PREFIX].copy_from_slice(&checksum.to_le_bytes());
}

/// The length of the record that begins with `prefix`; `None` where it is out of bounds.
pub(super) fn length(prefix: [u8; PREFIX]) -> Option<usize> {
    let body = prefix.first_chunk::<4>()?;
    let body = usize::try_from(u32::from_le_bytes(*body)).ok()?;
    (FIXED..=FIXED + MAX_JSON)
        .contains(&body)
        .then_some(PREFIX + body)
}

/// The record at the beginning of `bytes` and its length; `None` where no whole and valid record begins.
pub(super) fn decode(bytes: &[u8]) -> Option<(RowRef<'_>, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (stored, rest) = rest.split_first_chunk::<4>()?;
    let body_len = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if !(FIXED..=FIXED + MAX_JSON).contains(&body_len) {
        return None;
    }
    let body = rest.get(..body_len)?;
    if checksum(*length, body) != u32::from_le_bytes(*stored) {
        return None;
    }
    let (seq, body) = body.split_first_chunk::<8>()?;
    let (start, body) = body.split_first_chunk::<8>()?;
    let (end, body) = body.split_first_chunk::<8>()?;
    let (digest, body) = body.split_first_chunk::<16>()?;
    let (group_start, body) = body.split_first_chunk::<4>()?;
    let (group_end, json) = body.split_first_chunk::<4>()?;
    let group_start = usize::try_from(u32::from_le_bytes(*group_start)).ok()?;
    let group_end = usize::try_from(u32::from_le_bytes(*group_end)).ok()?;
    // Readers slice the JSON by this range.
    json.get(group_start..group_end)?;
    let view = RowRef {
        seq: Seq(u64::from_le_bytes(*seq)),
        start: Timestamp(i64::from_le_bytes(*start)),
        end: Timestamp(i64::from_le_bytes(*end)),
        digest: Digest(u128::from_le_bytes(*digest)),
        group: group_start..group_end,
        json,
    };
    Some((view, PREFIX + body_len))
}

// The length is under the checksum too: a flipped bit in it must not send the reader to another place.
fn checksum(length: [u8; 4], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(body);
    hasher.finalize()
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use unisono_engine::row::Row;

    use super::*;

    fn row() -> Row {
        Row {
            seq: Seq(7),
            start: Timestamp(-1000),
            end: Timestamp(0),
            digest: Digest(0xabc),
            json: br#"{"group":{"a":"b"}}"#.to_vec(),
            group: 9..18,
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let mut bytes = Vec::new();
        encode(&RowRef::from(&row()), &mut bytes);
        let (view, length) = decode(&bytes).unwrap();
        assert_eq!(
            (view.to_row(), length as u64),
            (row(), encoded_len(&RowRef::from(&row())))
        );
        assert_eq!(bytes.len(), length);
    }

    #[test]
    fn any_flipped_bit_and_any_missing_byte_is_noticed() {
        let mut bytes = Vec::new();
        encode(&RowRef::from(&row()), &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_none(), "length {length}");
        }
    }
}
