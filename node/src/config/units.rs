//! Durations and byte sizes as people write them.

use std::time::Duration;

const DURATION_UNITS: [(&str, i64); 18] = [
    ("ms", 1),
    ("s", 1_000),
    ("sec", 1_000),
    ("second", 1_000),
    ("seconds", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("minute", 60_000),
    ("minutes", 60_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("days", 86_400_000),
    ("w", 604_800_000),
    ("week", 604_800_000),
    ("weeks", 604_800_000),
];

const BYTE_UNITS: [(&str, u64); 5] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads a duration such as `250ms`, `5s`, `1m`, `1h`, `1 day`, `1 week`, `1h30m` or `-1h`; gives milliseconds.
///
/// # Errors
/// What is wrong with the text and what would be right.
pub fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let refuse = || {
        format!(
            "\"{text}\" is not a duration; write a whole number and ms, s, m, h, day or week, as \"5s\" or \"1h30m\""
        )
    };
    let (negative, mut rest) = match text.trim().strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.trim()),
    };
    let mut millis: i64 = 0;
    let mut unit_before = i64::MAX;
    loop {
        let (digits, after) = split_number(rest);
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let number: i64 = digits.parse().map_err(|_| refuse())?;
        let known = DURATION_UNITS.iter().find(|(name, _)| *name == unit);
        // From large to small, each once: two of a kind are a slip.
        let &(_, factor) = known
            .filter(|(_, factor)| *factor < unit_before)
            .ok_or_else(refuse)?;
        let part = number.checked_mul(factor);
        millis = part
            .and_then(|part| millis.checked_add(part))
            .ok_or_else(|| format!("\"{text}\" is too long"))?;
        unit_before = factor;
        rest = after.trim_start();
        if rest.is_empty() {
            return Ok(if negative { -millis } else { millis });
        }
    }
}

/// Reads a duration that is not negative.
///
/// # Errors
/// What is wrong with the text and what would be right.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let millis = parse_duration_ms(text)?;
    u64::try_from(millis)
        .map(Duration::from_millis)
        .map_err(|_| format!("\"{text}\" is negative; write 0 or more"))
}

/// Reads a byte size such as `64KiB`, `1MiB` or `1GiB`; gives bytes.
///
/// # Errors
/// What is wrong with the text and what would be right.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let refuse = || {
        format!("\"{text}\" is not a size; write a whole number and KiB, MiB or GiB, as \"16MiB\"")
    };
    let (digits, unit) = split_number(text.trim());
    let number: u64 = digits.parse().map_err(|_| refuse())?;
    let (_, factor) = BYTE_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(refuse)?;
    number
        .checked_mul(*factor)
        .ok_or_else(|| format!("\"{text}\" is too large"))
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_every_unit() {
        let cases = [
            ("250ms", 250),
            ("5s", 5_000),
            ("1m", 60_000),
            ("1h", 3_600_000),
            ("1 day", 86_400_000),
            ("2 days", 172_800_000),
            ("-1h", -3_600_000),
            (" 10 s ", 10_000),
            ("7d", 604_800_000),
            ("1 week", 604_800_000),
            ("2w", 1_209_600_000),
            ("1h30m", 5_400_000),
            ("1 day 2h 3s", 93_603_000),
            ("-1h30m", -5_400_000),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration_ms(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "s",
            "5",
            "5 parsecs",
            "1.5s",
            "--1s",
            "9223372036854775807h",
            "5s 3s",
            "30m1h",
            "1h30",
            "1h-30m",
            "1h,30m",
            "106751991168d",
            "106751991167d23h",
            "5sé",
        ] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
        assert!(parse_duration("-1s").unwrap_err().contains("negative"));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(parse_bytes("1MiB"), Ok(1_048_576));
        assert_eq!(parse_bytes("16 KiB"), Ok(16_384));
        assert_eq!(parse_bytes("1GiB"), Ok(1_073_741_824));
        for text in ["1MB", "MiB", "-1MiB", "99999999999999999GiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
