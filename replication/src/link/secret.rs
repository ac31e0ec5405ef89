//! What makes a replica a peer: a secret that all have. It is never sent. Each end draws a nonce; whoever asks proves first that
//! it knows the secret, by an HMAC over both nonces, then the one that is asked does. So neither a stranger nor a replica of
//! another cluster is listened to, or told anything, and what was overheard proves nothing on the next link.
//!
//! This says who is at the other end when a link begins. It hides nothing, and does not hold against one who can change what is on
//! its way: for that, put the peers' port on a private network.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::PREFACE;

/// The shortest secret: it can be guessed at by whoever overhears a proof.
const LEAST_BYTES: usize = 16;

pub(super) type Nonce = [u8; 32];
pub(super) type Proof = [u8; 32];

/// Which end proves.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Asks = 1,
    Answers = 2,
}

/// The cluster's secret.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

/// A secret that is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a secret of {found} bytes is too short, it must have {LEAST_BYTES}: make one with `openssl rand -hex 32`"
)]
pub struct SecretError {
    /// Its bytes.
    found: usize,
}

impl Secret {
    /// The secret with these bytes; white space around them is none of it.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        let bytes = bytes.trim_ascii();
        let keyed = Hmac::new_from_slice(bytes).ok();
        let keyed = keyed.filter(|_| bytes.len() >= LEAST_BYTES);
        keyed.map(Self).ok_or(SecretError { found: bytes.len() })
    }

    fn over(&self, end: End, asks: &Nonce, answers: &Nonce) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [&PREFACE[..], &[end as u8], asks, answers] {
            mac.update(part);
        }
        mac
    }

    /// What only one who has the secret can say on this link.
    pub(super) fn proof(&self, end: End, asks: &Nonce, answers: &Nonce) -> Proof {
        self.over(end, asks, answers).finalize().into_bytes().into()
    }

    /// Whether somebody said it; takes as long for each wrong proof.
    pub(super) fn is_proven(&self, end: End, asks: &Nonce, answers: &Nonce, proof: &[u8]) -> bool {
        self.over(end, asks, answers).verify_slice(proof).is_ok()
    }
}

pub(super) fn nonce() -> Nonce {
    rand::random()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_trimmed_and_has_sixteen_bytes() {
        let short = Secret::new(b"  fifteen bytes..\n").unwrap_err();
        assert!(short.to_string().contains("15 bytes"), "{short}");
        assert_eq!(Secret::new(b"").unwrap_err(), SecretError { found: 0 });
        let (one, other) = (
            Secret::new(b"0123456789abcdef\n").unwrap(),
            Secret::new(b"0123456789abcdef").unwrap(),
        );
        let (asks, answers) = (nonce(), nonce());
        let proof = one.proof(End::Asks, &asks, &answers);
        assert!(other.is_proven(End::Asks, &asks, &answers, &proof));
        assert_eq!(format!("{one:?}"), "Secret");
    }

    #[test]
    fn a_proof_holds_for_one_end_one_link_and_one_secret() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let (asks, answers) = (nonce(), nonce());
        let proof = secret.proof(End::Asks, &asks, &answers);
        assert!(!secret.is_proven(End::Answers, &asks, &answers, &proof));
        assert!(!secret.is_proven(End::Asks, &answers, &asks, &proof));
        assert!(!secret.is_proven(End::Asks, &asks, &nonce(), &proof));
        assert!(!secret.is_proven(End::Asks, &asks, &answers, &proof[..31]));
        let other = Secret::new(b"0123456789abcdeg").unwrap();
        assert!(!other.is_proven(End::Asks, &asks, &answers, &proof));
    }
}
