//! Where a drill lives on disk.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder of its own under the system's temporary folder; it is removed when dropped.
#[derive(Debug)]
pub struct DrillFolder {
    dir: tempfile::TempDir,
}

impl DrillFolder {
    /// Creates it.
    ///
    /// # Errors
    /// The temporary folder cannot be written.
    pub fn create() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("unisono-")
            .tempdir()
            .with_context(|| {
                format!(
                    "cannot create a folder in {}",
                    std::env::temp_dir().display()
                )
            })?;
        Ok(Self { dir })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves it there, as evidence: configs, data, logs and input.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}
