//! `unisono eval`: the rows of files, without a cluster. The same engine, so the same rows as live.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unisono_engine::record::{Record, RecordState};
use unisono_engine::row::{Incarnation, StreamKind};
use unisono_engine::spec::PipelineSpec;
use unisono_engine::{FeedEngine, LaneEngine, PipelineStats, Settled, TickEnd, event_time};

use super::error::CliError;
use super::rows::{self, Format, RowPrinter, Stop};
use super::table::Align;
use crate::config::parse_bytes;
use crate::decode::{Decoder, Framing};
use crate::definition::Format as RecordFormat;
use crate::definition::{FieldSet, PipelineDefinition, notes};
use crate::room::{FeedRoom, LEAST_BUDGET, StateRoom};
use crate::source::Block;
use chosen::Chosen;
use explain::Explain;
use input::Input;

mod chosen;
mod explain;
mod input;
mod values;

/// Bytes that are read of a lane before it is the next one's turn.
const CHUNK: usize = 256 << 10;
/// There is one pipeline and no log that would number it.
const INCARNATION: Incarnation = Incarnation(0);

/// Arguments of `unisono eval`.
#[derive(Clone, Debug, clap::Args)]
pub struct EvalArgs {
    /// The definition of a pipeline, or a node's config with several. Their sources are not read: the files stand for them.
    #[arg(value_name = "DEFINITION.toml")]
    pub definition: PathBuf,
    /// NDJSON files, each a lane of every pipeline; - is the standard input.
    #[arg(required_unless_present = "sources", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A file that stands for one source: a lane of the pipelines that read it. Can be given for several, and several times.
    #[arg(long = "source", value_name = "NAME=FILE", value_parser = parse_source)]
    pub sources: Vec<(String, PathBuf)>,
    /// Only the pipeline of this name; can be given for several. All if it is not given.
    #[arg(long = "pipeline", value_name = "NAME")]
    pub pipelines: Vec<String>,
    /// How rows are written: a table on a terminal, else ndjson.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Writes the records that could not be used to this file: of each 10,000 offsets of an input at most 1,000.
    #[arg(long, value_name = "FILE")]
    pub dead_letters: Option<PathBuf>,
    /// Memory that the state of open windows may take, as 256MiB; beyond, the coldest goes to files without a name in
    /// the directory for temporary files (TMPDIR). Rows are the same.
    #[arg(long, value_name = "SIZE", value_parser = budget)]
    pub state_memory: Option<u64>,
    /// Says on the standard error what became of the records, window by window.
    #[arg(long)]
    pub explain: bool,
    /// Writes numbers and digests of rows and dead letters instead of rows: a JSON object for each pipeline.
    #[arg(long, conflicts_with = "format")]
    pub digest: bool,
}

fn budget(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < LEAST_BUDGET => Err("must be at least 1MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_source(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(file)))
        }
        _ => Err("give NAME=FILE, such as orders=orders.ndjson".to_owned()),
    }
}

