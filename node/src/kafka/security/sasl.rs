//! SASL, the client's side: which messages go to the broker, and what its answers mean. Pure, but for tokens, which the
//! caller brings.

use super::scram::{Hash, Scram};
use super::{Secret, Token};

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    Scram(Hash),
    Bearer,
}

impl Mechanism {
    pub const ALL: [Self; 4] = [
        Self::Plain,
        Self::Scram(Hash::Sha256),
        Self::Scram(Hash::Sha512),
        Self::Bearer,
    ];

    /// As brokers call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Self::Scram(Hash::Sha512) => "SCRAM-SHA-512",
            Self::Bearer => "OAUTHBEARER",
        }
    }

    /// What to do about a refusal.
    const fn hint(self) -> &'static str {
        match self {
            Self::Plain | Self::Scram(_) => "check sasl.username and sasl.password",
            Self::Bearer => "check what the broker expects of a token: issuer, audience, scope",
        }
    }
}

/// Why a broker and we do not come to terms. The texts are the same from try to try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaslError {
    #[error("authentication failed: {0}")]
    Denied(String),
    #[error("it does not offer the SASL mechanism {asked}, but {offered}: set sasl.mechanism")]
    Mechanism {
        asked: &'static str,
        offered: String,
    },
    #[error(
        "its port asks for no SASL: set security.protocol to \"ssl\" or \"plaintext\", or give the port that does"
    )]
    NotAsked,
    #[error(
        "it asks for {0} iterations of SCRAM, where 4096 to 2000000 are safe and bearable: set the user's password anew with \
         others"
    )]
    Iterations(u32),
    #[error(
        "who answers does not know the password of this user, so it is not the broker: check the address, and who is on the way \
         to it"
    )]
    Impostor,
    #[error("what it says for SASL is malformed: {0}")]
    Malformed(&'static str),
}

impl SaslError {
    /// The broker says no.
    pub fn denied(mechanism: Mechanism, said: Option<&str>) -> Self {
        let said = said.filter(|said| !said.is_empty());
        let said = said.unwrap_or("the broker does not say why");
        Self::Denied(format!("{said}; {}", mechanism.hint()))
    }
}

/// One authentication.
pub enum Exchange {
    Plain,
    // Boxed: it is much larger than the others.
    Scram(Box<Scram>),
    Bearer,
}

impl Exchange {
    /// By a password; gives the first message too. The nonce is random, of letters and digits.
    pub fn by_password(
        mechanism: Mechanism,
        user: &str,
        password: &Secret,
        nonce: String,
    ) -> (Self, Vec<u8>) {
        match mechanism {
            Mechanism::Scram(hash) => {
                let (scram, first) = Scram::begin(hash, user, password, nonce);
                (Self::Scram(Box::new(scram)), first.into_bytes())
            }
            Mechanism::Plain | Mechanism::Bearer => {
                let first = format!("\0{user}\0{}", password.reveal());
                (Self::Plain, first.into_bytes())
            }
        }
    }

    /// By a token (RFC 7628).
    pub fn by_token(token: &Token, extensions: &[(String, String)]) -> (Self, Vec<u8>) {
        let mut first = format!("n,,\u{1}auth=Bearer {}\u{1}", token.value.reveal());
        for (name, value) in extensions {
            first.push_str(&format!("{name}={value}\u{1}"));
        }
        first.push('\u{1}');
        (Self::Bearer, first.into_bytes())
    }

    /// What follows an answer; `None`: nothing, the broker is content. Takes long for SCRAM with many iterations.
    pub fn next(&mut self, said: &[u8]) -> Result<Option<Vec<u8>>, SaslError> {
        match self {
            Self::Plain => Ok(None),
            Self::Scram(scram) => Ok(scram.next(said)?.map(String::into_bytes)),
            Self::Bearer if said.is_empty() => Ok(None),
            // What is wrong; the broker refuses when it has been acknowledged.
            Self::Bearer => Ok(Some(vec![1])),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn first_messages_are_as_the_standards_say() {
        let password = Secret::new("pass");
        let plain = Exchange::by_password(Mechanism::Plain, "me", &password, String::new());
        assert_eq!(plain.1, b"\0me\0pass");
        let token = Token {
            value: Secret::new("abc.def."),
            principal: "me".to_owned(),
            fetched: Instant::now(),
            life: Duration::from_secs(60),
        };
        let extensions = [("lkc".to_owned(), "x".to_owned())];
        let (mut bearer, first) = Exchange::by_token(&token, &extensions);
        assert_eq!(
            first,
            b"n,,\x01auth=Bearer abc.def.\x01lkc=x\x01\x01".as_slice()
        );
        assert_eq!(bearer.next(b""), Ok(None));
        let refused = br#"{"status":"invalid_token"}"#;
        assert_eq!(bearer.next(refused), Ok(Some(vec![1])));
    }

    #[test]
    fn a_refusal_says_what_to_check_and_never_the_password() {
        let said = SaslError::denied(Mechanism::Plain, Some("no such user")).to_string();
        assert_eq!(
            said,
            "authentication failed: no such user; check sasl.username and sasl.password"
        );
        assert!(
            SaslError::denied(Mechanism::Bearer, None)
                .to_string()
                .contains("token")
        );
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
