//! Reads the input files, as far as they have grown, into an expectation.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::checker::Expectation;
use crate::order::Order;

/// A folder of NDJSON files, a lane each, with how far each has been read.
#[derive(Debug)]
pub struct FileInput {
    dir: PathBuf,
    positions: BTreeMap<PathBuf, u64>,
}

impl FileInput {
    /// Starts at the beginning of every file in `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            positions: BTreeMap::new(),
        }
    }

    /// Adds every whole line that was written since the last call.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is not an order.
    pub fn read_into(&mut self, expectation: &mut Expectation) -> Result<()> {
        let listing = || format!("cannot list the input folder {}", self.dir.display());
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&self.dir).with_context(listing)? {
            let path = entry.with_context(listing)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "ndjson")
            {
                paths.push(path);
            }
        }
        paths.sort();
        for path in paths {
            let position = self.positions.entry(path.clone()).or_default();
            *position += read_lines(&path, *position, expectation)
                .with_context(|| format!("cannot use the input file {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns how many bytes of whole lines were read.
fn read_lines(path: &Path, position: u64, expectation: &mut Expectation) -> Result<u64> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |last| last + 1);
    let lane = path.file_name().unwrap_or_default().to_string_lossy();
    for line in std::str::from_utf8(&bytes[..whole])?.lines() {
        let Some(order) = Order::parse(line) else {
            bail!("not an order: {line}")
        };
        expectation.add(&lane, &order);
    }
    Ok(whole as u64)
}
