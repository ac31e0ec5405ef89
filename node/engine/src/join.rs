//! One feed out of two that have taken in the same records of the same lanes; and a feed without
//! one of its pipelines.
//!
//! Lanes' states go through the bytes of their parts: those are exact, and it happens once in the
//! life of a pipeline. One lane's part at a time lies in memory.

use crate::feed::FeedEngine;
use crate::lane::LaneEngine;
use crate::part::{Grown, RestoreError, other_spec};
use crate::row::Incarnation;
use crate::snapshot::FeedSnapshot;
use crate::spec::{LaneId, PipelineSpec};

/// Why two feeds cannot become one.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Only one of them reads the lane.
    #[error("lane {label} is read by one of the two feeds only")]
    Lane {
        /// The lane.
        label: String,
    },
    /// A state does not fit its definition.
    #[error(transparent)]
    State(#[from] RestoreError),
}

impl FeedEngine {
    /// One engine out of two at the same cuts, with its lanes in the order of `stays`, whose agreed
    /// time and quiet times go on. `specs` are the definitions of both feeds' pipelines, in any
    /// order, over the cells that the joint feed decodes. The pipelines go on as they were. `grown` is as for
    /// [`FeedEngine::restore_lane_in_pieces`].
    ///
    /// # Errors
    /// The lanes are not the same, or the definitions are not those of the pipelines.
    pub fn join(
        stays: &FeedSnapshot,
        comes: &FeedSnapshot,
        specs: Vec<(Incarnation, PipelineSpec)>,
        grown: &mut Grown<'_>,
    ) -> Result<(Self, Vec<LaneEngine>), JoinError> {
        let places = places(stays, comes)?;
        let mut engine = Self::new();
        engine.lanes.clone_from(&stays.lanes);
        engine.previous_agreed = stays.previous_agreed;
        engine.take_pipelines(stays, comes, specs)?;
        let middle = stays.pipelines.len();
        let mut lanes = Vec::with_capacity(places.len());
        for (own, other) in places.into_iter().enumerate() {
            let mut lane = engine.new_lane();
            let both = [
                (stays, Some(own), 0..middle),
                (comes, other, middle..engine.pipelines.len()),
            ];
            for (from, at, pipelines) in both {
                // Of a lane that was retired before they began the pipelines that come have nothing.
                let Some(at) = at else { continue };
                let mut part = Vec::new();
                from.write_lane(at, &mut part).map_err(RestoreError::Io)?;
                let id = LaneId(u32::try_from(at).unwrap_or(u32::MAX));
                engine.restore_pipelines(pipelines, id, &mut lane, &mut part.as_slice(), grown)?;
            }
            lanes.push(lane);
        }
        engine.resume(&lanes.iter_mut().collect::<Vec<_>>());
        Ok((engine, lanes))
    }

    /// The engine without one of its pipelines, between two ticks. `specs` are the definitions of the others, over the cells
    /// that are decoded for them; these go on as they were.
    ///
    /// # Errors
    /// The definitions are not those of the pipelines.
    pub fn without(
        mut state: FeedSnapshot,
        incarnation: Incarnation,
        specs: Vec<(Incarnation, PipelineSpec)>,
        grown: &mut Grown<'_>,
    ) -> Result<(Self, Vec<LaneEngine>), JoinError> {
        state
            .pipelines
            .retain(|of| of.pipeline.incarnation != incarnation);
        let nothing = FeedSnapshot {
            previous_agreed: state.previous_agreed,
            lanes: state.lanes.clone(),
            pipelines: Vec::new(),
        };
        Self::join(&state, &nothing, specs, grown)
    }

    fn take_pipelines(
        &mut self,
        stays: &FeedSnapshot,
        comes: &FeedSnapshot,
        mut specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<(), RestoreError> {
        for of in stays.pipelines.iter().chain(&comes.pipelines) {
            let incarnation = of.pipeline.incarnation;
            let at = specs.iter().position(|(known, _)| *known == incarnation);
            let at = at.ok_or_else(|| other_spec(incarnation))?;
            self.add_pipeline(incarnation, specs.swap_remove(at).1, &mut []);
            if let Some(pipeline) = self.pipelines.last_mut() {
                pipeline.go_on_from(&of.pipeline);
            }
        }
        specs
            .first()
            .map_or(Ok(()), |(left, _)| Err(other_spec(*left)))
    }
}

/// Where each lane of the one is among the other's, which may lack those that are retired. Retired lanes may share a name with each other and with one that is
/// not: which of them is which does not matter, for none of them takes in anything more.
fn places(stays: &FeedSnapshot, comes: &FeedSnapshot) -> Result<Vec<Option<usize>>, JoinError> {
    let mut left: Vec<Option<(&str, bool)>> = comes
        .lanes
        .iter()
        .map(|lane| Some((lane.label.as_str(), lane.retired)))
        .collect();
    let missing = |label: &str| JoinError::Lane {
        label: label.to_owned(),
    };
    let mut places = Vec::with_capacity(stays.lanes.len());
    for lane in &stays.lanes {
        let wanted = Some((lane.label.as_str(), lane.retired));
        let place = left.iter().position(|lane| *lane == wanted);
        match place {
            Some(place) => left[place] = None,
            None if lane.retired => {}
            None => return Err(missing(&lane.label)),
        }
        places.push(place);
    }
    match left.into_iter().flatten().next() {
        Some((label, _)) => Err(missing(label)),
        None => Ok(places),
    }
}
