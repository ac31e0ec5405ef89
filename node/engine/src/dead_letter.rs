//! Records that could not be used: counted by reason, and the first of each stretch of a lane shown.

use crate::part::codec::{Fault, Reader, Writer};
use crate::record::{Record, RecordState};
use crate::stats::count;

/// So many offsets of a lane share one allowance, from a multiple of it on: which dead letters are written
/// hangs on nothing but the lane's offsets, not on how they were cut into ticks.
const STRETCH: i64 = 10_000;
/// Most dead letters of one pipeline in one such stretch of a lane; the others are only counted.
const MOST_PER_STRETCH: u64 = 1000;
/// How many bytes of a payload a dead letter shows.
pub const EXCERPT_BYTES: usize = 256;

/// Why a record could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// All windows of its time were complete without it.
    Late,
    /// Its time is further ahead of agreed time than the pipeline allows.
    Future,
    /// It has no time, or none that can be used.
    BadTime,
    /// No payload: a tombstone.
    NullPayload,
    /// A payload of no bytes.
    EmptyPayload,
    /// It begins with a byte order mark of UTF-16.
    ByteOrderMark,
    /// Not UTF-8.
    NotUtf8,
    /// Not JSON.
    NotJson,
    /// JSON, but not an object.
    NotAnObject,
    /// The values of its group take more bytes than the pipeline allows.
    GroupTooLarge,
    /// A field of its group holds an array, an object, or what is beyond the limits of numbers and
    /// texts.
    GroupUnusable,
    /// More bytes than the pipeline allows a record.
    TooLarge,
    /// Arrays and objects within each other, deeper than is read.
    TooDeep,
    /// Not what the pipeline's format asks for.
    BadFormat,
}

impl Reason {
    /// All reasons, in a fixed order.
    pub const ALL: [Self; 14] = [
        Self::Late,
        Self::Future,
        Self::BadTime,
        Self::NullPayload,
        Self::EmptyPayload,
        Self::ByteOrderMark,
        Self::NotUtf8,
        Self::NotJson,
        Self::NotAnObject,
        Self::GroupTooLarge,
        Self::GroupUnusable,
        Self::TooLarge,
        Self::TooDeep,
        Self::BadFormat,
    ];

    /// The name in a dead letter and in counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Future => "future",
            Self::BadTime => "bad_time",
            Self::NullPayload => "null_payload",
            Self::EmptyPayload => "empty_payload",
            Self::ByteOrderMark => "byte_order_mark",
            Self::NotUtf8 => "not_utf8",
            Self::NotJson => "not_json",
            Self::NotAnObject => "not_an_object",
            Self::GroupTooLarge => "group_too_large",
            Self::GroupUnusable => "group_unusable",
            Self::TooLarge => "too_large",
            Self::TooDeep => "too_deep",
            Self::BadFormat => "bad_format",
        }
    }

    /// Why a record that was not decoded is a dead letter; `None` if it was.
    pub(crate) fn of_state(state: RecordState) -> Option<Self> {
        match state {
            RecordState::Decoded => None,
            RecordState::NullPayload => Some(Self::NullPayload),
            RecordState::EmptyPayload => Some(Self::EmptyPayload),
            RecordState::ByteOrderMark => Some(Self::ByteOrderMark),
            RecordState::NotUtf8 => Some(Self::NotUtf8),
            RecordState::NotJson => Some(Self::NotJson),
            RecordState::NotAnObject => Some(Self::NotAnObject),
            RecordState::TooLarge => Some(Self::TooLarge),
            RecordState::TooDeep => Some(Self::TooDeep),
            RecordState::BadFormat => Some(Self::BadFormat),
        }
    }
}

/// How many dead letters there were, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonCounts([u64; Reason::ALL.len()]);

impl ReasonCounts {
    /// The number for one reason.
    #[must_use]
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// Each reason with its number, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason, self.get(reason)))
    }

    /// All dead letters.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, reason: Reason, number: u64) {
        let counted = &mut self.0[reason as usize];
        *counted = counted.saturating_add(number);
    }
}

/// One record that could not be used.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub(crate) offset: i64,
    /// Which document of the record it is, where that holds several.
    pub(crate) element: Option<u32>,
    pub(crate) reason: Reason,
    /// The first bytes of the payload, as they were.
    pub(crate) excerpt: Vec<u8>,
}

impl DeadLetter {
    pub(crate) fn new(reason: Reason, record: &Record<'_>) -> Self {
        let excerpt = &record.payload[..record.payload.len().min(EXCERPT_BYTES)];
        Self {
            offset: record.offset,
            element: record.element(),
            reason,
            excerpt: excerpt.to_vec(),
        }
    }
}

/// How many dead letters the lane's last stretch had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    stretch: i64,
    used: u64,
}

impl Allowance {
    /// Whether the dead letter at this offset is written; to be asked once of each, in the lane's order.
    pub(crate) fn admits(&mut self, offset: i64) -> bool {
        let stretch = offset.div_euclid(STRETCH);
        if stretch != self.stretch {
            *self = Self { stretch, used: 0 };
        }
        let admitted = self.used < MOST_PER_STRETCH;
        count(&mut self.used, u64::from(admitted));
        admitted
    }

    pub(crate) fn encode(self, out: &mut Writer<'_>) {
        out.signed(self.stretch);
        out.unsigned(self.used);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let (stretch, used) = (input.signed()?, input.unsigned()?);
        match used <= MOST_PER_STRETCH {
            true => Ok(Self { stretch, used }),
            false => Err(Fault::Damaged("a lane has too many dead letters")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter() {
        let mut counts = ReasonCounts::default();
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            counts.add(reason, at as u64 + 1);
        }
        for (at, (reason, number)) in counts.iter().enumerate() {
            assert_eq!((reason, number), (Reason::ALL[at], at as u64 + 1));
        }
        assert_eq!(counts.total(), 105);
    }

    #[test]
    fn each_stretch_of_offsets_has_an_allowance_of_its_own() {
        let mut allowance = Allowance::default();
        let admitted = |allowance: &mut Allowance, offsets: std::ops::Range<i64>| {
            offsets.filter(|&offset| allowance.admits(offset)).count()
        };
        assert_eq!(admitted(&mut allowance, 9_990..10_000), 10);
        assert_eq!(admitted(&mut allowance, 10_000..10_999), 999);
        let mut again = allowance;
        assert_eq!(admitted(&mut allowance, 10_999..20_000), 1);
        assert_eq!(admitted(&mut again, 15_000..20_001), 2);
        assert_eq!(admitted(&mut again, 30_000..33_000), 1000);
    }
}
