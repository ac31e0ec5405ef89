//! Puts a client's configuration together.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::properties::{Role, fixed_for_sinks, fixed_for_sources, is_fixed};

/// A property that cannot be used, and why.
pub(crate) struct Refused {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The configuration of a client of `brokers`: our defaults, over them those of `sized`, over them the user's.
pub(crate) fn client(
    role: Role,
    brokers: &str,
    sized: &[(&str, String)],
    properties: &BTreeMap<String, String>,
) -> Result<ClientConfig, Refused> {
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
        config.set(name, value);
    }
    for fixed in role.fixed() {
        if let Some(value) = fixed.value {
            config.set(fixed.name, value);
        }
    }
    config.set("bootstrap.servers", brokers);
    match config.create_native_config() {
        Ok(_) => Ok(config),
        Err(error) => Err(refused(&error)),
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
