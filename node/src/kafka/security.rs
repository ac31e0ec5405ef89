//! Who a broker must be, and who we are to it: TLS and SASL, by librdkafka's properties.
//!
//! Used by the reader that speaks Kafka's protocol itself, and for the tokens of librdkafka's clients.

mod bearer;
mod http;
mod sasl;
mod scram;
mod secret;
mod stream;
mod tls;
mod trouble;

use std::path::PathBuf;
use std::sync::Arc;

pub use bearer::{Bearer, Token};
pub use sasl::{Exchange, Mechanism, SaslError};
pub use secret::Secret;
pub use stream::{LinkError, Stream, open_stream};
pub use tls::Tls;
use tls::{Check, Pem};
pub use trouble::{SPEAKS_TLS, WANTS_CERTIFICATE, WANTS_SASL, explain, is_end, of_tls};

/// What was set, as it was read: names are checked against each other at the end ([`Properties::finish`]).
#[derive(Clone, Debug, Default)]
pub struct Properties {
    protocol: Protocol,
    tls: Tls,
    any_name: bool,
    unverified: bool,
    mechanism: Option<Mechanism>,
    user: Option<String>,
    password: Option<Secret>,
    bearer: bearer::Properties,
    /// The first property that has a meaning with TLS alone, or with SASL alone.
    tls_by: Option<&'static str>,
    sasl_by: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Protocol {
    #[default]
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

/// How a connection is secured.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// `None`: what is said can be overheard and changed.
    pub tls: Option<Tls>,
    /// `None`: we are nobody.
    pub sasl: Option<Sasl>,
}

/// By what we prove who we are.
#[derive(Clone, Debug)]
pub enum Sasl {
    Password {
        mechanism: Mechanism,
        user: String,
        password: Secret,
    },
    Token(Arc<Bearer>),
}

impl Security {
    /// Gets what takes a time of its own: a token that counts. An error says what is wrong and where.
    pub async fn prepare(&self) -> Result<(), String> {
        match &self.sasl {
            Some(Sasl::Token(bearer)) => bearer.token().await.map(drop),
            _ => Ok(()),
        }
    }
}

impl Sasl {
    pub fn mechanism(&self) -> Mechanism {
        match self {
            Self::Password { mechanism, .. } => *mechanism,
            Self::Token(_) => Mechanism::Bearer,
        }
    }
}

/// A property that cannot be used, and why.
pub type Refusal = (&'static str, String);

impl Properties {
    /// Takes in a property; `None`: it is none of these.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let done = match name {
            "security.protocol" => protocol(value).map(|protocol| self.protocol = protocol),
            "sasl.mechanism" | "sasl.mechanisms" => {
                self.sasl_by = Some("sasl.mechanism");
                mechanism(value).map(|mechanism| self.mechanism = Some(mechanism))
            }
            "sasl.username" => {
                self.sasl_by = Some("sasl.username");
                self.user = Some(value.to_owned());
                Ok(())
            }
            "sasl.password" => {
                self.sasl_by = Some("sasl.password");
                self.password = Some(Secret::new(value));
                Ok(())
            }
            _ => match self.bearer.set(name, value) {
                Some(done) => {
                    self.sasl_by = self.sasl_by.or(Some("sasl.oauthbearer.*"));
                    done
                }
                None => self.set_tls(name, value)?,
            },
        };
        Some(done)
    }

    fn set_tls(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let tls = &mut self.tls;
        let (slot, name, is_file) = match name {
            "ssl.ca.location" => (&mut tls.authorities, "ssl.ca.location", true),
            "ssl.ca.pem" => (&mut tls.authorities, "ssl.ca.pem", false),
            "ssl.certificate.location" => (&mut tls.certificate, "ssl.certificate.location", true),
            "ssl.certificate.pem" => (&mut tls.certificate, "ssl.certificate.pem", false),
            "ssl.key.location" => (&mut tls.key, "ssl.key.location", true),
            "ssl.key.pem" => (&mut tls.key, "ssl.key.pem", false),
            "ssl.endpoint.identification.algorithm" => {
                let read = choice(value, &[("https", false), ("none", true)]);
                return Some(read.map(|any_name| self.any_name = any_name));
            }
            "enable.ssl.certificate.verification" => {
                return Some(truth(value).map(|verified| self.unverified = !verified));
            }
            _ => return None,
        };
        if let Some(other) = slot {
            return Some(Err(format!("says what {} says; keep one", other.name())));
        }
        *slot = match is_file {
            // As librdkafka calls those whom the system trusts.
            true if value == "probe" => None,
            true => Some(Pem::At(name, PathBuf::from(value))),
            false => Some(Pem::Text(name, Secret::new(value))),
        };
        self.tls_by = Some(name);
        Some(Ok(()))
    }

