//! Messages between replicas: before the body stands which part of the node it is for, where that has to be told, and its
//! version.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Another program wrote it.
    #[error(
        "it begins with {found:?}, this node reads {known:?}: run the same Unisono on both nodes"
    )]
    Version {
        /// What it begins with.
        found: Vec<u8>,
        /// What it should begin with.
        known: Vec<u8>,
    },
    /// It is no such message.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl From<Unreadable> for io::Error {
    fn from(error: Unreadable) -> Self {
        Self::other(error)
    }
}

/// The message, after `head`.
#[must_use]
#[allow(clippy::expect_used, reason = "what is encoded is plain data")]
pub fn encode<T: Serialize>(head: &[u8], message: &T) -> Vec<u8> {
    postcard::to_extend(message, head.to_vec()).expect("plain data always encodes")
}

/// Reads what [`encode`] wrote with the same `head`.
///
/// # Errors
/// [`Unreadable`].
pub fn decode<T: for<'de> Deserialize<'de>>(head: &[u8], bytes: &[u8]) -> Result<T, Unreadable> {
    match bytes.strip_prefix(head) {
        Some(body) => {
            postcard::from_bytes(body).map_err(|error| Unreadable::Damaged(error.to_string()))
        }
        None => Err(Unreadable::Version {
            found: bytes[..bytes.len().min(head.len())].to_vec(),
            known: head.to_vec(),
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_by_those_alone_who_know_its_version() {
        let bytes = encode(&[7, 2], &(1_u8, "text".to_owned()));
        assert_eq!(bytes[..2], [7, 2]);
        assert_eq!(decode(&[7, 2], &bytes), Ok((1_u8, "text".to_owned())));
        let other = decode::<(u8, String)>(&[7, 3], &bytes).unwrap_err();
        let text =
            "it begins with [7, 2], this node reads [7, 3]: run the same Unisono on both nodes";
        assert_eq!(other.to_string(), text);
        let short = decode::<(u8, String)>(&[7, 2], &[7]).unwrap_err();
        assert!(matches!(short, Unreadable::Version { .. }));
        let cut = decode::<(u8, String)>(&[7, 2], &bytes[..4]).unwrap_err();
        assert!(matches!(cut, Unreadable::Damaged(_)), "{cut}");
    }
}
