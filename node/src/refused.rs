//! Rows that a sink refuses for their size. One such row must not hold up all that come after it: it is left out, and the
//! frontier's record, in the same transaction as the frontier, says which one it was. So whoever publishes next knows it, and
//! each row is either in the sink once or named there once, whatever limits the one has who tries it: until that transaction is
//! committed the row was neither, and after it nobody looks at it again.

/// How many of a stream are named; all are counted.
const NAMED: usize = 8;

/// What becomes of a row in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It is published.
    #[default]
    Goes,
    /// It was refused: a short dead letter goes in its place, where the sink has a topic for those.
    Refused,
    /// That was refused too: only the frontier's record says so.
    Unsaid,
}

impl Fate {
    /// After the sink refused what went for the row.
    #[must_use]
    pub fn refused(self) -> Self {
        match self {
            Self::Goes => Self::Refused,
            Self::Refused | Self::Unsaid => Self::Unsaid,
        }
    }
}

/// A row that is not in the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// Its number within its stream.
    pub seq: u64,
    /// Its size with its key.
    pub bytes: u64,
}

/// The rows of a stream that are not in the sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How many.
    pub count: u64,
    /// The last of them, in order.
    pub last: Vec<RefusedRow>,
}

impl Refusals {
    /// One more.
    pub fn add(&mut self, row: RefusedRow) {
        self.count += 1;
        if self.last.len() >= NAMED {
            self.last.remove(0);
        }
        self.last.push(row);
    }
}
