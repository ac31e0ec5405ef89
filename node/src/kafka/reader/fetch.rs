//! Fetch: what is asked of a broker, and what its answer says. The records stay where they came.

use std::cmp::Ordering;
use std::ops::Range;

use super::codec::{Cursor, Malformed, Writer};
use super::messages::{Leader, TopicId};

/// From this version on topics are named by their ids.
const BY_ID: i16 = 13;
/// Committed records alone.
const READ_COMMITTED: i8 = 1;

/// What is asked of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub offset: i64,
    /// Of the leader, as far as is known: another one refuses. -1: unknown.
    pub leader_epoch: i32,
    /// Of the record before `offset`; the broker says if its log has another one there. -1: unknown.
    pub last_epoch: i32,
    pub max_bytes: i32,
    /// It is asked of its leader: what is said of the log's end counts.
    pub led: bool,
}

/// What holds for all that is asked at once.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    pub topic: &'a str,
    pub id: TopicId,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// Where we are: a leader may name a replica that is nearer. Empty: it is to give the records itself.
    pub rack: &'a str,
}

/// Writes a request.
pub fn write_fetch(to: &mut Writer, version: i16, terms: &Terms<'_>, request: &Request) {
    to.i32(-1).i32(terms.max_wait_ms).i32(terms.min_bytes);
    to.i32(terms.max_bytes).i8(READ_COMMITTED);
    to.i32(request.session).i32(request.epoch);
    let topic = |to: &mut Writer| match version < BY_ID {
        true => _ = to.text(terms.topic),
        false => _ = to.put(&terms.id),
    };
    to.count(usize::from(!request.partitions.is_empty()));
    if !request.partitions.is_empty() {
        topic(to);
        to.count(request.partitions.len());
        for (partition, wanted) in &request.partitions {
            to.i32(*partition).i32(wanted.leader_epoch);
            to.i64(wanted.offset).i32(wanted.last_epoch);
            // Where the log begins is what followers tell.
            to.i64(-1).i32(wanted.max_bytes).no_tags();
        }
        to.no_tags();
    }
    to.count(usize::from(!request.forgotten.is_empty()));
    if !request.forgotten.is_empty() {
        topic(to);
        to.count(request.forgotten.len());
        for partition in &request.forgotten {
            to.i32(*partition);
        }
        to.no_tags();
    }
    to.text(terms.rack).no_tags();
}

/// What an answer says of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub partition: i32,
    /// Kafka's code, 0: none.
    pub error: i16,
    /// One past all that is safe, committed or not.
    pub high_watermark: i64,
    /// One past all that can be read now: an open transaction begins there, if it is not the high watermark.
    pub last_stable: i64,
    pub log_start: i64,
    /// The log has another history: the last epoch that both know, and where it ends there.
    pub diverging: Option<(i32, i64)>,
    /// Who leads, if it is not who was asked.
    pub leader: Option<Leader>,
    /// Producers, and where their aborted transactions begin.
    pub aborted: Vec<(i64, i64)>,
    /// Who is to be asked instead for the records, of which none are here then.
    pub preferred: Option<i32>,
    /// Where record batches lie in the answer.
    pub records: Range<usize>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// How long the broker wants to hear nothing.
    pub throttle_ms: i32,
    pub error: i16,
    pub session: i32,
    pub partitions: Vec<Answered>,
}

/// Reads the answer; ranges are those in `bytes`.
pub fn read_fetch(bytes: &[u8], version: i16) -> Result<Answer, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let mut answer = Answer {
        throttle_ms: cursor.i32()?,
        error: cursor.i16()?,
        session: cursor.i32()?,
        partitions: Vec::new(),
    };
    for _ in 0..cursor.count()? {
        match version < BY_ID {
            true => _ = cursor.text()?,
            false => _ = cursor.array::<16>()?,
        }
        answer.partitions.extend(cursor.each(read_partition)?);
        cursor.skip_tags()?;
    }
    cursor.skip_tags()?;
    Ok(answer)
}

