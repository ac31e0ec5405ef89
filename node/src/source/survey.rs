//! Which lanes a source has: asked beside the reading, by a thread that may wait for a network.

use super::files::FilesSurvey;
use super::kafka::KafkaSurvey;
use super::{LaneTrail, OpenFile, SourceError};
use crate::config::{SourceConfig, SourceKind};

/// A lane that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLane {
    /// The partition's number, or the file's name.
    pub name: String,
    /// The offset of its first record.
    pub start: i64,
    /// By what it is known again.
    pub identity: String,
}

/// A lane that a feed has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLane {
    /// As far as it was read here.
    pub trail: LaneTrail,
    /// Nothing more comes of it.
    pub retired: bool,
    /// The file that it is, where lanes are files and this one is open.
    pub file: Option<OpenFile>,
}

/// What a look at a source found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Lanes that no known one is. A name may be that of a known lane, which is another one then.
    pub new: Vec<FoundLane>,
    /// The names of known lanes that are gone, or whose name is another's, and that were read to their end.
    pub gone: Vec<String>,
    /// What could not be looked at, for people.
    pub troubles: Vec<String>,
}

/// Asks which lanes a source has. May wait, but only for seconds.
pub trait SourceSurvey: Send {
    /// All lanes, each with the offset where a new feed begins to read it.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`]: also if the source can be reached, but its lanes cannot be read as Unisono reads.
    fn begin(&mut self) -> Result<Vec<FoundLane>, SourceError>;

    /// Whether records are stamped when they are appended.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`]: also if they are not.
    fn stamps(&mut self) -> Result<(), SourceError>;

    /// What has changed beside the lanes that are known.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn look(&mut self, known: &[KnownLane]) -> Result<Found, SourceError>;
}

/// What surveys a source. Does not wait for it to be in reach.
///
/// # Errors
/// [`SourceError::Unavailable`] if even that is not possible.
pub fn survey(config: &SourceConfig) -> Result<Box<dyn SourceSurvey>, SourceError> {
    #[cfg(feature = "simulation")]
    if unisono_replication::rt::simulated::is_active() {
        return Ok(super::simulated::survey());
    }
    Ok(match &config.kind {
        SourceKind::Kafka(config) => Box::new(KafkaSurvey::connect(config)?),
        SourceKind::Files(config) => Box::new(FilesSurvey::new(config.clone())),
    })
}
