//! `first(field)` and `last(field)`: by event time. Of several at the same time the least counts,
//! in the order of groups: which lane or which record came first must not show.

use super::kept::{Kept, compare};
use super::{Input, State, WindowLength};
use crate::part::codec::{Fault, Reader, Writer};
use crate::spec::Timestamp;

/// The value at the least time, or, if `LAST`, at the largest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct End<const LAST: bool> {
    /// Means nothing as long as nothing is kept.
    time: i64,
    kept: Kept,
}

pub(crate) type First = End<false>;
pub(crate) type Last = End<true>;

impl<const LAST: bool> End<LAST> {
    #[inline]
    pub(crate) fn add(&mut self, time: Timestamp, input: Input<'_>) {
        if self.is_replaced_by(time.0, input) && Kept::can_keep(input) {
            self.time = time.0;
            self.kept.set(input);
        }
    }

    #[inline]
    fn is_replaced_by(&self, time: i64, input: Input<'_>) -> bool {
        if self.kept == Kept::Nothing {
            return true;
        }
        if time == self.time {
            return compare(input, self.kept.as_input()).is_lt();
        }
        (time > self.time) == LAST
    }
}

impl<const LAST: bool> State for End<LAST> {
    type How = ();

    fn merge(&mut self, other: &Self) {
        if other.kept != Kept::Nothing {
            self.add(Timestamp(other.time), other.kept.as_input());
        }
    }

    fn write_to(&self, (): &(), _: WindowLength, out: &mut Vec<u8>) {
        self.kept.write_to(out);
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.kept.encode(out);
        if self.kept != Kept::Nothing {
            out.signed(self.time);
        }
    }

    fn decode((): &(), input: &mut Reader<'_>) -> Result<Self, Fault> {
        let kept = Kept::decode(input)?;
        let time = if kept == Kept::Nothing {
            0
        } else {
            input.signed()?
        };
        Ok(Self { time, kept })
    }

    fn heap(&self) -> usize {
        self.kept.heap()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_laws, input, shown, state};
    use super::*;

    /// `5=x` is x at second 5.
    fn add<const LAST: bool>(end: &mut End<LAST>, text: &str) {
        let (time, value) = text.split_once('=').unwrap_or(("0", text));
        end.add(Timestamp(time.parse().unwrap_or(0)), input(value));
    }

    fn check(texts: &[&str], first: &str, last: &str) {
        assert_eq!(
            shown(&state(texts, add::<false>), &()),
            first,
            "first of {texts:?}"
        );
        assert_eq!(
            shown(&state(texts, add::<true>), &()),
            last,
            "last of {texts:?}"
        );
    }

    #[test]
    fn the_first_and_the_last_go_by_event_time_and_ties_by_the_least() {
        check(&[], "null", "null");
        check(&["3=30", "1=10", "2=20"], "10", "30");
        check(&["-5=1", "-7=2"], "2", "1");
        check(&["1='b'", "1='a'", "1=7", "1=true"], "true", "true");
        check(&["1='b'", "2='z'", "2='y'", "1='a'"], "\"a\"", "\"y\"");
        check(&["1='b'", "2=null"], "\"b\"", "\"b\"");
        check(&["1=2", "1=10", "1=1.5"], "1.5", "1.5");
        let long = format!("9='{}'", "x".repeat(1025));
        check(&["1=2", &long], "2", "2");
    }

    #[test]
    fn neither_order_nor_grouping_shows() {
        let texts = [
            "3='c'", "1=2", "1=true", "1=false", "9='a'", "9='b'", "9=null", "4=4",
        ];
        check_laws(&texts, &(), add::<false>);
        check_laws(&texts, &(), add::<true>);
        check_laws(&[], &(), add::<true>);
    }
}
