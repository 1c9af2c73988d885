//! Removes the usage chunk from a stream if the gateway requested it and the caller did not (completion.md section 5).
//! Invariant: every other byte passes in order, and is held back at most until its event ends.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The longest event that is held back, in bytes. A longer one contains more than usage, and passes.
const MAX_EVENT: usize = 64 * 1024;

/// Whether an event passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    IsRemoved,
}

/// The position within an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventLine {
    /// At the beginning of a line; an end of line here ends the event.
    Begins,
    /// Within a line.
    Within,
}

/// The last byte. A line feed after a carriage return belongs to the same line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// No carriage return.
    Other,
    /// One within an event.
    Return,
    /// One that ended an event of this fate.
    LastReturn(Fate),
}

/// Removes server-sent events that contain only usage.
#[derive(Debug)]
pub(crate) struct ChunkFilter {
    /// The event so far, until it ends.
    held: BytesMut,
    /// Whether the event was too long to hold back; the rest of it passes.
    too_long: bool,
    line: EventLine,
    after: After,
}

impl ChunkFilter {
    pub(crate) fn new() -> Self {
        Self { held: BytesMut::new(), too_long: false, line: EventLine::Begins, after: After::Other }
    }

    /// Reads `bytes` and returns the bytes that pass.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(self.held.len() + bytes.len());
        for &byte in bytes {
            self.byte(byte, &mut out);
        }
        out.freeze()
    }

    /// The bytes still held back, at the end of the stream.
    pub(crate) fn end(&mut self) -> Bytes {
        let held = self.held.split();
        match fate(&held) {
            Fate::Passes => held.freeze(),
            Fate::IsRemoved => Bytes::new(),
        }
    }

    fn byte(&mut self, byte: u8, out: &mut BytesMut) {
        match std::mem::replace(&mut self.after, After::Other) {
            After::LastReturn(Fate::Passes) if byte == b'\n' => return out.extend_from_slice(b"\n"),
            After::LastReturn(Fate::IsRemoved) if byte == b'\n' => return,
            After::Return if byte == b'\n' => return self.hold(byte, out),
            After::Other | After::Return | After::LastReturn(_) => {}
        }
        self.hold(byte, out);
        let is_end = matches!(byte, b'\r' | b'\n');
        let ended = (is_end && self.line == EventLine::Begins).then(|| self.end_event(out));
        self.line = if is_end { EventLine::Begins } else { EventLine::Within };
        self.after = match (byte, ended) {
            (b'\r', Some(fate)) => After::LastReturn(fate),
            (b'\r', None) => After::Return,
            (_, _) => After::Other,
        };
    }

    fn hold(&mut self, byte: u8, out: &mut BytesMut) {
        if self.held.len() >= MAX_EVENT {
            self.too_long = true;
            out.unsplit(self.held.split());
        }
        if self.too_long { out.extend_from_slice(&[byte]) } else { self.held.extend_from_slice(&[byte]) }
    }

    fn end_event(&mut self, out: &mut BytesMut) -> Fate {
        self.too_long = false;
        let held = self.held.split();
        let fate = fate(&held);
        if fate == Fate::Passes {
            out.extend_from_slice(&held);
        }
        fate
    }
}

/// A usage chunk has an empty list of choices and a usage.
#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<IgnoredAny>>,
    usage: Option<IgnoredAny>,
}

fn fate(event: &[u8]) -> Fate {
    let Ok(text) = std::str::from_utf8(event) else { return Fate::Passes };
    if !text.contains("usage") {
        return Fate::Passes;
    }
    let data = text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data:"));
    let document: Vec<&str> = data.map(|data| data.strip_prefix(' ').unwrap_or(data)).collect();
    let document = document.join("\n");
    // serde also reads a struct from a list, which is not a chunk.
    if !document.trim_start().starts_with('{') {
        return Fate::Passes;
    }
    match serde_json::from_str(&document) {
        Ok(Chunk { choices: Some(choices), usage: Some(_) }) if choices.is_empty() => Fate::IsRemoved,
        Ok(Chunk { .. }) | Err(_) => Fate::Passes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: &str = r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;

    fn passed(body: &[u8], chunk: usize) -> Vec<u8> {
        let mut filter = ChunkFilter::new();
        let mut out = Vec::new();
        for part in body.chunks(chunk) {
            out.extend_from_slice(&filter.pass(part));
        }
        out.extend_from_slice(&filter.end());
        out
    }

    #[test]
    fn the_chunk_of_usage_alone_is_kept_whatever_the_line_ends_and_pieces() {
        for end in ["\n", "\r\n", "\r"] {
            let others = [
                vec![
                    ": a comment",
                    "event: x",
                    r#"data: {"choices":[{"delta":{"content":"usage"}}],"usage":null}"#,
                ],
                vec![r#"data: {"choices":[],"usage":null,"prompt_filter_results":[]}"#],
                vec![r#"data:{"choices":[{"index":0}],"usage":{"prompt_tokens":1}}"#],
                vec![r#"data: {"usage":{"prompt_tokens":1}}"#],
                vec!["data: usage that is no JSON \u{1F600}"],
                vec![r#"data: [[],{"usage":1}]"#],
                vec![],
                vec!["data: [DONE]"],
            ];
            let event = |lines: &[&str]| {
                let mut text: String = lines.iter().flat_map(|line| [line, end]).collect();
                text.push_str(end);
                text
            };
            let split = [r#"data: {"choices":[],"#, r#"data: "usage":{"prompt_tokens":1}}"#];
            for at in 0..=others.len() {
                let before: String = others[..at].iter().map(|lines| event(lines)).collect();
                let after: String = others[at..].iter().map(|lines| event(lines)).collect();
                for kept in [event(&[USAGE]), event(&split), event(&[": x", USAGE])] {
                    let body = format!("{before}{kept}{after}");
                    for chunk in [1, 2, 3, 7, 64, 10_000] {
                        let passed = String::from_utf8(passed(body.as_bytes(), chunk)).unwrap();
                        assert_eq!(passed, format!("{before}{after}"), "{end:?}, at {at}, pieces of {chunk}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_event_passes_as_soon_as_it_ends() {
        let mut filter = ChunkFilter::new();
        assert_eq!(filter.pass(b"data: 1\n"), "");
        assert_eq!(filter.pass(b"\n"), "data: 1\n\n");
        assert_eq!(filter.pass(b"data: 2\r\n\r"), "data: 2\r\n\r");
        assert_eq!(filter.pass(b"\ndata: 3"), "\n");
        assert_eq!(filter.end(), "data: 3");
    }

    #[test]
    fn what_is_no_event_stream_of_ours_passes_unchanged() {
        let long = format!(
            "data: {{\"choices\":[],\"usage\":{{}},\"x\":\"{}\"}}\n\ndata: 1\n\n",
            "x".repeat(MAX_EVENT)
        );
        let binary: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        for body in [long.as_bytes(), &binary, b"", b"\r", b"\n\r\n\n\r\r"] {
            for chunk in [1, 1000, 100_000] {
                assert_eq!(passed(body, chunk), body);
            }
        }
        assert_eq!(passed(USAGE.as_bytes(), 5), b"", "nor is it told where the last event is not ended");
    }
}
