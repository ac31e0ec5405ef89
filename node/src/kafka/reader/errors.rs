//! What each of Kafka's error codes means for a lane that is read. The codes:
//! <https://kafka.apache.org/protocol#protocol_error_codes>.

use super::settings::Settings;
use crate::kafka::source::KafkaSourceError;

/// What to do about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Somebody else may lead, or soon will: find out, and ask again after a while.
    Refresh,
    /// Ask the same one again after a while.
    Again,
    /// The topic or partition may be gone, or the broker not know it yet: find out.
    Missing,
    /// The lane cannot be read on.
    Fault(KafkaSourceError),
}

/// Where an error came up.
pub(super) struct Place<'a> {
    pub(super) settings: &'a Settings,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

impl Place<'_> {
    pub(super) fn fatal(&self, reason: String) -> KafkaSourceError {
        KafkaSourceError::Fatal {
            topic: self.settings.topic.clone(),
            partition: self.partition,
            offset: self.offset,
            reason,
        }
    }

    pub(super) fn missing(&self) -> KafkaSourceError {
        KafkaSourceError::TopicMissing {
            topic: self.settings.topic.clone(),
            brokers: self.settings.brokers.clone(),
        }
    }

    /// What follows from a code that is not 0.
    pub(super) fn judge(&self, code: i16) -> Verdict {
        let topic = self.settings.topic.clone();
        match code {
            1 => Verdict::Fault(KafkaSourceError::OffsetOutOfRange {
                topic,
                partition: self.partition,
                offset: self.offset,
            }),
            // Unknown topic or partition, unknown topic id, another id than the broker's.
            3 | 100 | 103 => Verdict::Missing,
            29 => Verdict::Fault(KafkaSourceError::Denied { topic }),
            // Corrupt message, unknown leader epoch, offset not available, throttled: it is not the broker that is wrong.
            2 | 75 | 78 | 89 => Verdict::Again,
            // Leader not available, not the leader, timed out, broker or replica not available, network, disk error, fenced
            // leader epoch, another broker's address.
            5..=9 | 13 | 56 | 74 => Verdict::Refresh,
            _ => Verdict::Fault(self.fatal(format!("the broker answers with {}", name(code)))),
        }
    }
}

/// What people find in Kafka's documentation.
pub(super) fn name(code: i16) -> String {
    let name = match code {
        -1 => "UNKNOWN_SERVER_ERROR",
        1 => "OFFSET_OUT_OF_RANGE",
        2 => "CORRUPT_MESSAGE",
        3 => "UNKNOWN_TOPIC_OR_PARTITION",
        5 => "LEADER_NOT_AVAILABLE",
        6 => "NOT_LEADER_OR_FOLLOWER",
        17 => "INVALID_TOPIC_EXCEPTION",
        29 => "TOPIC_AUTHORIZATION_FAILED",
        31 => "CLUSTER_AUTHORIZATION_FAILED",
        33 => "UNSUPPORTED_SASL_MECHANISM",
        34 => "ILLEGAL_SASL_STATE",
        35 => "UNSUPPORTED_VERSION",
        42 => "INVALID_REQUEST",
        43 => "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        58 => "SASL_AUTHENTICATION_FAILED",
        76 => "UNSUPPORTED_COMPRESSION_TYPE",
        _ => return format!("error {code}"),
    };
    format!("{name} (error {code})")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::kafka::source::KafkaSourceConfig;

    #[test]
    fn each_code_has_its_consequence() {
        let config = KafkaSourceConfig {
            brokers: "a:1".to_owned(),
            topic: "orders".to_owned(),
            read_ahead: 0,
            properties: BTreeMap::new(),
        };
        let settings = Settings::read(&config).unwrap();
        let place = Place {
            settings: &settings,
            partition: 3,
            offset: 17,
        };
        for code in [5, 6, 7, 9, 13, 56, 74] {
            assert_eq!(place.judge(code), Verdict::Refresh, "{code}");
        }
        for code in [2, 75, 78, 89] {
            assert_eq!(place.judge(code), Verdict::Again, "{code}");
        }
        for code in [3, 100, 103] {
            assert_eq!(place.judge(code), Verdict::Missing, "{code}");
        }
        let told = |code| match place.judge(code) {
            Verdict::Fault(error) => error.to_string(),
            other => format!("{other:?}"),
        };
        assert!(
            told(1).contains("partition 3 has no offset 17"),
            "{}",
            told(1)
        );
        assert!(told(29).contains("grant it Read"), "{}", told(29));
        assert!(
            told(76).contains("UNSUPPORTED_COMPRESSION_TYPE"),
            "{}",
            told(76)
        );
        assert!(told(1234).contains("offset 17: the broker answers with error 1234"));
    }
}
