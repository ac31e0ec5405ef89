//! Patterns of `like`, `ilike` and `regexp_like`, prepared once.

use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

/// Longest pattern in bytes: together with the length of the text it bounds the time of a match.
pub const MOST_PATTERN: usize = 1000;
/// Memory of a regular expression in bytes.
const MOST_REGEX: usize = 1 << 20;

/// A pattern of `like`: `%` is any text, `_` one character.
#[derive(Clone, Debug)]
pub(crate) enum Like {
    /// Without a wildcard.
    Whole(Box<[u8]>),
    Prefix(Box<[u8]>),
    Suffix(Box<[u8]>),
    Within(Box<memmem::Finder<'static>>),
    Any {
        tokens: Box<[Token]>,
        ignore_case: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token {
    Char(char),
    One,
    Many,
}

impl Like {
    /// `None` if the pattern ends in its escape character.
    pub(crate) fn new(pattern: &str, escape: Option<char>, ignore_case: bool) -> Option<Self> {
        let mut tokens = Vec::new();
        let mut chars = pattern.chars();
        while let Some(char) = chars.next() {
            tokens.push(match char {
                _ if Some(char) == escape => Token::Char(chars.next()?),
                '%' if tokens.last() == Some(&Token::Many) => continue,
                '%' => Token::Many,
                '_' => Token::One,
                _ => Token::Char(char),
            });
        }
        if ignore_case {
            for token in &mut tokens {
                if let Token::Char(char) = token {
                    *char = folded(*char);
                }
            }
        } else if let Some(simple) = Self::simple(&tokens) {
            return Some(simple);
        }
        Some(Self::Any {
            tokens: tokens.into(),
            ignore_case,
        })
    }

    fn simple(tokens: &[Token]) -> Option<Self> {
        let text = |tokens: &[Token]| {
            let chars = tokens.iter().map(|token| match token {
                Token::Char(char) => Some(*char),
                _ => None,
            });
            chars.collect::<Option<String>>()
        };
        let bytes = |text: String| text.into_bytes().into_boxed_slice();
        match tokens {
            [Token::Many, inner @ .., Token::Many] => {
                let finder = memmem::Finder::new(text(inner)?.as_bytes()).into_owned();
                Some(Self::Within(Box::new(finder)))
            }
            [Token::Many, rest @ ..] => text(rest).map(bytes).map(Self::Suffix),
            [rest @ .., Token::Many] => text(rest).map(bytes).map(Self::Prefix),
            all => text(all).map(bytes).map(Self::Whole),
        }
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Whole(whole) => *text == **whole,
            Self::Prefix(prefix) => text.starts_with(prefix),
            Self::Suffix(suffix) => text.ends_with(suffix),
            Self::Within(finder) => finder.find(text).is_some(),
            Self::Any {
                tokens,
                ignore_case,
            } => {
                let text = std::str::from_utf8(text).unwrap_or_default();
                matches(tokens, text, *ignore_case)
            }
        }
    }
}

/// Only the last `%` is tried again: what came before it matched as early as it could.
fn matches(tokens: &[Token], text: &str, ignore_case: bool) -> bool {
    let mut rest = text.chars();
    let mut at = 0_usize;
    // Behind the last `%`, and where its text ends next.
    let mut again: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let before = rest.clone();
        match (tokens.get(at), rest.next()) {
            (Some(Token::Many), _) => {
                rest = before;
                at = at.saturating_add(1);
                again = Some((at, rest.clone()));
                continue;
            }
            (None, None) => return true,
            (Some(Token::One), Some(_)) => {
                at = at.saturating_add(1);
                continue;
            }
            (Some(Token::Char(wanted)), Some(found)) => {
                let found = if ignore_case { folded(found) } else { found };
                if *wanted == found {
                    at = at.saturating_add(1);
                    continue;
                }
            }
            (_, None) => return false,
            (None, Some(_)) => {}
        }
        let Some((behind, end)) = &mut again else {
            return false;
        };
        if end.next().is_none() {
            return false;
        }
        at = *behind;
        rest = end.clone();
    }
}

fn folded(char: char) -> char {
    char.to_lowercase().next().unwrap_or(char)
}

/// Prepares a regular expression, which is found anywhere in a text unless it says otherwise by
/// `^` and `$`. Matching takes time in proportion to the text, whatever the expression.
///
/// # Errors
/// What is wrong with it.
pub fn regular_expression(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MOST_PATTERN {
        return Err(format!("is longer than {MOST_PATTERN} bytes"));
    }
    let built = RegexBuilder::new(pattern)
        .size_limit(MOST_REGEX)
        .dfa_size_limit(MOST_REGEX)
        .nest_limit(50)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "takes too much memory".to_owned(),
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Right values by PostgreSQL's rules.
    #[test]
    fn like_is_that_of_sql() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "ab", false),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "_b_", true),
            ("abc", "__", false),
            ("abc", "%", true),
            ("", "%", true),
            ("", "", true),
            ("", "_", false),
            ("äöü", "_ö_", true),
            ("aab", "%ab", true),
            ("aaab", "a%_ab", true),
            ("ab", "a%_ab", false),
            ("a%c", r"a\%c", true),
            ("abc", r"a\%c", false),
            (r"a\c", r"a\\c", true),
            ("a.c", "a.c", true),
            ("abc", "a.c", false),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "%iss%ix%", false),
            ("ABC", "abc", false),
        ] {
            let like = Like::new(pattern, Some('\\'), false).map(|it| it.matches(text.as_bytes()));
            assert_eq!(like, Some(expected), "{text} like {pattern}");
        }
        let like = |pattern, escape, ignore| Like::new(pattern, escape, ignore);
        assert!(like("ÄB%", None, true).is_some_and(|it| it.matches("äbX".as_bytes())));
        assert!(like("a!%", Some('!'), false).is_some_and(|it| it.matches(b"a%")));
        assert!(like(r"a\", Some('\\'), false).is_none());
        assert!(like(r"a\", None, false).is_some_and(|it| it.matches(br"a\")));
    }

    #[test]
    fn a_regular_expression_is_bounded() {
        assert!(regular_expression("^[a-z]+$").is_ok_and(|it| it.is_match(b"abc")));
        assert!(regular_expression("(").is_err_and(|error| error.contains("unclosed")));
        assert!(regular_expression(&"a".repeat(1001)).is_err());
        let large = regular_expression(r"(\w{50}){50}");
        assert_eq!(large.err().as_deref(), Some("takes too much memory"));
    }
}
