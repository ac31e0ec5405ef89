//! A feed's whole state at the end of a tick, as bytes: a part for the feed, and one for each lane.
//!
//! Layout of a part: `UNISOENG`, the version as two bytes (big endian), the kind of part, the body,
//! and XXH3-128 of all that. Head and checksum are the same in every version. Definitions are in the
//! log: a part names incarnations, and the kinds of their values. Groups are in the order of their
//! keys, so engines that took in the same ticks give the same bytes, whatever happened to them.

use std::io::{self, Read, Write};
use std::ops::Range;

use crate::dedup::{self, Seen};
use crate::feed::{FeedEngine, FeedLane};
use crate::lane::LaneEngine;
use crate::pipeline::{Pipeline, StreamEnd};
use crate::revise::Ledger;
use crate::row::{Digest, Incarnation, Seq};
use crate::snapshot::{FeedSnapshot, PipelineSnapshot};
use crate::spec::{LaneId, PipelineSpec, Timestamp};

pub(crate) mod codec;
mod lane;

use codec::{Fault, Reader, Writer};

const MAGIC: &[u8; 8] = b"UNISOENG";

/// The version that this program writes, and the only one that it reads.
pub const VERSION: u16 = 6;

/// Called with a lane that is being restored, now and then.
pub type Grown<'a> = dyn FnMut(&mut LaneEngine) -> io::Result<()> + 'a;

/// Which kind of part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Feed = 1,
    Lane = 2,
}

/// Why a part of a checkpoint cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The bytes are not a whole, undamaged part. Take another checkpoint, or a peer's.
    #[error("the checkpoint is damaged: {what}; use an older one or a peer's")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// It was written by another version of the program. Use that one, or take a peer's state.
    #[error(
        "the checkpoint has engine format {found}, this program reads {known}: use the program that \
         wrote it, or wipe this node's data directory so that it takes a peer's state"
    )]
    OtherVersion {
        /// The checkpoint's.
        found: u16,
        /// The one that is known here.
        known: u16,
    },
    /// The pipelines are not those of the checkpoint. Give the definitions that the log holds at
    /// its tick.
    #[error(
        "pipeline {incarnation} of the checkpoint has another definition, or is on one side only; \
         give the definitions of the log at the checkpoint's tick"
    )]
    OtherSpec {
        /// The incarnation that differs.
        incarnation: u64,
    },
    /// The bytes do not come. Try again, or use an older checkpoint or a peer's.
    #[error("the checkpoint cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl From<Fault> for RestoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damaged(what) => Self::Damaged { what },
            Fault::Io(error) => Self::Io(error),
        }
    }
}

impl FeedSnapshot {
    /// Number of lanes, each of which is a part.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Writes the feed's part.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_feed(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = Writer::new(out);
        head(Kind::Feed, &mut out);
        out.time(self.previous_agreed);
        out.length(self.lanes.len());
        for lane in &self.lanes {
            out.slice(lane.label.as_bytes());
            out.signed(lane.quiet_ms);
            out.signed(lane.blind_ms);
            out.unsigned(u64::from(lane.retired));
        }
        out.length(self.pipelines.len());
        for PipelineSnapshot { pipeline, .. } in &self.pipelines {
            out.unsigned(pipeline.incarnation.0);
            out.time(pipeline.watermark);
            out.time(pipeline.closed.through);
            out.time(pipeline.closed.last_with_data.map(Timestamp));
            for stream in [pipeline.rows, pipeline.letters] {
                out.unsigned(stream.next.0);
                out.fixed(&stream.digest.0.to_be_bytes());
            }
            out.unsigned(pipeline.letters_suppressed);
            if pipeline.spec().close.at_most_ms.is_some() {
                for lane in &pipeline.lanes {
                    out.signed(lane.seen_ms);
                }
            }
            if pipeline.spec().late.keep_ms().is_some() {
                pipeline.ledger.encode(&mut out);
            }
            if let Some(of) = &pipeline.spec().dedup {
                let window = &pipeline.spec().window;
                let horizon = dedup::horizon(window, pipeline.closed.through);
                pipeline.seen.encode(horizon, of.within_ms, &mut out);
            }
        }
        out.finish()
    }

    /// Writes a lane's part.
    ///
    /// # Errors
    /// Those of `out`; or groups on disk cannot be read.
    pub fn write_lane(&self, lane: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut out = Writer::new(out);
        head(Kind::Lane, &mut out);
        out.length(lane);
        out.length(self.pipelines.len());
        for of in &self.pipelines {
            lane::write(of, lane, &mut out)?;
        }
        out.finish()
    }
}

