//! Texts of callers and of providers, made safe to store: bounded and without control characters. Those of a provider are
//! also without secrets of this service, which it may repeat from the call.

use farthing_core::secret;

/// The longest text of a provider that is stored, in characters.
const MAX_TEXT: usize = 255;

/// The cleaned text of a caller's JSON string; `None` if it is empty or no string. Secrets in it stay, as it may decide,
/// unless it is cut, which could leave a part of one that is no longer known for a secret.
pub(super) fn string(json: &str) -> Option<String> {
    let text: String = serde_json::from_str(json).ok()?;
    let is_cut = text.chars().nth(MAX_TEXT).is_some();
    (!text.is_empty()).then(|| if is_cut { clean_answer(&text, MAX_TEXT) } else { clean(&text, MAX_TEXT) })
}

/// The same of a provider's answer, with secrets masked.
pub(super) fn answered_string(json: &str) -> Option<String> {
    let text: String = serde_json::from_str(json).ok()?;
    (!text.is_empty()).then(|| clean_answer(&text, MAX_TEXT))
}

/// The first `max_chars` characters of `text`, with secrets masked and control characters replaced.
pub(super) fn clean_answer(text: &str, max_chars: usize) -> String {
    // Before it is cut, which could leave a part of a secret.
    clean(&secret::masked(text), max_chars)
}

/// The first `max_chars` characters of `text`, with control characters replaced.
fn clean(text: &str, max_chars: usize) -> String {
    text.chars()
        .take(max_chars)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}
