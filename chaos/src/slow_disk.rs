//! Disks that become slow or hang on request, by a library that is loaded into the replicas: the program that is put to the drill
//! knows nothing of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("slow_disk.c");

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// Each sync takes a tenth of a second longer.
    Slow,
    /// No write and no sync returns before it is healed.
    Hung,
}

/// The library, and the files that switch it on, two for each replica.
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

    fn switch(&self, number: u16, ailment: Ailment) -> PathBuf {
        let name = match ailment {
            Ailment::Slow => "slow",
            Ailment::Hung => "hung",
        };
        self.dir.join(format!("{name}-{number}"))
    }

    /// What a replica must find in its environment.
    #[must_use]
    pub fn environment(&self, number: u16) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let switch = |name: &str, ailment| (name.to_owned(), text(&self.switch(number, ailment)));
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            switch("UNISONO_SLOW_DISK", Ailment::Slow),
            switch("UNISONO_HUNG_DISK", Ailment::Hung),
        ]
    }

    /// Makes a replica's disk slow, or hang.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn ail(&self, number: u16, ailment: Ailment) -> Result<()> {
        Ok(std::fs::write(self.switch(number, ailment), "")?)
    }

    /// Makes it as it was.
    ///
    /// # Errors
    /// Nothing ailed it.
    pub fn heal(&self, number: u16, ailment: Ailment) -> Result<()> {
        Ok(std::fs::remove_file(self.switch(number, ailment))?)
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
        disk.ail(2, Ailment::Slow).unwrap();
        let quick = (0..20).map(|_| took()).min().unwrap();
        disk.ail(1, Ailment::Slow).unwrap();
        let slow = (0..3).map(|_| took()).min().unwrap();
        assert!(slow >= Duration::from_millis(100), "{slow:?}");
        disk.heal(1, Ailment::Slow).unwrap();
        assert!(quick < Duration::from_millis(100), "{quick:?}");
    }

    #[test]
    fn a_write_to_a_hung_disk_does_not_return_before_it_is_healed() {
        let dir = tempfile::tempdir().unwrap();
        let disk = SlowDisk::build(dir.path()).unwrap();
        let file = dir.path().join("file");
        let mut writes = Command::new("cp");
        writes.arg("/proc/self/status").arg(&file);
        disk.ail(1, Ailment::Hung).unwrap();
        let mut hangs = writes.envs(disk.environment(1)).spawn().unwrap();
        let mut sync = Command::new("sync");
        let well = sync.arg(dir.path()).envs(disk.environment(2)).status();
        assert!(well.unwrap().success());
        std::thread::sleep(Duration::from_millis(100));
        assert!(hangs.try_wait().unwrap().is_none());
        disk.heal(1, Ailment::Hung).unwrap();
        assert!(hangs.wait().unwrap().success());
        assert!(std::fs::metadata(&file).unwrap().len() > 0);
    }
}
