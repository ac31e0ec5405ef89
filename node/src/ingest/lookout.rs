//! Looks out for the record of a lane that lets a window close, so that its leader need not wait for the beat.
//!
//! Of each block that arrives one record is decoded once more, and only while one is looked out for. What is seen decides when a
//! tick is made, and no row.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use unisono_engine::NextClosing;

use super::buffer::LaneBuffer;
use crate::decode::Decoder;
use crate::source::Block;
use crate::threads::lock;

/// Called when a record that was looked out for has arrived.
pub type Tell = Arc<dyn Fn() + Send + Sync>;

/// What one lane is looked at for; nothing at first.
#[derive(Default)]
pub(super) struct Lookout {
    /// Some goal was not seen yet.
    looks: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    decoder: Option<Decoder>,
    goals: Vec<Goal>,
    tell: Option<Tell>,
}

struct Goal {
    closing: Arc<NextClosing>,
    /// Where the record that reached it ends.
    seen: Option<i64>,
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looks = self.looks.load(Ordering::Relaxed);
        f.debug_struct("Lookout")
            .field("looks", &looks)
            .finish_non_exhaustive()
    }
}

impl Lookout {
    /// Looks out for these from now on, and for nothing else. `decoder` is that of the lane's fields; `None`: as before.
    pub(super) fn set(
        &self,
        decoder: Option<Decoder>,
        closings: Vec<Arc<NextClosing>>,
        tell: &Tell,
    ) {
        let mut state = lock(&self.state);
        if decoder.is_some() {
            state.decoder = decoder;
        }
        self.looks.store(!closings.is_empty(), Ordering::Relaxed);
        let goal = |closing| Goal {
            closing,
            seen: None,
        };
        state.goals = closings.into_iter().map(goal).collect();
        state.tell = Some(Arc::clone(tell));
    }

    /// Looks at the newest records. Whom to tell, if one is among them that was looked out for.
    pub(super) fn look(&self, block: &Block) -> Option<Tell> {
        if !self.looks.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = lock(&self.state);
        let State {
            decoder: Some(decoder),
            goals,
            tell,
        } = &mut *state
        else {
            return None;
        };
        let mut seen = false;
        for goal in goals.iter_mut().filter(|goal| goal.seen.is_none()) {
            // With several records behind the watermark, the first of the last few tells.
            let Some(index) = block.len().checked_sub(1) else {
                continue;
            };
            let raw = block.record(index.saturating_sub(goal.closing.records - 1));
            let append_time = raw.stamp.append_time();
            let mut is_reached = false;
            decoder.each(raw.offset, append_time, raw.payload, &mut |record| {
                is_reached |= goal.closing.is_reached_by(record);
            });
            if is_reached {
                goal.seen = Some(block.record(index).next);
                seen = true;
            }
        }
        let looks = goals.iter().any(|goal| goal.seen.is_none());
        self.looks.store(looks, Ordering::Relaxed);
        tell.clone().filter(|_| seen)
    }

    /// Where the record ends that was seen for a goal.
    pub(super) fn seen(&self, closing: &Arc<NextClosing>) -> Option<i64> {
        let state = lock(&self.state);
        let mut goals = state.goals.iter();
        goals.find(|goal| Arc::ptr_eq(&goal.closing, closing))?.seen
    }
}

impl LaneBuffer {
    /// Looks out for these from now on, and for nothing else, also among what is in hand. `decoder` is that of the lane's
    /// fields; `None`: as before.
    pub(super) fn look_out(
        &self,
        decoder: Option<Decoder>,
        closings: Vec<Arc<NextClosing>>,
        tell: &Tell,
    ) {
        self.lookout.set(decoder, closings, tell);
        let newest = self.newest();
        if let Some(tell) = newest.and_then(|block| self.lookout.look(&block)) {
            tell();
        }
    }

    /// Where the record ends that was seen of those that were looked out for.
    #[must_use]
    pub fn sighted(&self, closing: &Arc<NextClosing>) -> Option<i64> {
        self.lookout.seen(closing)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use unisono_engine::record::Stamp;

    use unisono_engine::spec::{Column, LaneId, TimeFormat, TimeSource, Timestamp};

    use super::*;
    use crate::decode::Framing;
    use crate::definition::{Decoding, FieldPath, FieldSet};

    fn block(offset: i64, times: &[i64]) -> Block {
        let mut block = Block::default();
        for (offset, time) in (offset..).zip(times) {
            let payload = format!("{{\"at\":{time}}}");
            block.push(offset, offset + 1, Stamp::None, Some(payload.as_bytes()));
        }
        block
    }

    fn closing(reach: i64, records: usize) -> Arc<NextClosing> {
        Arc::new(NextClosing {
            time: TimeSource::Field {
                column: Column(0),
                format: TimeFormat::Millis,
                zone: None,
            },
            reach: Timestamp(reach),
            records,
            lanes: vec![LaneId(0)],
        })
    }

    #[test]
    fn who_looks_out_is_told_once_of_each_goal_and_where_it_was_reached() {
        let told = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&told);
        let tell: Tell = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let lookout = Lookout::default();
        let look = |at: i64, times: &[i64]| {
            if let Some(tell) = lookout.look(&block(at, times)) {
                tell();
            }
            told.load(Ordering::Relaxed)
        };
        assert_eq!(look(0, &[1000]), 0);
        let mut fields = FieldSet::new();
        fields.insert(FieldPath::parse("at").unwrap());
        let (near, far) = (closing(200, 1), closing(300, 2));
        let goals = vec![Arc::clone(&near), Arc::clone(&far)];
        let decoder = Decoder::new(&fields, &Decoding::default(), Framing::Message);
        lookout.set(Some(decoder), goals, &tell);
        assert_eq!(look(1, &[250, 199]), 0);
        assert_eq!(lookout.seen(&near), None);
        assert_eq!(look(3, &[0, 200]), 1);
        assert_eq!(lookout.seen(&near), Some(5));
        assert_eq!(look(5, &[299, 900]), 1);
        assert_eq!(look(7, &[300, 10]), 2);
        assert_eq!(
            (lookout.seen(&near), lookout.seen(&far)),
            (Some(5), Some(9))
        );
        assert_eq!(look(9, &[900, 900]), 2);
        lookout.set(None, vec![closing(1000, 1)], &tell);
        assert_eq!(lookout.seen(&near), None);
        assert_eq!(look(11, &[1000]), 3);
    }
}
