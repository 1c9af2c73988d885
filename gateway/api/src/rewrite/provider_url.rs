//! Reads the path of a rewrite: the client's format, the provider's URL, and what the client library has appended to it.
//! Pure.

use farthing_formats::Format;
use http::Uri;

use super::ClientLibrary;
use super::provider_format::{EmbeddingsFormat, GENERATE, embeddings_format, provider_format};
use crate::error::{ApiError, ForwardError, Issue, Resource};
use crate::providers::method_model_within;
use crate::target::{self, KeyParameter, Query};

/// What client libraries append to the address that they are given, the longer paths first.
const OPENAI_PATHS: [(&str, Format); 4] = [
    ("/v1/chat/completions", Format::OpenaiChat),
    ("/chat/completions", Format::OpenaiChat),
    ("/v1/responses", Format::OpenaiResponses),
    ("/responses", Format::OpenaiResponses),
];
const ANTHROPIC_PATHS: [(&str, Format); 2] =
    [("/v1/messages", Format::Anthropic), ("/messages", Format::Anthropic)];

const EMBEDDINGS_PATHS: [&str; 2] = ["/v1/embeddings", "/embeddings"];

/// Why embeddings in another format than the client's are refused.
const EMBEDDINGS_STAY: &str = "embeddings are not converted: they pass from clients of OpenAI's format to URLs that end \
    in /embeddings, and from those of Google's to :embedContent and :batchEmbedContents";

/// Why a URL is refused.
const NO_ENDPOINT: &str =
    "is no endpoint of a known format, such as one that ends in /chat/completions or /messages";
const NO_GOOGLE_CALL: &str =
    "does not end as a Google client's call does, in /v1beta/models/MODEL:generateContent";

/// A call of the rewrite endpoint, as far as its head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewrite {
    /// The client's library.
    pub(crate) library: ClientLibrary,
    /// The format that the client speaks.
    pub(crate) client: Format,
    /// The format that the provider speaks; `None` for embeddings, which pass unchanged.
    pub(crate) provider: Option<Format>,
    /// The provider's URL.
    pub(crate) target: Uri,
    /// What the path of a Google client says beyond its format.
    pub(crate) google: Option<GoogleCall>,
}

/// The path of a Google client's call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoogleCall {
    /// The model.
    pub(crate) model: String,
    /// Whether it asks for a stream.
    pub(crate) stream: bool,
}

/// A provider's URL without the path of a client.
struct Cut<'a> {
    url: &'a str,
    client: Format,
    google: Option<GoogleCall>,
}

