//! Names with wildcards.

/// Whether `name` matches `pattern`, in which `*` stands for any characters and `?` for one.
#[must_use]
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at_pattern, mut at_name) = (0, 0);
    // Where to go on if the match fails: after the last star, with one more character given to it.
    let mut retry: Option<(usize, usize)> = None;
    while at_name < name.len() {
        match pattern.get(at_pattern) {
            Some('*') => {
                retry = Some((at_pattern + 1, at_name));
                at_pattern += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[at_name] => {
                at_pattern += 1;
                at_name += 1;
            }
            _ => match retry {
                Some((after_star, taken)) => {
                    retry = Some((after_star, taken + 1));
                    at_pattern = after_star;
                    at_name = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at_pattern..].iter().all(|c| *c == '*')
}

/// Checks that a pattern of file names is meant as it is read here.
///
/// # Errors
/// What is wrong with it.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() || pattern.contains('/') {
        return Err("must be a file name with * and ?, without directories".to_owned());
    }
    match pattern.find(['[', ']', '{', '}']) {
        Some(_) => Err(format!(
            "\"{pattern}\" has a bracket, which stands for nothing here; use * and ?, also in place of a bracket in a name"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_pattern, matches_pattern};

    #[test]
    fn brackets_are_refused_as_they_stand_for_nothing() {
        for bad in ["[.ndjson", "[a-z].log", "{a,b}.log", "", "a/b"] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
        assert_eq!(check_pattern("access-??.log*"), Ok(()));
    }

    #[test]
    fn a_star_stands_for_any_characters_and_a_question_mark_for_one() {
        let cases = [
            ("*.ndjson", "dns.ndjson", true),
            ("*.ndjson", "dns.ndjson.gz", false),
            ("*", "", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("dns.log", "dns.log", true),
            ("", "x", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }
}
