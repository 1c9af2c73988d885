//! Parsers for flag values. A value they refuse is bad usage (exit code 2).

use farthing_core::money::Amount;

/// The longest name or reason, in characters (interface.md, Limits).
const MAX_CHARACTERS: usize = 255;

/// A name or a reason: 1 to 255 characters, no control characters.
pub(crate) fn line(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    if text.chars().count() > MAX_CHARACTERS {
        return Err(format!("must not be longer than {MAX_CHARACTERS} characters"));
    }
    Ok(text.to_owned())
}

/// An amount greater than zero.
pub(crate) fn positive_amount(text: &str) -> Result<Amount, String> {
    let amount = any_amount(text)?;
    if amount.is_positive() { Ok(amount) } else { Err("must be greater than zero".to_owned()) }
}

/// An amount of zero or more.
pub(crate) fn amount(text: &str) -> Result<Amount, String> {
    let amount = any_amount(text)?;
    if amount.is_negative() { Err("must not be negative".to_owned()) } else { Ok(amount) }
}

fn any_amount(text: &str) -> Result<Amount, String> {
    text.parse().map_err(|error: farthing_core::money::Error| error.to_string())
}
