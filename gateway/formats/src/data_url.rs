//! Images as OpenAI writes them: an address, or a `data:` URL with the bytes.

use crate::conversation::ImageSource;

impl ImageSource {
    /// Reads a URL. `None` if it is a `data:` URL that is not base64 or has no media type.
    pub(crate) fn of_url(url: String) -> Option<Self> {
        let Some(data_url) = url.strip_prefix("data:") else { return Some(Self::Url(url)) };
        let (head, data) = data_url.split_once(',')?;
        let media_type = head.strip_suffix(";base64")?;
        if media_type.is_empty() {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_url_is_read_and_written_back() {
        for url in ["https://example.com/a.png", "data:image/png;base64,iVBORw0KGgo="] {
            assert_eq!(ImageSource::of_url(url.to_owned()).unwrap().into_url(), url);
        }
        for url in ["data:image/png,plain", "data:;base64,AA==", "data:image/png;base64"] {
            assert_eq!(ImageSource::of_url(url.to_owned()), None, "{url}");
        }
    }
}
