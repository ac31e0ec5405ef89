//! What the peers' port holds and whom it refuses: bounds for all of its connections together, and counts.
//!
//! Bodies of requests and answers have room by their size, so that a heartbeat never waits behind what is large: small ones
//! always, bounded by the number of connections; medium and large ones each from a budget, in the order in which they came.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::secret::Secret;
use super::{FRAME_BYTES, Refusal};
use crate::rt;

/// How long the other end of a link has to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// A body up to this size needs no budget.
const SMALL: usize = 64 << 10;
/// A body up to this size is medium.
const MEDIUM: usize = 1 << 20;
/// Bytes of all medium bodies.
const MEDIUM_BYTES: usize = 16 << 20;
/// Bytes of all large bodies: room for the largest.
const LARGE_BYTES: usize = FRAME_BYTES;
/// A permit stands for so many bytes.
const UNIT: usize = 1 << 10;
/// A body may take so long, and a second more for each mebibyte.
const BODY: Duration = Duration::from_secs(10);
/// A reason for refusals is logged this often at most.
const SAID: Duration = Duration::from_secs(10);

/// How many connections the peers' port holds; each takes a handle of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Links that have yet to say who they are.
    pub strangers: usize,
    /// Links that have; each peer needs about ten.
    pub links: usize,
}

impl Default for PortLimits {
    fn default() -> Self {
        Self {
            strangers: 128,
            links: 256,
        }
    }
}

/// Why a peer is not listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// It does not have the cluster's secret.
    Secret,
    /// It speaks another version, or no language of ours.
    Version,
    /// What it says is for another identity.
    Target,
    /// What it says is no message.
    Message,
    /// There are as many links as may be.
    Full,
    /// It did not say who it is, or what it began to say, in time.
    Late,
}

impl Reason {
    const ALL: [Self; 6] = [
        Self::Secret,
        Self::Version,
        Self::Target,
        Self::Message,
        Self::Full,
        Self::Late,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Version => "version",
            Self::Target => "target",
            Self::Message => "message",
            Self::Full => "full",
            Self::Late => "late",
        }
    }
}

/// The peers' port as it is now.
#[derive(Clone, Debug, Default)]
pub struct PortStatus {
    /// Whether peers must have the cluster's secret.
    pub asks_for_secret: bool,
    /// What was refused since the start, by reason; each reason is there.
    pub refused: BTreeMap<&'static str, u64>,
    /// What was refused last.
    pub last: Option<RefusedPeer>,
    /// Links that are open.
    pub links: u64,
    /// Bytes of requests and answers in hand.
    pub bytes: u64,
    /// The most that were in hand at once.
    pub most_bytes: u64,
}

/// Something that was refused.
#[derive(Clone, Debug)]
pub struct RefusedPeer {
    /// Where it came from.
    pub from: SocketAddr,
    /// Why, in a word.
    pub reason: &'static str,
    /// Why.
    pub text: String,
    /// When.
    pub at: Instant,
}

/// What all links of the port share.
pub(crate) struct Port {
    pub(super) secret: Option<Secret>,
    pub(super) greeting: Duration,
    limits: PortLimits,
    strangers: Arc<Semaphore>,
    links: Arc<Semaphore>,
    medium: Arc<Semaphore>,
    large: Arc<Semaphore>,
    hand: Arc<Hand>,
    refused: Mutex<Refused>,
}

#[derive(Default)]
struct Hand {
    bytes: AtomicU64,
    most: AtomicU64,
}

#[derive(Default)]
struct Refused {
    counts: BTreeMap<Reason, u64>,
    last: Option<RefusedPeer>,
    /// When a reason was logged last, and how many refusals were not since.
    said: BTreeMap<Reason, (Instant, u64)>,
}

