//! Lines of logs by a regular expression: a field for each named group.

use regex::bytes::{CaptureLocations, Regex};
use unisono_engine::expr::regular_expression;
use unisono_engine::record::Cells;

use super::text::{Found, Target};
use crate::definition::{FieldSet, TextFormat};

/// Reads fields where groups match.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    found: CaptureLocations,
    /// The number of the group of each field that is used.
    fields: Vec<(usize, Target)>,
}

impl Pattern {
    /// `None` if the pattern is not valid, which the check of the definition excludes.
    pub(super) fn new(fields: &FieldSet, format: &TextFormat, pattern: &str) -> Option<Self> {
        let regex = regular_expression(pattern).ok()?;
        let names = regex.capture_names().enumerate();
        let groups = names.filter_map(|(group, name)| Some((group, name?)));
        let targets = groups.map(|(group, name)| (group, Target::of_name(fields, format, name)));
        Some(Self {
            fields: targets.filter(|(_, target)| !target.is_unused()).collect(),
            found: regex.capture_locations(),
            regex,
        })
    }

    /// Fills the cells; a group that takes no part leaves its field missing.
    pub(super) fn read(&mut self, text: &str, cells: &mut Cells) -> Found {
        let found = self.regex.captures_read(&mut self.found, text.as_bytes());
        if found.is_none() {
            return Found::Nothing;
        }
        for (group, target) in &self.fields {
            let Some((start, end)) = self.found.get(*group) else {
                continue;
            };
            // An expression that asks for single bytes may end within a character.
            if text.get(start..end).is_none() {
                return Found::Nothing;
            }
            target.set_bare(text, start..end, cells);
        }
        Found::Fields
    }
}
