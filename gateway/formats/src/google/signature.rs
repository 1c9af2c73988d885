//! Signatures of another provider's reasoning, in a Google client's `thoughtSignature`.
//!
//! Google's field is bytes, written as base64, so its clients decode and encode it. Here the bytes are the other
//! provider's text. Towards Google itself its own signatures pass as they are.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::conversation::Part;

/// What the bytes begin with when only the provider can read the reasoning.
const REDACTED: &str = "redacted:";

/// What Google documents for calls without a signature.
const NO_SIGNATURE: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The field of a client for a signature.
pub(super) fn encode(signature: &str) -> String {
    BASE64.encode(signature)
}

/// The field of a client for reasoning that only the provider can read.
pub(super) fn encode_redacted(data: &str) -> String {
    BASE64.encode(format!("{REDACTED}{data}"))
}

/// Reads the field of a client. `Ok(None)` if there is no signature; an error if it is not one that was written here.
pub(super) fn decode(field: &str) -> Result<Option<Part>, &'static str> {
    if NO_SIGNATURE.contains(&field) {
        return Ok(None);
    }
    // Python's clients write the alphabet of URLs.
    let standard = field.replace('-', "+").replace('_', "/");
    let bytes = BASE64.decode(standard).ok();
    let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return Err("it is not a signature of this provider");
    };
    Ok(Some(match text.strip_prefix(REDACTED) {
        Some(data) => Part::RedactedReasoning(data.to_owned()),
        None => Part::Reasoning { text: String::new(), signature: Some(text) },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_both_alphabets() {
        let part = Part::Reasoning { text: String::new(), signature: Some("sig>?~\u{fe}".to_owned()) };
        let field = encode("sig>?~\u{fe}");
        assert_eq!(decode(&field), Ok(Some(part.clone())));
        let of_urls = field.replace('+', "-").replace('/', "_");
        assert_eq!(decode(of_urls.trim_end_matches('=')), Ok(Some(part)));
        let redacted = Part::RedactedReasoning("data".to_owned());
        assert_eq!(decode(&encode_redacted("data")), Ok(Some(redacted)));
    }

    #[test]
    fn a_foreign_signature_is_refused_and_the_documented_blank_is_none() {
        assert!(decode("/////w==").is_err());
        assert!(decode("!").is_err());
        assert_eq!(decode("skip_thought_signature_validator"), Ok(None));
    }
}
