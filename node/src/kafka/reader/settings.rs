//! What users may set of the direct reader: by librdkafka's names, as far as it has them.

use std::sync::Arc;
use std::time::Duration;

use super::messages::BrokerAddress;
use crate::kafka::properties::{fixed_for_sources, is_fixed};
use crate::kafka::security::{self, Security};
use crate::kafka::source::{KafkaSourceConfig, KafkaSourceError};

/// Kafka's port, where none is given.
const PORT: u16 = 9092;

/// How to read, as it was set or by default.
#[derive(Clone, Debug)]
pub struct Settings {
    pub topic: String,
    /// Where to ask first.
    pub bootstrap: Vec<BrokerAddress>,
    /// As in the config, for people.
    pub brokers: String,
    /// Bytes of one lane that may wait to be read.
    pub share: usize,
    pub client_id: String,
    /// Where we are, as brokers call it; empty: nowhere.
    pub rack: String,
    pub security: Arc<Security>,
    /// How long the broker holds a question when there is nothing: also how late a lane is seen to be at its end.
    pub max_wait: Duration,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub connect_within: Duration,
    pub answer_within: Duration,
    /// Between two tries, at first and at most.
    pub back_off: (Duration, Duration),
    /// How often it is asked where partitions are led.
    pub refresh: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            topic: String::new(),
            bootstrap: Vec::new(),
            brokers: String::new(),
            share: 256 << 10,
            client_id: "unisono".to_owned(),
            rack: String::new(),
            security: Arc::default(),
            max_wait: Duration::from_millis(50),
            min_bytes: 1,
            max_bytes: 8 << 20,
            connect_within: Duration::from_secs(2),
            answer_within: Duration::from_secs(5),
            back_off: (Duration::from_millis(50), Duration::from_secs(1)),
            refresh: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Reads what a source is told.
    ///
    /// # Errors
    /// [`KafkaSourceError::Property`].
    pub fn read(config: &KafkaSourceConfig) -> Result<Self, KafkaSourceError> {
        let refused = |name: &str, reason: String| KafkaSourceError::Property {
            topic: config.topic.clone(),
            name: name.to_owned(),
            reason,
        };
        let bootstrap = addresses(&config.brokers).map_err(|reason| refused("brokers", reason))?;
        let mut settings = Self {
            topic: config.topic.clone(),
            bootstrap,
            brokers: config.brokers.clone(),
            share: config.read_ahead.max(256 << 10),
            ..Self::default()
        };
        let properties = config.properties.iter();
        let properties = properties.map(|(name, value)| (name.as_str(), value.as_str()));
        let set = settings.set_all(properties);
        set.map_err(|(name, reason)| refused(&name, reason))?;
        Ok(settings)
    }

    fn set_all<'a>(
        &mut self,
        properties: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), (String, String)> {
        let mut security = security::Properties::default();
        for (name, value) in properties {
            let set = match security.set(name, value) {
                Some(set) => set,
                None => self.set(name, value),
            };
            set.map_err(|reason| (name.to_owned(), reason))?;
        }
        let security = security.finish();
        let security = security.map_err(|(name, reason)| (name.to_owned(), reason))?;
        self.security = Arc::new(security);
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "client.id" => self.client_id = value.to_owned(),
            "client.rack" => self.rack = value.to_owned(),
            "fetch.wait.max.ms" => self.max_wait = millis(value, 1, 1000)?,
            "fetch.min.bytes" => self.min_bytes = number(value, 1, 100 << 20)?,
            "fetch.max.bytes" => self.max_bytes = number(value, 64 << 10, 100 << 20)?,
            "socket.timeout.ms" => self.answer_within = millis(value, 1000, 300_000)?,
            "socket.connection.setup.timeout.ms" => {
                self.connect_within = millis(value, 100, 300_000)?;
            }
            "reconnect.backoff.ms" => self.back_off.0 = millis(value, 1, 3_600_000)?,
            "reconnect.backoff.max.ms" => self.back_off.1 = millis(value, 1, 3_600_000)?,
            "topic.metadata.refresh.interval.ms" | "metadata.max.age.ms" => {
                self.refresh = millis(value, 100, 3_600_000)?;
            }
            _ => return Err(not_known(name)),
        }
        Ok(())
    }
}

/// Why a property cannot be set, if so.
#[must_use]
pub fn refusal(name: &str, value: &str) -> Option<String> {
    let set = security::Properties::default().set(name, value);
    set.unwrap_or_else(|| Settings::default().set(name, value))
        .err()
}

