//! Files of MessagePack: values one behind the other, each a record. An offset is where it begins.

use std::io::Read;

use unisono_engine::record::Stamp;

use crate::cli::error::CliError;
use crate::decode::msgpack::{Length, length};
use crate::definition::MOST_RECORD_BYTES;
use crate::source::Block;

const READ: usize = 64 << 10;

/// Cuts what can be read into values.
pub struct Values {
    from: Box<dyn Read>,
    /// What was read.
    pending: Vec<u8>,
    /// How much of it was given.
    given: usize,
    /// Where the next value begins.
    position: u64,
}

impl Values {
    pub fn new(from: Box<dyn Read>) -> Self {
        Self {
            from,
            pending: Vec::new(),
            given: 0,
            position: 0,
        }
    }

    /// Fills the block with the next values, about `max_bytes`; gives whether that was all. Where a value ends is
    /// unknown behind a broken one, so it is an error, as is a value that has no end.
    pub fn read(
        &mut self,
        label: &str,
        block: &mut Block,
        max_bytes: usize,
    ) -> Result<bool, CliError> {
        let wrong = |what: &str, position: u64| {
            CliError::failure(format!("{label} {what} at byte {position}"))
                .hint("a file of MessagePack holds maps one behind the other, with nothing between")
        };
        while block.weight() < max_bytes {
            match length(&self.pending[self.given..]) {
                Length::Whole(len) => {
                    let value = &self.pending[self.given..self.given + len];
                    let next = self.position + len as u64;
                    block.push(
                        signed(self.position),
                        signed(next),
                        Stamp::None,
                        Some(value),
                    );
                    self.given += len;
                    self.position = next;
                }
                Length::Broken => return Err(wrong("is not MessagePack", self.position)),
                Length::Beyond => {
                    self.pending.drain(..self.given);
                    self.given = 0;
                    let before = self.pending.len();
                    if before > MOST_RECORD_BYTES {
                        return Err(wrong("has a value of more than 16 MiB", self.position));
                    }
                    // As much again: what is looked at anew stays in proportion.
                    let more = before.max(READ) as u64;
                    (&mut self.from)
                        .take(more)
                        .read_to_end(&mut self.pending)
                        .map_err(|error| {
                            CliError::failure(format!("cannot read {label}: {error}"))
                        })?;
                    match self.pending.len() {
                        0 => return Ok(true),
                        len if len == before => {
                            return Err(wrong("ends within a value that begins", self.position));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(false)
    }
}

/// No file is longer than that.
fn signed(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}
