//! Splits a body into JSON documents: a single one, several in a row, or one per event of a stream.

use super::document::{Document, Member, MemberSelection};
use super::event_stream::EventStream;

/// The framing of a body, by its content type.
#[derive(Debug)]
pub(super) enum Framing {
    /// One or more JSON documents, newline-delimited or not, with the first byte of the body that is no white space.
    Json(Document, Option<u8>),
    /// `text/event-stream`, with the same byte.
    Events(Events, Option<u8>),
    /// Amazon's binary event stream.
    Messages(Box<EventStream>),
}

impl Framing {
    pub(super) fn of(content_type: &str, selection: MemberSelection) -> Self {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("text/event-stream") {
            Self::Events(Events::new(selection), None)
        } else if media_type.eq_ignore_ascii_case("application/vnd.amazon.eventstream") {
            Self::Messages(Box::new(EventStream::new(selection)))
        } else {
            Self::Json(Document::new(selection), None)
        }
    }

    /// Whether a document has begun and not ended.
    pub(super) fn is_within_document(&self) -> bool {
        match self {
            Self::Json(document, _) => document.is_begun(),
            Self::Events(events, _) => events.document.is_begun(),
            Self::Messages(messages) => messages.is_within_message(),
        }
    }

    /// Whether the body is of another form than its framing says, such as a text or sound, or messages of impossible lengths.
    pub(super) fn is_of_another_form(&self) -> bool {
        match self {
            Self::Json(_, first) => !matches!(first, None | Some(b'{' | b'[')),
            // A comment, or a line of a field: `data`, `event`, `id` or `retry`.
            Self::Events(_, first) => !matches!(first, None | Some(b':' | b'd' | b'e' | b'i' | b'r')),
            Self::Messages(messages) => messages.is_broken(),
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], tell: impl FnMut(Member, &str)) {
        if let Self::Json(_, first @ None) | Self::Events(_, first @ None) = self {
            *first = bytes.iter().copied().find(|byte| !is_white_space(*byte));
        }
        match self {
            Self::Json(document, _) => document.feed(bytes, tell),
            Self::Events(events, _) => events.feed(bytes, tell),
            Self::Messages(messages) => messages.feed(bytes, tell),
        }
    }
}

/// White space between documents, or a byte of a byte order mark.
const fn is_white_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf)
}

/// The position within a line of an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SseLine {
    /// Within the field name, whose bytes match `data:` until here.
    Field(usize),
    /// Right after `data:`, where one space is skipped.
    Blank,
    /// In the data.
    Data,
    /// In a line of another field.
    Skip,
}

const DATA: &[u8] = b"data:";

/// The documents in the `data` of server-sent events.
#[derive(Debug)]
pub(super) struct Events {
    document: Document,
    line: SseLine,
    after_return: bool,
}

impl Events {
    fn new(selection: MemberSelection) -> Self {
        Self { document: Document::new(selection), line: SseLine::Field(0), after_return: false }
    }

    fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Member, &str)) {
        while let [first, rest @ ..] = bytes {
            if self.after_return && *first == b'\n' {
                // The second half of one line end.
                self.after_return = false;
                bytes = rest;
                continue;
            }
            self.after_return = false;
            if matches!(first, b'\n' | b'\r') {
                self.after_return = *first == b'\r';
                self.end_line();
                bytes = rest;
                continue;
            }
            match self.line {
                SseLine::Field(at) if DATA.get(at) == Some(first) => {
                    self.line = SseLine::Field(at + 1);
                    if at + 1 == DATA.len() {
                        self.line = SseLine::Blank;
                        // The lines of an event's data are joined by a line feed.
                        self.document.feed(b"\n", &mut tell);
                    }
                    bytes = rest;
                }
                SseLine::Field(_) => {
                    self.line = SseLine::Skip;
                    bytes = rest;
                }
                SseLine::Blank => {
                    self.line = SseLine::Data;
                    bytes = if *first == b' ' { rest } else { bytes };
                }
                SseLine::Data | SseLine::Skip => {
                    let end =
                        bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len());
                    let (part, after) = bytes.split_at(end);
                    if self.line == SseLine::Data {
                        self.document.feed(part, &mut tell);
                    }
                    bytes = after;
                }
            }
        }
    }

    fn end_line(&mut self) {
        if self.line == SseLine::Field(0) {
            // A blank line ends the event.
            self.document.reset();
        }
        self.line = SseLine::Field(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECTION: MemberSelection =
        MemberSelection { members: &[("usage", Member::Usage)], inside: &[], in_list: false };

    fn told(content_type: &str, body: &str, chunk: usize) -> Vec<String> {
        let mut framing = Framing::of(content_type, SELECTION);
        let mut told = Vec::new();
        for part in body.as_bytes().chunks(chunk) {
            framing.feed(part, |_, text| told.push(text.to_owned()));
        }
        told
    }

    #[test]
    fn events_are_read_whatever_their_line_ends_and_chunks() {
        for end in ["\n", "\r\n", "\r"] {
            let lines = [
                ": comment {\"usage\":0}",
                "event: x",
                "data: {\"usage\":1}",
                "",
                "data:{\"usage\":",
                "data:2}",
                "",
                "data: {\"broken",
                "",
                "id: {\"usage\":7}",
                "data: {\"usage\":3}",
                "",
                "data: [DONE]",
                "",
                "",
            ];
            let body = lines.join(end);
            for chunk in [1, 2, 3, 5, 1000] {
                assert_eq!(
                    told("text/event-stream; charset=utf-8", &body, chunk),
                    ["1", "2", "3"],
                    "{end:?} {chunk}"
                );
            }
        }
    }

    #[test]
    fn a_line_end_in_the_data_of_an_event_separates_tokens() {
        let body = "data: {\"usage\":[1\ndata: 2]}\n\n";
        for chunk in [1, 3, 1000] {
            assert_eq!(told("text/event-stream", body, chunk), ["[1\n2]"]);
        }
    }

    #[test]
    fn a_body_of_another_form_is_known() {
        for (content_type, body, is_other) in [
            ("application/json", "{}", false),
            ("application/json", " \r\n\t[{}]", false),
            ("", "\u{feff}{}", false),
            ("text/plain", "", false),
            ("text/plain", "1\n00:00:00,000 --> 00:00:01,000\n{}", true),
            ("application/json", "\"{}\"", true),
            ("audio/mpeg", "ID3", true),
            ("text/event-stream", "", false),
            ("text/event-stream", "\n\n", false),
            ("text/event-stream", "event: x\ndata: 1\n\n", false),
            ("text/event-stream", ": ping\n\nretry: 1\n\n", false),
            ("text/event-stream", "retry: 1\n\n", false),
            ("text/event-stream", "\n<html>", true),
            ("text/event-stream", "{\"usage\":1}", true),
        ] {
            for chunk in [1, 1000] {
                let mut framing = Framing::of(content_type, SELECTION);
                body.as_bytes().chunks(chunk).for_each(|part| framing.feed(part, |_, _| ()));
                assert_eq!(framing.is_of_another_form(), is_other, "{content_type} {body:?}");
            }
        }
    }

    #[test]
    fn lines_of_json_are_read() {
        let body = "{\"usage\":1}\n{\"usage\":null}\n{\"usage\":2}";
        assert_eq!(told("application/x-ndjson", body, 4), ["1", "null", "2"]);
        assert_eq!(told("application/json", "{\"usage\":5}", 1), ["5"]);
    }
}
