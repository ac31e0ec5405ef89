//! SCRAM (RFC 5802, RFC 7677), the client's side: the password is not sent, and the server proves that it knows it too. Pure.
//!
//! Kafka does not prepare names and passwords by SASLprep, so their bytes are taken as they are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use pbkdf2::pbkdf2_hmac;
use sha2::{Digest, Sha256, Sha512};

use super::{SaslError, Secret};

/// With fewer a password can be guessed from what was overheard; Kafka makes none.
const LEAST_ITERATIONS: u32 = 4096;
/// More would only keep us busy: about a second.
const MOST_ITERATIONS: u32 = 2_000_000;

/// By which hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn digest(self, of: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(of).to_vec(),
            Self::Sha512 => Sha512::digest(of).to_vec(),
        }
    }

    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut salted = [0; 32];
                pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted);
                salted.to_vec()
            }
            Self::Sha512 => {
                let mut salted = [0; 64];
                pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted);
                salted.to_vec()
            }
        }
    }

    fn sign(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message)
                .finalize()
                .into_bytes()
                .to_vec(),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, message)
                .finalize()
                .into_bytes()
                .to_vec(),
        }
    }

    /// In constant time.
    fn is_signed(self, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message).verify_slice(signature),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, message).verify_slice(signature),
        }
        .is_ok()
    }
}

fn mac<M: Mac + hmac::digest::KeyInit>(key: &[u8], message: &[u8]) -> M {
    let Ok(mac) = <M as Mac>::new_from_slice(key) else {
        unreachable!("an HMAC takes keys of any length");
    };
    mac.chain_update(message)
}

/// One exchange.
pub struct Scram {
    hash: Hash,
    password: Secret,
    nonce: String,
    first_bare: String,
    /// What the server's proof must be of, once we have given ours.
    expected: Option<(Vec<u8>, String)>,
}

impl Scram {
    /// Gives the first message too. The nonce is random, of letters and digits.
    pub fn begin(hash: Hash, user: &str, password: &Secret, nonce: String) -> (Self, String) {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        let first = format!("n,,{first_bare}");
        let exchange = Self {
            hash,
            password: password.clone(),
            nonce,
            first_bare,
            expected: None,
        };
        (exchange, first)
    }

    /// Answers the server; `None`: it has proven that it knows the password. Takes long where there are many iterations.
    pub fn next(&mut self, said: &[u8]) -> Result<Option<String>, SaslError> {
        let said = std::str::from_utf8(said).map_err(|_| wrong("it is not UTF-8"))?;
        match self.expected.take() {
            None => self.prove(said).map(Some),
            Some((key, message)) => self.verify(said, &key, &message).map(|()| None),
        }
    }

    fn prove(&mut self, said: &str) -> Result<String, SaslError> {
        let [nonce, salt, iterations] = attributes(said, ["r=", "s=", "i="])?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(wrong("its nonce does not begin with ours"));
        }
        let salt = STANDARD.decode(salt);
        let salt = salt.map_err(|_| wrong("its salt is not base64"))?;
        let iterations = iterations.parse().ok();
        let iterations = iterations.ok_or_else(|| wrong("its iterations are no number"))?;
        if !(LEAST_ITERATIONS..=MOST_ITERATIONS).contains(&iterations) {
            return Err(SaslError::Iterations(iterations));
        }
        let hash = self.hash;
        let salted = hash.salted(self.password.reveal().as_bytes(), &salt, iterations);
        let client = hash.sign(&salted, b"Client Key");
        // `biws`: "n,,", no channel is bound.
        let without_proof = format!("c=biws,r={nonce}");
        let message = format!("{},{said},{without_proof}", self.first_bare);
        let signature = hash.sign(&hash.digest(&client), message.as_bytes());
        let proof: Vec<u8> = client.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        self.expected = Some((hash.sign(&salted, b"Server Key"), message));
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)))
    }

    fn verify(&self, said: &str, key: &[u8], message: &str) -> Result<(), SaslError> {
        if let Some(error) = said.strip_prefix("e=") {
            return Err(SaslError::Denied(error.to_owned()));
        }
        let [signature] = attributes(said, ["v="])?;
        let signature = STANDARD.decode(signature);
        let signature = signature.map_err(|_| wrong("its proof is not base64"))?;
        match self.hash.is_signed(key, message.as_bytes(), &signature) {
            true => Ok(()),
            false => Err(SaslError::Impostor),
        }
    }
}