/// Which of properties that can be set each by itself does not fit the others, and why.
#[must_use]
pub fn misfit<'a>(
    properties: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<(String, String)> {
    Settings::default().set_all(properties).err()
}

fn not_known(name: &str) -> String {
    match fixed_for_sources(name) {
        Some(reason) => is_fixed(reason),
        None => "is not known to the direct reader; remove it, or set reader = \"librdkafka\" for this source".to_owned(),
    }
}

fn number(value: &str, least: i32, most: i32) -> Result<i32, String> {
    let number = value.trim().parse().ok();
    let allowed = number.filter(|number| (least..=most).contains(number));
    allowed.ok_or_else(|| format!("must be a number from {least} to {most}"))
}

fn millis(value: &str, least: i32, most: i32) -> Result<Duration, String> {
    let millis = number(value, least, most)?;
    Ok(Duration::from_millis(u64::from(millis.unsigned_abs())))
}

/// Reads `host:port`, several with commas; an IPv6 address in brackets.
fn addresses(brokers: &str) -> Result<Vec<BrokerAddress>, String> {
    let parts = brokers.split(',').map(str::trim);
    let all = parts.filter(|part| !part.is_empty()).map(address);
    let all: Vec<_> = all.collect::<Result<_, _>>()?;
    match all.is_empty() {
        true => Err("names no broker; write host:port".to_owned()),
        false => Ok(all),
    }
}

fn address(text: &str) -> Result<BrokerAddress, String> {
    let wrong = || format!("\"{text}\" is not host:port, or [address]:port for IPv6");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return Err(wrong()),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(wrong());
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
    Ok(BrokerAddress {
        host: host.to_owned(),
        port,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(brokers: &str, properties: &[(&str, &str)]) -> Result<Settings, String> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let config = KafkaSourceConfig {
            brokers: brokers.to_owned(),
            topic: "orders".to_owned(),
            read_ahead: 1 << 20,
            properties: properties.iter().map(owned).collect::<BTreeMap<_, _>>(),
        };
        Settings::read(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn brokers_are_hosts_with_ports() {
        let found = read("a:1, b ,[::1]:9,127.0.0.1:7", &[]).unwrap().bootstrap;
        let found: Vec<_> = found.iter().map(|of| (of.host.as_str(), of.port)).collect();
        assert_eq!(found, [("a", 1), ("b", 9092), ("::1", 9), ("127.0.0.1", 7)]);
        for wrong in ["", ",", ":1", "a:x", "a:70000", "::1", "[::1"] {
            assert!(
                read(wrong, &[]).unwrap_err().contains("property brokers"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_the_way_out() {
        let set = read("a:1", &[("fetch.wait.max.ms", "7"), ("client.id", "x")]).unwrap();
        assert_eq!(
            (set.max_wait, set.client_id.as_str()),
            (Duration::from_millis(7), "x")
        );
        let refused = read("a:1", &[("queued.min.messages", "7")]).unwrap_err();
        assert!(
            refused.contains("property queued.min.messages"),
            "{refused}"
        );
        assert!(refused.contains("reader = \"librdkafka\""), "{refused}");
        let fixed = read("a:1", &[("isolation.level", "read_uncommitted")]).unwrap_err();
        assert!(fixed.contains("is fixed (read_committed"), "{fixed}");
        let encrypted = read("a:1", &[("ssl.key.password", "x")]).unwrap_err();
        assert!(encrypted.contains("reader = \"librdkafka\""), "{encrypted}");
        let wrong = read("a:1", &[("fetch.wait.max.ms", "soon")]).unwrap_err();
        assert!(wrong.contains("must be a number from 1 to 1000"), "{wrong}");
    }

    #[test]
    fn what_secures_a_connection_is_read_as_a_whole() {
        let sasl = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "me"),
            ("sasl.password", "hunter2"),
            ("client.id", "x"),
        ];
        let set = read("a:1", &sasl).unwrap();
        assert!(set.security.tls.is_some() && set.security.sasl.is_some());
        assert_eq!(set.client_id, "x");
        assert!(!format!("{set:?}").contains("hunter2"), "{set:?}");
        let lacks = read("a:1", &sasl[..3]).unwrap_err();
        assert!(
            lacks.contains("property sasl.password: is needed"),
            "{lacks}"
        );
        assert_eq!(misfit(sasl.into_iter()), None);
        assert!(misfit(sasl[..2].iter().copied()).is_some());
    }
}
