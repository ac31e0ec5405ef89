//! Finds out which topic has the name, and where its partitions are led.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::client::{Client, PATIENCE};
use super::connection::{Connection, ConnectionError};
use super::errors::{Verdict, name};
use super::messages::{
    Api, BrokerAddress, Metadata, OpenTransaction, TopicId, read_describe_producers, read_metadata,
    write_describe_producers, write_metadata,
};
use crate::kafka::source::TopicIdentity;

/// Not more often than that.
const REST: Duration = Duration::from_millis(20);
/// While something is missing that may come.
const SOON: Duration = Duration::from_millis(100);
/// Brokers that have just started do not know all topics yet.
const SETTLES: Duration = Duration::from_secs(3);

/// Asks for ever.
pub(super) struct Finder {
    client: Rc<Client>,
    connection: Option<Connection>,
    /// Where the next connection goes.
    turn: usize,
    brokers: BTreeMap<i32, BrokerAddress>,
    /// Since when no broker answers.
    unanswered: Option<Instant>,
    /// Since when the topic, or a partition of it, is not known.
    missing: BTreeMap<Option<i32>, Instant>,
    identity: Option<TopicIdentity>,
}

impl Finder {
    pub(super) fn new(client: Rc<Client>) -> Self {
        Self {
            client,
            connection: None,
            turn: 0,
            brokers: BTreeMap::new(),
            unanswered: None,
            missing: BTreeMap::new(),
            identity: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut back_off = self.client.settings.back_off.0;
        loop {
            let client = Rc::clone(&self.client);
            let wait = match self.ask().await {
                Ok(found) => {
                    self.unanswered = None;
                    back_off = client.settings.back_off.0;
                    let settled = self.learn(found);
                    self.tell_who_holds().await;
                    if settled {
                        client.settings.refresh
                    } else {
                        SOON
                    }
                }
                Err(error) => {
                    self.connection = None;
                    self.turn += 1;
                    self.note_unanswered(&error);
                    let wait = back_off;
                    back_off = (back_off * 2).min(client.settings.back_off.1);
                    sleep(wait).await;
                    continue;
                }
            };
            sleep(REST).await;
            let changed = async {
                tokio::select! {
                    () = client.stale.notified() => {}
                    // A lane that was opened is to be compared with what was agreed.
                    () = client.shared.opened.notified() => {}
                }
            };
            let _ = timeout(wait, changed).await;
        }
    }

    async fn ask(&mut self) -> Result<Metadata, ConnectionError> {
        let client = Rc::clone(&self.client);
        let settings = &client.settings;
        if self.connection.is_none() {
            let known = settings.bootstrap.iter().chain(self.brokers.values());
            let known: Vec<_> = known.collect();
            let address = known[self.turn % known.len()];
            self.connection = Some(Connection::open(address, settings).await?);
        }
        let Some(connection) = &mut self.connection else {
            unreachable!("it was opened just now");
        };
        let topic = settings.topic.as_str();
        let asked = connection.call(Api::Metadata, |to, version| {
            write_metadata(to, version, topic);
        });
        let (answer, _) = asked.await?;
        let found = read_metadata(&answer, topic)?;
        found.ok_or(ConnectionError::Malformed(super::codec::Malformed(
            "it says nothing of the topic that it was asked for",
        )))
    }

    /// Lanes that never heard of a broker say so; the others wait, and their silence shows.
    fn note_unanswered(&mut self, error: &ConnectionError) {
        let since = *self.unanswered.get_or_insert_with(Instant::now);
        let settings = &self.client.settings;
        tracing::debug!(topic = settings.topic, %error, "no kafka broker answers");
        if since.elapsed() < PATIENCE {
            return;
        }
        let unreachable = error.of_source(&settings.topic, settings.brokers.clone());
        let shared = &self.client.shared;
        shared.fail(|_, lane| !lane.identified, &unreachable);
    }

    /// Takes in what a broker knows. Whether all lanes that are read have a leader.
    fn learn(&mut self, found: Metadata) -> bool {
        if found.error != 0 {
            self.refuse(found.error);
            return false;
        }
        self.missing.remove(&None);
        let identity = identity(&found);
        if let Some(known) = &self.identity
            && *known != identity
        {
            let change = identity.difference(&known.of_partition("0"));
            if let Some(difference) = change {
                let error = self.client.shared.refuse(&identity, difference);
                self.client.shared.fail(|_, _| true, &error);
            }
        }
        self.identity = Some(identity.clone());
        *self.client.topic.borrow_mut() = found.topic;
        self.compare(&identity);
        self.brokers.clone_from(&found.brokers);
        self.client.brokers.borrow_mut().clone_from(&found.brokers);
        let settled = self.lead(&found);
        let (leaders, nearby) = (self.client.leaders.borrow(), self.client.nearby.borrow());
        let used = leaders.values().map(|leader| leader.broker);
        let used = used.chain(nearby.brokers());
        let used = used.filter_map(|id| Some((id, found.brokers.get(&id)?.clone())));
        let used = used.collect();
        drop((leaders, nearby));
        self.client.fetch_from(&used);
        self.client.shared.changed.notify_waiters();
        settled
    }

    /// What a broker says of the whole topic instead of its partitions.
    fn refuse(&mut self, code: i16) {
        let is_missing = self.is_missing(None);
        let place = self.client.place(-1, -1);
        let error = match place.judge(code) {
            Verdict::Fault(error) => error,
            Verdict::Missing if is_missing => place.missing(),
            _ => return,
        };
        self.client.shared.fail(|_, _| true, &error);
    }

    /// Compares the topic with what was agreed of each lane that was opened since.
    fn compare(&self, identity: &TopicIdentity) {
        let mut failed = Vec::new();
        for (&partition, lane) in &mut *self.client.shared.lanes() {
            if lane.identified || lane.has_failed() {
                continue;
            }
            match identity.difference(&lane.identity) {
                Some(difference) => {
                    lane.fail(self.client.shared.refuse(identity, difference));
                    failed.push(partition);
                }
                None => lane.identified = true,
            }
        }
        self.client.shared.tell(&failed);
    }

    fn lead(&mut self, found: &Metadata) -> bool {
        let partitions: Vec<i32> = self.client.shared.lanes().keys().copied().collect();
        self.client
            .leaders
            .borrow_mut()
            .retain(|partition, _| partitions.contains(partition));
        let is_read = |partition| partitions.contains(&partition);
        self.client.nearby.borrow_mut().retain(is_read);
        let mut settled = true;
        for partition in partitions {
            match found.partitions.get(&partition) {
                Some(&(leader, _)) if leader.broker >= 0 => {
                    self.missing.remove(&Some(partition));
                    self.client.note_leader(partition, leader);
                }
                // It is elected, or its brokers are down.
                Some(_) => settled = false,
                None => {
                    settled = false;
                    if self.is_missing(Some(partition)) {
                        let error = self.client.place(partition, -1).missing();
                        let shared = &self.client.shared;
                        shared.fail(|other, _| other == partition, &error);
                    }
                }
            }
        }
        settled
    }

    /// Whether it has been missing for longer than a broker takes to know of it.
    fn is_missing(&mut self, what: Option<i32>) -> bool {
        let since = self.missing.entry(what).or_insert_with(Instant::now);
        since.elapsed() >= SETTLES
    }

    /// Says which transactions hold lanes that were asked for.
    async fn tell_who_holds(&self) {
        for (partition, offset) in self.client.held.take() {
            let topic = self.client.settings.topic.clone();
            let asked = self.who_holds(partition).await;
            match asked {
                Ok(Some(open)) => tracing::warn!(
                    topic,
                    partition,
                    offset,
                    producer_id = open.producer,
                    since_offset = open.start,
                    last_append_ms = open.last_ms,
                    "a transaction is open there: what was appended since cannot be read, and windows wait for it"
                ),
                Ok(None) => {}
                Err(reason) => tracing::warn!(
                    topic,
                    partition,
                    offset,
                    reason,
                    "a transaction is open there, by a producer that the broker does not name: what was appended since cannot \
                     be read, and windows wait for it"
                ),
            }
        }
    }

    /// Asks the partition's leader, on a connection for that alone: it happens once in a long while.
    async fn who_holds(&self, partition: i32) -> Result<Option<OpenTransaction>, String> {
        let leader = self.client.leaders.borrow().get(&partition).copied();
        let address = leader.and_then(|leader| self.brokers.get(&leader.broker));
        let address = address.ok_or("no leader is known")?;
        let settings = &self.client.settings;
        let said = |error: ConnectionError| error.to_string();
        let mut connection = Connection::open(address, settings).await.map_err(said)?;
        let asked = connection.call(Api::DescribeProducers, |to, _| {
            write_describe_producers(to, &settings.topic, partition);
        });
        let (answer, _) = asked.await.map_err(said)?;
        let answer = read_describe_producers(&answer).map_err(|error| error.to_string())?;
        answer.map_err(name)
    }
}

fn identity(found: &Metadata) -> TopicIdentity {
    TopicIdentity {
        cluster: found.cluster.clone().unwrap_or_default(),
        topic: text(&found.topic),
    }
}

/// A topic's id as Kafka's own tools show it: base64 for addresses, without padding.
fn text(id: &TopicId) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(22);
    for part in id.chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(part.get(at).copied().unwrap_or(0));
        }
        for digit in 0..=part.len() {
            let index = bits >> (18 - 6 * digit) & 0x3f;
            text.push(char::from(DIGITS[index as usize]));
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_id_is_written_as_kafka_does() {
        assert_eq!(text(&[0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        let id = [
            0xcc, 0xce, 0x0e, 0xf0, 0xf0, 0xd4, 0x49, 0x2c, 0xa6, 0x32, 0xb1, 0xd3, 0xa0, 0xef,
            0xbf, 0xff,
        ];
        assert_eq!(text(&id), "zM4O8PDUSSymMrHToO-__w");
    }
}
