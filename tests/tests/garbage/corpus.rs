//! What is spoilt: definitions that use all there is, records, and words that are put into them.

use super::Random;

pub const DEFINITIONS: &[&str] = &[
    r#"name = "every"
sources = ["s"]
time = { field = "t", format = "auto" }
where = ["not (a is null and b < 0)", "t > timestamp '2001-01-01'"]
group_by = ["g", "kind = coalesce(lower(s), 'none')"]
window = { size = "20s", slide = "5s" }
having = "n > 0 or total is null"
[close]
lag = "5s"
records = 2
[values]
n = "count()"
total = "sum(a)"
spread = "stddev(b)"
parts = "quantile(a, 0.5, 0.99)"
many = "count(distinct s)"
best = "top(s, 3)"
sizes = "histogram(a, 0.001, 1, 1000)"
earliest = "first(b)"
latest = "last(s)"
grown = "increase(a)"
by_second = "rate(a)"
most = "max(s)"
"#,
    r#"name = "expressions"
sources = ["s"]
time = { field = "t", format = "ms" }
window = { size = "1m" }
group_by = ["substr(s, 1, 2)"]
[values]
a = "sum(a * b) filter (where g in ('x', 'y') and s like '%a_')"
b = "avg(case when a > 0 then a / b else 0 end)"
c = "count() where regexp_like(s, '^[a-z]+$') or items[0] between 1 and 2"
d = "min(cast(s as decimal))"
e = "max(round(abs(a), 2))"
f = "count() where b::text is distinct from nullif(s, 'q')"
g = "sum(extract(hour from t::timestamp))"
h = "top(concat(upper(trim(s)), '-', length(s)), 2)"
i = "median(floor(a) + ceil(b) % 7)"
j = "count() where starts_with(s, 'a') is not true"
k = "first(date_trunc('day', t::timestamp))"
"#,
    r#"name = "zoned"
sources = ["s"]
time = { field = "d", format = "auto", time_zone = "Asia/Taipei" }
window = { size = "1 day", time_zone = "America/New_York", offset = "6h" }
limits = { group_bytes = "64B" }
[values]
n = "count(g)"
v = "var_pop(a)"
"#,
    r#"name = "patterned"
sources = ["s"]
time = { field = "d", format = "%Y-%m-%d %H:%M:%S" }
window = { size = "1h30m", slide = "30m", offset = "-7m" }
close = { lag = "1h", lanes = 2, at_most = "2h", idle = "never" }
align = { max_skew = "10m" }
max_future = "never"
group_by = ["o.deep.er", '"x-y"']
values = { n = "count()", m = "min(a)", x = "max(b)" }
"#,
    r#"name = "sessions"
sources = ["s"]
time = { field = "t", format = "ms" }
group_by = ["g"]
window = { session = "7s" }
close = { lag = "5s", records = 2 }
values = { n = "count()", total = "sum(a)", latest = "last(s)", many = "distinct(b)", by_second = "rate(a)" }
"#,
    r#"name = "copies"
sources = ["s"]
time = { field = "t", format = "ms" }
group_by = ["g"]
window = { size = "20s", slide = "10s" }
close = { lag = "5s" }
dedup = { key = ["s", "a"], within = "30s" }
values = { n = "count()", total = "sum(a)", first = "first(b)", parts = "median(a)" }
"#,
    r#"name = "revised"
sources = ["s"]
time = { field = "t", format = "ms" }
group_by = ["g"]
window = { size = "10s" }
late = { policy = "revise", keep = "1m" }
having = "n <> 2"
values = { n = "count()", total = "sum(a)", best = "top(s, 2)" }
"#,
    r#"name = "arrays"
sources = ["s"]
time = { field = "t", format = "ms" }
format = { kind = "json", array = true }
window = { size = "10s" }
values = { n = "count()", total = "sum(a)" }
"#,
    r#"name = "lines"
sources = ["s"]
time = { field = "t", format = "auto" }
format = "logfmt"
window = { size = "10s" }
values = { n = "count()", total = "sum(a)" }
"#,
    r#"name = "table"
sources = ["s"]
time = { field = "t", format = "auto" }
format = { kind = "csv", columns = ["t", "a", "s"], null = "n" }
window = { size = "10s" }
where = "a > 1 or s = 'x'"
values = { n = "count()", total = "sum(a)" }
"#,
    r#"name = "packed"
sources = ["s"]
time = { field = "t", format = "auto" }
format = "msgpack"
window = { size = "10s" }
values = { n = "count()", total = "sum(a)" }
"#,
];

