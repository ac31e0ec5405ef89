//! The folder of a node's checkpoints.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::frame::CheckpointError;
use super::reader::CheckpointReader;
use super::writer::CheckpointWriter;
use super::{Header, PartId};

use crate::threads::lock;

/// Checkpoints that are kept: the newest, and one to fall back on.
const KEEP: usize = 2;

/// A checkpoint on disk. It can be read for as long as this is held, also when newer ones took its place.
#[derive(Clone, Debug)]
pub struct StoredCheckpoint {
    path: PathBuf,
    file: Arc<File>,
    header: Arc<Header>,
}

impl StoredCheckpoint {
    #[must_use]
    /// What it begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its parts.
    ///
    /// # Errors
    /// Its beginning or end is damaged.
    pub fn reader(&self) -> io::Result<CheckpointReader> {
        CheckpointReader::of(Arc::clone(&self.file)).map_err(|error| at(&self.path, error.into()))
    }
}

/// A checkpoint on its way to the folder. Dropped, it leaves nothing.
pub struct UnfinishedCheckpoint {
    path: Scratch,
    header: Header,
    writer: CheckpointWriter<BufWriter<File>>,
}

/// A file in the folder that is removed when this is dropped, or at the next start.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After the rename there is none; else it is removed at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

impl UnfinishedCheckpoint {
    /// Adds a part; see [`CheckpointWriter::part`].
    ///
    /// # Errors
    /// As there.
    pub fn part(
        &mut self,
        id: PartId,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.writer.part(id, write)
    }

    /// Keeps it in a folder as evidence, in place of the one that was there before.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn set_aside(self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join("state.checkpoint");
        let kept = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            self.writer.finish()?.into_inner()?.sync_all()?;
            fs::rename(&self.path.0, &path)
        };
        kept().map_err(|error| at(&path, error))?;
        Ok(path)
    }
}

/// The folder. Clones are one.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    dir: PathBuf,
    /// The newest that was found whole or written.
    newest: Arc<Mutex<Option<StoredCheckpoint>>>,
}

impl CheckpointStore {
    /// Opens the folder, and makes it if it is not there. What a crash left unfinished is removed.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir).map_err(|error| at(&dir, error))?;
        let store = Self {
            dir,
            newest: Arc::default(),
        };
        for file in store.files("unfinished")? {
            fs::remove_file(&file).map_err(|error| at(&file, error))?;
        }
        Ok(store)
    }

    /// Begins a checkpoint.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn begin(&self, header: Header) -> io::Result<UnfinishedCheckpoint> {
        let (path, file) = self.scratch(&format!("{:020}-{:020}", header.index, header.made_at))?;
        let named = |error| at(&path.0, error);
        let writer = CheckpointWriter::begin(BufWriter::new(file), &header).map_err(named)?;
        Ok(UnfinishedCheckpoint {
            path,
            header,
            writer,
        })
    }

    /// An empty file for a while.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn scratch(&self, name: &str) -> io::Result<(Scratch, File)> {
        let path = Scratch(self.dir.join(format!("{name}.unfinished")));
        // Read again, by the same handle, when it is sent to a peer.
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path.0).map_err(|error| at(&path.0, error))?;
        Ok((path, file))
    }

    /// Puts a checkpoint on disk durably, then removes the oldest beyond the two that are kept.
    ///
    /// # Errors
    /// The system's, with the path; nothing has changed then.
    pub fn finish(&self, unfinished: UnfinishedCheckpoint) -> io::Result<StoredCheckpoint> {
        let UnfinishedCheckpoint {
            path: from,
            header,
            writer,
        } = unfinished;
        let path = from.0.with_extension("checkpoint");
        let named = |error| at(&path, error);
        let file = writer.finish().map_err(named)?;
        let file = file
            .into_inner()
            .map_err(|error| named(error.into_error()))?;
        file.sync_all()
            .and_then(|()| fs::rename(&from.0, &path))
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .map_err(named)?;
        let stored = StoredCheckpoint {
            path,
            file: Arc::new(file),
            header: Arc::new(header),
        };
        {
            let mut newest = self.newest();
            let age = |stored: &StoredCheckpoint| (stored.header.index, stored.header.made_at);
            if newest
                .as_ref()
                .is_none_or(|newest| age(&stored) >= age(newest))
            {
                *newest = Some(stored.clone());
            }
        }
        let mut files = self.files("checkpoint")?;
        files.truncate(files.len().saturating_sub(KEEP));
        for file in files {
            fs::remove_file(&file).map_err(|error| at(&file, error))?;
        }
        Ok(stored)
    }

    /// The newest checkpoint that is whole, each byte checked; damaged ones are named in the log and left as evidence.
    ///
    /// # Errors
    /// The system's; a checkpoint of another version of the program.
    pub fn load(&self) -> io::Result<Option<StoredCheckpoint>> {
        for path in self.files("checkpoint")?.into_iter().rev() {
            match open_verified(&path) {
                Ok(stored) => {
                    *self.newest() = Some(stored.clone());
                    return Ok(Some(stored));
                }
                Err(CheckpointError::Damaged(reason)) => {
                    let (file, error) = (path.display(), CheckpointError::Damaged(reason));
                    tracing::error!(%file, %error, "checkpoint not used; trying the one before");
                }
                Err(error) => return Err(at(&path, error.into())),
            }
        }
        Ok(None)
    }

    /// The newest checkpoint that was loaded or written; nothing is read.
    #[must_use]
    pub fn current(&self) -> Option<StoredCheckpoint> {
        self.newest().clone()
    }

    // Each change is one assignment.
    fn newest(&self) -> MutexGuard<'_, Option<StoredCheckpoint>> {
        lock(&self.newest)
    }

    /// All files with this extension, oldest first.
    pub(super) fn files(&self, extension: &str) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|error| at(&self.dir, error))? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

fn open_verified(path: &Path) -> Result<StoredCheckpoint, CheckpointError> {
    let file = Arc::new(File::open(path)?);
    let mut reader = CheckpointReader::of(Arc::clone(&file))?;
    reader.verify()?;
    let header = Arc::new(reader.header().clone());
    Ok(StoredCheckpoint {
        path: path.to_path_buf(),
        file,
        header,
    })
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
