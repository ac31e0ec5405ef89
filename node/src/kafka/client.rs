//! Puts a client's configuration together.

use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::Clients;
use super::properties::{Role, fixed_for_sinks, fixed_for_sources, is_fixed};
use super::security::{self, Bearer};
use crate::likeness::did_you_mean;

/// A property that cannot be used, and why.
pub(crate) struct Refused {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The configuration of clients of `brokers`: our defaults, over them those of `sized`, over them the user's.
pub(crate) fn client(
    role: Role,
    brokers: &str,
    sized: &[(&str, String)],
    properties: &BTreeMap<String, String>,
) -> Result<Clients, Refused> {
    let bearer = bearer(properties)?;
    let mut config = ClientConfig::new();
    for (name, value) in role.defaults() {
        config.set(name, value);
    }
    for (name, value) in sized {
        config.set(*name, value);
    }
    for (name, value) in properties.iter().filter(|(name, _)| role.takes(name)) {
        let fixed = match role {
            Role::Source | Role::Watcher => fixed_for_sources(name),
            Role::Publisher | Role::Readback | Role::Admin => fixed_for_sinks(name),
        };
        if let Some(reason) = fixed {
            return Err(Refused {
                name: name.clone(),
                reason: is_fixed(reason),
            });
        }
        if bearer.is_none() || !is_of_tokens(name) {
            config.set(name, value);
        }
    }
    for fixed in role.fixed() {
        if let Some(value) = fixed.value {
            config.set(fixed.name, value);
        }
    }
    config.set("bootstrap.servers", brokers);
    match config.create_native_config() {
        Ok(_) => Ok(Clients { config, bearer }),
        Err(error) => Err(refused(&error)),
    }
}

/// Where tokens come from, if brokers ask for them.
fn bearer(properties: &BTreeMap<String, String>) -> Result<Option<Arc<Bearer>>, Refused> {
    let asked = ["sasl.mechanism", "sasl.mechanisms"].map(|name| properties.get(name));
    let mut asked = asked.into_iter().flatten();
    if !asked.any(|mechanism| mechanism == "OAUTHBEARER") {
        return Ok(None);
    }
    let mut read = security::Properties::default();
    for (name, value) in properties.iter().filter(|(name, _)| is_of_tokens(name)) {
        let unknown =
            || Err("is not known here: tokens are fetched for client credentials".to_owned());
        let done = read.set(name, value).unwrap_or_else(unknown);
        done.map_err(|reason| Refused {
            name: name.clone(),
            reason,
        })?;
    }
    let read = read.finish_bearer();
    let bearer = read.map_err(|(name, reason)| Refused {
        name: name.to_owned(),
        reason,
    })?;
    Ok(Some(Arc::new(bearer)))
}

/// Whether a property says where tokens come from, which is not librdkafka's business.
fn is_of_tokens(name: &str) -> bool {
    ["sasl.oauthbearer.", "enable.sasl.oauthbearer.", "https."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Properties that people set, to understand a typo.
const COMMON: &[&str] = &[
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "client.id",
    "client.rack",
    "compression.type",
    "compression.level",
    "linger.ms",
    "batch.size",
    "batch.num.messages",
    "message.max.bytes",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "fetch.wait.max.ms",
    "max.partition.fetch.bytes",
    "queued.max.messages.kbytes",
    "socket.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "transaction.timeout.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "broker.address.family",
    "debug",
];

/// Why the C library would not take a property of the user's, if so. The reason never holds the value, which may be a
/// password.
#[must_use]
pub(crate) fn fault_of(name: &str, value: &str) -> Option<String> {
    if is_of_tokens(name) {
        return None;
    }
    let mut config = ClientConfig::new();
    config.set(name, value);
    match config.create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            let like = did_you_mean(name, COMMON.iter().copied());
            Some(format!("is not known to librdkafka{like}"))
        }
        Err(_) => {
            Some("has a value that librdkafka does not take; see its CONFIGURATION.md".to_owned())
        }
    }
}

/// What librdkafka's refusal of a configuration says, with the property's name.
pub(crate) fn refused(error: &KafkaError) -> Refused {
    match error {
        // The value, the third field, may be a password.
        KafkaError::ClientConfig(_, reason, name, _) => Refused {
            name: name.clone(),
            reason: reason.clone(),
        },
        other => Refused {
            name: "properties".to_owned(),
            reason: other.to_string(),
        },
    }
}