/// Computes the rows of `args.files` and writes them to the standard output, a summary to the
/// standard error.
///
/// # Errors
/// Exit code 64: the definition, or a file that cannot be opened. Exit code 1: a fault while
/// reading or writing, or no record that can be used.
pub fn eval(args: &EvalArgs) -> Result<(), CliError> {
    let chosen = chosen::choose(args)?;
    let format = format(args, chosen.len())?;
    let inputs: Vec<&PathBuf> = args
        .files
        .iter()
        .chain(args.sources.iter().map(|(_, file)| file))
        .collect();
    let dead_letters = args.dead_letters.as_deref();
    let mut dead_letters = dead_letters.map(|path| create(path, &inputs)).transpose()?;
    let several = chosen.len() > 1;
    for one in chosen {
        match eval_one(args, one, format, &mut dead_letters, several) {
            Ok(()) => {}
            // Who closes the pipe has seen enough.
            Err(Stop::OutputClosed) => return Ok(()),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    Ok(())
}

/// How rows are written. Those of several pipelines have different columns, but each names its pipeline.
fn format(args: &EvalArgs, pipelines: usize) -> Result<Format, CliError> {
    match args.format {
        Some(format) if format != Format::Ndjson && pipelines > 1 => Err(CliError::usage(
            "rows of several pipelines do not fit into one table",
        )
        .hint("name one of them with --pipeline NAME, or use --format ndjson")),
        Some(format) => Ok(format),
        None if pipelines == 1 && io::stdout().is_terminal() => Ok(Format::Table),
        None => Ok(Format::Ndjson),
    }
}

fn eval_one(
    args: &EvalArgs,
    chosen: Chosen,
    format: Format,
    dead_letters: &mut Option<BufWriter<File>>,
    several: bool,
) -> Result<(), Stop> {
    let Chosen { definition, inputs } = chosen;
    let out = BufWriter::new(io::stdout().lock());
    let rows = match args.digest {
        true => None,
        false => Some(RowPrinter::with_columns(
            out,
            format,
            columns(&definition.spec),
        )?),
    };
    let output = Output {
        rows,
        row_count: 0,
        dead_letters,
    };
    let room = StateRoom::new(args.state_memory, &std::env::temp_dir());
    let mut run = Run::new(&definition, inputs, output, room);
    run.explain = args.explain.then(Explain::default);
    run.read_all()?;
    let name = match several {
        true => format!("{}: ", definition.name),
        false => String::new(),
    };
    run.summarize(&name)?;
    if let Some(explain) = &run.explain {
        explain.write(io::stderr().lock())?;
    }
    if args.digest {
        run.write_digests(&definition.name)?;
    }
    Ok(())
}

/// How records lie in files.
fn framing(definition: &PipelineDefinition) -> Framing {
    match definition.decoding.format {
        RecordFormat::MessagePack => Framing::Message,
        RecordFormat::Json { .. } | RecordFormat::Text(_) => Framing::Line,
    }
}

/// The columns of the rows of `spec`: a row's fields are in the definition's order.
fn columns(spec: &PipelineSpec) -> Vec<(String, Align)> {
    let groups = spec.group_by.iter().map(|group| group.name.clone());
    let values = spec.values.iter().map(|value| value.name.clone());
    rows::columns(groups.collect(), values.collect())
}

/// Creates the file for dead letters, unless it is one of the inputs, which that would destroy.
fn create(path: &Path, inputs: &[&PathBuf]) -> Result<BufWriter<File>, CliError> {
    let shown = path.display();
    if let Ok(existing) = path.canonicalize()
        && inputs
            .iter()
            .any(|input| input.canonicalize().is_ok_and(|input| input == existing))
    {
        return Err(CliError::usage(format!(
            "{shown} is an input, dead letters would overwrite it"
        ))
        .hint("name another file for --dead-letters"));
    }
    File::create(path)
        .map(BufWriter::new)
        .map_err(|error| CliError::usage(format!("cannot write {shown}: {error}")))
}

struct Lane {
    input: Input,
    decoder: Decoder,
    /// Lines read so far.
    lines: u64,
    /// Documents in them.
    records: u64,
}

/// A payload that is no JSON object: the first of them is named.
struct Undecodable {
    lane: String,
    line: u64,
    state: RecordState,
}

struct Run<'a, W: Write> {
    engine: FeedEngine,
    engines: Vec<LaneEngine>,
    lanes: Vec<Lane>,
    output: Output<'a, W>,
    room: Arc<StateRoom>,
    own_room: FeedRoom,
    spec: PipelineSpec,
    /// If asked for.
    explain: Option<Explain>,
    undecodable: u64,
    first_undecodable: Option<Undecodable>,
    fields: FieldSet,
    /// What is odd about the definition, given the records.
    notes: Vec<String>,
}

/// Where rows go.
struct Output<'a, W: Write> {
    /// `None`: rows are only counted.
    rows: Option<RowPrinter<W>>,
    row_count: u64,
    dead_letters: &'a mut Option<BufWriter<File>>,
}

impl<'a, W: Write> Run<'a, W> {
    fn new(
        definition: &PipelineDefinition,
        inputs: Vec<Input>,
        output: Output<'a, W>,
        room: Arc<StateRoom>,
    ) -> Self {
        let mut engine = FeedEngine::new();
        engine.add_pipeline(INCARNATION, definition.spec.clone(), &mut []);
        let labels = inputs.iter().map(|input| input.label().to_owned());
        let engines = labels.map(|label| engine.add_lane(label).1).collect();
        let lanes = inputs.into_iter().map(|input| Lane {
            input,
            decoder: Decoder::new(
                &definition.fields,
                &definition.decoding,
                framing(definition),
            ),
            lines: 0,
            records: 0,
        });
        Self {
            engine,
            engines,
            lanes: lanes.collect(),
            output,
            own_room: room.share(),
            room,
            spec: definition.spec.clone(),
            explain: None,
            undecodable: 0,
            first_undecodable: None,
            fields: definition.fields.clone(),
            notes: definition.warnings.clone(),
        }
    }

