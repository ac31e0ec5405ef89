//! An independent computation of rows: sort, group, fold. It uses nothing of the engine, not its
//! numbers, not its times, not its JSON: a fault must not hide in both.

use std::collections::{BTreeMap, BTreeSet};

use num_bigint::BigInt;
use serde_json::value::RawValue;

/// What is asked: count, sum, avg, min and max of one field, by window and one group field.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The pipeline's name in its rows.
    pub pipeline: &'a str,
    /// The key of the time, RFC 3339 in UTC.
    pub time: &'a str,
    /// The key of the group, a text.
    pub group: &'a str,
    /// The key of the number.
    pub number: &'a str,
    /// Length of a window in milliseconds.
    pub size_ms: i64,
    /// Distance of two windows in milliseconds.
    pub slide_ms: i64,
    /// How far out of order a lane may be, in milliseconds.
    pub lag_ms: i64,
}

/// What should come out.
#[derive(Debug, Default)]
pub struct Answer {
    /// The rows in order, as JSON.
    pub rows: Vec<String>,
    /// Lane and offset of the records that are late for all their windows, in order.
    pub late: BTreeSet<(usize, usize)>,
    /// Records that are late for some of their windows.
    pub partly_late: usize,
}

/// An exact number: the integer times 10^-60.
type Exact = BigInt;
const SCALE: u32 = 60;

/// Computes the answer for `lanes`, each the text of an NDJSON file.
///
/// # Panics
/// On input that is not what the tests make.
#[must_use]
pub fn answer(question: &Question<'_>, lanes: &[String]) -> Answer {
    let mut answer = Answer::default();
    // By window end, then group: null before any text.
    let mut numbers: BTreeMap<(i64, Option<String>), Vec<Option<Exact>>> = BTreeMap::new();
    for (lane, text) in lanes.iter().enumerate() {
        let mut newest: Option<i64> = None;
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let record = Record::parse(line, question);
            let complete_up_to = newest.map(|newest| newest - question.lag_ms);
            let ends = window_ends(record.time, question);
            let open: Vec<i64> = ends
                .iter()
                .copied()
                .filter(|end| complete_up_to.is_none_or(|complete| *end > complete))
                .collect();
            if open.is_empty() {
                answer.late.insert((lane, offset));
            } else if open.len() < ends.len() {
                answer.partly_late += 1;
            }
            for end in open {
                let group = (end, record.group.clone());
                numbers
                    .entry(group)
                    .or_default()
                    .push(record.number.clone());
            }
            newest = newest.max(Some(record.time));
            offset += line.len();
        }
    }
    for (seq, ((end, group), numbers)) in numbers.into_iter().enumerate() {
        answer
            .rows
            .push(row(question, seq, end, group.as_deref(), &numbers));
    }
    answer
}

struct Record {
    time: i64,
    group: Option<String>,
    number: Option<Exact>,
}

impl Record {
    fn parse(line: &str, question: &Question<'_>) -> Self {
        let fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(line).expect("a JSON object");
        let text = |key: &str| -> Option<String> {
            let raw = fields.get(key)?.get();
            serde_json::from_str::<Option<String>>(raw).expect("a text or null")
        };
        let number = fields
            .get(question.number)
            .map(|raw| raw.get())
            .filter(|raw| *raw != "null");
        Self {
            time: parse_time(&text(question.time).expect("a time")),
            group: text(question.group),
            number: number.map(parse_number),
        }
    }
}

fn window_ends(time: i64, question: &Question<'_>) -> Vec<i64> {
    let last_start = time.div_euclid(question.slide_ms) * question.slide_ms;
    let starts = (0..).map(|step| last_start - step * question.slide_ms);
    let within = starts.take_while(|start| start + question.size_ms > time);
    let mut ends: Vec<i64> = within.map(|start| start + question.size_ms).collect();
    ends.sort_unstable();
    ends
}

fn row(
    question: &Question<'_>,
    seq: usize,
    end: i64,
    group: Option<&str>,
    numbers: &[Option<Exact>],
) -> String {
    let present: Vec<&Exact> = numbers.iter().flatten().collect();
    let sum: Exact = present.iter().copied().sum();
    let shown = |number: Option<&Exact>| number.map_or_else(|| "null".to_owned(), show);
    let text = |text: &str| serde_json::to_string(text).expect("a text");
    format!(
        "{{\"pipeline\":{},\"seq\":{seq},\"revision\":0,\"start\":\"{}\",\"end\":\"{}\",\"group\":{{{}:{}}},\
         \"values\":{{\"n\":{},\"total\":{},\"average\":{},\"least\":{},\"most\":{}}}}}",
        text(question.pipeline),
        show_time(end - question.size_ms),
        show_time(end),
        text(question.group),
        group.map_or_else(|| "null".to_owned(), text),
        numbers.len(),
        shown((!present.is_empty()).then_some(&sum)),
        if present.is_empty() {
            "null".to_owned()
        } else {
            average(&sum, present.len())
        },
        shown(present.iter().copied().min()),
        shown(present.iter().copied().max()),
    )
}

/// A JSON number, exactly.
fn parse_number(text: &str) -> Exact {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().expect("an exponent")),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: BigInt = format!("{whole}{fraction}").parse().expect("digits");
    let power = i64::from(SCALE) + exponent - i64::try_from(fraction.len()).expect("short");
    digits * BigInt::from(10).pow(u32::try_from(power).expect("not that small"))
}

