//! Controls: query parameters and `x-mock-…` headers by which a caller changes the response.

use http::HeaderMap;

/// Reads controls by name.
pub(super) struct Controls<'a> {
    query: Vec<(String, String)>,
    headers: &'a HeaderMap,
}

impl<'a> Controls<'a> {
    /// The controls of a call.
    pub(super) fn new(query: Option<&str>, headers: &'a HeaderMap) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self { query: query.collect(), headers }
    }

    /// All values of a control: those in the query or, if there are none, those of the header.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let given: Vec<_> =
            self.query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect();
        if !given.is_empty() {
            return given;
        }
        let header = format!("x-mock-{name}");
        let values = self.headers.get_all(header).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    /// The first value of a control.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.all(name).into_iter().next()
    }

    /// The value of a control as a number. None if it is not one.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.text(name)?.parse().ok()
    }

    /// True if the control is `true` or `1`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some_and(|value| value == "true" || value == "1")
    }
}

/// Decodes the percent-encoding of a query. An invalid escape is kept as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, escape) {
            (b'%', Some(escaped)) => {
                plain.push(escaped);
                at += 2;
            }
            (b'+', _) => plain.push(b' '),
            _ => plain.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_overrides_a_header() {
        let mut headers = HeaderMap::new();
        headers.insert("x-mock-status", "500".parse().unwrap());
        headers.insert("x-mock-words", "3".parse().unwrap());
        let controls = Controls::new(Some("status=404&usage=%7B%22tokens%22%3A1%7D&body=a+b%2"), &headers);
        assert_eq!(controls.number("status"), Some(404));
        assert_eq!(controls.number("words"), Some(3));
        assert_eq!(controls.text("usage").as_deref(), Some("{\"tokens\":1}"));
        assert_eq!(controls.text("body").as_deref(), Some("a b%2"));
        assert_eq!(controls.text("absent"), None);
    }
}