    /// Reads all lanes by turns, then closes all windows.
    fn read_all(&mut self) -> Result<(), Stop> {
        let mut block = Block::default();
        while self.lanes.iter().any(|lane| !lane.input.ended()) {
            for index in 0..self.lanes.len() {
                if !self.lanes[index].input.ended() {
                    block.clear();
                    self.lanes[index].input.read(&mut block, CHUNK)?;
                    self.take_in(index, &block)?;
                }
            }
        }
        let mut lanes: Vec<_> = self.engines.iter_mut().collect();
        let settled = self.engine.finish(&mut lanes);
        let observed = self.engine.observed(INCARNATION, &lanes);
        self.notes.extend(notes(&observed, &self.fields));
        self.output.write(&mut self.engine, settled)?;
        self.output.finish()
    }

    /// Takes in a lane's next records, as one tick: how they are split into ticks changes no row.
    fn take_in(&mut self, index: usize, block: &Block) -> Result<(), Stop> {
        let (lane, engine) = (&mut self.lanes[index], &mut self.engines[index]);
        engine.begin(None);
        for raw in block.records() {
            lane.lines += 1;
            let (explain, spec) = (&mut self.explain, &self.spec);
            let take = &mut |record: &Record<'_>| {
                lane.records += 1;
                if record.state != RecordState::Decoded {
                    self.undecodable += 1;
                    self.first_undecodable.get_or_insert_with(|| Undecodable {
                        lane: lane.input.label().to_owned(),
                        line: lane.lines,
                        state: record.state,
                    });
                }
                let before = explain.as_ref().and_then(|_| engine.counters(0));
                engine.absorb(record);
                if let (Some(explain), Some(before), Some(after)) =
                    (explain.as_mut(), before, engine.counters(0))
                {
                    explain.note(spec, event_time(&spec.time, record), &before, &after);
                }
            };
            lane.decoder.each(raw.offset, None, raw.payload, take);
        }
        let end = TickEnd {
            agreed: None,
            at_end: &[],
        };
        let mut lanes: Vec<_> = self.engines.iter_mut().collect();
        let settled = self.engine.settle(&mut lanes, end);
        self.output.write(&mut self.engine, settled)?;
        self.own_room
            .keep_within(Some(&mut self.engine), &mut lanes)
            .map_err(|error| Stop::Failed(CliError::failure(error.to_string())))
    }

    /// Says in one line what came of it.
    fn summarize(&self, name: &str) -> Result<(), CliError> {
        let stats = self.stats()?;
        let records: u64 = self.lanes.iter().map(|lane| lane.records).sum();
        self.check_usable(records, &stats)?;
        let mut summary = format!(
            "{name}{records} records, {} rows, {} late",
            self.output.row_count, stats.late
        );
        if stats.partly_late > 0 {
            summary += &format!(", {} late for some windows", stats.partly_late);
        }
        if stats.bad_fields > 0 {
            summary += &format!(", {} unusable fields", stats.bad_fields);
        }
        if stats.rounded_fields > 0 {
            summary += &format!(", {} rounded fields", stats.rounded_fields);
        }
        if let Some(first) = &self.first_undecodable {
            let Undecodable { lane, line, state } = first;
            summary += &format!(
                ", {} not usable (first at {lane}:{line}: {})",
                self.undecodable,
                reason(*state)
            );
        }
        if stats.filtered > 0 {
            summary += &format!(", {} not selected by where", stats.filtered);
        }
        if stats.revisions > 0 {
            summary += &format!(", {} rows corrected", stats.revisions);
        }
        if stats.duplicates > 0 {
            summary += &format!(", {} duplicates", stats.duplicates);
        }
        if stats.withheld > 0 {
            summary += &format!(", {} rows withheld by having", stats.withheld);
        }
        summary += &format!(", {} dead letters", stats.dead_letters.total());
        if self.output.dead_letters.is_some() && stats.dead_letters_suppressed > 0 {
            summary += &format!(" ({} of them not written)", stats.dead_letters_suppressed);
        }
        let spilled = self.room.counts().written.load(Ordering::Relaxed);
        if spilled > 0 {
            summary += &format!(", {} MiB of state were on disk", spilled.div_ceil(1 << 20));
        }
        summary += &format!(", digest {}", stats.row_digest);
        eprintln!("{summary}");
        for note in &self.notes {
            eprintln!("note: {name}{note}");
        }
        Ok(())
    }

    fn stats(&self) -> Result<PipelineStats, CliError> {
        self.engine.stats(INCARNATION).ok_or_else(|| {
            CliError::failure("the engine has lost its pipeline: this is a fault of Unisono")
        })
    }

    /// Numbers and digests of both streams, as a live run shows them.
    fn write_digests(&self, name: &str) -> Result<(), Stop> {
        let stats = self.stats()?;
        let line = serde_json::json!({
            "pipeline": name,
            "rows": stats.next_row_seq.0,
            "digest": stats.row_digest.to_string(),
            "dead_letters": stats.next_dead_letter_seq.0,
            "dead_letters_digest": stats.dead_letter_digest.to_string(),
        });
        Ok(writeln!(io::stdout(), "{line}")?)
    }

    /// An input of which nothing can be used is not the right input.
    fn check_usable(&self, records: u64, stats: &PipelineStats) -> Result<(), CliError> {
        if let Some(Undecodable { lane, line, state }) = &self.first_undecodable
            && self.undecodable == records
        {
            let (what, hint) = match state {
                RecordState::BadFormat => (
                    "no line of the input is of the pipeline's format",
                    "compare format with what --dead-letters FILE shows",
                ),
                _ => (
                    "no line of the input is a JSON object",
                    "each line must be one JSON object; of other files say the format: format = \"csv\"",
                ),
            };
            return Err(CliError::failure(what)
                .detail(format!("{lane}:{line} is {}", reason(*state)))
                .hint(hint));
        }
        if records > 0 && stats.counted + stats.filtered + stats.late == 0 {
            return Err(
                CliError::failure("no record of the input has a usable time")
                    .hint("compare time.field and time.format with what --dead-letters FILE shows"),
            );
        }
        Ok(())
    }
}

