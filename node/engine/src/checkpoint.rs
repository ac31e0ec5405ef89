//! The engine's whole state at the end of a tick, as bytes.
//!
//! Layout: `UNISOENG`, the version as two bytes (big endian), the body, and XXH3-128 of all that as
//! 16 bytes (big endian). Head and checksum are the same in every version. Definitions are not part
//! of it, only a hash of each: they are in the log.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::feed::{FeedEngine, FeedLane};
use crate::pipeline::Pipeline;
use crate::row::Incarnation;
use crate::spec::PipelineSpec;

pub(crate) mod codec;

use codec::{Fault, Reader, Writer};

const MAGIC: &[u8; 8] = b"UNISOENG";
const CHECKSUM_BYTES: usize = 16;

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u16 = 1;

/// Why a checkpoint cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The bytes are not a whole, undamaged checkpoint. Take another one, or a peer's.
    #[error("the checkpoint is damaged: {what}; use an older one or a peer's")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// It was written by a newer program. Upgrade this one.
    #[error(
        "the checkpoint has version {found}, this program reads versions up to {known}; upgrade it"
    )]
    NewerVersion {
        /// The checkpoint's.
        found: u16,
        /// The newest that is known here.
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
}

impl From<Fault> for RestoreError {
    fn from(fault: Fault) -> Self {
        Self::Damaged { what: fault.0 }
    }
}

impl FeedEngine {
    /// The whole state, between two ticks. Engines that took in the same ticks give the same bytes.
    #[must_use]
    pub fn checkpoint(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.fixed(MAGIC);
        out.fixed(&VERSION.to_be_bytes());
        out.time(self.previous_agreed);
        out.length(self.lanes.len());
        for lane in &self.lanes {
            out.slice(lane.label.as_bytes());
            out.signed(lane.quiet_ms);
        }
        out.length(self.pipelines.len());
        for pipeline in &self.pipelines {
            out.unsigned(pipeline.incarnation.0);
            out.fixed(&spec_hash(pipeline.spec()).to_be_bytes());
            pipeline.encode(&mut out);
        }
        let checksum = xxh3_128(&out.bytes);
        out.fixed(&checksum.to_be_bytes());
        out.bytes
    }

    /// The engine that wrote the checkpoint. `specs` are the definitions of its pipelines, in any
    /// order.
    ///
    /// # Errors
    /// The bytes are damaged or of a newer version, or the definitions are not those of the
    /// checkpoint.
    pub fn restore(
        bytes: &[u8],
        specs: Vec<(Incarnation, PipelineSpec)>,
    ) -> Result<Self, RestoreError> {
        let mut input = Reader::new(checked_body(bytes)?);
        let mut engine = Self {
            previous_agreed: input.time()?,
            ..Self::default()
        };
        for _ in 0..input.length()? {
            let label = std::str::from_utf8(input.slice()?);
            let label = label.map_err(|_| Fault("a lane's label is damaged"))?;
            engine
                .lanes
                .push(FeedLane::new(label.to_owned(), input.signed()?));
        }
        let mut specs = specs;
        for _ in 0..input.length()? {
            let incarnation = Incarnation(input.unsigned()?);
            let hash = u64::from_be_bytes(input.fixed::<8>()?);
            let other = RestoreError::OtherSpec {
                incarnation: incarnation.0,
            };
            let at = specs
                .iter()
                .position(|(candidate, _)| *candidate == incarnation);
            let (_, spec) = specs.swap_remove(at.ok_or(other.clone())?);
            if spec_hash(&spec) != hash {
                return Err(other);
            }
            let lanes = engine.lanes.len();
            engine
                .pipelines
                .push(Pipeline::decode(&mut input, incarnation, spec, lanes)?);
        }
        if let Some((incarnation, _)) = specs.first() {
            return Err(RestoreError::OtherSpec {
                incarnation: incarnation.0,
            });
        }
        if !input.is_at_end() {
            return Err(Fault("it goes on after its end").into());
        }
        Ok(engine)
    }
}

/// What lies between the head and the checksum.
fn checked_body(bytes: &[u8]) -> Result<&[u8], RestoreError> {
    let (content, checksum) = bytes
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or(Fault("it ends too early"))?;
    if xxh3_128(content) != u128::from_be_bytes(*checksum) {
        return Err(Fault("its checksum is wrong").into());
    }
    let rest = content
        .strip_prefix(MAGIC)
        .ok_or(Fault("it does not begin like one"))?;
    let (version, body) = rest
        .split_first_chunk::<2>()
        .ok_or(Fault("it ends too early"))?;
    let found = u16::from_be_bytes(*version);
    if found > VERSION {
        return Err(RestoreError::NewerVersion {
            found,
            known: VERSION,
        });
    }
    Ok(body)
}

fn spec_hash(spec: &PipelineSpec) -> u64 {
    xxh3_64(format!("{spec:?}").as_bytes())
}
