//! A topic's lanes, read as a reading thread of a replica does it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use unisono::config::{self, KafkaReader, Properties, SourceConfig, SourceKind, StartAt};
use unisono::signal::Signal;
use unisono::source::{self, Block, LaneTrail, SourceError, SourceReader};
use unisono_engine::record::Stamp;

const PATIENCE: Duration = Duration::from_secs(60);
const READ_AHEAD: usize = 1 << 20;
const BLOCK: usize = 256 << 10;
/// How long is waited at most when nothing came.
const WAIT: Duration = Duration::from_millis(20);

/// Offset, time and payload of a record.
pub type Record = (i64, Stamp, Option<Vec<u8>>);

/// One lane, and what came of it.
pub struct Lane {
    /// As far as it was read.
    pub trail: LaneTrail,
    /// All records so far.
    pub records: Vec<Record>,
}

/// The first partitions of a topic.
pub struct Lanes {
    /// Who reads them.
    pub reader: Box<dyn SourceReader>,
    /// One for each partition; the reader counts them as they are here.
    pub lanes: Vec<Lane>,
    signal: Arc<Signal>,
}

impl Lanes {
    /// Reads so many partitions, each from its offset on.
    ///
    /// # Errors
    /// The reader cannot be opened.
    pub fn open(brokers: &str, reader: KafkaReader, topic: &str, from: &[i64]) -> Result<Self> {
        Self::open_with(brokers, reader, topic, from, Properties::default())
    }

    /// The same by a reader with properties of its own.
    ///
    /// # Errors
    /// The reader cannot be opened.
    pub fn open_with(
        brokers: &str,
        reader: KafkaReader,
        topic: &str,
        from: &[i64],
        properties: Properties,
    ) -> Result<Self> {
        let kind = SourceKind::Kafka(config::KafkaSource {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            start: StartAt::Earliest,
            reader,
            properties,
        });
        let name = topic.to_owned();
        let signal = Arc::default();
        let mut reader = source::open(&SourceConfig { name, kind }, READ_AHEAD, &signal)?;
        let lane = |(partition, &from): (usize, &i64)| {
            let trail = LaneTrail::new(&partition.to_string(), from, "");
            reader.open(&trail, &[])?;
            Ok(Lane {
                trail,
                records: Vec::new(),
            })
        };
        let lanes = from.iter().enumerate().map(lane).collect::<Result<_>>()?;
        Ok(Self {
            reader,
            lanes,
            signal,
        })
    }

    /// One turn of each lane. Gives how many records came.
    ///
    /// # Errors
    /// Of the first lane that has one.
    pub fn turn(&mut self) -> Result<usize, SourceError> {
        let mut block = Block::default();
        let mut count = 0;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            block.clear();
            let filled = self.reader.fill(index, &lane.trail, &mut block, BLOCK);
            lane.trail.pass(&mut block);
            let records = block.records().map(|record| {
                let payload = record.payload.map(<[u8]>::to_vec);
                (record.offset, record.stamp, payload)
            });
            lane.records.extend(records);
            count += filled?;
        }
        if count == 0 {
            let pause = self.reader.pause().min(WAIT);
            self.signal.wait(pause);
        }
        Ok(count)
    }

    /// Turns until it is done.
    ///
    /// # Errors
    /// A lane's, or it is never done.
    pub fn turn_until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            self.turn()?;
            let count = self.count();
            ensure!(
                Instant::now() < deadline,
                "not {what} after {count} records"
            );
        }
        Ok(())
    }

    /// Turns until nothing comes and all lanes are at their ends; gives those.
    ///
    /// # Errors
    /// As [`Self::turn_until`].
    pub fn read_to_end(&mut self) -> Result<Vec<i64>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let count = self.turn()?;
            let ends = (0..self.lanes.len()).map(|index| self.reader.at_end(index));
            if let (0, Some(ends)) = (count, ends.collect()) {
                return Ok(ends);
            }
            let count = self.count();
            ensure!(
                Instant::now() < deadline,
                "not at the end after {count} records"
            );
        }
    }

    /// Turns until some lane cannot be read on; why.
    ///
    /// # Errors
    /// All can.
    pub fn read_to_error(&mut self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Err(error) = self.turn() {
                return Ok(error.to_string());
            }
            let count = self.count();
            ensure!(Instant::now() < deadline, "no error after {count} records");
        }
    }

    /// Turns for so long.
    ///
    /// # Errors
    /// A lane's.
    pub fn read_for(&mut self, time: Duration) -> Result<(), SourceError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// How many records came of all lanes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.records.len()).sum()
    }
}

impl Lane {
    /// The payloads as text.
    #[must_use]
    pub fn payloads(&self) -> Vec<String> {
        let text = |payload: &Option<Vec<u8>>| match payload {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => "<null>".to_owned(),
        };
        let records = self.records.iter();
        records.map(|(.., payload)| text(payload)).collect()
    }
}