impl Rewrite {
    /// Reads a call whose path is `path`.
    pub(crate) fn read(path: &str, query: &Query<'_>, key: KeyParameter) -> Result<Self, ApiError> {
        let unknown = ApiError::NotFound(Resource::Route);
        let rest = path.split_once("/rewrite/").map(|(_, rest)| rest).ok_or(unknown.clone())?;
        let (name, given) = rest.split_once('/').unwrap_or((rest, ""));
        let library = ClientLibrary::named(name).ok_or(unknown)?;
        if given.is_empty() {
            return Err(invalid("is missing: it stands in the path, after the format"));
        }
        let url = absolute(given)?;
        // Also if it is cut, no URL is used that could be read two ways.
        let whole = query.of_url(url.clone(), key, |_| false)?;
        // A Google client says by `alt` how a stream comes.
        let is_left_out = |name: &str| library == ClientLibrary::Google && name == "alt";
        let cut = cuts(library, &url).into_iter().find_map(|cut| {
            let target = query.of_url(cut.url.to_owned(), key, is_left_out).ok()?;
            let provider = provider_format(&target)?;
            // Anthropic's clients ask for its trials by `beta`, which no other provider knows.
            let is_of_client = library == ClientLibrary::Anthropic && provider != Format::Anthropic;
            let target = if is_of_client {
                query.of_url(cut.url.to_owned(), key, |name| name == "beta").ok()?
            } else {
                target
            };
            Some((cut, target, provider))
        });
        if let Some((Cut { client, google, .. }, target, provider)) = cut {
            let is_stream = google.as_ref().is_some_and(|call| call.stream);
            if is_stream && query.value_of("alt").as_deref() != Some("sse") {
                let issue = Issue::new(["alt"], "a stream must come as server-sent events, by alt=sse");
                return Err(ApiError::Forward(ForwardError::ConversionUnsupported(issue)));
            }
            return Ok(Self { library, client, provider: Some(provider), target, google });
        }
        if let Some(target) = embeddings(library, &url, |url| query.of_url(url, key, |_| false))? {
            let model = method_model_within(target.path()).filter(|_| library == ClientLibrary::Google);
            let google = model.map(|model| GoogleCall { model: model.to_owned(), stream: false });
            let client = if google.is_some() { Format::Google } else { Format::OpenaiChat };
            return Ok(Self { library, client, provider: None, target, google });
        }
        let provider = provider_format(&whole).ok_or_else(|| invalid(NO_ENDPOINT))?;
        let client = match (library, provider) {
            (ClientLibrary::Openai, Format::OpenaiChat | Format::OpenaiResponses) => provider,
            (ClientLibrary::Openai, Format::Anthropic | Format::Google) => Format::OpenaiChat,
            (ClientLibrary::Anthropic, _) => Format::Anthropic,
            (ClientLibrary::Google, Format::Google) => Format::Google,
            (ClientLibrary::Google, _) => {
                return Err(invalid(NO_GOOGLE_CALL));
            }
        };
        let is_of_client = library == ClientLibrary::Anthropic && provider != Format::Anthropic;
        let target = if is_of_client { query.of_url(url, key, |name| name == "beta")? } else { whole };
        Ok(Self { library, client, provider: Some(provider), target, google: None })
    }
}

/// The URL that makes embeddings, if `url` or what remains of it does.
fn embeddings(
    library: ClientLibrary,
    url: &str,
    target: impl Fn(String) -> Result<Uri, target::Error>,
) -> Result<Option<Uri>, ApiError> {
    let unsupported =
        || ApiError::Forward(ForwardError::ConversionUnsupported(Issue::new(["input"], EMBEDDINGS_STAY)));
    let (own, cut) = match library {
        ClientLibrary::Openai => {
            let cut = EMBEDDINGS_PATHS.iter().filter_map(|path| url.strip_suffix(path));
            (Some(EmbeddingsFormat::Openai), cut.collect())
        }
        ClientLibrary::Anthropic => (None, Vec::new()),
        ClientLibrary::Google => {
            let cut =
                models_path(url).into_iter().flat_map(|(before, _, _)| with_and_without_version(before));
            (Some(EmbeddingsFormat::Google), cut.collect())
        }
    };
    for given in cut {
        let Ok(cut) = target(given.to_owned()) else { continue };
        match (embeddings_format(&cut), own) {
            (Some(EmbeddingsFormat::Openai), Some(EmbeddingsFormat::Openai)) => return Ok(Some(cut)),
            (Some(EmbeddingsFormat::Openai | EmbeddingsFormat::Google | EmbeddingsFormat::Cohere), _) => {
                return Err(unsupported());
            }
            // A client of a provider that has no embeddings.
            (None, _) if provider_format(&cut).is_some() => return Err(unsupported()),
            (None, _) => {}
        }
    }
    let whole = target(url.to_owned())?;
    match embeddings_format(&whole) {
        Some(format) if Some(format) == own => Ok(Some(whole)),
        Some(EmbeddingsFormat::Openai | EmbeddingsFormat::Google | EmbeddingsFormat::Cohere) => {
            Err(unsupported())
        }
        None => Ok(None),
    }
}

/// What `library` may have appended to `url`, cut off.
fn cuts(library: ClientLibrary, url: &str) -> Vec<Cut<'_>> {
    let appended = |paths: &[(&str, Format)]| {
        let cut = paths.iter().filter_map(|(path, client)| {
            let url = url.strip_suffix(path)?;
            Some(Cut { url, client: *client, google: None })
        });
        cut.collect()
    };
    match library {
        ClientLibrary::Openai => appended(&OPENAI_PATHS),
        ClientLibrary::Anthropic => appended(&ANTHROPIC_PATHS),
        ClientLibrary::Google => googles(url),
    }
}

