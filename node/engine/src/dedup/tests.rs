use super::*;
use crate::decimal::Decimal;
use crate::value::Input;

fn id(number: u8) -> Id {
    Id::of(&[number])
}

#[test]
fn one_counts_unless_another_was_counted_less_than_within_away() {
    let mut seen = Seen::default();
    let mut admits = |number, time| seen.admits(id(number), time, 100);
    assert!(admits(1, 1000));
    // A copy does not register: the next one is 150 behind the one that counted.
    assert!(!admits(1, 1099));
    assert!(admits(1, 1150));
    assert!(admits(2, 1099));
    // Late for its first windows, so that it comes behind younger ones.
    assert!(!admits(1, 901));
    assert!(admits(1, 900));
}

#[test]
fn ids_are_forgotten_when_no_record_can_meet_them() {
    let mut seen = Seen::default();
    for time in 0..10_000_i64 {
        assert!(seen.admits(Id::of(&time.to_be_bytes()), time, 100));
    }
    seen.sweep(9000, 100);
    // Of 8901 to 9999: a record of 9000 is 99 away from 8901, and 100 from 8900.
    assert_eq!(seen.counted.len(), 1099);
    // The bytes do not tell whether it was swept.
    let bytes = |seen: &Seen| {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        seen.encode(9950, 100, &mut out);
        out.finish().unwrap_or_default();
        bytes
    };
    let mut swept = seen.clone();
    swept.sweep_from = 0;
    swept.sweep(9950, 100);
    assert_eq!(swept.counted.len(), 149);
    assert_eq!(bytes(&swept), bytes(&seen));
}

#[test]
fn what_waits_is_read_as_it_was() {
    let number = |text: &str| Decimal::parse(text.as_bytes()).unwrap_or(Decimal::ZERO);
    let inputs = [
        Input::Null,
        Input::Other,
        Input::Bool(true),
        Input::Bool(false),
        Input::Number(Decimal::ZERO),
        Input::Number(number("-0.000000000000000000000000000001")),
        Input::Number(number("9999999999999999999999999999")),
        Input::Number(number("-9999999999999999999999999999")),
        Input::Text(b""),
        Input::Text(&[b'x'; 300]),
    ];
    let mut bytes = Vec::new();
    inputs
        .iter()
        .for_each(|input| held::push(*input, &mut bytes));
    assert!(held::is_sound(&bytes, inputs.len()));
    let mut rest = &bytes[..];
    for input in inputs {
        let Some((read, after)) = held::split(rest) else {
            panic!("{input:?} cannot be read");
        };
        assert_eq!(read, input);
        rest = after;
    }
    for len in 0..bytes.len() {
        assert!(!held::is_sound(&bytes[..len], inputs.len()), "{len}");
    }
    assert!(!held::is_sound(&[TAG_UNKNOWN], 1));
    assert!(!held::is_sound(&[0xff; 40], 1));
}

/// Between the marks and the numbers.
const TAG_UNKNOWN: u8 = 9;
