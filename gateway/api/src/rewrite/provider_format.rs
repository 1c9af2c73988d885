//! The format that a provider speaks at a URL, by its path. Pure.
//!
//! The paths are those of the formats' own interfaces. Providers that also offer another one's interface do so at these
//! paths, too.

use farthing_formats::Format;
use http::Uri;

use crate::providers::method_model_within;

/// The methods of Google's interface: for a whole response, and for a stream.
pub(super) const GENERATE: [&str; 2] = ["generateContent", "streamGenerateContent"];

/// What makes embeddings at a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmbeddingsFormat {
    /// OpenAI's.
    Openai,
    /// Google's.
    Google,
    /// Cohere's.
    Cohere,
}

/// The methods of Google's interface that make embeddings.
const EMBED: [&str; 2] = ["embedContent", "batchEmbedContents"];

/// The format of embeddings at `url`; `None` if it makes none.
pub(super) fn embeddings_format(url: &Uri) -> Option<EmbeddingsFormat> {
    let path = plain_path(url)?;
    if path.ends_with("/embeddings") {
        return Some(EmbeddingsFormat::Openai);
    }
    if path.ends_with("/embed") {
        return Some(EmbeddingsFormat::Cohere);
    }
    let (_, method) = path.rsplit_once(':')?;
    (method_model_within(path).is_some() && EMBED.contains(&method)).then_some(EmbeddingsFormat::Google)
}

/// The path of `url`, if it can be read in one way only.
fn plain_path(url: &Uri) -> Option<&str> {
    let path = url.path();
    let is_plain =
        !path.contains(['%', '\\']) && !path.split('/').any(|segment| matches!(segment, "." | ".."));
    is_plain.then_some(path)
}

/// The format at `url`; `None` if it is no endpoint of a format.
pub(super) fn provider_format(url: &Uri) -> Option<Format> {
    let path = plain_path(url)?;
    if path.ends_with("/chat/completions") {
        return Some(Format::OpenaiChat);
    }
    if path.ends_with("/responses") {
        return Some(Format::OpenaiResponses);
    }
    if path.ends_with("/messages") {
        return Some(Format::Anthropic);
    }
    let (_, method) = path.rsplit_once(':')?;
    (method_model_within(url.path()).is_some() && GENERATE.contains(&method)).then_some(Format::Google)
}

/// Google's `url` with the method for a stream or for a whole response, in the form that can be converted.
pub(crate) fn with_method(url: &Uri, stream: bool) -> Option<String> {
    let (before, _) = url.path().rsplit_once(':')?;
    let [whole, streamed] = GENERATE;
    let method = if stream { streamed } else { whole };
    let kept = url.query().unwrap_or_default().split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !name.eq_ignore_ascii_case("alt")
    });
    let query: Vec<&str> = kept.chain(stream.then_some("alt=sse")).collect();
    let (scheme, authority) = (url.scheme_str()?, url.authority()?);
    let joint = if query.is_empty() { "" } else { "?" };
    Some(format!("{scheme}://{authority}{before}:{method}{joint}{}", query.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_which_format_a_provider_speaks() {
        for (url, format) in [
            ("https://api.openai.com/v1/chat/completions", Some(Format::OpenaiChat)),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
                Some(Format::OpenaiChat),
            ),
            ("https://h/deployments/x/chat/completions?api-version=1", Some(Format::OpenaiChat)),
            ("https://h/responses", Some(Format::OpenaiResponses)),
            ("https://h/v1/messages?beta=true", Some(Format::Anthropic)),
            ("https://h/v1beta/models/m:generateContent", Some(Format::Google)),
            ("https://h/v1beta/models/m:streamGenerateContent?alt=sse", Some(Format::Google)),
            ("https://h/v1beta/models/m:countTokens", None),
            ("https://h/v1beta/tuned/m:generateContent", None),
            ("https://h/v1/messages/", None),
            ("https://h/v1/messages/batches", None),
            ("https://h/v1/xmessages", None),
            ("https://h/v1/%2e%2e/messages", None),
            ("https://h/v1/../messages", None),
            ("https://h/v1", None),
            ("https://h", None),
        ] {
            assert_eq!(provider_format(&url.parse().unwrap()), format, "{url}");
        }
    }

    #[test]
    fn the_path_says_in_which_format_embeddings_are_made() {
        for (url, format) in [
            ("https://api.openai.com/v1/embeddings", Some(EmbeddingsFormat::Openai)),
            ("https://h/openai/deployments/x/embeddings?api-version=1", Some(EmbeddingsFormat::Openai)),
            ("https://h/v1beta/models/m:embedContent", Some(EmbeddingsFormat::Google)),
            ("https://h/v1beta/models/m:batchEmbedContents", Some(EmbeddingsFormat::Google)),
            ("https://h/v1beta/tuned/m:embedContent", None),
            ("https://h/v1beta/models/:embedContent", None),
            ("https://h/v1beta/models/m:asyncBatchEmbedContent", None),
            ("https://api.cohere.com/v2/embed", Some(EmbeddingsFormat::Cohere)),
            ("https://h/v1/xembed", None),
            ("https://h/v1/%65mbeddings", None),
            ("https://h/v1/../embeddings", None),
            ("https://h/v1/messages", None),
        ] {
            assert_eq!(embeddings_format(&url.parse().unwrap()), format, "{url}");
        }
    }

    #[test]
    fn a_stream_has_a_method_of_its_own_at_google() {
        for (url, stream, expected) in [
            (
                "https://h/v1/models/m:generateContent",
                true,
                "https://h/v1/models/m:streamGenerateContent?alt=sse",
            ),
            (
                "https://h:8/v1/models/m:streamGenerateContent?alt=sse&a=1",
                false,
                "https://h:8/v1/models/m:generateContent?a=1",
            ),
            (
                "https://h/v1/models/m:generateContent?a=1&alt=json",
                true,
                "https://h/v1/models/m:streamGenerateContent?a=1&alt=sse",
            ),
        ] {
            assert_eq!(with_method(&url.parse().unwrap(), stream).as_deref(), Some(expected), "{url}");
        }
    }
}