/// All digits, no exponent, no zeros at the end.
fn show(number: &Exact) -> String {
    let sign = if number < &BigInt::ZERO { "-" } else { "" };
    let width = SCALE as usize + 1;
    let digits = format!("{:0>width$}", number.magnitude().to_string());
    let (whole, fraction) = digits.split_at(digits.len() - SCALE as usize);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

/// The quotient, rounded half to even to 20 significant digits.
fn average(sum: &Exact, count: usize) -> String {
    // Enough digits that the 20 significant ones of any average in these tests are among them.
    let numerator = BigInt::from(sum.magnitude().clone());
    let count = BigInt::from(count);
    let whole_digits = (&numerator / &count).to_string();
    let surplus = whole_digits.len().saturating_sub(20);
    let unit = BigInt::from(10).pow(u32::try_from(surplus).expect("short"));
    let divisor = &count * &unit;
    let mut quotient = &numerator / &divisor;
    let twice = (&numerator % &divisor) * 2;
    let odd = &quotient % 2 == BigInt::from(1);
    if twice > divisor || (twice == divisor && odd) {
        quotient += 1;
    }
    let rounded = quotient * unit;
    show(&if sum < &BigInt::ZERO {
        -rounded
    } else {
        rounded
    })
}

/// `2018-03-24T17:15:20.866586Z` in milliseconds since 1970, rounded down.
fn parse_time(text: &str) -> i64 {
    let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().expect("digits");
    let days = days_since_1970(part(0..4), part(5..7), part(8..10));
    let seconds = part(11..13) * 3_600 + part(14..16) * 60 + part(17..19);
    let fraction = text[19..].trim_end_matches('Z').trim_start_matches('.');
    let millis: i64 = format!("{fraction:0<3}")[..3].parse().expect("digits");
    days * 86_400_000 + seconds * 1_000 + millis
}

fn show_time(millis: i64) -> String {
    assert_eq!(millis % 1_000, 0, "windows of whole seconds");
    let days = millis.div_euclid(86_400_000);
    let second = millis.rem_euclid(86_400_000) / 1_000;
    let mut year = 1970;
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12)
        .rev()
        .find(|month| days_since_1970(year, *month, 1) <= days);
    let month = month.expect("January begins every year");
    let day = days - days_since_1970(year, month, 1) + 1;
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z",
        second % 60
    )
}

/// Counts years and months one by one: plain, for years from 1970 on.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let years: i64 = (1970..year)
        .map(|year| if leap(year) { 366 } else { 365 })
        .sum();
    let months = (1..month).map(|month| match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    });
    years + months.sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question<'static> = Question {
        pipeline: "p",
        time: "t",
        group: "g",
        number: "x",
        size_ms: 60_000,
        slide_ms: 60_000,
        lag_ms: 5_000,
    };

    #[test]
    fn a_small_case_by_hand() {
        let lane = concat!(
            "{\"t\":\"2018-03-24T17:15:59.999999Z\",\"g\":\"a\",\"x\":0.1}\n",
            "{\"t\":\"2018-03-24T17:16:04.999Z\",\"g\":\"a\",\"x\":1e-3}\n",
            "{\"t\":\"2018-03-24T17:15:00Z\",\"g\":\"a\",\"x\":0.2}\n",
            "{\"t\":\"2018-03-24T17:16:05Z\",\"g\":null,\"x\":null}\n",
            "{\"t\":\"2018-03-24T17:15:59Z\",\"g\":\"a\",\"x\":7}\n",
        );
        let answer = answer(&QUESTION, &[lane.to_owned()]);
        assert_eq!(
            answer.rows,
            [
                r#"{"pipeline":"p","seq":0,"revision":0,"start":"2018-03-24T17:15:00Z","end":"2018-03-24T17:16:00Z","group":{"g":"a"},"values":{"n":2,"total":0.3,"average":0.15,"least":0.1,"most":0.2}}"#,
                r#"{"pipeline":"p","seq":1,"revision":0,"start":"2018-03-24T17:16:00Z","end":"2018-03-24T17:17:00Z","group":{"g":null},"values":{"n":1,"total":null,"average":null,"least":null,"most":null}}"#,
                r#"{"pipeline":"p","seq":2,"revision":0,"start":"2018-03-24T17:16:00Z","end":"2018-03-24T17:17:00Z","group":{"g":"a"},"values":{"n":1,"total":0.001,"average":0.001,"least":0.001,"most":0.001}}"#,
            ]
        );
        let last = lane.len() - lane.lines().last().map_or(0, str::len) - 1;
        assert_eq!(answer.late, BTreeSet::from([(0, last)]));
    }

    #[test]
    fn averages_are_rounded_half_to_even_at_twenty_digits() {
        let exact = |text: &str| parse_number(text);
        assert_eq!(average(&exact("1"), 3), "0.33333333333333333333");
        assert_eq!(average(&exact("2"), 3), "0.66666666666666666667");
        assert_eq!(average(&exact("-200"), 3), "-66.666666666666666667");
        assert_eq!(average(&exact("2.0000000000000000001"), 2), "1");
        assert_eq!(
            average(&exact("2.0000000000000000003"), 2),
            "1.0000000000000000002"
        );
        assert_eq!(average(&exact("10"), 4), "2.5");
    }
}
