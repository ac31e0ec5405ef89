//! Rows on their way to a peer that takes a checkpoint: read, sent, checked and written one by one.
//!
//! ```text
//! u64 first seq | u128 digest before it | u64 how many | the records as they lie in a segment
//! ```

use std::io::{self, Read, Write};

use unisono_engine::row::{Digest, Seq, StreamId};

use super::ResultsLog;
use super::error::ResultsError;
use super::index::Span;
use super::record::{self, PREFIX};

/// What cannot be told from the rows that are held: the peer's request is worth another try.
fn changed(id: StreamId) -> io::Error {
    let incarnation = id.incarnation.0;
    io::Error::other(format!(
        "rows of incarnation {incarnation} went while they were read"
    ))
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl ResultsLog {
    /// Writes the rows `from..below` for [`Self::import`].
    ///
    /// # Errors
    /// They cannot be read, are not all held (any more), or `out` fails.
    pub fn export(
        &self,
        id: StreamId,
        from: Seq,
        below: Seq,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let before = self.digest_before(id, from).map_err(io::Error::other)?;
        let (before, stream) = before.zip(self.stream(id)).ok_or_else(|| changed(id))?;
        out.write_all(&from.0.to_le_bytes())?;
        out.write_all(&before.0.to_le_bytes())?;
        out.write_all(&below.0.saturating_sub(from.0).to_le_bytes())?;
        let (mut bytes, mut next, mut written) = (Vec::new(), from, Ok(()));
        stream
            .visit(from, below, Span::ALL, |row| {
                bytes.clear();
                record::encode(&row, &mut bytes);
                written = match row.seq == next {
                    true => out.write_all(&bytes),
                    false => Err(changed(id)),
                };
                next = Seq(row.seq.0 + 1);
                written.is_ok()
            })
            .map_err(io::Error::other)?;
        written?;
        (next == below).then_some(()).ok_or_else(|| changed(id))
    }

    /// Takes the rows that [`Self::export`] wrote, after a [`Self::reset`] to where they begin.
    ///
    /// # Errors
    /// They are damaged, cannot be read, or cannot be written.
    pub fn import(&self, id: StreamId, rows: &mut dyn Read) -> io::Result<()> {
        let first = Seq(u64::from_le_bytes(take(rows)?));
        let before = Digest(u128::from_le_bytes(take(rows)?));
        let count = u64::from_le_bytes(take(rows)?);
        self.reset(id, first, before).map_err(io::Error::other)?;
        self.append_with::<ImportError>(id, |appender| {
            let mut bytes = Vec::new();
            for _ in 0..count {
                let prefix: [u8; PREFIX] = take(rows)?;
                let length = record::length(prefix).ok_or_else(|| invalid("a row's length"))?;
                bytes.resize(length, 0);
                bytes[..PREFIX].copy_from_slice(&prefix);
                rows.read_exact(&mut bytes[PREFIX..])?;
                let (row, _) = record::decode(&bytes).ok_or_else(|| invalid("a row is damaged"))?;
                appender.push(&row)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn take<const N: usize>(rows: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rows.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Either side of a copy.
enum ImportError {
    Read(io::Error),
    Write(ResultsError),
}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<ResultsError> for ImportError {
    fn from(error: ResultsError) -> Self {
        Self::Write(error)
    }
}

impl From<ImportError> for io::Error {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Read(error) => error,
            ImportError::Write(error) => Self::other(error),
        }
    }
}
