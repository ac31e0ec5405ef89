//! Orders into append-only NDJSON files.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};

use super::{LANES, Target};

/// Folders with one file for each lane: the input, and copies of it that replicas read.
#[derive(Debug)]
pub struct FileTarget {
    folders: Vec<Vec<(PathBuf, File)>>,
    forger: Forger,
}

/// Has one copy of the input hold another record than all others.
#[derive(Clone, Debug, Default)]
pub struct Forger {
    state: Arc<Mutex<Forgery>>,
}

#[derive(Debug, Default)]
enum Forgery {
    #[default]
    None,
    /// The next order in the first lane of this copy.
    Asked(usize),
    /// What should stand there.
    Done {
        path: PathBuf,
        at: u64,
        right: Vec<u8>,
    },
}

impl Forger {
    fn lock(&self) -> MutexGuard<'_, Forgery> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next order in a copy's first lane has another amount; copies count from 0.
    pub fn forge(&self, copy: usize) {
        *self.lock() = Forgery::Asked(copy);
    }

    /// Whether that has been written.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(*self.lock(), Forgery::Done { .. })
    }

    /// Puts the right order in its place.
    ///
    /// # Errors
    /// Nothing was forged, or the file cannot be written.
    pub fn repair(&self) -> Result<()> {
        let Forgery::Done { path, at, right } = std::mem::take(&mut *self.lock()) else {
            bail!("no record was forged");
        };
        let file = OpenOptions::new().write(true).open(&path)?;
        file.write_all_at(&right, at)
            .with_context(|| format!("cannot repair {}", path.display()))
    }
}

impl FileTarget {
    /// Creates the folders and their files, empty, where they are not there yet: replicas that start before the first
    /// order then find every lane.
    ///
    /// # Errors
    /// What could not be created.
    pub fn create(dir: &Path, copies: &[PathBuf]) -> Result<Self> {
        let mut folders = Vec::new();
        // The checker's first: what a replica has published was in the input before.
        for dir in std::iter::once(dir).chain(copies.iter().map(PathBuf::as_path)) {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            folders.push(lanes(dir)?);
        }
        Ok(Self {
            folders,
            forger: Forger::default(),
        })
    }

    /// Forges records of the copies.
    #[must_use]
    pub fn forger(&self) -> Forger {
        self.forger.clone()
    }
}

fn lanes(dir: &Path) -> Result<Vec<(PathBuf, File)>> {
    let lane = |lane| {
        let path = dir.join(format!("orders-{lane}.ndjson"));
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok((path, file))
    };
    (0..LANES).map(lane).collect()
}

impl Target for FileTarget {
    fn append(&mut self, lane: usize, lines: &str) -> Result<()> {
        let mut forgery = self.forger.lock();
        for (number, folder) in self.folders.iter_mut().enumerate() {
            let (path, file) = &mut folder[lane];
            let mut bytes = lines.as_bytes().to_vec();
            let asked = matches!(*forgery, Forgery::Asked(copy) if copy + 1 == number);
            if asked && lane == 0 && forge(&mut bytes) {
                *forgery = Forgery::Done {
                    path: path.clone(),
                    at: file.metadata()?.len(),
                    right: lines.as_bytes().to_vec(),
                };
            }
            file.write_all(&bytes)
                .with_context(|| format!("cannot write to {}", path.display()))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Changes the last digit of the amount of an order that counts; the length stays. `false`: there is none.
fn forge(lines: &mut [u8]) -> bool {
    const PAID: &[u8] = b"\"status\":\"paid\",\"amount\":";
    let found = lines.windows(PAID.len()).position(|part| part == PAID);
    let Some(amount) = found.map(|at| at + PAID.len()) else {
        return false;
    };
    let rest = &mut lines[amount..];
    let end = rest.iter().position(|&byte| byte == b',');
    let Some(digit) = end.and_then(|end| rest.get_mut(end.checked_sub(1)?)) else {
        return false;
    };
    *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_record_of_one_copy_is_forged_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let copies = [dir.path().join("1"), dir.path().join("2")];
        let mut target = FileTarget::create(&dir.path().join("0"), &copies).unwrap();
        let lane = |folder: &str| {
            let path = dir.path().join(folder).join("orders-0.ndjson");
            std::fs::read_to_string(path).unwrap()
        };
        let forger = target.forger();
        target.append(0, "before\n").unwrap();
        forger.forge(1);
        let order = "{\"status\":\"paid\",\"amount\":1.29,\"channel\":\"app\"}\n";
        target.append(0, order).unwrap();
        target.append(0, "after\n").unwrap();
        assert!(forger.is_done());
        assert_eq!(lane("2"), lane("0").replace("1.29", "1.20"));
        assert_eq!(lane("1"), lane("0"));
        forger.repair().unwrap();
        assert_eq!(lane("2"), lane("0"));
        forger.repair().unwrap_err();
    }
}
