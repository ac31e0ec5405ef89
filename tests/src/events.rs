//! Event logs for tests: made here, the same each time, or real ones where they are present.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Gives the same numbers for the same seed, on every machine.
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A log in the shape of a DNS log, as an NDJSON text of `lines` lines, 100 of them a second of
/// event time: times out of order by up to 90 s, keys with dots, `rtt` often missing, sometimes
/// null, whole or in exponents, `rcode_name` missing or null.
#[must_use]
pub fn dns_log(seed: u64, lines: u64) -> String {
    let mut random = Random::new(seed);
    let mut log = String::new();
    for line in 0..lines {
        let delay = match random.below(10) {
            0 => random.below(90_000_000),
            1..=3 => random.below(2_000_000),
            _ => 0,
        };
        let micros = 100_000_000 + line * 10_000 + random.below(10_000) - delay;
        let (minute, second, micros) = (
            micros / 60_000_000,
            micros / 1_000_000 % 60,
            micros % 1_000_000,
        );
        let (hour, minute) = (minute / 60 + 17, minute % 60);
        let rtt = match random.below(10) {
            0..=2 => String::new(),
            3 => ",\"rtt\":null".to_owned(),
            4 => format!(",\"rtt\":{}", random.below(3)),
            5 => format!(
                ",\"rtt\":-{}.{:03}E-{}",
                random.below(10),
                random.below(1_000),
                random.below(9)
            ),
            6 => format!(",\"rtt\":{}.00", random.below(10_000_000_000)),
            _ => format!(",\"rtt\":0.{:019}", random.below(u64::MAX >> 1)),
        };
        let rcode = match random.below(12) {
            0 => String::new(),
            1 => ",\"rcode_name\":null".to_owned(),
            2 => ",\"rcode_name\":\"NXDOMAIN\"".to_owned(),
            3 => ",\"rcode_name\":\"odd \\\"name\\\" \\u00e9\"".to_owned(),
            _ => ",\"rcode_name\":\"NOERROR\"".to_owned(),
        };
        let host = random.below(250);
        writeln!(
            log,
            "{{\"ts\":\"2018-03-24T{hour:02}:{minute:02}:{second:02}.{micros:06}Z\",\"id.orig_h\":\"10.0.0.{host}\",\
             \"id\":{{\"orig_h\":{host}}}{rtt}{rcode},\"answers\":[\"a\",{host}],\"TTLs\":[2230.0],\"rejected\":false}}"
        )
        .expect("writing to a text");
    }
    log
}

/// A real log's text: `name` in `$UNISONO_DATA`, or in `shared/data` beside the workspace; `None`
/// where it is not present.
///
/// # Panics
/// If the file is there and cannot be read.
#[must_use]
pub fn real_log(name: &str) -> Option<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let dir = std::env::var_os("UNISONO_DATA").map_or(beside, PathBuf::from);
    let file = std::fs::File::open(dir.join(name)).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("a readable log");
    Some(text)
}

/// Deals a log's lines out to `lanes` logs in turn, as a hand of cards.
#[must_use]
pub fn deal(log: &str, lanes: usize) -> Vec<String> {
    let mut dealt = vec![String::new(); lanes];
    for (index, line) in log.split_inclusive('\n').enumerate() {
        dealt[index % lanes].push_str(line);
    }
    dealt
}
