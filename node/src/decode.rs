//! From payload to records: a file a format.

mod array;
pub mod json;
mod logfmt;
pub mod msgpack;
mod pattern;
mod separated;
mod text;

use unisono_engine::record::{Cells, Record, RecordState};
use unisono_engine::spec::Timestamp;

use crate::definition::{Decoding, FieldSet, Format};
use json::JsonDecoder;
use msgpack::MessagePackDecoder;
use text::{Read, TextDecoder};

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A message. An empty one was sent by somebody.
    Message,
    /// A line of a file. A blank one is nothing.
    Line,
}

/// Decodes the payloads of one lane.
#[derive(Clone, Debug)]
pub struct Decoder {
    decoding: Decoding,
    framing: Framing,
    reader: Reader,
    /// Those of what was not looked at.
    nothing: Cells,
}

#[derive(Clone, Debug)]
enum Reader {
    Json(Box<JsonDecoder>),
    Array(Box<JsonDecoder>),
    Text(Box<TextDecoder>),
    MessagePack(Box<MessagePackDecoder>),
}

impl Decoder {
    /// A decoder of these fields; its records have a column for each.
    #[must_use]
    pub fn new(fields: &FieldSet, decoding: &Decoding, framing: Framing) -> Self {
        let json = || Box::new(JsonDecoder::new(fields));
        let reader = match &decoding.format {
            Format::Json { array: false } => Reader::Json(json()),
            Format::Json { array: true } => Reader::Array(json()),
            Format::Text(format) => Reader::Text(Box::new(TextDecoder::new(fields, format))),
            Format::MessagePack => Reader::MessagePack(Box::new(MessagePackDecoder::new(fields))),
        };
        Self {
            decoding: decoding.clone(),
            framing,
            reader,
            nothing: Cells::new(fields.len()),
        }
    }

    /// The same over other fields.
    #[must_use]
    pub fn over(&self, fields: &FieldSet) -> Self {
        Self::new(fields, &self.decoding, self.framing)
    }

    /// Gives the documents of a payload to `take`, in their order: mostly one. A payload of `None` is a
    /// tombstone. What cannot be decoded is a record too, with the reason as its state.
    #[inline]
    pub fn each(
        &mut self,
        offset: i64,
        append_time: Option<Timestamp>,
        payload: Option<&[u8]>,
        take: &mut impl FnMut(&Record<'_>),
    ) {
        if payload.is_some_and(|payload| payload.len() > self.decoding.record_bytes) {
            return take(&Record {
                offset,
                append_time,
                state: RecordState::TooLarge,
                payload: payload.unwrap_or_default(),
                cells: &self.nothing,
            });
        }
        let record = match &mut self.reader {
            Reader::Json(json) => json.decode(offset, append_time, payload),
            Reader::Array(json) => {
                if let Some(array) = payload.and_then(array::elements) {
                    for (element, document) in (0..).zip(array) {
                        json.set_element(Some(element));
                        take(&json.decode(offset, append_time, Some(document)));
                    }
                    return;
                }
                json.set_element(None);
                json.decode(offset, append_time, payload)
            }
            Reader::MessagePack(msgpack) => msgpack.decode(offset, append_time, payload),
            Reader::Text(text) => match text.decode(offset, append_time, payload) {
                Read::Record(record) => record,
                Read::Header => return,
            },
        };
        if record.state == RecordState::EmptyPayload && self.framing == Framing::Line {
            return;
        }
        take(&record);
    }
}

#[cfg(test)]
mod tests;