impl<W: Write> Output<'_, W> {
    fn write(&mut self, engine: &mut FeedEngine, settled: Settled) -> Result<(), Stop> {
        let mut result = Ok(());
        let written = engine.write(settled, &mut |stream, row| {
            if result.is_ok() {
                result = self.write_one(stream.kind, row.json);
            }
        });
        result?;
        written.map_err(|error| {
            Stop::Failed(CliError::failure(format!(
                "state that was put on disk cannot be read back: {error}"
            )))
        })
    }

    fn write_one(&mut self, kind: StreamKind, json: &[u8]) -> Result<(), Stop> {
        match (kind, &mut self.dead_letters) {
            (StreamKind::Rows, _) => {
                self.row_count += 1;
                match &mut self.rows {
                    Some(rows) => Ok(rows.print(json)?),
                    None => Ok(()),
                }
            }
            (StreamKind::DeadLetters, Some(file)) => {
                file.write_all(json)?;
                Ok(file.write_all(b"\n")?)
            }
            (StreamKind::DeadLetters, None) => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Stop> {
        if let Some(rows) = &mut self.rows {
            rows.finish()?;
        }
        if let Some(file) = self.dead_letters {
            file.flush()?;
        }
        Ok(())
    }
}

fn reason(state: RecordState) -> &'static str {
    match state {
        RecordState::Decoded => "decoded",
        RecordState::NullPayload => "without a payload",
        RecordState::EmptyPayload => "empty",
        RecordState::ByteOrderMark => "UTF-16",
        RecordState::TooLarge => "larger than limits.record_bytes",
        RecordState::TooDeep => "nested too deep",
        RecordState::BadFormat => "not of the pipeline's format",
        RecordState::NotUtf8 => "not UTF-8",
        RecordState::NotJson => "not JSON",
        RecordState::NotAnObject => "not an object",
    }
}