impl FeedEngine {
    /// The engine that wrote the part. `specs` are the definitions of its pipelines, in any order.
    /// The lanes follow, one by one, by [`FeedEngine::restore_lane`]; then [`FeedEngine::resume`].
    ///
    /// # Errors
    /// The bytes are damaged or of another version, or the definitions are not those of the
    /// checkpoint.
    pub fn restore(
        part: &mut dyn Read,
        specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<Self, RestoreError> {
        let mut input = Reader::new(part);
        let mut engine = Self::new();
        let read = engine.read_feed(&mut input, specs);
        ended(&mut input, read)?;
        Ok(engine)
    }

    fn read_feed(
        &mut self,
        input: &mut Reader<'_>,
        mut specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<(), RestoreError> {
        check_head(input, Kind::Feed)?;
        self.previous_agreed = input.time()?;
        for _ in 0..input.length()? {
            let label = std::str::from_utf8(input.slice()?);
            let label = label.map_err(|_| Fault::Damaged("a lane's label is damaged"))?;
            let label = label.to_owned();
            let (quiet_ms, blind_ms) = (input.signed()?, input.signed()?);
            let retired = match input.unsigned()? {
                0 => false,
                1 => true,
                _ => return Err(Fault::Damaged("a lane's state is damaged").into()),
            };
            self.lanes.push(FeedLane {
                label,
                quiet_ms,
                blind_ms,
                retired,
            });
        }
        for _ in 0..input.length()? {
            let incarnation = Incarnation(input.unsigned()?);
            let at = specs
                .iter()
                .position(|(candidate, _)| *candidate == incarnation)
                .ok_or_else(|| other_spec(incarnation))?;
            let (_, spec) = specs.swap_remove(at);
            self.add_pipeline(incarnation, spec, &mut []);
            if let Some(pipeline) = self.pipelines.last_mut() {
                read_pipeline(pipeline, input)?;
            }
        }
        match specs.first() {
            Some((incarnation, _)) => Err(other_spec(*incarnation)),
            None => Ok(()),
        }
    }

    /// The engine of one of the feed's lanes, from its part.
    ///
    /// # Errors
    /// As [`FeedEngine::restore`].
    pub fn restore_lane(
        &self,
        lane: LaneId,
        part: &mut dyn Read,
    ) -> Result<LaneEngine, RestoreError> {
        self.restore_lane_in_pieces(lane, part, &mut |_| Ok(()))
    }

    /// The same; `grown` is called with the lane after each of its next thousands of groups, and may put
    /// some of them on disk.
    ///
    /// # Errors
    /// As [`FeedEngine::restore`], and those of `grown`.
    pub fn restore_lane_in_pieces(
        &self,
        lane: LaneId,
        part: &mut dyn Read,
        grown: &mut Grown<'_>,
    ) -> Result<LaneEngine, RestoreError> {
        let mut engine = self.new_lane();
        self.restore_pipelines(0..self.pipelines.len(), lane, &mut engine, part, grown)?;
        Ok(engine)
    }

    /// Reads a lane's part that holds those of the pipelines.
    pub(crate) fn restore_pipelines(
        &self,
        pipelines: Range<usize>,
        lane: LaneId,
        engine: &mut LaneEngine,
        part: &mut dyn Read,
        grown: &mut Grown<'_>,
    ) -> Result<(), RestoreError> {
        let mut input = Reader::new(part);
        let read = self.read_lane(pipelines, lane, engine, &mut input, grown);
        ended(&mut input, read)
    }

    fn read_lane(
        &self,
        pipelines: Range<usize>,
        lane: LaneId,
        engine: &mut LaneEngine,
        input: &mut Reader<'_>,
        grown: &mut Grown<'_>,
    ) -> Result<(), RestoreError> {
        check_head(input, Kind::Lane)?;
        if input.length()? != u64::from(lane.0) {
            return Err(Fault::Damaged("it is another lane's").into());
        }
        if input.length()? != pipelines.len() as u64 {
            return Err(Fault::Damaged("it has another number of pipelines than its feed").into());
        }
        for at in pipelines {
            lane::read(&self.pipelines[at], at, engine, input, grown)?;
        }
        Ok(())
    }

    /// Goes on from a checkpoint: to be called when all lanes are restored.
    pub fn resume(&mut self, lanes: &[&mut LaneEngine]) {
        for (at, pipeline) in self.pipelines.iter_mut().enumerate() {
            pipeline.look(at, lanes);
            pipeline.look_at_panes(at, lanes);
        }
    }
}

fn read_pipeline(pipeline: &mut Pipeline, input: &mut Reader<'_>) -> Result<(), Fault> {
    pipeline.watermark = input.time()?;
    pipeline.closed.through = input.time()?;
    pipeline.closed.last_with_data = input.time()?.map(|time| time.0);
    for stream in [&mut pipeline.rows, &mut pipeline.letters] {
        *stream = StreamEnd {
            next: Seq(input.unsigned()?),
            digest: Digest(u128::from_be_bytes(input.fixed::<16>()?)),
        };
    }
    pipeline.letters_suppressed = input.unsigned()?;
    if pipeline.spec().close.at_most_ms.is_some() {
        for lane in &mut pipeline.lanes {
            lane.seen_ms = input.signed()?;
        }
    }
    if pipeline.spec().late.keep_ms().is_some() {
        pipeline.ledger = Ledger::decode(pipeline.spec().group_by.len(), input)?;
    }
    if pipeline.spec().dedup.is_some() {
        pipeline.seen = std::sync::Arc::new(Seen::decode(input)?);
    }
    Ok(())
}

fn head(kind: Kind, out: &mut Writer<'_>) {
    out.fixed(MAGIC);
    out.fixed(&VERSION.to_be_bytes());
    out.byte(kind as u8);
}

fn check_head(input: &mut Reader<'_>, kind: Kind) -> Result<(), RestoreError> {
    if input.fixed::<8>()? != *MAGIC {
        return Err(Fault::Damaged("it does not begin like one").into());
    }
    let found = u16::from_be_bytes(input.fixed::<2>()?);
    if found != VERSION {
        let known = VERSION;
        return Err(RestoreError::OtherVersion { found, known });
    }
    if input.byte()? != kind as u8 {
        return Err(Fault::Damaged("it is another kind of part").into());
    }
    Ok(())
}

/// The part ends here; whatever was found wrong on the way, damage explains it first.
fn ended(input: &mut Reader<'_>, read: Result<(), RestoreError>) -> Result<(), RestoreError> {
    match read {
        Ok(()) => input.finish()?,
        Err(error @ (RestoreError::Damaged { .. } | RestoreError::Io(_))) => return Err(error),
        Err(error) => {
            input.skip_to_end()?;
            return Err(error);
        }
    }
    Ok(())
}

pub(crate) fn other_spec(incarnation: Incarnation) -> RestoreError {
    RestoreError::OtherSpec {
        incarnation: incarnation.0,
    }
}
