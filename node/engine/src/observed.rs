//! What a pipeline's definition met in the records: shown to whoever wonders why a row is empty,
//! agreed nowhere. It counts from the start of the process.

use crate::feed::FeedEngine;
use crate::lane::LaneEngine;
use crate::row::Incarnation;
use crate::spec::{Column, Expr};

/// What is odd about a definition, given the records so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Decoded fields that it names and that no record had.
    pub unseen: Vec<Column>,
    /// Parts of its expressions that met values which they could not use, as a text that is
    /// compared with a number, and how often.
    pub misfits: Vec<(Expr, u64)>,
}

impl FeedEngine {
    /// What the lanes' records showed of a pipeline, between two ticks; nothing of an unknown
    /// incarnation.
    #[must_use]
    pub fn observed(&self, incarnation: Incarnation, lanes: &[&mut LaneEngine]) -> Observed {
        let mut observed = Observed::default();
        let Some(at) = self.find(incarnation) else {
            return observed;
        };
        let mut unseen = lanes.iter().filter_map(|lane| lane.unseen(at));
        observed.unseen = unseen.next().unwrap_or_default().to_vec();
        for others in unseen {
            observed.unseen.retain(|column| others.contains(column));
        }
        for lane in lanes {
            lane.misfits(at, &mut |expr, number| {
                let mut known = observed.misfits.iter_mut();
                match known.find(|(known, _)| known == expr) {
                    Some((_, total)) => *total = total.saturating_add(number),
                    None => observed.misfits.push((expr.clone(), number)),
                }
            });
        }
        observed
    }
}
