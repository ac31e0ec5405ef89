//! The loop of a thread that looks which lanes a source has. It may wait for a network; who reads never does.

use std::sync::Arc;
use std::time::Duration;

use super::{Shared, SourceState, lock};
use crate::config::SourceConfig;
use crate::source::{self, Found, SourceError, SourceSurvey};

/// How often it looks.
const LOOK_AROUND: Duration = Duration::from_secs(2);

pub(super) struct Surveying {
    source: SourceConfig,
    shared: Arc<Shared>,
}

impl Surveying {
    pub(super) fn new(source: SourceConfig, shared: Arc<Shared>) -> Self {
        Self { source, shared }
    }

    pub(super) fn run(self) {
        let mut survey = None;
        while !self.shared.stopping() {
            let discarded = std::mem::take(&mut *lock(&self.shared.discarded));
            drop(discarded);
            // A look without all lanes would take known ones for new.
            let known = lock(&self.shared.known).clone();
            if let Some(known) = known {
                let found = self.look(&mut survey, |survey| survey.look(&known));
                self.note(known.len(), found);
            }
            self.shared.look.wait(LOOK_AROUND);
        }
    }

    fn look(
        &self,
        survey: &mut Option<Box<dyn SourceSurvey>>,
        look: impl FnOnce(&mut dyn SourceSurvey) -> Result<Found, SourceError>,
    ) -> Result<Found, SourceError> {
        if survey.is_none() {
            *survey = Some(source::survey(&self.source)?);
        }
        survey
            .as_mut()
            .map_or_else(|| Ok(Found::default()), |survey| look(survey.as_mut()))
    }

    /// Notes what was found, or why the source cannot be looked at; says so once for each new reason.
    fn note(&self, known: usize, found: Result<Found, SourceError>) {
        let (found, trouble) = match found {
            Ok(found) => {
                let trouble = found.troubles.first().cloned();
                (found, trouble)
            }
            Err(error) => (Found::default(), Some(error.to_string())),
        };
        let before = lock(&self.shared.state).trouble.clone();
        *lock(&self.shared.state) = SourceState {
            trouble: trouble.clone(),
            found,
            known,
        };
        if before == trouble {
            return;
        }
        let source = &self.source.name;
        match trouble {
            Some(reason) => tracing::warn!(source, reason, "source cannot be read; trying again"),
            None => tracing::info!(source, "source can be read"),
        }
    }
}
