//! From payload to record: strict JSON, one pass, only the fields that some pipeline uses.
//!
//! The whole payload is checked, the unused part too: whether a record counts must not depend on
//! which pipelines exist. Numbers are read from their text, exactly. Where an object has a key
//! twice, the last one counts. Nesting is not limited: what is not used is skipped without
//! recursion, and used paths are as deep as their definition.

mod fields;
pub mod json;

use unisono_engine::record::{RecordBatch, RecordState};
use unisono_engine::spec::Timestamp;

use crate::config::FieldSet;
use fields::FieldTree;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decodes the payloads of a feed.
#[derive(Clone, Debug)]
pub struct Decoder {
    tree: FieldTree,
    columns: usize,
}

impl Decoder {
    /// A decoder of these fields; its batches have a column for each.
    #[must_use]
    pub fn new(fields: &FieldSet) -> Self {
        Self {
            tree: FieldTree::new(fields),
            columns: fields.len(),
        }
    }

    /// An empty batch with this decoder's columns.
    #[must_use]
    pub fn new_batch(&self) -> RecordBatch {
        RecordBatch::new(self.columns)
    }

    /// Appends one record to `batch`, which comes from [`Decoder::new_batch`]. `payload` is `None`
    /// for a tombstone. What cannot be decoded is appended too, with the reason as its state.
    pub fn decode_into(
        &self,
        batch: &mut RecordBatch,
        offset: i64,
        append_time: Option<Timestamp>,
        payload: Option<&[u8]>,
    ) {
        let bytes = payload.unwrap_or_default();
        let text = match readable(payload) {
            Ok(text) => text,
            Err(state) => return batch.push(offset, append_time, state, bytes),
        };
        batch.push(offset, append_time, RecordState::Decoded, bytes);
        if let Err(state) = self.tree.read(text, batch) {
            batch.reject_last(state);
        }
    }
}

/// The payload as text, before its syntax is looked at.
fn readable(payload: Option<&[u8]>) -> Result<&str, RecordState> {
    let bytes = payload.ok_or(RecordState::NullPayload)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return Err(RecordState::ByteOrderMark);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| RecordState::NotUtf8)?;
    // An empty line of a file, with the carriage return that some programs write.
    if text.bytes().all(|byte| byte.is_ascii_whitespace()) {
        return Err(RecordState::EmptyPayload);
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
