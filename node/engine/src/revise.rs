//! Late records that correct rows: `late = revise`.
//!
//! Windows that are closed are kept, so a late record is taken into its pane as any other. A lane
//! notes which groups of which panes it so touched; at the end of the tick each closed window that
//! holds one of them gives that group's whole row again, with the next revision. Nothing of that is
//! paid for by records that are in time.
//!
//! Which rows there were is known by what is there: a group that a closed window held before the
//! tick had its row. Only what differs from that is written down, in the [`Ledger`]: rows that were
//! revised, and with `having` those that were published.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::group::is_sound;
use crate::part::codec::{Fault, Reader, Writer};
use crate::stats::count;
use crate::window::PaneKey;

mod empty;
mod plan;
mod runs;

pub(crate) use empty::last_with_data;
pub(crate) use plan::Revisions;

/// Groups of panes that took in records for closed windows; whether the pane holds the group since
/// this tick only.
pub(crate) type Touched = BTreeMap<(PaneKey, u32), bool>;

/// Where a row stands among those of its window and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// 0 for the first.
    pub(crate) revision: u64,
    /// It takes the row before it back: `having` does not hold any more.
    pub(crate) withdrawn: bool,
}

impl Standing {
    pub(crate) const FIRST: Self = Self {
        revision: 0,
        withdrawn: false,
    };
}

/// The last row of each group of a window, where that is not known otherwise.
type Rows = BTreeMap<Box<[u8]>, Standing>;

/// What was published of the windows that are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// By window end. Shared with snapshots: they are taken far more often than a row is revised.
    windows: Arc<BTreeMap<i64, Rows>>,
    /// The end of the last window with data that is not kept any more: empty windows follow it.
    pub(crate) gone_with_data: Option<i64>,
    /// Rows that were published again.
    pub(crate) revisions: u64,
    /// About what it takes.
    bytes: usize,
}

impl Ledger {
    /// Notes a row, once it is clear that it is published.
    pub(crate) fn note(&mut self, end: i64, key: &[u8], standing: Standing) {
        if standing.revision > 0 {
            count(&mut self.revisions, 1);
        }
        let windows = Arc::make_mut(&mut self.windows);
        let rows = windows.entry(end).or_default();
        if rows.insert(key.into(), standing).is_none() {
            self.bytes = self.bytes.saturating_add(bytes_of(key));
        }
    }

    /// The last row that is written down.
    pub(crate) fn last(&self, end: i64, key: &[u8]) -> Option<Standing> {
        self.windows.get(&end)?.get(key).copied()
    }

    /// Forgets the windows that end here or before.
    pub(crate) fn forget(&mut self, gone: i64) {
        let first = self.windows.first_key_value();
        if first.is_none_or(|(&end, _)| end > gone) {
            return;
        }
        let windows = Arc::make_mut(&mut self.windows);
        let kept = windows.split_off(&gone.saturating_add(1));
        let forgotten = std::mem::replace(windows, kept);
        for (key, _) in forgotten.values().flatten() {
            self.bytes = self.bytes.saturating_sub(bytes_of(key));
        }
    }

    /// Bytes that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.time(self.gone_with_data.map(crate::spec::Timestamp));
        out.unsigned(self.revisions);
        out.length(self.windows.len());
        for (&end, rows) in &*self.windows {
            out.signed(end);
            out.length(rows.len());
            for (key, standing) in rows {
                out.slice(key);
                out.unsigned(standing.revision);
                out.byte(u8::from(standing.withdrawn));
            }
        }
    }

    /// Reads it back; keys hold so many `fields`.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub(crate) fn decode(fields: usize, input: &mut Reader<'_>) -> Result<Self, Fault> {
        let gone_with_data = input.time()?.map(|time| time.0);
        let revisions = input.unsigned()?;
        let mut windows: BTreeMap<i64, Rows> = BTreeMap::new();
        let mut bytes: usize = 0;
        for _ in 0..input.length()? {
            let end = input.signed()?;
            let rows = windows.entry(end).or_default();
            for _ in 0..input.length()? {
                let key: Box<[u8]> = input.slice()?.into();
                if !is_sound(&key, fields) {
                    return Err(Fault::Damaged("a revised group's key is damaged"));
                }
                let standing = Standing {
                    revision: input.unsigned()?,
                    withdrawn: match input.byte()? {
                        0 => false,
                        1 => true,
                        _ => return Err(Fault::Damaged("a revised row is damaged")),
                    },
                };
                bytes = bytes.saturating_add(bytes_of(&key));
                rows.insert(key, standing);
            }
        }
        Ok(Self {
            windows: Arc::new(windows),
            gone_with_data,
            revisions,
            bytes,
        })
    }
}

fn bytes_of(key: &[u8]) -> usize {
    size_of::<(Box<[u8]>, Standing)>().saturating_add(key.len())
}
