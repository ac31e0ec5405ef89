//! The messages that are exchanged beside fetching: which versions a broker speaks, where partitions are led, who writes
//! to them.
//!
//! Only versions that brokers from 2.8 on speak, each with its fields in the order of Kafka's own description.

use std::collections::BTreeMap;

use super::codec::{Cursor, Malformed, Writer};

/// A request's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    Fetch,
    Metadata,
    SaslHandshake,
    Versions,
    SaslAuthenticate,
    DescribeProducers,
}

impl Api {
    pub const fn key(self) -> i16 {
        match self {
            Self::Fetch => 1,
            Self::Metadata => 3,
            Self::SaslHandshake => 17,
            Self::Versions => 18,
            Self::SaslAuthenticate => 36,
            Self::DescribeProducers => 61,
        }
    }

    /// The versions that are spoken here.
    pub const fn versions(self) -> (i16, i16) {
        match self {
            Self::Fetch => (12, 13),
            Self::Metadata => (10, 12),
            Self::SaslHandshake => (1, 1),
            Self::Versions => (3, 3),
            Self::SaslAuthenticate => (2, 2),
            Self::DescribeProducers => (0, 0),
        }
    }

    /// Whether a question's head ends with tagged fields: not where a message is older than they are.
    pub const fn asks_with_tags(self) -> bool {
        !matches!(self, Self::SaslHandshake)
    }

    /// Whether an answer's head does. The one to the first question must be readable by whoever asks.
    pub const fn answers_with_tags(self) -> bool {
        !matches!(self, Self::SaslHandshake | Self::Versions)
    }
}

/// Asks which versions the broker speaks.
pub fn write_api_versions(to: &mut Writer) {
    to.text("unisono").text(env!("CARGO_PKG_VERSION")).no_tags();
}

/// The newest version of each kind that a broker and we speak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spoken(BTreeMap<i16, (i16, i16)>);

impl Spoken {
    /// Reads the answer; the error's code of Kafka, if it is one.
    pub fn read(bytes: &[u8]) -> Result<Result<Self, i16>, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let error = cursor.i16()?;
        if error != 0 {
            return Ok(Err(error));
        }
        let spoken = cursor.each(|cursor| {
            let entry = (cursor.i16()?, (cursor.i16()?, cursor.i16()?));
            cursor.skip_tags()?;
            Ok(entry)
        })?;
        Ok(Ok(Self(spoken.into_iter().collect())))
    }

    /// The newest version of a kind that both speak.
    pub fn version(&self, api: Api) -> Option<i16> {
        let (least, most) = *self.0.get(&api.key())?;
        let (known_least, known_most) = api.versions();
        let version = most.min(known_most);
        (version >= known_least.max(least)).then_some(version)
    }

    /// The newest version that the broker speaks of a kind.
    #[cfg(test)]
    fn of(api: Api, least: i16, most: i16) -> Self {
        Self(BTreeMap::from([(api.key(), (least, most))]))
    }
}

/// Asks to authenticate by that mechanism, at first or again.
pub fn write_sasl_handshake(to: &mut Writer, mechanism: &str) {
    to.old_text(mechanism);
}

/// Reads the answer: Kafka's code, 0: none; which mechanisms the broker offers.
pub fn read_sasl_handshake(bytes: &[u8]) -> Result<(i16, Vec<String>), Malformed> {
    let mut cursor = Cursor::new(bytes);
    let error = cursor.i16()?;
    let mut offered = Vec::new();
    for _ in 0..cursor.old_count()? {
        offered.push(cursor.old_text()?.to_owned());
    }
    Ok((error, offered))
}

/// What a broker says to a step of an authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated<'a> {
    /// Kafka's code, 0: none.
    pub error: i16,
    pub message: Option<&'a str>,
    /// The mechanism's own message.
    pub said: &'a [u8],
    /// After how many milliseconds the broker wants it again; 0: never.
    pub lifetime_ms: i64,
}

/// One step of an authentication: the mechanism's own message.
pub fn write_sasl_authenticate(to: &mut Writer, message: &[u8]) {
    to.bytes(message).no_tags();
}

pub fn read_sasl_authenticate(bytes: &[u8]) -> Result<Authenticated<'_>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let error = cursor.i16()?;
    let message = cursor.text_or_none()?;
    let said = cursor.bytes()?;
    Ok(Authenticated {
        error,
        message,
        said: &bytes[said],
        lifetime_ms: cursor.i64()?,
    })
}

/// A topic's id.
pub type TopicId = [u8; 16];

/// A broker, as it wants to be spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    pub host: String,
    pub port: u16,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    pub broker: i32,
    /// -1: unknown.
    pub epoch: i32,
}

/// What a broker knows of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub cluster: Option<String>,
    pub brokers: BTreeMap<i32, BrokerAddress>,
    /// Kafka's code, 0: none.
    pub error: i16,
    pub topic: TopicId,
    /// With the code of what is wrong with each.
    pub partitions: BTreeMap<i32, (Leader, i16)>,
}

/// Asks for a topic that is not made by asking.
pub fn write_metadata(to: &mut Writer, version: i16, topic: &str) {
    to.count(1).put(&[0; 16]).text(topic).no_tags();
    // Not created, without what the cluster and the topic allow.
    to.bool(false);
    if version < 11 {
        to.bool(false);
    }
    to.bool(false).no_tags();
}

