//! Comparing while the drill goes on.

use anyhow::Result;

use crate::checker::{Copy, Demand, Expectation, FileInput, Verdict, check};
use crate::cluster::Medium;
use crate::kafka::TopicReader;

/// The input, wherever it is, read as far as it has grown.
pub(super) enum Input {
    Files(FileInput),
    Topic(Box<TopicReader>),
}

impl Input {
    pub(super) fn open(medium: &Medium) -> Result<Self> {
        Ok(match medium {
            Medium::Files { dir } => Self::Files(FileInput::new(dir)),
            Medium::Kafka { brokers, input, .. } => {
                Self::Topic(Box::new(TopicReader::connect(brokers, input)?))
            }
        })
    }

    pub(super) fn read_into(&mut self, expectation: &mut Expectation) -> Result<()> {
        match self {
            Self::Files(files) => files.read_into(expectation)?,
            Self::Topic(topic) => topic.read_orders(expectation)?,
        }
        expectation.settle();
        Ok(())
    }
}

/// Checks what was seen so far against the input so far.
pub struct LiveChecker {
    input: Input,
    expectation: Expectation,
}

impl LiveChecker {
    pub(super) fn new(medium: &Medium) -> Result<Self> {
        Ok(Self {
            input: Input::open(medium)?,
            expectation: Expectation::default(),
        })
    }

    /// Takes copies made before the call, then reads the input on: a window with a row was closed, so all that counts
    /// in it was in the input when the copies were made. Blocks.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn check(&mut self, copies: &[Copy]) -> Result<Verdict> {
        self.input.read_into(&mut self.expectation)?;
        Ok(check(&self.expectation, copies, Demand::SoFar))
    }
}
