//! Which fields a pipeline names and no record has had so far: mostly a typo. It is shown, and
//! agreed nowhere: a restart begins anew.

use crate::plan::Program;
use crate::record::{Cell, Record, RecordState};
use crate::spec::Column;

/// Fields that are still to be seen.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    unseen: Vec<Column>,
    any_record: bool,
}

impl Fields {
    pub(crate) fn new(program: &Program) -> Self {
        Self {
            unseen: program.named.clone(),
            any_record: false,
        }
    }

    /// Mostly nothing is left to be looked for.
    #[inline]
    pub(crate) fn look(&mut self, record: &Record<'_>) {
        if record.state == RecordState::Decoded {
            self.any_record = true;
            if !self.unseen.is_empty() {
                self.unseen
                    .retain(|&column| record.cell(column) == Cell::Missing);
            }
        }
    }

    /// The fields that no record has had; `None` while there was no record.
    pub(crate) fn unseen(&self) -> Option<&[Column]> {
        self.any_record.then_some(&self.unseen)
    }
}
