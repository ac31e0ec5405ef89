//! The documents of an array of JSON. Where one ends is found by quotes and brackets alone; whether it is
//! JSON is for who decodes it.

/// The elements of the array that `doc` is; `None` if it is none that could be valid.
pub(super) fn elements(doc: &[u8]) -> Option<Elements<'_>> {
    let doc = doc
        .strip_prefix(super::json::BYTE_ORDER_MARK)
        .unwrap_or(doc);
    let inside = trim(doc).strip_prefix(b"[")?.strip_suffix(b"]")?;
    if trim(inside).is_empty() {
        return Some(Elements { rest: None });
    }
    // Once without giving anything: a broken array is one fault, not some documents and a fault.
    let mut rest = Some(inside);
    while let Some(text) = rest {
        let (element, after) = first(text)?;
        if trim(element).is_empty() {
            return None;
        }
        rest = after;
    }
    Some(Elements { rest: Some(inside) })
}

/// The elements that are left.
pub(super) struct Elements<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (element, rest) = first(self.rest?)?;
        self.rest = rest;
        Some(trim(element))
    }
}

/// What stands before the first comma that is in no string and no brackets, and what stands behind it; `None`
/// where quotes or brackets do not match.
fn first(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at += string(&text[at + 1..])?,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => return Some((&text[..at], Some(&text[at + 1..]))),
            _ => {}
        }
        at += 1;
    }
    (depth == 0).then_some((text, None))
}

/// How many bytes a string has up to its closing quote, with that.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Without the whitespace of JSON around it.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\n' | b'\r'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(array: &str, expected: Option<&[&str]>) {
        let found = elements(array.as_bytes());
        let found: Option<Vec<_>> =
            found.map(|all| all.map(|one| std::str::from_utf8(one).unwrap()).collect());
        assert_eq!(found.as_deref(), expected, "{array}");
    }

    #[test]
    fn elements_end_at_commas_that_are_theirs() {
        check(" [ ] ", Some(&[]));
        check("[{\"a\":[1,2]}, 3 ]", Some(&["{\"a\":[1,2]}", "3"]));
        check(
            r#"["a,\"]",{"x":"}"}]"#,
            Some(&[r#""a,\"]""#, r#"{"x":"}"}"#]),
        );
        check("\u{feff}[1]", Some(&["1"]));
    }

    #[test]
    fn what_is_broken_is_no_array() {
        for broken in [
            "", "{}", "[", "]", "[1", "[1,]", "[,1]", "[1,,2]", "[\"]", "[{]", "[}]", "[1]]",
            "[1] 2", "[\"\\\"]",
        ] {
            check(broken, None);
        }
    }
}
