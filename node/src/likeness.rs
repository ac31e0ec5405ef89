//! What a person may have meant.

/// Words less like a known one than this are not taken for its typo.
const LIKENESS: f64 = 0.6;

/// The one of `known` that is most like `word`, if any is like it.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let likeness = |known: &'a str| {
        (
            strsim::normalized_damerau_levenshtein(&word, &known.to_lowercase()),
            known,
        )
    };
    let like = known
        .into_iter()
        .map(likeness)
        .filter(|(likeness, _)| *likeness >= LIKENESS);
    // The first of equals.
    let best = like.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, known)| known)
}

/// `; did you mean "orders"?`, or nothing.
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_and_another_name_are_understood_and_a_strange_word_is_not() {
        assert_eq!(nearest("Ordres", ["payments", "orders"]), Some("orders"));
        assert_eq!(nearest("x", ["payments", "orders"]), None);
        assert_eq!(
            did_you_mean("latets", ["earliest", "latest"]),
            "; did you mean \"latest\"?"
        );
    }
}
