//! Texts of providers, made safe to store: bounded and without control characters.

/// The longest text of a provider that is stored, in characters.
const MAX_TEXT: usize = 255;

/// The cleaned text of a JSON string; `None` if it is empty or no string.
pub(super) fn string(json: &str) -> Option<String> {
    let text: String = serde_json::from_str(json).ok()?;
    (!text.is_empty()).then(|| clean(&text, MAX_TEXT))
}

/// The first `max_chars` characters of `text`, with control characters replaced.
pub(super) fn clean(text: &str, max_chars: usize) -> String {
    text.chars()
        .take(max_chars)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}
