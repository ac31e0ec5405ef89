//! For any bytes, three ways to the cells agree: by remembered shapes, by the walk alone, and by
//! [`super::reference`]. `UNISONO_DECODE_CASES` makes the search longer.
#![allow(clippy::unwrap_used)]

use unisono_engine::record::Cell;

use super::*;

/// State and cells as text.
pub fn shown(record: &Record<'_>, fields: &FieldSet) -> (RecordState, Vec<String>) {
    let cells = (0..fields.len()).map(|index| match record.cell(Column(index)) {
        Cell::Missing => "missing".to_owned(),
        Cell::Null => "null".to_owned(),
        Cell::Bool(value) => value.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => format!("'{}'", std::str::from_utf8(text).unwrap()),
        Cell::Nested => "nested".to_owned(),
        Cell::Bad => "bad".to_owned(),
    });
    (record.state, cells.collect())
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let spread = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(spread).unwrap() % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const KEYS: [&str; 14] = [
    "a",
    "b",
    "c",
    "t",
    "event_time",
    "a.b",
    "",
    "\\u0061",
    "x\\\"y",
    "\\ud83d",
    "\\ud83d\\ude00",
    "ключ",
    "a_rather_long_key_of_more_than_32_bytes",
    "\\u00zz",
];
const SPACES: [&str; 6] = [" ", "\n", "\t", "  ", "\r\n", "\u{c}"];
const SCALARS: [&str; 40] = [
    "0",
    "-0",
    "7",
    "-7.50",
    "1e3",
    "1E-31",
    "1e999",
    "01",
    "-",
    "1.",
    "1.5e",
    "12345678",
    "1700000000123",
    "123456789012345678",
    "1234567890123456789",
    "12345678901234567890123456789",
    "0.000000000000000001",
    "123456.123456789012",
    "+1",
    ".5",
    "NaN",
    "null",
    "true",
    "false",
    "nul",
    "True",
    "\"\"",
    "\"x\"",
    "\"view\"",
    "\"a text of more than sixteen bytes\"",
    "\"ä\"",
    "\"日本語のとても長い文字列\"",
    "\"\\n\\u00e4 \\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\\ud83d\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\u{1}\"",
    "\"\u{7f}\"",
    "\"exactly 16 bytes\"",
];

/// A text that is mostly JSON. `plain` tells how seldom something strange is in it.
struct Writer<'a> {
    random: &'a mut Random,
    plain: usize,
    out: String,
}

impl Writer<'_> {
    fn space(&mut self) {
        if self.random.one_in(self.plain) {
            let space = self.random.pick(&SPACES);
            self.out.push_str(space);
        }
    }

    fn scalar(&mut self) {
        let strange = self.random.one_in(self.plain);
        match self.random.below(4) {
            _ if strange => self.out.push_str(self.random.pick(&SCALARS)),
            0 => self.out.push_str(&self.random.below(100_000).to_string()),
            1 => self
                .out
                .push_str(self.random.pick(&["null", "true", "false"])),
            2 => {
                let (whole, part) = (self.random.below(1_000), self.random.below(100));
                self.out.push_str(&format!("{whole}.{part}"));
            }
            _ => {
                let text = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
                let len = self.random.below(text.len());
                self.out.push_str(&format!("\"{}\"", &text[..len]));
            }
        }
    }

    fn value(&mut self, depth: usize) {
        self.space();
        match self.random.below(8) {
            0 if depth > 0 => self.object(depth - 1),
            1 if depth > 0 => {
                self.out.push('[');
                for index in 0..self.random.below(4) {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.value(depth - 1);
                }
                self.out.push(']');
            }
            2 if self.random.one_in(self.plain * 4) => {
                let deep = self.random.below(300);
                self.out.push_str(&"[".repeat(deep));
                self.out.push_str(&"]".repeat(deep));
            }
            _ => self.scalar(),
        }
        self.space();
    }

    fn object(&mut self, depth: usize) {
        self.out.push('{');
        let mut first = true;
        for key in &KEYS[..5] {
            if self.random.one_in(4) {
                continue;
            }
            let strange = self.random.one_in(self.plain);
            let key = match self.random.below(12) {
                _ if strange => self.random.pick(&KEYS),
                // Some come again.
                0 => self.random.pick(&KEYS[..5]),
                _ => key,
            };
            if !first {
                self.out.push(',');
            }
            first = false;
            self.space();
            self.out.push_str(&format!("\"{key}\""));
            self.space();
            self.out.push(':');
            self.value(depth);
        }
        self.space();
        self.out.push('}');
    }
}