fn read_partition(cursor: &mut Cursor<'_>) -> Result<Answered, Malformed> {
    let mut answered = Answered {
        partition: cursor.i32()?,
        error: cursor.i16()?,
        high_watermark: cursor.i64()?,
        last_stable: cursor.i64()?,
        log_start: cursor.i64()?,
        diverging: None,
        leader: None,
        aborted: cursor.each(|cursor| {
            let aborted = (cursor.i64()?, cursor.i64()?);
            cursor.skip_tags()?;
            Ok(aborted)
        })?,
        preferred: Some(cursor.i32()?).filter(|broker| *broker >= 0),
        records: cursor.bytes()?,
    };
    let (diverging, leader) = (&mut answered.diverging, &mut answered.leader);
    cursor.tags(|tag, mut cursor| {
        match tag {
            0 => *diverging = Some((cursor.i32()?, cursor.i64()?)).filter(|(epoch, _)| *epoch >= 0),
            1 => {
                let told = Leader {
                    broker: cursor.i32()?,
                    epoch: cursor.i32()?,
                };
                *leader = Some(told).filter(|told| told.broker >= 0);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(answered)
}

/// A request, less what holds for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub session: i32,
    pub epoch: i32,
    pub partitions: Vec<(i32, Wanted)>,
    pub forgotten: Vec<i32>,
}

/// An incremental fetch session (KIP-227): the broker remembers what was asked, and only changes are told, either way.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// 0: there is none.
    id: i32,
    /// Of the next request; 0 asks for a new session.
    epoch: i32,
    asked: Vec<(i32, Wanted)>,
    /// Where a request without a session begins: the broker fills its answer in that order.
    turn: usize,
}

impl Session {
    /// The request that asks for exactly these partitions, which ascend.
    pub fn ask(&mut self, wanted: &[(i32, Wanted)]) -> Request {
        let mut request = Request {
            session: self.id,
            epoch: self.epoch,
            ..Request::default()
        };
        if self.id == 0 {
            request.epoch = 0;
            request.partitions.extend(wanted);
            request
                .partitions
                .rotate_left(self.turn % wanted.len().max(1));
            self.turn = self.turn.wrapping_add(1);
        } else {
            self.compare(wanted, &mut request);
        }
        self.asked.clear();
        self.asked.extend(wanted);
        request
    }

    /// Adds what is asked otherwise than before, and what is asked no more.
    fn compare(&self, wanted: &[(i32, Wanted)], request: &mut Request) {
        let (mut wanted, mut asked) = (wanted.iter().peekable(), self.asked.iter().peekable());
        loop {
            let order = match (wanted.peek(), asked.peek()) {
                (Some((wanted, _)), Some((asked, _))) => wanted.cmp(asked),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            let is = wanted.next_if(|_| order.is_le());
            let was = asked.next_if(|_| order.is_ge());
            match (is, was) {
                (None, Some((gone, _))) => request.forgotten.push(*gone),
                (is, was) if is != was => request.partitions.extend(is),
                _ => {}
            }
        }
    }

    /// Takes in the answer's own error and session. False: the session is lost, ask anew.
    pub fn answered(&mut self, error: i16, session: i32) -> bool {
        if error != 0 {
            self.id = 0;
            self.epoch = 0;
            return false;
        }
        // A broker whose sessions are all in use gives none.
        self.epoch = match self.epoch {
            _ if session == 0 => 0,
            i32::MAX => 1,
            epoch if self.id == session => epoch + 1,
            _ => 1,
        };
        self.id = session;
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn wanted(of: &[(i32, i64)]) -> Vec<(i32, Wanted)> {
        let wanted = |offset| Wanted {
            offset,
            leader_epoch: 4,
            last_epoch: -1,
            max_bytes: 1000,
            led: true,
        };
        of.iter()
            .map(|&(at, offset)| (at, wanted(offset)))
            .collect()
    }

    #[test]
    fn only_changes_are_asked_in_a_session() {
        let mut session = Session::default();
        let first = session.ask(&wanted(&[(0, 10), (1, 20), (2, 30)]));
        assert_eq!(
            (first.session, first.epoch, first.partitions.len()),
            (0, 0, 3)
        );
        assert!(session.answered(0, 77));
        let next = session.ask(&wanted(&[(0, 15), (1, 20)]));
        assert_eq!((next.session, next.epoch), (77, 1));
        assert_eq!(
            (next.partitions, next.forgotten),
            (wanted(&[(0, 15)]), vec![2])
        );
        assert!(session.answered(0, 77));
        let nothing = session.ask(&wanted(&[(0, 15), (1, 20)]));
        assert_eq!(
            (nothing.epoch, nothing.partitions, nothing.forgotten),
            (2, vec![], vec![])
        );
        // One comes, one goes, one is as it was.
        assert!(session.answered(0, 77));
        let others = session.ask(&wanted(&[(1, 20), (3, 1)]));
        assert_eq!(
            (others.partitions, others.forgotten),
            (wanted(&[(3, 1)]), vec![0])
        );
        // Lost: all is asked again.
        assert!(!session.answered(70, 0));
        let anew = session.ask(&wanted(&[(0, 15), (1, 20)]));
        assert_eq!((anew.session, anew.epoch, anew.partitions.len()), (0, 0, 2));
    }

    #[test]
    fn without_a_session_each_partition_comes_first_in_turn() {
        let mut session = Session::default();
        let mut firsts = Vec::new();
        for _ in 0..3 {
            let request = session.ask(&wanted(&[(0, 1), (1, 1), (2, 1)]));
            firsts.push(request.partitions[0].0);
            assert!(session.answered(0, 0));
        }
        assert_eq!(firsts, [0, 1, 2]);
    }

    /// An answer of one partition.
    fn answer(version: i16, tags: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut to = Writer::default();
        to.i32(5).i16(0).i32(77).count(1);
        match version < BY_ID {
            true => to.text("orders"),
            false => to.put(&[9; 16]),
        };
        to.count(1).i32(3).i16(0).i64(100).i64(90).i64(2);
        to.count(1).i64(4000).i64(80).no_tags().i32(2);
        to.bytes(b"records");
        to.put(&[tags.len() as u8]);
        for (tag, bytes) in tags {
            to.put(&[*tag, bytes.len() as u8]).put(bytes);
        }
        to.no_tags().no_tags();
        to.0
    }

    #[test]
    fn an_answer_is_read_where_it_lies() {
        let mut leader = Writer::default();
        leader.i32(6).i32(8).no_tags();
        let mut diverging = Writer::default();
        diverging.i32(3).i64(50).no_tags();
        for version in [12, 13] {
            let bytes = answer(
                version,
                &[
                    (0, diverging.0.clone()),
                    (1, leader.0.clone()),
                    (9, vec![1]),
                ],
            );
            let read = read_fetch(&bytes, version).unwrap();
            assert_eq!((read.throttle_ms, read.error, read.session), (5, 0, 77));
            let [of] = &read.partitions[..] else {
                panic!("{read:?}");
            };
            assert_eq!((of.partition, of.error), (3, 0));
            assert_eq!(
                (of.high_watermark, of.last_stable, of.log_start),
                (100, 90, 2)
            );
            assert_eq!(of.aborted, [(4000, 80)]);
            assert_eq!(of.preferred, Some(2));
            assert_eq!(of.diverging, Some((3, 50)));
            assert_eq!(
                of.leader,
                Some(Leader {
                    broker: 6,
                    epoch: 8
                })
            );
            assert_eq!(&bytes[of.records.clone()], b"records");
            for cut in 0..bytes.len() {
                assert!(read_fetch(&bytes[..cut], version).is_err(), "{cut}");
            }
        }
    }
}