/// Reads the answer; `None`: it is not about this topic.
pub fn read_metadata(bytes: &[u8], topic: &str) -> Result<Option<Metadata>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let _throttled = cursor.i32()?;
    let brokers = cursor.each(|cursor| {
        let id = cursor.i32()?;
        let host = cursor.text()?.to_owned();
        let port = cursor.i32()?;
        let _rack = cursor.text_or_none()?;
        cursor.skip_tags()?;
        let port = u16::try_from(port).map_err(|_| Malformed("a port is none"))?;
        Ok((id, BrokerAddress { host, port }))
    })?;
    let cluster = cursor.text_or_none()?.map(str::to_owned);
    let _controller = cursor.i32()?;
    let mut found = None;
    for _ in 0..cursor.count()? {
        let error = cursor.i16()?;
        let name = cursor.text_or_none()?;
        let id = cursor.array()?;
        let _is_internal = cursor.i8()?;
        let partitions = cursor.each(read_partition)?;
        let _allowed = cursor.i32()?;
        cursor.skip_tags()?;
        if name == Some(topic) {
            found = Some((error, id, partitions.into_iter().collect()));
        }
    }
    Ok(found.map(|(error, topic, partitions)| Metadata {
        cluster,
        brokers: brokers.into_iter().collect(),
        error,
        topic,
        partitions,
    }))
}

fn read_partition(cursor: &mut Cursor<'_>) -> Result<(i32, (Leader, i16)), Malformed> {
    let error = cursor.i16()?;
    let number = cursor.i32()?;
    let leader = Leader {
        broker: cursor.i32()?,
        epoch: cursor.i32()?,
    };
    for _replicas in 0..3 {
        cursor.each(Cursor::i32)?;
    }
    cursor.skip_tags()?;
    Ok((number, (leader, error)))
}

/// Asks who writes to a partition.
pub fn write_describe_producers(to: &mut Writer, topic: &str, partition: i32) {
    to.count(1).text(topic).count(1).i32(partition);
    to.no_tags().no_tags();
}

/// A transaction that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The producer's id.
    pub producer: i64,
    /// Its first offset.
    pub start: i64,
    /// The time of its last record, by the producer's clock: milliseconds since 1970.
    pub last_ms: i64,
}

/// Reads the answer: the transaction that has been open longest; the code of what is wrong.
pub fn read_describe_producers(
    bytes: &[u8],
) -> Result<Result<Option<OpenTransaction>, i16>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let _throttled = cursor.i32()?;
    let mut oldest: Option<OpenTransaction> = None;
    let mut failed = 0;
    for _ in 0..cursor.count()? {
        cursor.text()?;
        for _ in 0..cursor.count()? {
            let _partition = cursor.i32()?;
            failed = cursor.i16()?;
            cursor.text_or_none()?;
            let producers = cursor.each(read_producer)?;
            cursor.skip_tags()?;
            let open = producers.into_iter().filter(|producer| producer.start >= 0);
            oldest = open.min_by_key(|producer| producer.start);
        }
        cursor.skip_tags()?;
    }
    Ok(match failed {
        0 => Ok(oldest),
        code => Err(code),
    })
}

fn read_producer(cursor: &mut Cursor<'_>) -> Result<OpenTransaction, Malformed> {
    let producer = cursor.i64()?;
    let _epoch = cursor.i32()?;
    let _sequence = cursor.i32()?;
    let last_ms = cursor.i64()?;
    let _coordinator_epoch = cursor.i32()?;
    let start = cursor.i64()?;
    cursor.skip_tags()?;
    Ok(OpenTransaction {
        producer,
        start,
        last_ms,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_both_speak_is_taken() {
        let speaks = |least, most| Spoken::of(Api::Fetch, least, most).version(Api::Fetch);
        assert_eq!(speaks(4, 18), Some(13));
        assert_eq!(speaks(0, 12), Some(12));
        assert_eq!(speaks(0, 11), None);
        assert_eq!(speaks(14, 20), None);
        assert_eq!(Spoken::default().version(Api::Fetch), None);
    }

    #[test]
    fn an_authentications_messages_are_as_kafka_describes_them() {
        let mut asked = Writer::default();
        write_sasl_handshake(&mut asked, "PLAIN");
        assert_eq!(asked.0, b"\0\x05PLAIN");
        let answer = b"\0\x21\0\0\0\x02\0\x05PLAIN\0\x0dSCRAM-SHA-256";
        let offered = vec!["PLAIN".to_owned(), "SCRAM-SHA-256".to_owned()];
        assert_eq!(read_sasl_handshake(answer), Ok((33, offered)));
        let mut asked = Writer::default();
        write_sasl_authenticate(&mut asked, b"\0me\0pass");
        assert_eq!(asked.0, b"\x09\0me\0pass\0");
        let answer = b"\0\x3a\x03no\x04v=x\0\0\0\0\0\0\x0b\xb8\0";
        let expected = Authenticated {
            error: 58,
            message: Some("no"),
            said: b"v=x",
            lifetime_ms: 3000,
        };
        assert_eq!(read_sasl_authenticate(answer), Ok(expected));
        for length in 0..answer.len() - 1 {
            assert!(read_sasl_authenticate(&answer[..length]).is_err());
        }
    }

    #[test]
    fn the_transaction_is_told_that_has_been_open_longest() {
        let mut answer = Writer::default();
        answer.i32(0).count(1).text("orders").count(1).i32(3).i16(0);
        // No text; three producers.
        answer.put(&[0]).count(3);
        for (producer, start) in [(7, -1), (8, 40), (9, 30)] {
            answer.i64(producer).i32(0).i32(5).i64(1000).i32(-1);
            answer.i64(start).no_tags();
        }
        answer.no_tags().no_tags().no_tags();
        let open = read_describe_producers(&answer.0).unwrap().unwrap();
        let expected = OpenTransaction {
            producer: 9,
            start: 30,
            last_ms: 1000,
        };
        assert_eq!(open, Some(expected));
    }
}
