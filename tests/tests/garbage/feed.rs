//! A feed of one pipeline whose engine can be disturbed.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use unisono::decode::{Decoder, Framing};
use unisono::definition::PipelineDefinition;
use unisono_engine::record::Record;
use unisono_engine::row::Incarnation;
use unisono_engine::spec::LaneId;
use unisono_engine::spill::{Room, SpillFile, SpilledBytes, spill};
use unisono_engine::{FeedEngine, LaneEngine, PipelineStats, Settled, TickEnd};

const LANES: usize = 2;
const INCARNATION: Incarnation = Incarnation(7);
/// All goes to disk.
const NO_ROOM: Room = Room {
    limit: 0,
    keep: 0,
    least: 0,
};

pub struct Feed {
    engine: FeedEngine,
    lanes: Vec<LaneEngine>,
    decoder: Decoder,
}

impl Feed {
    pub fn new(definition: &PipelineDefinition) -> Self {
        let mut engine = FeedEngine::new();
        engine.add_pipeline(INCARNATION, definition.spec.clone(), &mut []);
        let lanes = (0..LANES).map(|lane| engine.add_lane(format!("lane {lane}")).1);
        Self {
            lanes: lanes.collect(),
            engine,
            decoder: Decoder::new(&definition.fields, &definition.decoding, Framing::Message),
        }
    }

    /// Takes in some records, each with its number, in a tick.
    pub fn tick<'a>(
        &mut self,
        records: impl Iterator<Item = (usize, &'a Vec<u8>)>,
    ) -> Result<(), String> {
        self.lanes.iter_mut().for_each(|lane| lane.begin(None));
        for (at, payload) in records {
            let offset = i64::try_from(at).unwrap_or(0);
            let lane = &mut self.lanes[at % LANES];
            let take = &mut |record: &Record<'_>| lane.absorb(record);
            self.decoder.each(offset, None, Some(payload), take);
        }
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let end = TickEnd {
            agreed: None,
            at_end: &[],
        };
        let settled = self.engine.settle(&mut lanes, end);
        self.write(settled)
    }

    /// Closes all windows.
    pub fn finish(&mut self) -> Result<PipelineStats, String> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let settled = self.engine.finish(&mut lanes);
        self.write(settled)?;
        self.engine
            .stats(INCARNATION)
            .ok_or_else(|| "no such pipeline".to_owned())
    }

    fn write(&mut self, settled: Settled) -> Result<(), String> {
        let written = self.engine.write(settled, &mut |_, _| ());
        written.map_err(|error| error.to_string())
    }

    /// Puts all panes on disk.
    pub fn spill(&mut self) -> Result<(), String> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let kept = self.engine.kept_bytes();
        let spilled = spill(&mut lanes, kept, NO_ROOM, &mut create);
        spilled.map(drop).map_err(|error| error.to_string())
    }

    /// Goes on from a checkpoint of the present state.
    pub fn restore(&mut self, definition: &PipelineDefinition) -> Result<(), String> {
        self.checkpoint(definition)
            .map_err(|error| error.to_string())
    }

    fn checkpoint(
        &mut self,
        definition: &PipelineDefinition,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut lanes: Vec<_> = self.lanes.iter_mut().collect();
        let snapshot = self.engine.snapshot(&mut lanes);
        let mut part = Vec::new();
        snapshot.write_feed(&mut part)?;
        let specs = vec![(INCARNATION, definition.spec.clone())];
        let mut engine = FeedEngine::restore(&mut &part[..], specs)?;
        let mut restored = Vec::new();
        for lane in 0..LANES {
            part.clear();
            snapshot.write_lane(lane, &mut part)?;
            let id = LaneId(u32::try_from(lane)?);
            restored.push(engine.restore_lane_in_pieces(id, &mut &part[..], &mut |_| Ok(()))?);
        }
        drop(snapshot);
        engine.resume(&restored.iter_mut().collect::<Vec<_>>());
        (self.engine, self.lanes) = (engine, restored);
        Ok(())
    }
}

fn create() -> io::Result<Box<dyn SpillFile>> {
    Ok(Box::new(Spill(tempfile::tempfile()?)))
}

struct Spill(File);

impl Write for Spill {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SpillFile for Spill {
    fn finish(self: Box<Self>) -> io::Result<Arc<dyn SpilledBytes>> {
        Ok(Arc::new(Written(self.0)))
    }
}

#[derive(Debug)]
struct Written(File);

impl SpilledBytes for Written {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(into, at)
    }
}
