//! The tasks of one reader: one finds out where partitions are led, and one for each broker that leads some fetches from it.
//! They run on a thread of their own; what they fetch waits in the lanes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::connection::{Connection, ConnectionError};
use super::errors::{Place, Verdict};
use super::fetch::{Answer, Answered, Session, Terms, Wanted, read_fetch, write_fetch};
use super::lane::{Lane, Taken};
use super::messages::{Api, BrokerAddress, Leader, TopicId};
use super::nearby::Nearby;
use super::settings::Settings;
use crate::kafka::source::KafkaSourceError;

/// While some lane has no room, the others are not waited for longer: it may have some at any moment.
const SHORT_WAIT: Duration = Duration::from_millis(5);
/// How long a partition is left alone after an error that passes by itself.
const PAUSE: Duration = Duration::from_millis(50);

/// So long a broker does not answer before lanes that wait for its first word say so.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What all tasks of a reader share.
pub(super) struct Client {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Settings,
    /// Which topic is read; known before anything is fetched.
    pub(super) topic: RefCell<TopicId>,
    pub(super) leaders: RefCell<BTreeMap<i32, Leader>>,
    pub(super) nearby: RefCell<Nearby>,
    /// All that are known.
    pub(super) brokers: RefCell<BTreeMap<i32, BrokerAddress>>,
    /// Partitions that are left alone until then.
    paused: RefCell<BTreeMap<i32, Instant>>,
    /// Partitions that an open transaction holds for long, and where, of which nobody has said whose it is.
    pub(super) held: RefCell<Vec<(i32, i64)>>,
    /// Ask where partitions are led.
    pub(super) stale: Notify,
    /// Fetching from each broker.
    tasks: RefCell<BTreeMap<i32, (BrokerAddress, JoinHandle<()>)>>,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, settings: Settings) -> Rc<Self> {
        Rc::new(Self {
            shared,
            settings,
            topic: RefCell::default(),
            leaders: RefCell::default(),
            nearby: RefCell::default(),
            brokers: RefCell::default(),
            paused: RefCell::default(),
            held: RefCell::default(),
            stale: Notify::new(),
            tasks: RefCell::default(),
        })
    }

    pub(super) fn place(&self, partition: i32, offset: i64) -> Place<'_> {
        Place {
            settings: &self.settings,
            partition,
            offset,
        }
    }

    /// Fetches from these brokers, and no others; a task that can go on does.
    pub(super) fn fetch_from(self: &Rc<Self>, brokers: &BTreeMap<i32, BrokerAddress>) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|broker, (address, task)| {
            let stays = brokers.get(broker) == Some(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for (&broker, address) in brokers {
            tasks.entry(broker).or_insert_with(|| {
                let fetching = Rc::clone(self).fetch_for_ever(broker, address.clone());
                (address.clone(), tokio::task::spawn_local(fetching))
            });
        }
    }

    async fn fetch_for_ever(self: Rc<Self>, broker: i32, address: BrokerAddress) {
        let mut wait = self.settings.back_off.0;
        let mut vain_since = None;
        loop {
            let error = match Connection::open(&address, &self.settings).await {
                Ok(connection) => {
                    let (answered, error) = self.fetch(broker, connection).await;
                    if answered {
                        wait = self.settings.back_off.0;
                        vain_since = None;
                    }
                    error
                }
                Err(error) => error,
            };
            let (topic, host) = (&self.settings.topic, &address.host);
            tracing::debug!(topic, broker, host, port = address.port, %error, "kafka broker cannot be read from");
            if vain_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                self.tell_unreachable(broker, &address, &error);
            }
            // Another one may lead by now.
            self.stale.notify_one();
            if self.nearby.borrow_mut().lost(broker, Instant::now()) {
                self.shared.changed.notify_waiters();
            }
            sleep(wait).await;
            wait = (wait * 2).min(self.settings.back_off.1);
        }
    }

    /// Lanes that never heard of the broker that leads them say so; the others wait, and their silence shows. Where it is
    /// not silent but refuses us, all say so.
    fn tell_unreachable(&self, broker: i32, address: &BrokerAddress, error: &ConnectionError) {
        let BrokerAddress { host, port } = address;
        let brokers = format!("{host}:{port}, as broker {broker} says of itself");
        let unreachable = error.of_source(&self.settings.topic, brokers);
        let refused = error.is_refusal();
        let leaders = self.leaders.borrow();
        let leads = |partition| {
            leaders
                .get(&partition)
                .is_some_and(|it| it.broker == broker)
        };
        let waits = |partition, lane: &Lane| leads(partition) && (refused || !lane.was_answered());
        self.shared.fail(waits, &unreachable);
    }

    /// Fetches until the connection ends; tells why, and whether it ever answered.
    async fn fetch(&self, broker: i32, mut connection: Connection) -> (bool, ConnectionError) {
        let mut session = Session::default();
        let (mut answered, mut lost) = (false, 0);
        loop {
            let (wanted, starved) = self.wait_for_wanted(broker).await;
            let max_wait = match starved {
                true => SHORT_WAIT.min(self.settings.max_wait),
                false => self.settings.max_wait,
            };
            let request = session.ask(&wanted);
            let topic = *self.topic.borrow();
            let terms = Terms {
                topic: &self.settings.topic,
                id: topic,
                max_wait_ms: max_wait.as_millis() as i32,
                min_bytes: self.settings.min_bytes,
                max_bytes: self.settings.max_bytes,
                rack: self.rack(&wanted),
            };
            let asked = Instant::now();
            let write = |to: &mut _, version| write_fetch(to, version, &terms, &request);
            let (bytes, answer) = match connection.call(Api::Fetch, write).await {
                Ok((bytes, version)) => match read_fetch(&bytes, version) {
                    Ok(answer) => (bytes, answer),
                    Err(error) => return (answered, error.into()),
                },
                Err(error) => return (answered, error),
            };
            if session.answered(answer.error, answer.session) {
                self.take(broker, &wanted, &answer, &bytes, asked);
                lost = 0;
            } else if is_forgotten(answer.error) && lost < 10 {
                lost += 1;
            } else {
                return (answered, ConnectionError::Refused(Api::Fetch, answer.error));
            }
            answered = true;
            if answer.throttle_ms > 0 {
                sleep(Duration::from_millis(u64::from(
                    answer.throttle_ms.unsigned_abs(),
                )))
                .await;
            }
        }
    }

    /// What is to be asked of a broker, as soon as there is something; whether some lane was left out for want of room.
    async fn wait_for_wanted(&self, broker: i32) -> (Vec<(i32, Wanted)>, bool) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // What changes from here on is not missed.
            changed.as_mut().enable();
            let (wanted, starved, again) = self.wanted(broker);
            if !wanted.is_empty() {
                return (wanted, starved);
            }
            match again {
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    let _ = timeout(left, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Where we are, unless a leader must give some of these itself.
    fn rack(&self, wanted: &[(i32, Wanted)]) -> &str {
        let (mut nearby, now) = (self.nearby.borrow_mut(), Instant::now());
        for (partition, _) in wanted.iter().filter(|(_, wanted)| !wanted.led) {
            nearby.asking(*partition, now);
        }
        let is_shunned = wanted.iter().any(|(at, _)| nearby.is_shunned(*at, now));
        if is_shunned { "" } else { &self.settings.rack }
    }

    fn wanted(&self, broker: i32) -> (Vec<(i32, Wanted)>, bool, Option<Instant>) {
        let leaders = self.leaders.borrow();
        let now = Instant::now();
        let mut paused = self.paused.borrow_mut();
        paused.retain(|_, until| *until > now);
        let mut wanted = Vec::new();
        let mut starved = false;
        let mut nearby = self.nearby.borrow_mut();
        let mut lanes = self.shared.lanes();
        for (&partition, lane) in &mut *lanes {
            let asked = |leader: &&Leader| nearby.asked(partition, leader.broker, now) == broker;
            let leader = leaders.get(&partition).filter(asked);
            let Some(leader) = leader.filter(|_| !paused.contains_key(&partition)) else {
                continue;
            };
            let led = leader.broker == broker;
            if let Some(of) = lane.wanted(self.settings.share, leader.epoch, led) {
                wanted.push((partition, of));
            }
            starved |= lane.starved;
        }
        (wanted, starved, paused.values().min().copied())
    }

    fn take(
        &self,
        broker: i32,
        wanted: &[(i32, Wanted)],
        answer: &Answer,
        bytes: &Bytes,
        asked: Instant,
    ) {
        let mut news = Vec::new();
        let told = answer.partitions.iter();
        let told: BTreeMap<_, _> = told.map(|told| (told.partition, told)).collect();
        let mut lanes = self.shared.lanes();
        let mut left = lanes.iter_mut().peekable();
        for (partition, wanted) in wanted.iter().map(|(at, wanted)| (*at, wanted)) {
            // Both ascend.
            while left.next_if(|(at, _)| **at < partition).is_some() {}
            let Some((_, lane)) = left.next_if(|(at, _)| **at == partition) else {
                continue;
            };
            self.note_replica(broker, partition, wanted, told.get(&partition).copied());
            let taken = match told.get(&partition) {
                None => lane.unchanged(wanted, asked),
                Some(answered) => self.take_one(lane, wanted, answered, bytes, asked),
            };
            match taken {
                Taken::Records => news.push(partition),
                Taken::Held => {
                    self.held.borrow_mut().push((partition, lane.next()));
                    self.stale.notify_one();
                }
                Taken::Nothing => {}
            }
        }
        drop(lanes);
        let waited = asked.elapsed();
        // What the broker held back because there was nothing is no slowness.
        let took = match news.is_empty() {
            true => waited.saturating_sub(self.settings.max_wait),
            false => waited,
        };
        self.shared.answers().note(took);
        self.shared.tell(&news);
    }

    /// Takes in whom a leader names, and whether who is not the leader has more.
    fn note_replica(
        &self,
        broker: i32,
        partition: i32,
        wanted: &Wanted,
        answered: Option<&Answered>,
    ) {
        let failed = answered.is_some_and(|it| it.error != 0 || it.diverging.is_some());
        let (mut nearby, now) = (self.nearby.borrow_mut(), Instant::now());
        let preferred = answered.and_then(|it| it.preferred);
        let changed = match (wanted.led, failed) {
            (true, true) => false,
            (true, false) => {
                let is_known = |it: &i32| *it != broker && self.brokers.borrow().contains_key(it);
                let is_new = nearby.named(partition, preferred.filter(is_known), now);
                if preferred.is_some_and(|it| !is_known(&it)) {
                    nearby.failed(partition, now);
                }
                if is_new {
                    let (topic, replica) = (&self.settings.topic, preferred);
                    tracing::debug!(
                        topic,
                        partition,
                        replica,
                        "kafka partition is read from a replica nearby"
                    );
                }
                if is_new || preferred.is_some_and(|it| !is_known(&it)) {
                    // For its address, and that it is fetched from.
                    self.stale.notify_one();
                }
                true
            }
            (false, true) => {
                nearby.failed(partition, now);
                true
            }
            (false, false) => {
                let is_dry = answered.is_none_or(|it| it.records.is_empty());
                nearby.answered(partition, broker, is_dry)
            }
        };
        if changed && !self.settings.rack.is_empty() {
            self.shared.changed.notify_waiters();
        }
    }

    fn take_one(
        &self,
        lane: &mut Lane,
        wanted: &Wanted,
        answered: &Answered,
        bytes: &Bytes,
        asked: Instant,
    ) -> Taken {
        let taken = self.outcome(wanted, answered).and_then(|()| {
            let taken = lane.take(wanted, answered, own(bytes, answered), asked);
            let place = self.place(answered.partition, wanted.offset);
            taken.map_err(|error| Some(place.fatal(error.to_string())))
        });
        match taken {
            Ok(taken) => taken,
            // It was opened anew meanwhile.
            Err(_) if lane.next() != wanted.offset => Taken::Nothing,
            Err(None) => Taken::Nothing,
            Err(Some(error)) => {
                lane.fail(error);
                Taken::Records
            }
        }
    }

    /// What an answer means that may be an error: `Err(None)`: it passes.
    fn outcome(
        &self,
        wanted: &Wanted,
        answered: &Answered,
    ) -> Result<(), Option<KafkaSourceError>> {
        let partition = answered.partition;
        let place = self.place(partition, wanted.offset);
        // What is wrong with the log is the leader's to say: it is asked next.
        if !wanted.led && (answered.error != 0 || answered.diverging.is_some()) {
            return Err(None);
        }
        if let Some((epoch, end)) = answered.diverging {
            let (offset, had) = (wanted.offset, wanted.last_epoch);
            let reason = format!(
                "the log was cut: what was read up to offset {offset} was appended in leader epoch {had}, but the log ends at \
                 offset {end} in epoch {epoch} and goes on otherwise; restore it, or give what there is now as a new source \
                 to new pipelines"
            );
            return Err(Some(place.fatal(reason)));
        }
        if answered.error == 0 {
            return Ok(());
        }
        if let Some(leader) = answered.leader {
            self.note_leader(partition, leader);
        }
        let verdict = place.judge(answered.error);
        if let Verdict::Fault(error) = verdict {
            return Err(Some(error));
        }
        self.paused
            .borrow_mut()
            .insert(partition, Instant::now() + PAUSE);
        if verdict != Verdict::Again {
            self.stale.notify_one();
        }
        Err(None)
    }

    /// Takes in who leads, unless that is older than what is known.
    pub(super) fn note_leader(&self, partition: i32, leader: Leader) {
        let mut leaders = self.leaders.borrow_mut();
        let known = leaders.get(&partition);
        if known.is_none_or(|known| leader.epoch < 0 || leader.epoch >= known.epoch) {
            leaders.insert(partition, leader);
        }
    }
}

/// A session that the broker does not know any more, or knows otherwise, is begun anew.
fn is_forgotten(code: i16) -> bool {
    matches!(code, 70 | 71 | 106)
}

/// The records of one partition. They keep the memory of the whole answer, unless they are but a small part of it.
fn own(bytes: &Bytes, answered: &Answered) -> Bytes {
    let records = bytes.slice(answered.records.clone());
    match records.len() < bytes.len() / 8 {
        true => Bytes::copy_from_slice(&records),
        false => records,
    }
}
