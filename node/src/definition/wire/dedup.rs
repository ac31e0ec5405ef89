//! Which records are copies, in a canonical text.

use serde::{Deserialize, Serialize};
use unisono_engine::spec::{Column, DedupSpec};

use super::read_derived;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dedup {
    /// Derived columns follow the fields.
    key: Vec<usize>,
    within_ms: i64,
}

impl Dedup {
    pub(super) fn of(dedup: &DedupSpec, place: &impl Fn(Column) -> usize) -> Self {
        Self {
            key: dedup.key.iter().copied().map(place).collect(),
            within_ms: dedup.within_ms,
        }
    }

    /// Among so many fields and so many columns in all.
    pub(super) fn read(&self, columns: (usize, usize)) -> Result<DedupSpec, String> {
        if self.key.is_empty() || self.within_ms < 1 {
            return Err("dedup has no key, or its within is no time".to_owned());
        }
        let key = self.key.iter().map(|&column| read_derived(column, columns));
        Ok(DedupSpec {
            key: key.collect::<Result<_, _>>()?,
            within_ms: self.within_ms,
        })
    }
}