fn document(random: &mut Random) -> Vec<u8> {
    let plain = [4, 30, 10_000][random.below(3)];
    let mut writer = Writer {
        random,
        plain,
        out: String::new(),
    };
    writer.space();
    if writer.random.one_in(50) {
        writer.value(3);
    } else {
        writer.object(3);
    }
    writer.space();
    writer.out.into_bytes()
}

/// Changes a few bytes: those that mean something to JSON or to UTF-8 more often than others.
fn spoil(random: &mut Random, doc: &mut Vec<u8>) {
    const BYTES: &[u8] =
        b"\"\\{}[],:0123456789-+.eEtrufalsn \n\t\x00\x1f\x7f\x80\xbf\xc3\xe2\xed\xff";
    for _ in 0..=random.below(3) {
        let at = random.below(doc.len() + 1);
        let byte = match random.below(BYTES.len() + 8) {
            any if any >= BYTES.len() => u8::try_from(random.below(256)).unwrap(),
            known => BYTES[known],
        };
        match random.below(6) {
            0 => doc.truncate(at),
            1 => doc.insert(at, byte),
            2 if at < doc.len() => drop(doc.remove(at)),
            3 => {
                let from = random.below(at + 1);
                let part = doc[from..at].to_vec();
                let to = random.below(doc.len() + 1);
                doc.splice(to..to, part);
            }
            _ if at < doc.len() => doc[at] = byte,
            _ => doc.push(byte),
        }
    }
}

fn cases() -> usize {
    match std::env::var("UNISONO_DECODE_CASES") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 300_000,
    }
}

struct Subject {
    fields: FieldSet,
    shapes: JsonDecoder,
    walk: JsonDecoder,
}

impl Subject {
    fn new(names: &[&str]) -> Self {
        let fields = super::tests::fields(names);
        Self {
            shapes: JsonDecoder::new(&fields),
            walk: JsonDecoder::without_memory(&fields),
            fields,
        }
    }

    /// Gives the state.
    fn check(&mut self, doc: &[u8]) -> RecordState {
        let expected = reference::decode(&self.fields, doc);
        let walked = shown(&self.walk.decode(0, None, Some(doc)), &self.fields);
        assert_eq!(walked, expected, "the walk: {}", doc.escape_ascii());
        let by_shape = shown(&self.shapes.decode(0, None, Some(doc)), &self.fields);
        assert_eq!(by_shape, expected, "by shape: {}", doc.escape_ascii());
        expected.0
    }
}

#[test]
fn shapes_the_walk_and_the_reference_agree() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let mut subjects = [
        Subject::new(&["a", "t", "event_time"]),
        Subject::new(&["a.b", "a.c.t", "b", "b.a", "\"a.b\"", "c.c.c"]),
        Subject::new(&[
            "a[0]", "a[1].b", "a[0][2]", "a.b", "b.a[2].t", "b.a", "t[1]",
        ]),
        Subject::new(&[]),
    ];
    let mut states = std::collections::BTreeMap::new();
    let mut doc = document(&mut random);
    for _ in 0..cases() {
        // A spoiled document is spoiled further at times.
        if random.one_in(2) || doc.len() > 4_000 {
            doc = document(&mut random);
        }
        if random.one_in(2) {
            spoil(&mut random, &mut doc);
        }
        let subject = random.below(subjects.len());
        let state = subjects[subject].check(&doc);
        *states.entry(format!("{state:?}")).or_insert(0) += 1;
    }
    // A search that meets valid documents alone, or hardly any, shows nothing.
    assert!(states["Decoded"] > cases() / 5, "{states:?}");
    assert!(states["NotJson"] > cases() / 10, "{states:?}");
    assert!(states["NotUtf8"] > cases() / 100, "{states:?}");
    assert!(states["NotAnObject"] > cases() / 1_000, "{states:?}");
}

/// Every byte of a known document becomes every other byte, and the document ends everywhere.
#[test]
fn every_change_of_one_byte_is_seen() {
    let doc = br#"{"t":1700000000123,"a":{"b":"x\ty"},"rather_long_key_of_unused":"d\u00e4","event_time":-1.5} "#;
    for names in [&["t", "event_time"][..], &["a.b", "a"], &["t", "a.b"]] {
        let mut subject = Subject::new(names);
        for _ in 0..3 {
            assert_eq!(subject.check(doc), RecordState::Decoded);
        }
        for at in 0..doc.len() {
            subject.check(&doc[..at]);
            let mut changed = doc.to_vec();
            for byte in 0..=u8::MAX {
                changed[at] = byte;
                subject.check(&changed);
            }
        }
    }
}
