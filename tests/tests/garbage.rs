//! Definitions and records as nobody would write them: nothing panics, each record is somewhere, and rows are the same however
//! the records are split into ticks, state goes to disk, or an engine begins again from a checkpoint.
//!
//! `UNISONO_FUZZ=1000000 cargo test -p unisono-tests --test garbage` tries more than the rounds of each run; `UNISONO_FUZZ_SEED`
//! begins elsewhere. A definition that failed is shown.

#[path = "garbage/corpus.rs"]
mod corpus;
#[path = "garbage/feed.rs"]
mod feed;

use std::panic::{AssertUnwindSafe, catch_unwind};

use feed::Feed;
use unisono::definition::{Format, PipelineDefinition};
use unisono_engine::row::Digest;
use unisono_engine::spec::LateSpec;

const ROUNDS: u64 = 1_500;
const RECORDS: usize = 60;

/// xorshift64* (Vigna, 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    fn of<'a>(&mut self, among: &[&'a str]) -> &'a str {
        among[self.below(among.len())]
    }

    /// A text with some of it replaced, left out, doubled, or put in.
    fn spoil(&mut self, text: &str, words: &[&str]) -> Vec<u8> {
        let mut text = text.as_bytes().to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(text.len() + 1);
            let end = (at + self.below(12)).min(text.len());
            match self.below(6) {
                0 => drop(text.splice(at..end, self.of(words).bytes())),
                1 => drop(text.splice(at..at, self.of(words).bytes())),
                2 => drop(text.drain(at..end)),
                3 => {
                    let copy = text[at..end].to_vec();
                    drop(text.splice(at..at, copy));
                }
                4 => self.replace_word(&mut text, words),
                _ => {
                    let byte = self.next().to_le_bytes()[0];
                    text.insert(at, byte);
                }
            }
        }
        text
    }

    /// Another word in the place of a whole one: most texts make sense after that.
    fn replace_word(&mut self, text: &mut Vec<u8>, words: &[&str]) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let mut at = self.below(text.len());
        while at < text.len() && !is_word(&text[at]) {
            at += 1;
        }
        let end = text[at..].iter().position(|byte| !is_word(byte));
        let end = end.map_or(text.len(), |len| at + len);
        drop(text.splice(at..end, self.of(words).bytes()));
    }
}

fn rounds() -> u64 {
    let rounds = std::env::var("UNISONO_FUZZ").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

fn seed() -> u64 {
    let seed = std::env::var("UNISONO_FUZZ_SEED").ok();
    seed.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Else nothing would be tried of them.
#[test]
fn what_is_spoilt_gives_rows_as_it_is() {
    let mut random = Random(1);
    for text in corpus::DEFINITIONS {
        let definition = PipelineDefinition::parse("p.toml", text);
        let definition = definition.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let records = corpus::records(&mut random, 20 * RECORDS);
        let (_, rows) = digest(&definition, &records, None).expect("it runs");
        assert!(rows > 0, "{text}");
    }
}

#[test]
fn nothing_panics_each_record_is_somewhere_and_ticks_do_not_show() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed());
    let mut ran = 0_u64;
    for round in 0..rounds() {
        let base = random.of(corpus::DEFINITIONS);
        let text = match round % 4 {
            0 => base.to_owned(),
            _ => String::from_utf8_lossy(&random.spoil(base, corpus::WORDS)).into_owned(),
        };
        let records = corpus::records(&mut random, RECORDS);
        let mut split = Random(random.next() | 1);
        let tried = catch_unwind(AssertUnwindSafe(|| run(&text, &records, &mut split)));
        match tried {
            Ok(Ok(had_rows)) => ran += u64::from(had_rows),
            Ok(Err(problem)) => panic!("round {round}: {problem}\n{text}"),
            Err(_) => panic!("round {round} panicked with the definition\n{text}"),
        }
    }
    assert!(ran > rounds() / 10, "only {ran} definitions gave rows");
}

/// Whether there were rows; a definition that is refused has none.
fn run(text: &str, records: &[Vec<u8>], split: &mut Random) -> Result<bool, String> {
    let Ok(definition) = PipelineDefinition::parse("p.toml", text) else {
        return Ok(false);
    };
    let again = PipelineDefinition::from_canonical(&definition.canonical, &definition.sink)
        .map_err(|error| format!("its canonical text is not read: {error}"))?;
    if format!("{:?}", again.spec) != format!("{:?}", definition.spec) {
        return Err("its canonical text gives another definition".to_owned());
    }
    // Canonical texts come from the log; a damaged one is no reason to panic.
    let damaged = split.spoil(&definition.canonical, corpus::WORDS);
    drop(PipelineDefinition::from_canonical(
        &String::from_utf8_lossy(&damaged),
        "builtin",
    ));
    let (one, rows) = digest(&definition, records, None)?;
    let (other, _) = digest(&definition, records, Some(split))?;
    // When a row is corrected is seen by ticks.
    if one != other && definition.spec.late == LateSpec::Drop {
        return Err(format!("rows depend on ticks: {one} and {other}"));
    }
    Ok(rows > 0)
}

/// What comes of the records, by turns in the lanes: each a tick of its own, or disturbed as it happens.
fn digest(
    definition: &PipelineDefinition,
    records: &[Vec<u8>],
    mut disturbed: Option<&mut Random>,
) -> Result<(Digest, u64), String> {
    let mut feed = Feed::new(definition);
    let mut rest = records.iter().enumerate();
    while rest.len() > 0 {
        let count = disturbed.as_mut().map_or(1, |random| 1 + random.below(20));
        feed.tick(rest.by_ref().take(count))?;
        match disturbed.as_mut().map(|random| random.below(4)) {
            Some(0) => feed.restore(definition)?,
            Some(1) => feed.spill()?,
            _ => {}
        }
    }
    let stats = feed.finish()?;
    let somewhere = stats.counted + stats.filtered + stats.duplicates + stats.dead_letters.total();
    // A record may hold none, or several.
    let is_array = matches!(definition.decoding.format, Format::Json { array: true });
    if stats.records != somewhere || (!is_array && stats.records != records.len() as u64) {
        return Err(format!(
            "of {} records {somewhere} are somewhere",
            records.len()
        ));
    }
    Ok((stats.row_digest, stats.next_row_seq.0))
}
