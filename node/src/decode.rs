//! From payload to record: a file a format. JSON is the only one so far.

pub mod json;

pub use json::JsonDecoder as Decoder;
