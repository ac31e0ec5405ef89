//! Orders into append-only NDJSON files.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{LANES, Target};

/// A folder with one file for each lane.
#[derive(Debug)]
pub struct FileTarget {
    files: Vec<(PathBuf, File)>,
}

impl FileTarget {
    /// Creates the folder and its files, empty, where they are not there yet: replicas that start before the first
    /// order then find every lane.
    ///
    /// # Errors
    /// What could not be created.
    pub fn create(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mut files = Vec::new();
        for lane in 0..LANES {
            let path = dir.join(format!("orders-{lane}.ndjson"));
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            files.push((path, file));
        }
        Ok(Self { files })
    }
}

impl Target for FileTarget {
    fn append(&mut self, lane: usize, lines: &str) -> Result<()> {
        let (path, file) = &mut self.files[lane];
        file.write_all(lines.as_bytes())
            .with_context(|| format!("cannot write to {}", path.display()))
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
