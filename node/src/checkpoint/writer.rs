//! Writes a checkpoint part by part.

use std::io::{self, Write};

use super::frame::{self, CHUNK, Kind, MAGIC, Total, VERSION};
use super::{Header, PartId};

/// A checkpoint that is being written to `out`. It is one only after [`Self::finish`]; after an error it can be dropped only.
pub struct CheckpointWriter<W> {
    out: W,
    total: Total,
    frame: Vec<u8>,
}

impl<W: Write> CheckpointWriter<W> {
    /// Begins with the header.
    ///
    /// # Errors
    /// `out` fails.
    pub fn begin(out: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self {
            out,
            total: Total::new(),
            frame: Vec::new(),
        };
        writer.put(MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
        writer.frame(Kind::Header, &header)?;
        Ok(writer)
    }

    /// Adds a part, with the bytes that `write` writes. They are buffered here and need not come in large pieces.
    ///
    /// # Errors
    /// `write` or the file fails.
    pub fn part(
        &mut self,
        id: PartId,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let id = postcard::to_stdvec(&id).map_err(io::Error::other)?;
        self.frame(Kind::Part, &id)?;
        self.total.parts += 1;
        let mut part = PartWriter {
            writer: self,
            chunk: Vec::with_capacity(CHUNK),
            length: 0,
        };
        write(&mut part)?;
        part.flush_chunk()?;
        let length = part.length;
        self.frame(Kind::PartEnd, &length.to_le_bytes())
    }

    /// Sets the end mark and gives `out` back.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(mut self) -> io::Result<W> {
        let mark = self.total.mark();
        self.frame(Kind::End, &mark)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn frame(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame::encode(kind, body, &mut frame)?;
        self.put(&frame)?;
        self.frame = frame;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.total.add(bytes);
        Ok(())
    }
}

/// Cuts a part into chunks.
struct PartWriter<'a, W> {
    writer: &'a mut CheckpointWriter<W>,
    chunk: Vec<u8>,
    length: u64,
}

impl<W: Write> PartWriter<'_, W> {
    fn flush_chunk(&mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.writer.frame(Kind::Chunk, &self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }
}

impl<W: Write> Write for PartWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        self.length += taken as u64;
        if self.chunk.len() == CHUNK {
            self.flush_chunk()?;
        }
        Ok(taken)
    }

    // Chunks are of one length however the bytes come: the same state gives the same file.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
