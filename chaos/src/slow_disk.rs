//! Disks that become slow on request, by a library that is loaded into the replicas: the program that is put to the drill
//! knows nothing of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("slow_disk.c");

/// The library, and the files that switch it on, one for each replica.
#[derive(Debug)]
pub struct SlowDisk {
    dir: PathBuf,
    library: PathBuf,
}

impl SlowDisk {
    /// Builds the library in a folder.
    ///
    /// # Errors
    /// There is no C compiler, or it cannot build it.
    pub fn build(dir: &Path) -> Result<Self> {
        let (source, library) = (dir.join("slow_disk.c"), dir.join("slow_disk.so"));
        std::fs::write(&source, SOURCE)?;
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .context("there is no C compiler (cc)")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cc: {said}");
        let dir = dir.to_owned();
        Ok(Self { dir, library })
    }

    fn switch(&self, number: u16) -> PathBuf {
        self.dir.join(format!("slow-{number}"))
    }

    /// What a replica must find in its environment.
    #[must_use]
    pub fn environment(&self, number: u16) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("UNISONO_SLOW_DISK".to_owned(), text(&self.switch(number))),
        ]
    }

    /// Makes a replica's disk slow.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn slow(&self, number: u16) -> Result<()> {
        Ok(std::fs::write(self.switch(number), "")?)
    }

    /// Makes it as fast as it was.
    ///
    /// # Errors
    /// It was not slow.
    pub fn heal(&self, number: u16) -> Result<()> {
        Ok(std::fs::remove_file(self.switch(number))?)
    }
}
