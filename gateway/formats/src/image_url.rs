//! URLs of images: the address of one that anybody can read, or a `data:` URL with the bytes. A provider would read any
//! other URL, such as that of a file it keeps, with the rights of the key that the call is made on, which may be the
//! operator's.

use crate::conversation::ImageSource;
use crate::error::RequestError;
use crate::fields::Field;

/// Hosts where a provider keeps what only its customers' keys can read, with the hosts below them.
const OF_ACCOUNTS: [&str; 3] = ["api.anthropic.com", "api.openai.com", "storage.cloud.google.com"];

/// Google's services for models, whose hosts have several forms: `generativelanguage.mtls.googleapis.com`,
/// `europe-west4-aiplatform.googleapis.com`. Other hosts of `googleapis.com` have public images, too.
const OF_GOOGLES_ACCOUNTS: [&str; 2] = ["generativelanguage", "aiplatform"];

impl ImageSource {
    /// Reads the URL of an image.
    pub(crate) fn read_url(field: Field) -> Result<Self, RequestError> {
        let is_data = field.value().as_text().is_some_and(|url| after_scheme(url, "data:").is_some());
        if !is_data {
            return Self::read_address(field);
        }
        let invalid = field.invalid("must be a URL, or a data URL with a media type and base64");
        Self::of_data_url(&field.text()?).ok_or(invalid)
    }

    /// Reads the address of an image that anybody can read.
    pub(crate) fn read_address(field: Field) -> Result<Self, RequestError> {
        let refused = field.value().as_text().and_then(why_not_public).map(|why| field.unsupported(why));
        refused.map_or_else(|| field.text().map(Self::Url), Err)
    }

    /// Reads a `data:` URL. `None` if it is not base64 or has no media type.
    fn of_data_url(url: &str) -> Option<Self> {
        let (head, data) = after_scheme(url, "data:")?.split_once(',')?;
        let media_type = head.strip_suffix(";base64").filter(|media_type| !media_type.is_empty())?;
        Some(Self::Base64 { media_type: media_type.to_owned(), data: data.to_owned() })
    }

    /// The URL.
    pub(crate) fn into_url(self) -> String {
        match self {
            Self::Url(url) => url,
            Self::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
        }
    }
}

/// What follows the scheme of a URL, whose case says nothing.
fn after_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = url.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Why a URL names nothing that anybody can read, if so. Its host must be written so that every reader of URLs finds the
/// same one.
fn why_not_public(url: &str) -> Option<&'static str> {
    let rest = after_scheme(url, "https://").or_else(|| after_scheme(url, "http://"));
    let Some(rest) = rest else { return Some("only public URLs are converted") };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if authority.is_empty() || !authority.bytes().all(is_plain) {
        return Some("its host must be a plain name or address");
    }
    let host = authority.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let is_within = |domain: &&str| {
        host.strip_suffix(domain).is_some_and(|name| matches!(name.chars().last(), None | Some('.')))
    };
    let of_google = host.strip_suffix(".googleapis.com");
    let is_of_google = of_google.is_some_and(|name| OF_GOOGLES_ACCOUNTS.iter().any(|of| name.contains(of)));
    (is_of_google || OF_ACCOUNTS.iter().any(is_within))
        .then_some("files that a provider keeps are not converted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn read(url: &str) -> Result<ImageSource, RequestError> {
        ImageSource::read_url(Field::root(Json::from(url.to_owned())))
    }

    #[test]
    fn a_public_url_and_a_data_url_are_read_and_written_back() {
        for url in [
            "https://example.com/a.png",
            "HTTP://EXAMPLE.com:8080?x=https://generativelanguage.googleapis.com/",
            "https://[2001:db8::1]/a.png",
            "https://xn--bcher-kva.example/ä.png",
            "https://storage.googleapis.com/bucket/a.png?X-Goog-Signature=1",
            "https://maps.googleapis.com/maps/api/staticmap",
            "https://notapi.openai.com.example/",
            "https://notapi.openai.com/",
            "data:image/png;base64,iVBORw0KGgo=",
        ] {
            assert_eq!(read(url).unwrap().into_url(), url);
        }
        assert!(matches!(read("DATA:image/png;base64,AA=="), Ok(ImageSource::Base64 { .. })));
        for url in ["data:image/png,plain", "data:;base64,AA==", "data:image/png;base64", "data:"] {
            assert!(matches!(read(url), Err(RequestError::Invalid { .. })), "{url}");
        }
    }

    #[test]
    fn a_url_that_a_providers_key_could_open_is_refused_however_its_host_is_written() {
        for url in [
            "gs://bucket/a.png",
            "file:///etc/passwd",
            "file-abc123",
            "ftp://example.com/a.png",
            "",
            "https:",
            "https:/generativelanguage.googleapis.com/v1beta/files/1",
            "https:///generativelanguage.googleapis.com/v1beta/files/1",
            " https://example.com/a.png",
            "https://generativelanguage.googleapis.com/v1beta/files/1",
            "http://GenerativeLanguage.GoogleAPIs.com:80/v1beta/files/1",
            "https://generativelanguage.googleapis.com./v1beta/files/1",
            "https://generativelanguage.googleapis.com?x",
            "https://generativelanguage.mtls.googleapis.com/v1beta/files/1",
            "https://content-generativelanguage.googleapis.com/v1beta/files/1",
            "https://europe-west4-aiplatform.googleapis.com/v1/x",
            "https://storage.cloud.google.com/bucket/a.png",
            "https://api.openai.com/v1/files/file-1/content",
            "https://eu.api.openai.com/v1/files/file-1/content",
            "https://api.anthropic.com/v1/files/file_1/content",
            "https://user@generativelanguage.googleapis.com/v1beta/files/1",
            "https://example.com\\@generativelanguage.googleapis.com/",
            "https://generativelanguage%2egoogleapis.com/v1beta/files/1",
            "https://generative\tlanguage.googleapis.com/v1beta/files/1",
            "https://ｇenerativelanguage.googleapis.com/v1beta/files/1",
        ] {
            assert!(matches!(read(url), Err(RequestError::Unsupported { .. })), "{url}");
        }
    }
}