/// `/v1beta/models/{model}:{method}`, or the same without a version.
fn googles(url: &str) -> Vec<Cut<'_>> {
    let Some((before, model, method)) = models_path(url) else { return Vec::new() };
    if !GENERATE.contains(&method) {
        return Vec::new();
    }
    let [_, streamed] = GENERATE;
    let google = GoogleCall { model: model.to_owned(), stream: method == streamed };
    let urls = with_and_without_version(before);
    urls.map(|url| Cut { url, client: Format::Google, google: Some(google.clone()) }).collect()
}

/// What stands before `/models/{model}:{method}` at the end of `url`, the model and the method.
fn models_path(url: &str) -> Option<(&str, &str, &str)> {
    let (before, last) = url.rsplit_once('/')?;
    let (model, method) = last.split_once(':')?;
    let before = before.strip_suffix("/models")?;
    (!model.is_empty()).then_some((before, model, method))
}

/// `url` without a version at its end, such as `/v1beta`, if it has one, and as it is.
fn with_and_without_version(url: &str) -> impl Iterator<Item = &str> {
    let is_version = |segment: &str| {
        let rest = segment.strip_prefix('v').unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit())
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let versioned = url.rsplit_once('/').filter(|(_, version)| is_version(version)).map(|(url, _)| url);
    versioned.into_iter().chain([url])
}

/// The URL in the path, decoded and with its scheme. Proxies may make one slash of two.
fn absolute(given: &str) -> Result<String, target::Error> {
    let is_raw = ["http:/", "https:/"].iter().any(|scheme| target::begins_with(given, scheme));
    let url = if is_raw { given.to_owned() } else { target::decoded_once(given)? };
    for scheme in ["http:", "https:"] {
        if target::begins_with(&url, scheme) && url[scheme.len()..].starts_with('/') {
            let rest = &url[scheme.len() + 1..];
            return Ok(format!("{scheme}//{}", rest.strip_prefix('/').unwrap_or(rest)));
        }
    }
    Ok(format!("https://{url}"))
}