    /// What was set of tokens alone.
    ///
    /// # Errors
    /// What lacks.
    pub fn finish_bearer(self) -> Result<Bearer, Refusal> {
        self.bearer.finish()
    }

    /// What was set as a whole.
    ///
    /// # Errors
    /// What lacks, or has no meaning with the rest.
    pub fn finish(self) -> Result<Security, Refusal> {
        let with_tls = matches!(self.protocol, Protocol::Ssl | Protocol::SaslSsl);
        let with_sasl = matches!(self.protocol, Protocol::SaslPlaintext | Protocol::SaslSsl);
        if let (false, Some(name)) = (with_tls, self.tls_by) {
            let reason = "has a meaning with TLS alone; set security.protocol to \"ssl\" or \"sasl_ssl\", or remove it";
            return Err((name, reason.to_owned()));
        }
        if let (false, Some(name)) = (with_sasl, self.sasl_by) {
            let reason = "has a meaning with SASL alone; set security.protocol to \"sasl_ssl\" or \"sasl_plaintext\", or remove it";
            return Err((name, reason.to_owned()));
        }
        let mut tls = self.tls;
        tls.check = match (self.unverified, self.any_name) {
            (true, _) => Check::Nothing,
            (false, true) => Check::AnyName,
            (false, false) => Check::Full,
        };
        let lacks = |name, other: &str| Err((name, format!("is needed with {other}")));
        match (&tls.certificate, &tls.key) {
            (Some(_), None) => return lacks("ssl.key.location", "ssl.certificate.location"),
            (None, Some(_)) => return lacks("ssl.certificate.location", "ssl.key.location"),
            _ => {}
        }
        let sasl = match (with_sasl, self.mechanism) {
            (false, _) => None,
            (true, None) => {
                let reason = format!("is needed with SASL; write one of {}", mechanisms());
                return Err(("sasl.mechanism", reason));
            }
            (true, Some(Mechanism::Bearer)) => Some(Sasl::Token(Arc::new(self.bearer.finish()?))),
            (true, Some(mechanism)) => match (self.user, self.password) {
                (None, _) => return lacks("sasl.username", mechanism.name()),
                (_, None) => return lacks("sasl.password", mechanism.name()),
                (Some(user), Some(password)) => Some(Sasl::Password {
                    mechanism,
                    user,
                    password,
                }),
            },
        };
        let tls = with_tls.then_some(tls);
        Ok(Security { tls, sasl })
    }
}

/// Nobody can guess it: 128 bits as text.
pub fn nonce() -> String {
    let mut bytes = [0; 16];
    let random = tokio_rustls::rustls::crypto::ring::default_provider().secure_random;
    // The system has always some.
    assert!(
        random.fill(&mut bytes).is_ok(),
        "the system gives no random bytes"
    );
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn protocol(value: &str) -> Result<Protocol, String> {
    let known = [
        ("plaintext", Protocol::Plaintext),
        ("ssl", Protocol::Ssl),
        ("sasl_plaintext", Protocol::SaslPlaintext),
        ("sasl_ssl", Protocol::SaslSsl),
    ];
    choice(value, &known)
}

fn mechanism(value: &str) -> Result<Mechanism, String> {
    let known = Mechanism::ALL.into_iter();
    let found = known.into_iter().find(|it| it.name() == value);
    found.ok_or_else(|| {
        format!(
            "is not known to the direct reader, which knows {}; set reader = \"librdkafka\" for others that it has",
            mechanisms()
        )
    })
}

fn mechanisms() -> String {
    Mechanism::ALL.map(Mechanism::name).join(", ")
}

fn truth(value: &str) -> Result<bool, String> {
    choice(value, &[("true", true), ("false", false)])
}

fn choice<T: Copy>(value: &str, of: &[(&str, T)]) -> Result<T, String> {
    let found = of
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(value.trim()));
    found.map(|(_, found)| *found).ok_or_else(|| {
        let names: Vec<_> = of.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", names.join(", "))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
