//! Counts the bytes of the text that an answer has streamed: an upper bound of its tokens, for a call that is given up
//! before its usage is reported and that has no output limit.

/// The members whose texts are output, in the formats of the built-in providers.
const TEXTS: [&[u8]; 12] = [
    b"content",
    b"text",
    b"delta",
    b"thinking",
    b"reasoning",
    b"reasoning_content",
    b"refusal",
    b"arguments",
    b"partial_json",
    b"input",
    b"tool_plan",
    b"transcript",
];

/// The longest name, or type of an event, that is compared, in bytes.
const MAX_NAME: usize = 64;

/// How the type of an event ends that repeats the texts before it.
const REPEATED: &[u8] = b".done";

/// Further types of events whose texts are those of the request, of documents, or of events before.
const NO_OUTPUT: [&[u8]; 6] = [
    b"response.created",
    b"response.in_progress",
    b"response.completed",
    b"response.incomplete",
    b"response.failed",
    b"citation-start",
];

/// Counts the texts of an answer in JSON, whatever it is framed in.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    /// The bytes of texts in the lines before this one.
    before: u64,
    /// The bytes of texts in this line: an event of a stream, or a document.
    line: u64,
    /// Whether this line repeats texts of others.
    repeats: bool,
    /// The name of the member around the cursor.
    name: Vec<u8>,
    /// The beginning of the string around or before the cursor.
    string: Vec<u8>,
    /// Its length, in bytes.
    length: u64,
    /// The next bytes that are not counted: `\u` with four digits stands for at most three bytes.
    uncounted: u8,
    place: Place,
}

/// The position of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Outside,
    Inside,
    /// Right after a backslash.
    Escaped,
    /// After a string, of which it is not known yet whether it is a name.
    After,
}

impl StreamedText {
    /// The bytes of all texts so far.
    pub(super) fn bytes(&self) -> u64 {
        let is_text = self.place == Place::Inside || self.place == Place::Escaped;
        let begun = if is_text && self.is_output() { self.length } else { 0 };
        let line = if self.repeats { 0 } else { self.line + begun };
        self.before + line
    }

    /// Reads the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.byte(byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        match (self.place, byte) {
            (Place::Inside, b'\\') => self.place = Place::Escaped,
            (Place::Inside, b'"') => self.place = Place::After,
            (Place::Inside | Place::Escaped, _) => {
                if self.uncounted > 0 {
                    self.uncounted -= 1;
                } else {
                    self.length += 1;
                }
                if self.place == Place::Escaped && byte == b'u' {
                    self.uncounted = 2;
                }
                self.place = Place::Inside;
                if self.string.len() < MAX_NAME {
                    self.string.push(byte);
                }
            }
            (Place::After, b':') => {
                self.place = Place::Outside;
                std::mem::swap(&mut self.name, &mut self.string);
            }
            (Place::After, b' ' | b'\t') => {}
            (Place::After, _) => {
                self.place = Place::Outside;
                self.end_text();
                self.outside(byte);
            }
            (Place::Outside, _) => self.outside(byte),
        }
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.place = Place::Inside;
                self.string.clear();
                (self.length, self.uncounted) = (0, 0);
            }
            b'\n' => {
                if !self.repeats {
                    self.before += self.line;
                }
                (self.line, self.repeats) = (0, false);
            }
            _ => {}
        }
    }

    fn end_text(&mut self) {
        if self.name == b"type" {
            self.repeats |= self.string.ends_with(REPEATED) || NO_OUTPUT.contains(&self.string.as_slice());
        } else if self.is_output() {
            self.line += self.length;
        }
    }

    fn is_output(&self) -> bool {
        TEXTS.contains(&self.name.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(body: &str) -> u64 {
        let of = |chunk| {
            let mut text = StreamedText::default();
            body.as_bytes().chunks(chunk).for_each(|part| text.feed(part));
            text.bytes()
        };
        let whole = of(usize::MAX);
        assert_eq!((of(1), of(7)), (whole, whole), "{body}");
        whole
    }

    #[test]
    fn the_texts_of_each_format_are_counted() {
        for (body, bytes) in [
            (
                r#"data: {"id":"chatcmpl-1","model":"m","choices":[{"delta":{"role":"assistant","content":"Hello"}}]}"#,
                5,
            ),
            (r#"data: {"choices":[{"delta":{"reasoning_content":"abc","content":null}}]}"#, 3),
            (
                r#"data: {"choices":[{"delta":{"tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}"#,
                7,
            ),
            (r#"data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"Hello"}"#, 5),
            (r#"data: {"type":"response.output_text.done","item_id":"msg_1","text":"Hello"}"#, 0),
            (r#"data: {"text":"Hello","type":"response.output_text.done"}"#, 0),
            (r#"data: {"type":"response.function_call_arguments.done","arguments":"{\"a\":1}"}"#, 0),
            (r#"data: {"type":"response.custom_tool_call_input.done","input":"abc"}"#, 0),
            (
                r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
                2,
            ),
            (
                r#"data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"a"}}"#,
                3,
            ),
            (r#"data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}"#, 2),
            (r#"{"candidates":[{"content":{"parts":[{"text":"Hi"},{"text":"you"}],"role":"model"}}]}"#, 5),
            (r#"data: {"type":"content-delta","delta":{"message":{"content":{"text":"Hi"}}}}"#, 2),
            (r#"{"contentBlockIndex":0,"delta":{"text":"Hi"},"p":"abcdefgh"}"#, 2),
            (r#"{"content": ["one", "two"], "text" : "4444"}"#, 10),
            (
                r#"data: {"choices":[{"delta":{"tool_calls":[{"type":"custom","custom":{"name":"f","input":"abc"}}]}}]}"#,
                3,
            ),
            (r#"data: {"type":"tool-plan-delta","delta":{"message":{"tool_plan":"abc"}}}"#, 3),
            (
                r#"data: {"type":"content_block_start","content_block":{"type":"tool_use","input":{},"name":"f"}}"#,
                0,
            ),
            (r#"data: {"type":"response.created","response":{"instructions":[{"content":"abc"}]}}"#, 0),
            (
                r#"data: {"type":"response.completed","response":{"output":[{"content":[{"text":"abc"}]}]}}"#,
                0,
            ),
            (r#"{"content":"a\u20ac\ud83d\ude00\"b"}"#, 1 + 3 + 6 + 1 + 1),
            ("{\"content\":\"é\\n\"}", 3),
            ("{\"content\":\"cut of", 6),
            ("", 0),
            ("no JSON: \"text", 0),
        ] {
            assert_eq!(counted(body), bytes, "{body}");
        }
    }

    #[test]
    fn the_texts_of_all_events_are_counted_and_repeated_ones_are_not() {
        let stream = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hel\"}\n\n\
                      data: {\"type\":\"response.output_text.delta\",\"delta\":\"lo\"}\n\n\
                      data: {\"type\":\"response.output_text.done\",\"text\":\"Hello\"}\n\n\
                      data: {\"type\":\"response.output_text.delta\",\"delta\":\"!\"}\n\n";
        assert_eq!(counted(stream), 6);
    }

    #[test]
    fn a_long_text_takes_no_memory() {
        let mut text = StreamedText::default();
        text.feed(b"{\"text\":\"");
        (0..1_000).for_each(|_| text.feed(&[b'x'; 1_000]));
        assert_eq!((text.bytes(), text.string.len()), (1_000_000, MAX_NAME));
    }
}