pub const WORDS: &[&str] = &[
    "",
    "0",
    "-1",
    "1e40",
    "9223372036854775807",
    "0.0000000000000000000000000000001",
    "null",
    "true",
    "'",
    "\"",
    "''",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    "=",
    "<>",
    "is not null",
    "not",
    "and",
    "or",
    "in (",
    "between",
    "case when",
    "then",
    "end",
    "a",
    "b",
    "s",
    "g",
    "t",
    "d",
    "o.deep.er",
    "items[0]",
    "items[99]",
    "x-y",
    "count()",
    "sum(",
    "avg(",
    "top(",
    "quantile(",
    "distinct",
    "filter (where",
    "cast(",
    "as decimal",
    "as timestamp",
    "::text",
    "like '%'",
    "regexp_like(",
    "'('",
    "interval '1 day'",
    "1s",
    "0s",
    "366d",
    "1 month",
    "Asia/Taipei",
    "Nowhere/Town",
    "%s",
    "%Y",
    "%",
    "name",
    "window",
    "size",
    "slide",
    "[values]",
    "[close]",
    "lag",
    "\n",
    "\\",
    "\\ud800",
    "\u{0}",
    "\u{fffd}",
    "é",
    "語",
    "NaN",
    "Infinity",
    "0x10",
    "1_000",
    "--",
    "/*",
    "timestamp '2001-01-01'",
    "date_trunc(",
    "extract(",
    "substr(s, -1, 99999999999)",
    "round(a, 400)",
    "%z",
    "session",
    "revise",
    "lookup(",
    "dedup",
    "format",
];

const VALUES: &[&str] = &[
    "1",
    "2.5",
    "-3",
    "0",
    "1e3",
    "1e-40",
    "1e40",
    "12345678901234567890.123456789",
    "\"12\"",
    "\"x\"",
    "\"yay\"",
    "\"ab\"",
    "\"\"",
    "null",
    "true",
    "false",
    "[1,2]",
    "[]",
    "{}",
    "{\"deep\":{\"er\":1}}",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"2026-01-31T12:00:00Z\"",
    "\"語\"",
    "\"a\\u0000b\"",
];

const KEYS: &[&str] = &["a", "b", "s", "g", "o", "items", "x-y", "other"];

/// Some of them spoilt; times go up by and large.
pub fn records(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|at| record(random, at)).collect()
}

fn record(random: &mut Random, at: usize) -> Vec<u8> {
    let seconds = 1_790_000_000 + 3 * at - random.below(10);
    let millis = random.below(1000);
    let time = match random.below(12) {
        0 => random.of(VALUES).to_owned(),
        _ => format!("{seconds}{millis:03}"),
    };
    let (minute, second) = (at % 60, random.below(60));
    match random.below(9) {
        0 => {
            return format!("t={time} a={} s={}", random.of(VALUES), random.of(VALUES))
                .into_bytes();
        }
        1 => return format!("{time},{},{}", random.of(VALUES), random.of(VALUES)).into_bytes(),
        2 => {
            return format!(
                "[{{\"t\":{time},\"a\":1}},{{\"t\":{time},\"a\":{}}}]",
                random.of(VALUES)
            )
            .into_bytes();
        }
        3 => return packed(random, seconds * 1000 + millis),
        _ => {}
    }
    let mut text = format!("{{\"t\":{time},\"d\":\"2026-09-21 12:{minute:02}:{second:02}\"");
    for _ in 0..random.below(7) {
        let (key, value) = (random.of(KEYS), random.of(VALUES));
        text += &format!(",\"{key}\":{value}");
    }
    text.push('}');
    match random.below(8) {
        0 => random.spoil(&text, WORDS),
        _ => text.into_bytes(),
    }
}

/// A map of MessagePack: a time, and something that may be a value.
fn packed(random: &mut Random, time: usize) -> Vec<u8> {
    let mut bytes = vec![0x82, 0xa1, b't', 0xcf];
    bytes.extend_from_slice(&(time as u64).to_be_bytes());
    bytes.extend_from_slice(&[0xa1, b'a']);
    bytes.extend_from_slice(&random.next().to_le_bytes()[..1 + random.below(8)]);
    bytes
}
