//! Controls: query parameters, `x-mock-…` headers and words of the body by which a caller changes the response.

use http::HeaderMap;

/// What a control in the text of a body begins with.
const IN_TEXT: &str = "mock:";

/// The most controls in the text of a body.
const MAX_IN_TEXT: usize = 100;

/// Reads controls by name.
pub(super) struct Controls<'a> {
    query: Vec<(String, String)>,
    headers: &'a HeaderMap,
    text: Vec<(String, String)>,
}

impl<'a> Controls<'a> {
    /// The controls of a call.
    pub(super) fn new(query: Option<&str>, headers: &'a HeaderMap) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self { query: query.collect(), headers, text: Vec::new() }
    }

    /// The same, with the controls in the text of a body: `mock:name=value`. Names and values consist of letters, digits,
    /// `-`, `_` and `.`. A form has files beside its texts.
    pub(super) fn with_text(mut self, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        let controls = text.split(IN_TEXT).skip(1).filter_map(|rest| {
            let (name, rest) = rest.split_once('=')?;
            let end = rest.find(|character| !is_plain(character)).unwrap_or(rest.len());
            name.chars().all(is_plain).then(|| (name.to_owned(), rest[..end].to_owned()))
        });
        self.text = controls.take(MAX_IN_TEXT).collect();
        self
    }

    /// All values of a control: those in the query; if there are none, those of the header; if there are none, those in
    /// the text.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let given: Vec<_> =
            self.query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect();
        if !given.is_empty() {
            return given;
        }
        let header = format!("x-mock-{name}");
        let values = self.headers.get_all(header).iter();
        let values: Vec<_> =
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        if !values.is_empty() {
            return values;
        }
        self.text.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
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

    #[test]
    fn a_word_of_the_body_is_the_last_to_be_asked() {
        let mut headers = HeaderMap::new();
        headers.insert("x-mock-words", "3".parse().unwrap());
        let body = br#"{"content":"Hello mock:words=9 mock:status=500\nmock:marker=a-1.b","x":"mock:no name=1 mock:"}"#;
        let controls = Controls::new(Some("calls=2"), &headers).with_text(body);
        assert_eq!((controls.number("words"), controls.number("calls")), (Some(3), Some(2)));
        assert_eq!(
            (controls.number("status"), controls.text("marker").as_deref()),
            (Some(500), Some("a-1.b"))
        );
        assert_eq!((controls.text("no name"), controls.text("name")), (None, None));
        let controls = Controls::new(None, &headers).with_text(b"\xff\x80\r\n\r\nmock:marker=2\r\n");
        assert_eq!(controls.text("marker").as_deref(), Some("2"), "beside bytes that are no text");
    }
}
