//! Names of members as providers may compare them: without regard to case.

/// Whether `given` may be read as `name`, which is ASCII. Beside letters in another case, readers that fold Unicode, as
/// Go's do, take two characters beyond ASCII for letters.
pub(super) fn is_read_as(given: &str, name: &str) -> bool {
    if given.is_ascii() {
        return given.eq_ignore_ascii_case(name);
    }
    let folded = given.chars().map(|letter| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        _ => letter.to_ascii_lowercase(),
    });
    folded.eq(name.chars().map(|letter| letter.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case() {
        for given in ["max_tokens", "MAX_Tokens", "max_tokenſ", "max_to\u{212a}enS"] {
            assert!(is_read_as(given, "max_tokens"), "{given}");
        }
        for given in ["max_token", "max_tokens ", "max_toKenß", "", "mаx_tokens"] {
            assert!(!is_read_as(given, "max_tokens"), "{given}");
        }
        assert!(is_read_as("INPUT", "input") && is_read_as("cachepoint", "cachePoint"));
    }
}
