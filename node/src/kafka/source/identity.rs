//! Which topic it is, whatever has its name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::KafkaSourceConfig;
use super::error::{KafkaSourceError, Place};
use crate::kafka::context::ClientEvents;
use crate::kafka::describe::Question;

/// What brokers say that give topics no ids.
const NO_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";
/// A question that is older is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// As long as nothing was read, it is asked so often.
const AGAIN: Duration = Duration::from_secs(1);

/// A topic of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicIdentity {
    /// The Kafka cluster's id.
    pub cluster: String,
    /// The topic's.
    pub topic: String,
}

impl TopicIdentity {
    /// What stands in the log of a partition.
    #[must_use]
    pub fn of_partition(&self, partition: &str) -> String {
        format!("{}/{}/{partition}", self.cluster, self.topic)
    }

    /// What is not so any more of that which stands in the log, for people; `None`: it is the same, as far as brokers tell.
    #[must_use]
    pub fn difference(&self, agreed: &str) -> Option<Difference> {
        let (cluster, rest) = agreed.split_once('/')?;
        let (topic, _) = rest.rsplit_once('/')?;
        if cluster != self.cluster {
            return Some(Difference::Cluster {
                agreed: cluster.to_owned(),
            });
        }
        let told = topic != NO_ID && self.topic != NO_ID;
        (told && topic != self.topic).then(|| Difference::Topic {
            agreed: topic.to_owned(),
        })
    }
    /// Such a difference as an error of a source that is told `config`.
    #[must_use]
    pub fn refused(&self, config: &KafkaSourceConfig, difference: Difference) -> KafkaSourceError {
        let topic = config.topic.clone();
        match difference {
            Difference::Cluster { agreed } => KafkaSourceError::OtherCluster {
                topic,
                brokers: config.brokers.clone(),
                agreed,
                found: self.cluster.clone(),
            },
            Difference::Topic { agreed } => KafkaSourceError::TopicRecreated {
                topic,
                change: format!("id from {agreed} to {}", self.topic),
            },
        }
    }
}

/// What is another than agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the id that was agreed")]
pub enum Difference {
    /// The Kafka cluster.
    Cluster { agreed: String },
    /// The topic, though it has the same name.
    Topic { agreed: String },
}

/// Finds out which topic a client reads.
#[derive(Default)]
pub(super) struct Identifying {
    question: Option<Asked>,
    known: Option<TopicIdentity>,
    /// When the last answer came that says nothing of what is read.
    answered: Option<Instant>,
}

struct Asked {
    question: Question,
    /// Something of the topic had been read when it was asked.
    in_hand: bool,
}

/// Which topic has the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// It had it when something of it had been read already: what is read is that topic's, and a change would be noticed.
    ForGood(TopicIdentity),
    /// It had it just now.
    ForNow(TopicIdentity),
}

impl Identifying {
    /// Asks, or looks whether the answer has come; waits for it at most `timeout`. `in_hand`: something of the topic has
    /// been read.
    pub(super) fn ask(
        &mut self,
        client: &Arc<BaseConsumer<ClientEvents>>,
        place: &Place<'_>,
        in_hand: bool,
        timeout: Duration,
    ) -> Result<Option<Identified>, KafkaSourceError> {
        if let Some(known) = &self.known {
            return Ok(Some(Identified::ForGood(known.clone())));
        }
        let answered = self.answered.is_some_and(|at| at.elapsed() < AGAIN);
        if self.question.is_none() && answered && !in_hand {
            return Ok(None);
        }
        let stale = |asked: &Asked| asked.question.age() > PATIENCE || (in_hand && !asked.in_hand);
        if self.question.as_ref().is_none_or(stale) {
            let question = Question::ask(client, place.topic);
            self.question = question.map(|question| Asked { question, in_hand });
        }
        let Some(asked) = &mut self.question else {
            return Err(place.classify_call(&KafkaError::MetadataFetch(Code::InvalidTopic)));
        };
        let Some(answer) = asked.question.answer(timeout) else {
            return Ok(None);
        };
        let in_hand = asked.in_hand;
        self.question = None;
        self.answered = Some(Instant::now());
        let topic = answer.map_err(|code| place.classify_call(&KafkaError::MetadataFetch(code)))?;
        // Known to a client that has spoken with a broker. Without it the topic's id would say too little.
        let Some(cluster) = client.client().fetch_cluster_id(timeout) else {
            return Ok(None);
        };
        let found = TopicIdentity { cluster, topic };
        if !in_hand {
            return Ok(Some(Identified::ForNow(found)));
        }
        self.known = Some(found.clone());
        Ok(Some(Identified::ForGood(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_the_same_if_its_cluster_and_its_id_are() {
        let of = |cluster: &str, topic: &str| TopicIdentity {
            cluster: cluster.to_owned(),
            topic: topic.to_owned(),
        };
        let agreed = of("c", "t").of_partition("3");
        assert_eq!(agreed, "c/t/3");
        assert_eq!(of("c", "t").difference(&agreed), None);
        let (cluster, topic) = ("c".to_owned(), "t".to_owned());
        let other = Some(Difference::Topic { agreed: topic });
        assert_eq!(of("c", "u").difference(&agreed), other);
        let other = Some(Difference::Cluster { agreed: cluster });
        assert_eq!(of("d", "t").difference(&agreed), other);
        assert_eq!(of("c", NO_ID).difference(&agreed), None);
        assert_eq!(of("c", "t").difference(""), None);
    }
}
