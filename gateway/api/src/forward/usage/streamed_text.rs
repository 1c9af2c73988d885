//! Counts the bytes of the text that an answer has streamed: an upper bound of its tokens, for a call that is given up
//! before its usage is reported and whose hold may be less than its cost.

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

/// The members whose values are output as a whole if they are an object or a list: the arguments of a tool, whose names
/// are free. As a text, `input` is one of [`TEXTS`].
const ARGUMENTS: [&[u8]; 2] = [b"args", b"input"];

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
    /// The number of objects and lists around the cursor.
    depth: u64,
    /// The arguments around the cursor.
    arguments: Option<Arguments>,
    /// Whether the value of the member `name` comes next.
    is_value_next: bool,
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

/// The arguments of a tool, as an object or a list.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    /// The number of objects and lists around them.
    depth: u64,
    /// Whether nothing has come after their opening bracket.
    is_empty: bool,
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
        let is_begun = self.is_within_string() && self.arguments.is_none() && self.is_output();
        let begun = if is_begun { self.length } else { 0 };
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
        let is_within_string = self.is_within_string();
        // Within strings alone JSON has this letter. Elsewhere it is that of `data:`, which begins another document.
        if byte == b'd' && !is_within_string {
            self.end_document();
        }
        if !byte.is_ascii_whitespace() || (is_within_string && byte == b' ') {
            self.count_argument(byte);
        }
        match (self.place, byte) {
            // JSON has no line end within a string: the document was cut off.
            (Place::Inside | Place::Escaped, b'\n' | b'\r') => {
                self.place = Place::Outside;
                self.end_text();
                self.end_document();
                self.end_line();
            }
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
                self.is_value_next = true;
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

    /// Counts a byte of arguments; with the brackets around them, if anything is between.
    fn count_argument(&mut self, byte: u8) {
        let Some(arguments) = &mut self.arguments else { return };
        match (arguments.is_empty, byte) {
            (true, b'}' | b']') => {}
            (true, _) => {
                arguments.is_empty = false;
                self.line += 2;
            }
            (false, _) => self.line += 1,
        }
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.place = Place::Inside;
                self.string.clear();
                (self.length, self.uncounted) = (0, 0);
            }
            b'{' | b'[' => self.open(),
            b'}' | b']' => self.close(),
            b'\n' => self.end_line(),
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            self.is_value_next = false;
        }
    }

    /// Begins an object or a list.
    fn open(&mut self) {
        let are_arguments = self.is_value_next && ARGUMENTS.contains(&self.name.as_slice());
        if are_arguments && self.arguments.is_none() {
            self.arguments = Some(Arguments { depth: self.depth, is_empty: true });
        }
        self.depth = self.depth.saturating_add(1);
    }

    /// Ends an object or a list.
    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.arguments.is_some_and(|arguments| self.depth <= arguments.depth) {
            self.arguments = None;
        }
    }

    /// Ends the document, also one whose rest is missing. A document may have many lines.
    fn end_document(&mut self) {
        (self.depth, self.arguments) = (0, None);
    }

    fn end_line(&mut self) {
        if !self.repeats {
            self.before += self.line;
        }
        (self.line, self.repeats) = (0, false);
    }

    fn end_text(&mut self) {
        if self.arguments.is_some() {
            return; // Its bytes are counted.
        }
        if self.name == b"type" && self.depth == 1 {
            self.repeats |= self.string.ends_with(REPEATED) || NO_OUTPUT.contains(&self.string.as_slice());
        } else if self.is_output() {
            self.line += self.length;
        }
    }

    fn is_within_string(&self) -> bool {
        matches!(self.place, Place::Inside | Place::Escaped)
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
    fn arguments_that_are_an_object_are_counted_as_a_whole() {
        for arguments in [
            r#"{"city":"Paris"}"#,
            r#"{"days":[1,2.5e3,-3,true,null],"at":{"text":"a b","args":{"input":["c"]}}}"#,
            r#"{"code":"}]\"[{\\","type":"response.output_text.done","é":"\u00e9"}"#,
            r#"[{"content":"abc"},"def"]"#,
            r#"{"":{}}"#,
            "[0]",
        ] {
            for (before, after) in [
                (
                    r#"data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":"#,
                    r#"}}],"role":"model"}}]}"#,
                ),
                (
                    r#"{"output":{"message":{"content":[{"toolUse":{"input":"#,
                    r#","name":"f","toolUseId":"1"}}]}}}"#,
                ),
                (
                    r#"{"type":"message","content":[{"type":"tool_use","name":"f","input" : "#,
                    r#" }],"role":"assistant"}"#,
                ),
                (r#"data: {"type":"content_block_start","content_block":{"input":"#, "}}\n\n"),
            ] {
                let body = [before, arguments, after].concat();
                assert_eq!(counted(&body), arguments.len() as u64, "{body}");
            }
        }
        for (body, bytes) in [
            (r#"{"args":{"a":"b"},"text":"cc","input":[1]}"#, 9 + 2 + 3),
            (r#"{"args":{ "a" : "b c" ,"d":[ ] }}"#, 18),
            (r#"{"args":{"a":"cut of"#, 12),
            (r#"{"args":{"#, 0),
            (r#"{"args":{},"input":[ ],"x":{"args": { }}}"#, 0),
            // What follows empty ones is not theirs.
            (r#"{"parts":[{"args":{}},{"x":"y"},["z"],{}]}"#, 0),
            (r#"{"args":1,"x":{"y":"z"},"input":null,"list":[2]}"#, 0),
            (r#"{"x":"args","y":{"z":1}}"#, 0),
            (r#"["input",{"z":1}]"#, 0),
            (r#"{"input_schema":{"z":1},"arg":{"z":1},"inputs":[1]}"#, 0),
            // A text as before.
            (r#"{"input":"abc","args":"abc"}"#, 3),
        ] {
            assert_eq!(counted(body), bytes, "{body}");
        }
    }

    #[test]
    fn only_an_events_own_type_says_that_it_repeats_others() {
        for (body, bytes) in [
            (
                r#"data: {"candidates":[{"content":{"parts":[{"text":"Hi"},{"functionCall":{"args":{"type":"x.done"}}}]}}]}"#,
                2 + 17,
            ),
            (r#"data: {"delta":{"type":"x.done","text":"Hi"}}"#, 2),
            (r#"data: {"item":{"type":"response.created"},"text":"Hi"}"#, 2),
            (r#"[{"type":"x.done","text":"Hi"}]"#, 2),
            (r#"data: {"type":"x.done","text":"Hi"}"#, 0),
            (r#"data: {"type":"response.created","response":{"input":[{"content":"abc"}]}}"#, 0),
            (r#"data: {"response":{"input":[{"content":"abc"}]},"type":"response.created"}"#, 0),
            (r#"data: {"type":"response.output_item.done","item":{"type":"x","input":{"a":"b"}}}"#, 0),
        ] {
            assert_eq!(counted(body), bytes, "{body}");
        }
    }

    #[test]
    fn a_document_may_have_many_lines() {
        let arguments = r#"{"a b":[1,{"x":"y"}],"type":"x.done"}"#;
        let body = r#"{
  "type": "message",
  "content": [
    {
      "type": "tool_use",
      "input": {
        "a b": [
          1,
          {
            "x": "y"
          }
        ],

        "type": "x.done"
      }
    },
    {
      "type": "x.done",
      "text": "Hi"
    }
  ]
}
"#;
        for end in ["\n", "\r\n"] {
            assert_eq!(counted(&body.replace('\n', end)), arguments.len() as u64 + 2, "{end:?}");
        }
    }

    #[test]
    fn a_line_that_is_cut_off_ends_at_the_next_event() {
        let next = "data: {\"type\":\"response.output_text.done\",\"text\":\"Hello\"}\n\n\
                    data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n\
                    data: {\"parts\":[{\"functionCall\":{\"args\":{\"a\":1}}}]}\n\n";
        assert_eq!(counted(next), 2 + 7);
        for (cut_off, bytes) in [
            (r#"data: {"candidates":[{"functionCall":{"args":{"a":["#, 6),
            (r#"data: {"candidates":[{"functionCall":{"args":{"a":"b c"#, 9),
            (r#"data: {"choices":[{"delta":{"content":"abc"#, 3),
            (r#"data: {"choices":[{"delta":{"content":"abc\"#, 3),
            (r#"data: {"choices":[{"delta":{"content":"abc""#, 3),
            (r#"data: {"choices":[{"index""#, 0),
            (r#": comment "{["#, 0),
            ("data: [[[{{{", 0),
            ("data: ]]}}", 0),
        ] {
            for end in ["\n", "\n\n", "\r\n\r\n"] {
                let body = [cut_off, end, next].concat();
                assert_eq!(counted(&body), bytes + 2 + 7, "{body}");
            }
        }
    }

    #[test]
    fn a_long_text_takes_no_memory() {
        let mut text = StreamedText::default();
        text.feed(b"{\"text\":\"");
        (0..1_000).for_each(|_| text.feed(&[b'x'; 1_000]));
        assert_eq!((text.bytes(), text.string.len()), (1_000_000, MAX_NAME));
    }
}