/// Room for a body, given back when it is dropped.
pub(super) struct Room {
    hand: Arc<Hand>,
    bytes: u64,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.hand.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Port {
    pub(crate) fn new(secret: Option<Secret>, limits: PortLimits) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            secret,
            greeting: GREETING,
            limits,
            strangers: semaphore(limits.strangers),
            links: semaphore(limits.links),
            medium: semaphore(MEDIUM_BYTES / UNIT),
            large: semaphore(LARGE_BYTES / UNIT),
            hand: Arc::default(),
            refused: Mutex::default(),
        }
    }

    /// A place for a connection that has yet to say who it is.
    pub(crate) fn enter(&self, from: SocketAddr) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.strangers).try_acquire_owned().ok();
        if place.is_none() {
            let strangers = self.limits.strangers;
            let text = format!("{strangers} connections have yet to say who they are");
            self.refuse(from, Reason::Full, &text);
        }
        place
    }

    /// A place for a link.
    pub(super) fn settle(&self, from: SocketAddr) -> io::Result<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.links).try_acquire_owned();
        place.map_err(|_| {
            let text = format!("{} links are open", self.limits.links);
            self.refuse(from, Reason::Full, &text);
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })
    }

    /// Waits for room for a body; a larger one than a frame has none.
    pub(super) async fn room(&self, bytes: usize) -> io::Result<Room> {
        let budget = match bytes {
            0..=SMALL => None,
            _ if bytes <= MEDIUM => Some(&self.medium),
            _ => Some(&self.large),
        };
        let permit = match budget {
            None => None,
            Some(budget) => {
                let permits = u32::try_from(bytes.min(LARGE_BYTES).div_ceil(UNIT));
                let permits = permits.map_err(io::Error::other)?;
                let permit = Arc::clone(budget).acquire_many_owned(permits).await;
                Some(permit.map_err(io::Error::other)?)
            }
        };
        let bytes = bytes as u64;
        let now = self.hand.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.hand.most.fetch_max(now, Ordering::Relaxed);
        Ok(Room {
            hand: Arc::clone(&self.hand),
            bytes,
            _permit: permit,
        })
    }

    /// Counts a refusal, and says it, though not each of many.
    pub(crate) fn refuse(&self, from: SocketAddr, reason: Reason, text: &str) {
        let now = rt::now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.counts.entry(reason).or_default() += 1;
        refused.last = Some(RefusedPeer {
            from,
            reason: reason.name(),
            text: text.to_owned(),
            at: now,
        });
        let more = match refused.said.get_mut(&reason) {
            Some((at, unsaid)) if now.duration_since(*at) < SAID => {
                *unsaid += 1;
                return;
            }
            Some((_, unsaid)) => *unsaid,
            None => 0,
        };
        refused.said.insert(reason, (now, 0));
        drop(refused);
        let reason = reason.name();
        tracing::warn!(%from, reason, text, more, "refused at the peers' port");
    }

    pub(super) fn refuse_message(&self, from: SocketAddr, refusal: &Refusal) {
        let reason = match refusal {
            Refusal::Misdirected => Reason::Target,
            Refusal::Unreadable(_) => Reason::Message,
            Refusal::Stranger(_) => Reason::Secret,
            // It is this replica that cannot.
            Refusal::Stopped(_) => return,
        };
        self.refuse(from, reason, refusal.text());
    }

    pub(crate) fn status(&self) -> PortStatus {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |reason: Reason| {
            let count = refused.counts.get(&reason).copied();
            (reason.name(), count.unwrap_or(0))
        };
        PortStatus {
            asks_for_secret: self.secret.is_some(),
            refused: Reason::ALL.into_iter().map(count).collect(),
            last: refused.last.clone(),
            links: (self.limits.links - self.links.available_permits()) as u64,
            bytes: self.hand.bytes.load(Ordering::Relaxed),
            most_bytes: self.hand.most.load(Ordering::Relaxed),
        }
    }
}

/// How long a body of this size may take.
pub(super) fn body_time(bytes: usize) -> Duration {
    BODY + Duration::from_secs((bytes >> 20) as u64)
}
