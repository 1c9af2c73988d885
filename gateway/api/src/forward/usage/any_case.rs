//! Names of members as providers may compare them: without regard to case.

use std::borrow::Cow;

/// Whether `given` may be read as `name`, which is ASCII. Beside letters in another case, readers that fold Unicode, as
/// Go's do, take two characters beyond ASCII for letters.
pub(super) fn is_read_as(given: &str, name: &str) -> bool {
    if given.is_ascii() {
        return given.eq_ignore_ascii_case(name);
    }
    given.chars().map(folded).eq(name.chars().map(folded))
}

/// The first of these names, which are ASCII, that `given` may be read as. It is folded once for all of them.
pub(super) fn first_read_as<'n>(
    given: &str,
    names: impl IntoIterator<Item = &'n &'static str>,
) -> Option<&'static str> {
    let given = if given.is_ascii() { Cow::Borrowed(given) } else { given.chars().map(folded).collect() };
    names.into_iter().copied().find(|name| given.eq_ignore_ascii_case(name))
}

const fn folded(letter: char) -> char {
    match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        _ => letter.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case() {
        for given in ["max_tokens", "MAX_Tokens", "max_tokenſ", "max_to\u{212a}enS"] {
            assert!(is_read_as(given, "max_tokens"), "{given}");
            assert_eq!(first_read_as(given, &["n", "max_tokens"]), Some("max_tokens"), "{given}");
        }
        for given in ["max_token", "max_tokens ", "max_toKenß", "", "mаx_tokens"] {
            assert!(!is_read_as(given, "max_tokens"), "{given}");
            assert_eq!(first_read_as(given, &["n", "max_tokens"]), None, "{given}");
        }
        assert!(is_read_as("INPUT", "input") && is_read_as("cachepoint", "cachePoint"));
    }
}
