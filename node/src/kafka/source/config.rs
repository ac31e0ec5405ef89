//! What a Kafka source is told, and how librdkafka is set up for it.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use super::error::{KafkaSourceError, Place};
use crate::kafka::properties::Role;
use crate::kafka::{Clients, Refused, client, refused};

/// What a Kafka source reads, and from where.
#[derive(Clone)]
pub struct KafkaSourceConfig {
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// All partitions of this topic are read.
    pub topic: String,
    /// About how many bytes the client may hold of each lane before they are polled.
    pub read_ahead: usize,
    /// Properties of librdkafka, over our defaults; some are refused.
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

/// What a message takes in the client's memory beside its payload.
const MESSAGE: usize = 320;
/// How a client's queues are sized that may hold `share` bytes of each lane.
///
/// A lane is not fetched while its queue holds a certain number of bytes or messages, and what is fetched then comes on
/// top. Records of a few bytes take up to twenty times as much in memory as in the response, so that one fetch of a
/// sixteenth of the share may fill about all of it again. Smaller ones would make a replay wait for round trips.
fn queue_sizes(share: usize) -> [(&'static str, String); 4] {
    // Whoever only asks for lanes and ends reads nothing.
    let share = share.max(256 << 10);
    let fetch = (share / 16).clamp(64 << 10, 1 << 20);
    let messages = (share / MESSAGE).max(1000);
    [
        ("queued.max.messages.kbytes", (share / 1024).to_string()),
        ("queued.min.messages", messages.to_string()),
        ("fetch.message.max.bytes", fetch.to_string()),
        // Of all lanes of a broker; librdkafka wants that much at least.
        ("fetch.max.bytes", (4 << 20).to_string()),
    ]
}

impl KafkaSourceConfig {
    /// The client that reads.
    pub(super) fn reader(&self) -> Result<Clients, KafkaSourceError> {
        let sizes = queue_sizes(self.read_ahead);
        let config = client(Role::Source, &self.brokers, &sizes, &self.properties);
        let mut config = config.map_err(|refused| self.refusal(refused))?;
        // The only word librdkafka has for "another topic has this name now" is a line of this log, written when it
        // refreshes its metadata: the context looks for it and drops the rest.
        let debug = match self.properties.get("debug") {
            Some(asked) => format!("{asked},metadata"),
            None => "metadata".to_owned(),
        };
        config.set("debug", debug);
        config.set_log_level(RDKafkaLogLevel::Debug);
        Ok(config)
    }

    /// The client that asks for the ends of the lanes: of all that was appended, committed or not.
    pub(super) fn watcher(&self) -> Result<Clients, KafkaSourceError> {
        client(Role::Watcher, &self.brokers, &[], &self.properties)
            .map_err(|refused| self.refusal(refused))
    }

    /// Turns librdkafka's refusal of a configuration into an error that names the property.
    pub(super) fn refused(&self, error: &KafkaError) -> KafkaSourceError {
        self.refusal(refused(error))
    }

    /// Where an error came up.
    pub(super) fn place(&self, partition: i32, offset: i64) -> Place<'_> {
        Place {
            topic: &self.topic,
            brokers: &self.brokers,
            partition,
            offset,
        }
    }

    fn refusal(&self, refused: Refused) -> KafkaSourceError {
        KafkaSourceError::Property {
            topic: self.topic.clone(),
            name: refused.name,
            reason: refused.reason,
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
            read_ahead: 1 << 20,
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
            "kafka source orders: property isolation.level: is fixed (read_committed: records of \
             aborted transactions must not count); remove it"
        );
        assert!(refusal("bootstrap.servers", "other:9092").contains("remove it"));
    }

    #[test]
    fn a_client_of_any_share_can_be_made() {
        for read_ahead in [0, 1 << 10, 64 << 20, 1 << 30] {
            let config = KafkaSourceConfig {
                read_ahead,
                ..with("client.id", "test")
            };
            let client = config.reader().map(|reader| reader.create_native_config());
            assert!(matches!(client, Ok(Ok(_))), "{read_ahead}");
        }
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
