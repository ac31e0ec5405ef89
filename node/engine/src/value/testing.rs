//! What every kind of value must keep: neither the order of records nor how they are split shows.

#![allow(clippy::unwrap_used)]

use super::{Input, State, WindowLength};
use crate::decimal::Decimal;
use crate::part::codec::{Reader, Writer};

pub(super) fn number(text: &str) -> Decimal {
    Decimal::parse(text.as_bytes()).unwrap()
}

/// `'text'`, `true`, `false`, `null` or a number.
pub(super) fn input(text: &str) -> Input<'_> {
    match text {
        "true" => Input::Bool(true),
        "false" => Input::Bool(false),
        "null" => Input::Null,
        _ => match text.strip_prefix('\'') {
            Some(text) => Input::Text(text.trim_end_matches('\'').as_bytes()),
            None => Input::Number(number(text)),
        },
    }
}

pub(super) fn state<S: State>(texts: &[&str], mut add: impl FnMut(&mut S, &str)) -> S {
    let mut state = S::default();
    texts.iter().for_each(|text| add(&mut state, text));
    state
}

/// In a window of ten seconds.
pub(super) fn shown<S: State>(state: &S, how: &S::How) -> String {
    let mut out = Vec::new();
    state.write_to(how, WindowLength(10_000), &mut out);
    String::from_utf8(out).unwrap()
}

pub(super) fn bytes<S: State>(state: &S) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    state.encode(&mut out);
    out.finish().unwrap();
    bytes
}

pub(super) fn restored<S: State>(bytes: &[u8], how: &S::How) -> S {
    let mut bytes = bytes;
    let mut input = Reader::new(&mut bytes);
    let state = S::decode(how, &mut input).unwrap();
    input.finish().unwrap();
    state
}

/// Any order and any split, with a checkpoint of any part, give the same bytes and the same result.
#[track_caller]
pub(super) fn check_laws<S: State>(texts: &[&str], how: &S::How, add: impl Fn(&mut S, &str)) {
    let whole = state(texts, &add);
    let expected = (bytes(&whole), shown(&whole, how));
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ texts.len() as u64;
    let mut below = |bound: usize| {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        (seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    };
    for round in 0..40 {
        let mut shuffled = texts.to_vec();
        for at in (1..shuffled.len()).rev() {
            shuffled.swap(at, below(at + 1));
        }
        let mut parts = vec![S::default(); 1 + below(4)];
        for text in shuffled {
            let part = below(parts.len());
            add(&mut parts[part], text);
            if below(texts.len()) < 3 {
                parts[part] = restored(&bytes(&parts[part]), how);
            }
        }
        while parts.len() > 1 {
            let from = parts.swap_remove(below(parts.len()));
            let into = below(parts.len());
            parts[into].merge(&from);
        }
        let merged = parts.remove(0);
        assert!(
            (bytes(&merged), shown(&merged, how)) == expected,
            "round {round}: {} instead of {}",
            shown(&merged, how),
            expected.1
        );
        let mut with_nothing = S::default();
        with_nothing.merge(&merged);
        with_nothing.merge(&S::default());
        assert!(bytes(&with_nothing) == expected.0, "merged with nothing");
    }
    // What a checkpoint holds may be damaged: any error, but no panic.
    let content = &expected.0[..expected.0.len() - 16];
    for at in 0..content.len().min(300) {
        for value in [0, 1, 0x1e, 0x7f, 0x80, 0xff] {
            let mut damaged = content.to_vec();
            damaged[at] = value;
            if let Ok(mut state) = S::decode(how, &mut Reader::new(&mut &damaged[..])) {
                state.merge(&whole);
                let _ = (bytes(&state), shown(&state, how), state.heap());
            }
        }
    }
}
