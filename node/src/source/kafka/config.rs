//! What a Kafka source is told, and how librdkafka is set up for it.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::error::KafkaSourceError;

/// What a Kafka source reads, and from where.
#[derive(Clone)]
pub struct KafkaSourceConfig {
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// All partitions of this topic are read.
    pub topic: String,
    /// Properties of librdkafka, over our defaults. Those of [`FIXED`] are refused.
    pub properties: BTreeMap<String, String>,
}

impl fmt::Debug for KafkaSourceConfig {
    /// Shows the names of the properties alone: their values hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceConfig")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

/// What decides which bytes are read, on every replica alike: not to be changed.
pub const FIXED: [(&str, &str); 5] = [
    ("isolation.level", "read_committed"),
    ("check.crcs", "true"),
    ("auto.offset.reset", "error"),
    ("enable.auto.commit", "false"),
    ("enable.partition.eof", "true"),
];

/// What the user may change. librdkafka's own defaults are made for few large topics: with them a lane whose queue was
/// full is not fetched again for a second, and a restarted broker is noticed after up to ten.
const DEFAULTS: [(&str, &str); 14] = [
    ("client.id", "unisono"),
    ("queued.min.messages", "100000"),
    // For each lane: what a replica reads ahead of the ticks.
    ("queued.max.messages.kbytes", "16384"),
    ("fetch.queue.backoff.ms", "10"),
    ("fetch.error.backoff.ms", "50"),
    ("fetch.message.max.bytes", "4194304"),
    // How long the broker holds a request when there is nothing: also how late a lane is seen to be at its end.
    ("fetch.wait.max.ms", "50"),
    ("socket.nagle.disable", "true"),
    ("socket.keepalive.enable", "true"),
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "1000"),
    ("topic.metadata.refresh.interval.ms", "30000"),
    // A topic is asked for before it is assigned; when it is gone after that, it was deleted.
    ("topic.metadata.propagation.max.ms", "3000"),
    // librdkafka assigns partitions only to consumers that have one. No group is joined, and no offset is committed.
    ("group.id", "unisono-assigned"),
];

/// Properties whose values clients of the broker share, whatever they do: addresses and security.
pub(crate) fn connection(brokers: &str, properties: &BTreeMap<String, String>) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("client.id", "unisono")
        .set("reconnect.backoff.ms", "50");
    config
        .set("reconnect.backoff.max.ms", "1000")
        .set("socket.nagle.disable", "true");
    let shared = [
        "security.",
        "sasl.",
        "ssl.",
        "socket.",
        "reconnect.",
        "broker.",
        "client.",
    ];
    for (name, value) in properties {
        if shared.iter().any(|prefix| name.starts_with(prefix)) {
            config.set(name, value);
        }
    }
    config.set("bootstrap.servers", brokers);
    config
}

impl KafkaSourceConfig {
    /// The client that reads.
    pub(super) fn reader(&self) -> Result<ClientConfig, KafkaSourceError> {
        let mut config = connection(&self.brokers, &BTreeMap::new());
        for (name, value) in DEFAULTS {
            config.set(name, value);
        }
        for (name, value) in &self.properties {
            self.allow(name)?;
            config.set(name, value);
        }
        for (name, value) in FIXED {
            config.set(name, value);
        }
        // The only word librdkafka has for "another topic has this name now" is a line of this log, written when it
        // refreshes its metadata: the context looks for it and drops the rest.
        let debug = match self.properties.get("debug") {
            Some(asked) => format!("{asked},metadata"),
            None => "metadata".to_owned(),
        };
        config.set("debug", debug);
        config.set_log_level(RDKafkaLogLevel::Debug);
        self.check(config)
    }

    /// The client that asks for the ends of the lanes: of all that was appended, committed or not.
    pub(super) fn watcher(&self) -> Result<ClientConfig, KafkaSourceError> {
        let mut config = connection(&self.brokers, &self.properties);
        config.set("isolation.level", "read_uncommitted");
        self.check(config)
    }

    fn allow(&self, name: &str) -> Result<(), KafkaSourceError> {
        let fixed = FIXED.iter().find(|(fixed, _)| *fixed == name);
        let reason = match (fixed, name) {
            (Some((_, value)), _) => {
                format!("is always {value}, since it decides what is read; remove it")
            }
            (None, "bootstrap.servers" | "metadata.broker.list") => {
                "is set by brokers; remove it".to_owned()
            }
            _ => return Ok(()),
        };
        Err(KafkaSourceError::Property {
            topic: self.topic.clone(),
            name: name.to_owned(),
            reason,
        })
    }

    fn check(&self, config: ClientConfig) -> Result<ClientConfig, KafkaSourceError> {
        match config.create_native_config() {
            Ok(_) => Ok(config),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// Turns librdkafka's refusal of a configuration into an error that names the property.
    pub(super) fn refused(&self, error: &rdkafka::error::KafkaError) -> KafkaSourceError {
        let (name, reason) = match error {
            // The value, the third field, may be a password.
            rdkafka::error::KafkaError::ClientConfig(_, reason, name, _) => {
                (name.clone(), reason.clone())
            }
            other => ("properties".to_owned(), other.to_string()),
        };
        KafkaSourceError::Property {
            topic: self.topic.clone(),
            name,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> KafkaSourceConfig {
        KafkaSourceConfig {
            brokers: "127.0.0.1:1".into(),
            topic: "orders".into(),
            properties: BTreeMap::from([(name.into(), value.into())]),
        }
    }

    fn refusal(name: &str, value: &str) -> String {
        with(name, value)
            .reader()
            .map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_decides_the_bytes_read_cannot_be_changed() {
        assert_eq!(
            refusal("isolation.level", "read_uncommitted"),
            "kafka source orders: property isolation.level: is always read_committed, since it \
             decides what is read; remove it"
        );
        assert!(refusal("bootstrap.servers", "other:9092").contains("remove it"));
    }

    #[test]
    fn an_unknown_property_is_named() {
        assert!(refusal("fetch.wait.max", "1").contains("property fetch.wait.max:"));
        assert_eq!(refusal("fetch.wait.max.ms", "1"), "");
    }

    #[test]
    fn passwords_show_neither_in_debug_output_nor_in_errors() {
        let config = with("sasl.password", "secret");
        assert!(!format!("{config:?}").contains("secret"));
        assert!(!refusal("sasl.passwort", "secret").contains("secret"));
    }
}