fn wrong(what: &'static str) -> SaslError {
    SaslError::Malformed(what)
}

/// The first attributes of a message, in their order; what follows them is for others.
fn attributes<'a, const N: usize>(
    said: &'a str,
    names: [&str; N],
) -> Result<[&'a str; N], SaslError> {
    let mut parts = said.split(',');
    let mut found = [""; N];
    for (name, found) in names.iter().zip(&mut found) {
        let value = parts.next().and_then(|part| part.strip_prefix(name));
        *found = value.ok_or_else(|| wrong("an attribute is missing"))?;
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn begin(hash: Hash, password: &str, nonce: &str) -> (Scram, String) {
        Scram::begin(hash, "user", &Secret::new(password), nonce.to_owned())
    }

    const FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    /// The example of RFC 7677.
    #[test]
    fn the_example_of_the_standard_comes_out() {
        let (mut scram, first) = begin(Hash::Sha256, "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(first, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let answer = scram.next(FIRST.as_bytes()).unwrap().unwrap();
        assert_eq!(
            answer,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        let last = scram.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(last, Ok(None));
    }

    /// By another implementation (Python's hashlib), from the same exchange.
    #[test]
    fn the_longer_hash_comes_out_as_elsewhere() {
        let (mut scram, _) = begin(Hash::Sha512, "pencil", "rOprNGfwEbeRWgbNEkqO");
        let answer = scram.next(FIRST.as_bytes()).unwrap().unwrap();
        let (_, proof) = answer.split_once(",p=").unwrap();
        assert_eq!(
            proof,
            "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ=="
        );
        let last = scram.next(b"v=ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==");
        assert_eq!(last, Ok(None));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_believed() {
        let (mut scram, _) = begin(Hash::Sha256, "pencil", "rOprNGfwEbeRWgbNEkqO");
        scram.next(FIRST.as_bytes()).unwrap();
        let last = scram.next(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(last, Err(SaslError::Impostor));
        // Nor is one that says nothing of it.
        let (mut scram, _) = begin(Hash::Sha256, "pencil", "rOprNGfwEbeRWgbNEkqO");
        scram.next(FIRST.as_bytes()).unwrap();
        assert!(scram.next(b"").is_err());
        assert!(scram.next(b"v=").is_err());
    }

    #[test]
    fn what_a_server_asks_for_in_vain_is_refused() {
        let said = |first: &str| {
            let (mut scram, _) = begin(Hash::Sha256, "pencil", "abc");
            scram.next(first.as_bytes()).unwrap_err()
        };
        assert_eq!(said("r=abcd,s=AAAA,i=4095"), SaslError::Iterations(4095));
        assert_eq!(
            said("r=abcd,s=AAAA,i=2000001"),
            SaslError::Iterations(2_000_001)
        );
        let malformed = [
            "r=abc,s=AAAA,i=4096",
            "r=xbcd,s=AAAA,i=4096",
            "r=abcd,s=A,i=4096",
            "r=abcd,s=AAAA,i=x",
            "m=1,r=abcd,s=AAAA,i=4096",
            "r=abcd",
        ];
        for first in malformed {
            assert!(matches!(said(first), SaslError::Malformed(_)), "{first}");
        }
    }

    #[test]
    fn a_name_cannot_end_its_attribute() {
        let (_, first) = Scram::begin(Hash::Sha256, "a=b,c", &Secret::new(""), "x".to_owned());
        assert_eq!(first, "n,,n=a=3Db=2Cc,r=x");
    }
}
