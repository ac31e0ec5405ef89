//! What became of the records, window by window.

use std::collections::BTreeMap;
use std::io::{self, Write};

use unisono_engine::spec::{PipelineSpec, Timestamp};
use unisono_engine::{Counters, timestamp};

use crate::cli::table::{Align, Table};

/// Windows that are shown; the others are in the sum.
const MOST_WINDOWS: usize = 10_000;

/// With `dedup`, a record that has come in time: whether it is a copy is told when its window closes.
const WITH_ID: &str = "with_id";

/// What can become of a record: a place for each of [`Counters::named`], and one for [`WITH_ID`].
type Fates = Vec<u64>;

/// Follows the counters of a lane's records, one by one, and adds them up by the window of the record's time.
#[derive(Default)]
pub struct Explain {
    /// By start and end; of overlapping windows by the step between two of them.
    windows: BTreeMap<(i64, i64), Fates>,
    /// Of records without a time that can be used.
    timeless: Option<Fates>,
    all: Option<Fates>,
}

impl Explain {
    /// Takes in what one record changed.
    pub fn note(
        &mut self,
        spec: &PipelineSpec,
        time: Option<Timestamp>,
        before: &Counters,
        after: &Counters,
    ) {
        let is_waiting = settled(before) == settled(after);
        let change = || {
            let pairs = before.named().zip(after.named());
            let changes = pairs.map(|((_, before), (_, after))| after.saturating_sub(before));
            changes.chain([u64::from(is_waiting)])
        };
        let fates = match time {
            Some(time) => self.windows.entry(spec.window.step_of(time)).or_default(),
            None => self.timeless.get_or_insert_default(),
        };
        for fates in [fates, self.all.get_or_insert_default()] {
            fates.resize(before.named().count().saturating_add(1), 0);
            fates
                .iter_mut()
                .zip(change())
                .for_each(|(fate, more)| *fate = fate.saturating_add(more));
        }
    }

    /// Writes a table: a line for each window, one for records without a time, and the sum; a column for each fate that
    /// some record had.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let Some(all) = &self.all else {
            return Ok(());
        };
        let counters = Counters::default();
        let names = counters.named().map(|(name, _)| name);
        let names: Vec<&str> = names.chain([WITH_ID]).collect();
        let shown: Vec<usize> = (0..names.len()).filter(|at| all[*at] > 0).collect();
        let mut columns = vec![
            ("start".to_owned(), Align::Left),
            ("end".to_owned(), Align::Left),
        ];
        columns.extend(shown.iter().map(|at| (names[*at].to_owned(), Align::Right)));
        let mut table = Table::new(out, columns);
        let mut line = |from: String, to: String, fates: &Fates| {
            let cells = shown.iter().map(|at| fates[*at].to_string());
            table.push(&[from, to].into_iter().chain(cells).collect::<Vec<_>>())
        };
        let shown_time = |time: i64| {
            let mut text = Vec::new();
            timestamp::write_to(Timestamp(time), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        for ((start, end), fates) in self.windows.iter().take(MOST_WINDOWS) {
            line(shown_time(*start), shown_time(*end), fates)?;
        }
        if let Some(more) = self
            .windows
            .len()
            .checked_sub(MOST_WINDOWS)
            .filter(|more| *more > 0)
        {
            line(
                format!("({more} more)"),
                String::new(),
                &vec![0; names.len()],
            )?;
        }
        if let Some(fates) = &self.timeless {
            line("no time".to_owned(), String::new(), fates)?;
        }
        line("all".to_owned(), String::new(), all)?;
        table.finish()
    }
}

/// Records of which all is known.
fn settled(counters: &Counters) -> u64 {
    let known = counters.counted.saturating_add(counters.filtered);
    known.saturating_add(counters.dead_letters.total())
}
