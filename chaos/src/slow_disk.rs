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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_write_to_a_slow_disk_takes_longer_until_it_is_healed() {
        let dir = tempfile::tempdir().unwrap();
        let disk = SlowDisk::build(dir.path()).unwrap();
        // GNU's `sync FILE` is one fsync.
        let took = || {
            let began = Instant::now();
            let mut sync = Command::new("sync");
            let status = sync.arg(dir.path()).envs(disk.environment(1)).status();
            assert!(status.unwrap().success());
            began.elapsed()
        };
        disk.slow(2).unwrap();
        let quick = (0..20).map(|_| took()).min().unwrap();
        disk.slow(1).unwrap();
        let slow = (0..3).map(|_| took()).min().unwrap();
        assert!(slow >= Duration::from_millis(100), "{slow:?}");
        disk.heal(1).unwrap();
        assert!(quick < Duration::from_millis(100), "{quick:?}");
    }
}
