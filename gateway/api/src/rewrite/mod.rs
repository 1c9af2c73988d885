//! The rewrite endpoint (completion.md section 12): the client speaks one format, and the provider at the URL in the path
//! another one. The rest of such a call is a forwarded call.

mod provider_format;
mod provider_url;
mod routes;

pub(crate) use self::provider_format::with_method;
pub(crate) use self::provider_url::Rewrite;
pub(crate) use self::routes::routes;

/// A kind of client library, by the format in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientLibrary {
    /// `openai`: Chat Completions or Responses.
    Openai,
    /// `anthropic`.
    Anthropic,
    /// `google`.
    Google,
}

impl ClientLibrary {
    /// The library that the path names.
    fn named(name: &str) -> Option<Self> {
        match name {
            "openai" => Some(Self::Openai),
            "anthropic" => Some(Self::Anthropic),
            "google" => Some(Self::Google),
            _ => None,
        }
    }

    /// The path of its calls, without the provider's URL.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Openai => "/v1/rewrite/openai",
            Self::Anthropic => "/v1/rewrite/anthropic",
            Self::Google => "/v1/rewrite/google",
        }
    }
}
