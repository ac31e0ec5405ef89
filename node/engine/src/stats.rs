//! Counters of a pipeline: nothing is dropped without being counted.

use crate::dead_letter::{Reason, ReasonCounts};
use crate::part::codec::{Fault, Reader, Writer};
use crate::row::{Digest, Seq};
use crate::spec::Timestamp;

/// What became of the records. Every record is counted once among `counted`, `filtered`, `duplicates`
/// and `dead_letters`; where there is `dedup`, once its window closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records taken in.
    pub records: u64,
    /// Records that count in at least one window.
    pub counted: u64,
    /// Records that `where` did not select.
    pub filtered: u64,
    /// Records that were copies of counted ones.
    pub duplicates: u64,
    /// Of the counted ones, those that were late for some of their windows.
    pub partly_late: u64,
    /// Fields of counted records that could not be used, once for each record and field; they count
    /// as null.
    pub bad_fields: u64,
    /// Fields of counted records whose number had more digits than can be held, once for each record
    /// and field.
    pub rounded_fields: u64,
    /// Of the counted ones, those that came when a window of theirs was closed, and changed its row: as ticks had it.
    pub revising: u64,
    /// Records that could not be used, by reason.
    pub dead_letters: ReasonCounts,
}

impl Counters {
    /// Each counter but that of all records with its name, in a fixed order; dead letters by reason.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let own = [
            ("counted", self.counted),
            ("filtered", self.filtered),
            ("partly_late", self.partly_late),
            ("bad_fields", self.bad_fields),
            ("rounded_fields", self.rounded_fields),
        ];
        let letters = self.dead_letters.iter();
        own.into_iter()
            .chain(letters.map(|(reason, number)| (reason.name(), number)))
    }

    /// Adds another lane's counters.
    pub(crate) fn add(&mut self, other: &Self) {
        count(&mut self.records, other.records);
        count(&mut self.counted, other.counted);
        count(&mut self.filtered, other.filtered);
        count(&mut self.duplicates, other.duplicates);
        count(&mut self.partly_late, other.partly_late);
        count(&mut self.bad_fields, other.bad_fields);
        count(&mut self.rounded_fields, other.rounded_fields);
        count(&mut self.revising, other.revising);
        for (reason, number) in other.dead_letters.iter() {
            self.dead_letters.add(reason, number);
        }
    }

    /// All but `duplicates`, which only some pipelines have.
    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        for number in [
            self.records,
            self.counted,
            self.filtered,
            self.partly_late,
            self.bad_fields,
            self.rounded_fields,
        ] {
            out.unsigned(number);
        }
        for (_, number) in self.dead_letters.iter() {
            out.unsigned(number);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut counters = Self {
            records: input.unsigned()?,
            counted: input.unsigned()?,
            filtered: input.unsigned()?,
            duplicates: 0,
            partly_late: input.unsigned()?,
            bad_fields: input.unsigned()?,
            rounded_fields: input.unsigned()?,
            // Beside these, where there can be any.
            revising: 0,
            dead_letters: ReasonCounts::default(),
        };
        for reason in Reason::ALL {
            counters.dead_letters.add(reason, input.unsigned()?);
        }
        Ok(counters)
    }
}

/// Adds to a counter. A checkpoint may hold any number: a counter at its end stays there.
#[inline]
pub(crate) fn count(counter: &mut u64, number: u64) {
    *counter = counter.saturating_add(number);
}

/// How a pipeline stands at the end of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineStats {
    /// Records taken in.
    pub records: u64,
    /// Records that count in at least one window.
    pub counted: u64,
    /// Records that `where` did not select.
    pub filtered: u64,
    /// Records that were copies of counted ones.
    pub duplicates: u64,
    /// Records that wait until it is known whether they are copies.
    pub waiting: u64,
    /// Records that were late for all their windows: also among the dead letters.
    pub late: u64,
    /// Records that were late for some of their windows and count in the others.
    pub partly_late: u64,
    /// Fields that could not be used, once for each counted record and field.
    pub bad_fields: u64,
    /// Fields whose number had more digits than can be held, once for each counted record and field.
    pub rounded_fields: u64,
    /// Records that could not be used, by reason: exact, also where not all were written.
    pub dead_letters: ReasonCounts,
    /// Dead letters that were only counted, not written.
    pub dead_letters_suppressed: u64,
    /// How far event time has come at the last tick; `None` while unknown.
    pub watermark: Option<Timestamp>,
    /// Windows that end here or before are closed; `None` before the first watermark.
    pub closed_through: Option<Timestamp>,
    /// Windows with data that are not closed. Sessions: those of each lane.
    pub open_windows: u64,
    /// Groups in memory, over all lanes and panes. Sessions: those of each lane.
    pub open_groups: u64,
    /// Records that changed windows that were closed.
    pub revising: u64,
    /// Rows that were published again: corrected, or withdrawn.
    pub revisions: u64,
    /// Rows for which `having` did not hold, since the process began.
    pub withheld: u64,
    /// The number that the next row will have.
    pub next_row_seq: Seq,
    /// The digest up to the last row.
    pub row_digest: Digest,
    /// The number that the next dead letter will have.
    pub next_dead_letter_seq: Seq,
    /// The digest up to the last dead letter.
    pub dead_letter_digest: Digest,
}
