//! Names of pipelines, sources and sinks: they stand in addresses, headers and labels.

/// Longest name, in characters.
const MAX_NAME: usize = 128;

/// Checks a name.
///
/// # Errors
/// What a name may consist of.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        return Err(format!(
            "\"{name}\" is not a name; use 1 to {MAX_NAME} of the characters a-z A-Z 0-9 _ - ."
        ));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("\"{name}\" must start with a letter, a digit or _"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn a_name_can_stand_in_an_address() {
        for good in ["dns", "orders_per-minute.v2", "_x", "7"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a/b", "..", "-a", "ä", "a?b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name(&"x".repeat(129)).is_err());
    }
}