fn invalid(why: &'static str) -> ApiError {
    ApiError::Forward(ForwardError::UrlInvalid(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "https://api.openai.com/v1/chat/completions";
    const MESSAGES: &str = "https://api.anthropic.com/v1/messages";
    const GEMINI: &str = "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent";

    fn read(rest: &str) -> Result<Rewrite, ApiError> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        Rewrite::read(&format!("/v1/rewrite/{path}"), &Query::read(query), KeyParameter::IsCredential)
    }

    fn summary(rest: &str) -> (String, Format, Format) {
        let rewrite = read(rest).unwrap_or_else(|error| panic!("{rest}: {error}"));
        (rewrite.target.to_string(), rewrite.client, rewrite.provider.expect("a format"))
    }

    #[test]
    fn what_a_client_library_appends_is_cut_off_only_if_a_whole_endpoint_remains() {
        use Format::{Anthropic, Google, OpenaiChat, OpenaiResponses};
        let encoded = "https%3A%2F%2Fapi.anthropic.com%2Fv1%2Fmessages";
        for (rest, url, client, provider) in [
            (format!("openai/{MESSAGES}"), MESSAGES, OpenaiChat, Anthropic),
            (format!("openai/{MESSAGES}/chat/completions"), MESSAGES, OpenaiChat, Anthropic),
            (format!("openai/{MESSAGES}/v1/chat/completions"), MESSAGES, OpenaiChat, Anthropic),
            (format!("openai/{MESSAGES}/responses"), MESSAGES, OpenaiResponses, Anthropic),
            (format!("openai/{encoded}/chat/completions"), MESSAGES, OpenaiChat, Anthropic),
            (format!("openai/{}", encoded.to_lowercase()), MESSAGES, OpenaiChat, Anthropic),
            (
                "openai/api.anthropic.com/v1/messages/responses".to_owned(),
                MESSAGES,
                OpenaiResponses,
                Anthropic,
            ),
            ("openai/https:/api.anthropic.com/v1/messages".to_owned(), MESSAGES, OpenaiChat, Anthropic),
            ("openai/https%3A//api.anthropic.com/v1/messages".to_owned(), MESSAGES, OpenaiChat, Anthropic),
            (format!("anthropic/{CHAT}/v1/messages"), CHAT, Anthropic, OpenaiChat),
            (format!("anthropic/{CHAT}/v1/messages?beta=true"), CHAT, Anthropic, OpenaiChat),
            (format!("anthropic/{GEMINI}/v1/messages?beta=true"), GEMINI, Anthropic, Google),
            (format!("anthropic/{CHAT}?beta=true"), CHAT, Anthropic, OpenaiChat),
            (format!("anthropic/{CHAT}"), CHAT, Anthropic, OpenaiChat),
            (format!("google/{CHAT}/v1beta/models/m:generateContent"), CHAT, Google, OpenaiChat),
            (format!("google/{CHAT}/models/m:generateContent"), CHAT, Google, OpenaiChat),
            (
                format!("google/{MESSAGES}/v1/models/m:streamGenerateContent?alt=sse"),
                MESSAGES,
                Google,
                Anthropic,
            ),
            (format!("openai/{GEMINI}/chat/completions"), GEMINI, OpenaiChat, Google),
            // Nothing is cut off: what remains would be no endpoint.
            ("openai/https://api.openai.com/v1/chat/completions".to_owned(), CHAT, OpenaiChat, OpenaiChat),
            ("anthropic/https://api.anthropic.com/v1/messages".to_owned(), MESSAGES, Anthropic, Anthropic),
            (format!("google/{GEMINI}"), GEMINI, Google, Google),
            // A chat client at an endpoint of the same format.
            (format!("openai/{CHAT}/chat/completions"), CHAT, OpenaiChat, OpenaiChat),
            (format!("openai/{CHAT}/responses"), CHAT, OpenaiResponses, OpenaiChat),
        ] {
            assert_eq!(summary(&rest), (url.to_owned(), client, provider), "{rest}");
        }
        let responses = "https://api.openai.com/v1/responses";
        let expected = (responses.to_owned(), OpenaiResponses, OpenaiResponses);
        assert_eq!(summary(&format!("openai/{responses}")), expected);
    }

    #[test]
    fn the_query_of_the_url_stays_and_ours_is_removed() {
        for (rest, url) in [
            (
                "openai/https://h/x/messages?beta=true&key=spk_k&metadata=%7B%7D",
                "https://h/x/messages?beta=true",
            ),
            ("openai/https%3A%2F%2Fh%2Fx%2Fmessages%3Fa%3D1?b=2", "https://h/x/messages?a=1&b=2"),
            (
                "openai/https%3A%2F%2Fh%2Fx%2Fmessages%3Fa%3D1/chat/completions?b=2",
                "https://h/x/messages?a=1&b=2",
            ),
            (
                "google/https://h/x/messages/v1beta/models/m:streamGenerateContent?alt=sse&b=2",
                "https://h/x/messages?b=2",
            ),
            // The provider's own `alt`.
            (
                "google/https://h/v1beta/models/m:streamGenerateContent?alt=sse",
                "https://h/v1beta/models/m:streamGenerateContent?alt=sse",
            ),
        ] {
            assert_eq!(summary(rest).0, url, "{rest}");
        }
    }

    #[test]
    fn a_google_client_says_model_and_stream_in_its_path() {
        let google =
            |method: &str| read(&format!("google/{CHAT}/v1beta/models/gpt-4o:{method}")).unwrap().google;
        let call = |stream| Some(GoogleCall { model: "gpt-4o".to_owned(), stream });
        assert_eq!(google("generateContent"), call(false));
        assert_eq!(google("streamGenerateContent?alt=sse"), call(true));
        let unconverted = read(&format!("google/{CHAT}/v1beta/models/gpt-4o:streamGenerateContent?alt=json"));
        assert_eq!(unconverted.map_err(|error| error.code()), Err("conversion_unsupported"));
        assert!(read(&format!("google/{CHAT}/v1beta/models/gpt-4o:countTokens")).is_err());
        assert!(read(&format!("google/{CHAT}")).is_err());
    }

    #[test]
    fn embeddings_pass_to_a_provider_of_the_same_format_and_are_not_converted() {
        const EMBEDDINGS: &str = "https://api.openai.com/v1/embeddings";

        for rest in [
            format!("openai/{EMBEDDINGS}"),
            "openai/api.openai.com/v1/embeddings".to_owned(),
            format!("openai/{EMBEDDINGS}/embeddings"),
            format!("openai/{EMBEDDINGS}/v1/embeddings"),
        ] {
            let rewrite = read(&rest).unwrap_or_else(|error| panic!("{rest}: {error}"));
            assert_eq!((rewrite.target.to_string().as_str(), rewrite.provider), (EMBEDDINGS, None), "{rest}");
        }
        let google = "https://generativelanguage.googleapis.com/v1beta";
        for method in ["embedContent", "batchEmbedContents"] {
            let target = format!("{google}/models/m:{method}");
            let rewrite = read(&format!("google/{target}")).unwrap();
            assert_eq!(
                (rewrite.target.to_string(), rewrite.client, rewrite.provider),
                (target, Format::Google, None)
            );
            assert_eq!(rewrite.google, Some(GoogleCall { model: "m".to_owned(), stream: false }));
        }
        for rest in [
            format!("openai/{google}/models/m:embedContent"),
            format!("openai/{google}/models/m:batchEmbedContents/embeddings"),
            format!("google/{EMBEDDINGS}/v1beta/models/m:embedContent"),
            format!("google/{CHAT}/v1beta/models/m:batchEmbedContents"),
            format!("google/{CHAT}/models/m:embedContent"),
            format!("google/{google}/models/m:generateContent/v1beta/models/m:embedContent"),
            "google/https://api.cohere.com/v2/embed".to_owned(),
            format!("anthropic/{google}/models/m:embedContent"),
            "openai/https://api.cohere.com/v2/embed/embeddings".to_owned(),
            "openai/https://api.cohere.com/v2/embed".to_owned(),
            format!("openai/{MESSAGES}/embeddings"),
            format!("anthropic/{EMBEDDINGS}"),
            format!("google/{EMBEDDINGS}"),
        ] {
            let error = read(&rest).err().map(|error| error.code());
            assert_eq!(error, Some("conversion_unsupported"), "{rest}");
        }
    }

    #[test]
    fn what_is_no_endpoint_or_could_be_read_two_ways_is_refused() {
        for rest in [
            "openai/",
            "openai",
            "openai/https://",
            "openai/https:///chat/completions",
            "openai/https://api.openai.com/v1",
            "openai/https://api.openai.com/v1/models",
            "openai/https://api.openai.com/v1/embeddings/x",
            "openai/ftp://h/chat/completions",
            "openai/ftp%3A%2F%2Fh%2Fchat%2Fcompletions",
            "openai/https://user@h/chat/completions",
            "openai/user%40h/chat/completions",
            "openai/127.1/chat/completions",
            "openai/http://0x7f000001/messages",
            "openai/https://h%5C@x/messages",
            "openai/https%3A%2F%2Fh%2F%0d%0a/messages",
            "openai/https%3A%2F%2Fh%00%2Fmessages",
            "openai/%ff/messages",
            // Encoded twice: it is decoded once.
            "openai/https%253A%252F%252Fh%252Fmessages",
            "openai/https://h/v1/%6dessages",
            "openai/https://h/v1/../messages",
            "openai/https://h/v1/messages%3Fx",
        ] {
            let error = read(rest).err().map(|error| error.code());
            assert_eq!(error, Some("forward_url_invalid"), "{rest}");
        }
        for rest in ["mistral/https://h/messages", "", "OPENAI/https://h/messages", "%ff/%ff"] {
            let error = read(rest).err().map(|error| error.code());
            assert_eq!(error, Some("route_not_found"), "{rest}");
        }
    }
}
