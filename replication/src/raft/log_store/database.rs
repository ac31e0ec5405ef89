//! The one durable file of a replica's consensus: log, vote, marks and identity in redb.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::writer::Operation;
use crate::error::StartError;
use crate::identity::{new_node_id, number_of};
use crate::raft::types::{Entry, LogId, Vote, decode, encode};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// The version of all that the file holds: keys, records, and the commands in the entries.
const FORMAT: u32 = 2;
const CACHE_BYTES: usize = 16 << 20;

/// What is known after opening.
pub(super) struct Loaded {
    pub node_id: u64,
    pub last: Option<LogId>,
    pub purged: Option<LogId>,
    pub committed: Option<LogId>,
    pub vote: Option<Vote>,
}

/// Opens or makes the database of replica `number` in `dir`.
pub(super) fn open(dir: &Path, number: u16) -> Result<(PathBuf, Database, Loaded), StartError> {
    let path = dir.join("raft.redb");
    std::fs::create_dir_all(dir).map_err(|cause| StartError::Io {
        path: dir.to_path_buf(),
        cause,
    })?;
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create(&path)
        .map_err(|error| open_error(&path, error))?;
    let loaded = load(&path, &database, number)?;
    Ok((path, database, loaded))
}

fn open_error(path: &Path, error: DatabaseError) -> StartError {
    let path = path.to_path_buf();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StartError::InUse { path },
        DatabaseError::Storage(StorageError::Io(cause))
            if cause.kind() != io::ErrorKind::InvalidData
                && cause.kind() != io::ErrorKind::UnexpectedEof =>
        {
            StartError::Io { path, cause }
        }
        other => StartError::Damaged {
            path,
            cause: other.to_string(),
        },
    }
}

fn load(path: &Path, database: &Database, number: u16) -> Result<Loaded, StartError> {
    let damaged = |error: io::Error| StartError::Damaged {
        path: path.to_path_buf(),
        cause: error.to_string(),
    };
    if let Some(found) = other_format(database).map_err(damaged)? {
        return Err(StartError::OtherVersion {
            path: path.to_path_buf(),
            found,
            reads: FORMAT,
        });
    }
    let node_id = identity(database, number).map_err(damaged)?;
    if number_of(node_id) != number {
        return Err(StartError::WrongNumber {
            path: path.to_path_buf(),
            stored: number_of(node_id),
            configured: number,
        });
    }
    read_marks(database, node_id).map_err(damaged)
}

/// The file's format, if it is another than this program's. Nothing else of such a file is read, and nothing written.
fn other_format(database: &Database) -> io::Result<Option<u32>> {
    let transaction = database.begin_read().map_err(io::Error::other)?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        // A new file.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    let format: Option<u32> = get(&meta, "format")?;
    let format = format
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not name its format"))?;
    Ok((format != FORMAT).then_some(format))
}

/// The stored node id; drawn and stored at the first start.
fn identity(database: &Database, number: u16) -> io::Result<u64> {
    let transaction = database.begin_write().map_err(io::Error::other)?;
    let node_id = {
        let mut meta = transaction.open_table(META).map_err(io::Error::other)?;
        transaction.open_table(LOG).map_err(io::Error::other)?;
        match get(&meta, "node_id")? {
            Some(node_id) => node_id,
            None => {
                let node_id = new_node_id(number);
                put(&mut meta, "format", &FORMAT)?;
                put(&mut meta, "node_id", &node_id)?;
                node_id
            }
        }
    };
    transaction.commit().map_err(io::Error::other)?;
    Ok(node_id)
}

fn read_marks(database: &Database, node_id: u64) -> io::Result<Loaded> {
    let transaction = database.begin_read().map_err(io::Error::other)?;
    let meta = transaction.open_table(META).map_err(io::Error::other)?;
    let log = transaction.open_table(LOG).map_err(io::Error::other)?;
    let purged: Option<LogId> = get(&meta, "purged")?;
    let last = match log.last().map_err(io::Error::other)? {
        Some((_, bytes)) => Some(decode::<Entry>(bytes.value())?.log_id),
        None => purged,
    };
    Ok(Loaded {
        node_id,
        last,
        purged,
        committed: get(&meta, "committed")?,
        vote: get(&meta, "vote")?,
    })
}

/// Reads entries of `range` in order, until one more would pass `max_bytes` (at least one if there is one).
pub(super) fn read(
    database: &Database,
    range: Range<u64>,
    max_bytes: usize,
) -> io::Result<Vec<Entry>> {
    let transaction = database.begin_read().map_err(io::Error::other)?;
    let log = transaction.open_table(LOG).map_err(io::Error::other)?;
    let mut entries = Vec::new();
    let mut size = 0;
    for item in log.range(range).map_err(io::Error::other)? {
        let (_, bytes) = item.map_err(io::Error::other)?;
        size += bytes.value().len();
        if !entries.is_empty() && size > max_bytes {
            break;
        }
        entries.push(decode(bytes.value())?);
    }
    Ok(entries)
}

/// Writes a group of operations, in order, as one commit.
pub(super) fn write(
    database: &Database,
    operations: &[Operation],
    committed: Option<&LogId>,
) -> io::Result<()> {
    let mut transaction = database.begin_write().map_err(io::Error::other)?;
    transaction
        .set_durability(Durability::Immediate)
        .map_err(io::Error::other)?;
    write_tables(&transaction, operations, committed)?;
    transaction.commit().map_err(|error| match error {
        redb::CommitError::Storage(StorageError::Io(cause)) => cause,
        other => io::Error::other(other),
    })
}

fn write_tables(
    transaction: &WriteTransaction,
    operations: &[Operation],
    committed: Option<&LogId>,
) -> io::Result<()> {
    let mut log = transaction.open_table(LOG).map_err(io::Error::other)?;
    let mut meta = transaction.open_table(META).map_err(io::Error::other)?;
    for operation in operations {
        match operation {
            Operation::Append { entries, .. } => {
                for (index, bytes) in entries {
                    log.insert(index, bytes.as_slice())
                        .map_err(io::Error::other)?;
                }
            }
            Operation::TruncateFrom { first } => {
                log.retain_in(*first.., |_, _| false)
                    .map_err(io::Error::other)?;
            }
            Operation::Purge { upto } => {
                log.retain_in(..=upto.index, |_, _| false)
                    .map_err(io::Error::other)?;
                put(&mut meta, "purged", upto)?;
            }
            Operation::Vote { vote, .. } => put(&mut meta, "vote", vote)?,
            Operation::Close => {}
        }
    }
    if let Some(committed) = committed {
        put(&mut meta, "committed", committed)?;
    }
    Ok(())
}

fn get<T: DeserializeOwned>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> io::Result<Option<T>> {
    match table.get(key).map_err(io::Error::other)? {
        Some(bytes) => decode(bytes.value()).map(Some),
        None => Ok(None),
    }
}

fn put<T: Serialize>(
    table: &mut redb::Table<'_, &'static str, &'static [u8]>,
    key: &str,
    value: &T,
) -> io::Result<()> {
    table
        .insert(key, encode(value)?.as_slice())
        .map_err(io::Error::other)?;
    Ok(())
}
