//! The event stream of Amazon (`application/vnd.amazon.eventstream`): binary messages with JSON in them. A message is its
//! length, the length of its headers, a checksum, the headers, the payload and a checksum. Nothing but the documents'
//! selected members is buffered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::document::{Document, Member, MemberSelection};

/// The bytes of the two lengths and their checksum.
const PRELUDE: usize = 12;

/// The bytes of a message besides its headers and its payload.
const FRAME: u32 = 16;

/// The longest message. Amazon's own are at most 16 MiB long.
const MAX_MESSAGE: u32 = 24 * 1024 * 1024;

/// The member in which a message carries a document of the model's, in base64.
const BYTES: MemberSelection =
    MemberSelection { members: &[("bytes", Member::Bytes)], inside: &[], in_list: false };

/// The part of a message that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// So many bytes of the prelude are there.
    Prelude(usize),
    /// So many bytes of the headers are missing, and the payload has so many.
    Headers(u32, u32),
    /// So many bytes of the payload are missing.
    Payload(u32),
    /// So many bytes of the checksum are missing.
    Checksum(u32),
    /// A message has impossible lengths. Nothing more is read.
    Broken,
}

/// The documents in the messages of a stream.
#[derive(Debug)]
pub(super) struct EventStream {
    part: Part,
    prelude: [u8; PRELUDE],
    /// The payload as a document of its own.
    document: Document,
    /// The payload as a wrapper of another document.
    wrapper: Document,
    wrapped: Document,
}

impl EventStream {
    pub(super) fn new(selection: MemberSelection) -> Self {
        Self {
            part: Part::Prelude(0),
            prelude: [0; PRELUDE],
            document: Document::new(selection),
            wrapper: Document::new(BYTES),
            wrapped: Document::new(selection),
        }
    }

    /// Whether a message has impossible lengths, so that nothing is known of what follows.
    pub(super) fn is_broken(&self) -> bool {
        self.part == Part::Broken
    }

    /// Whether a message has begun and not ended.
    pub(super) fn is_within_message(&self) -> bool {
        !matches!(self.part, Part::Prelude(0) | Part::Broken)
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Member, &str)) {
        while !bytes.is_empty() {
            let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let taken = match self.part {
                Part::Prelude(there) => {
                    let taken = bytes.len().min(PRELUDE - there);
                    self.prelude[there..there + taken].copy_from_slice(&bytes[..taken]);
                    self.part = Part::Prelude(there + taken);
                    if there + taken == PRELUDE {
                        self.begin();
                    }
                    taken
                }
                Part::Headers(missing, payload) => {
                    let taken = count.min(missing);
                    self.part = after_headers(missing - taken, payload);
                    taken as usize
                }
                Part::Payload(missing) => {
                    let taken = count.min(missing);
                    self.read(&bytes[..taken as usize], &mut tell);
                    self.part = after_payload(missing - taken);
                    taken as usize
                }
                Part::Checksum(missing) => {
                    let taken = count.min(missing);
                    self.part =
                        if taken == missing { Part::Prelude(0) } else { Part::Checksum(missing - taken) };
                    taken as usize
                }
                Part::Broken => return,
            };
            bytes = &bytes[taken..];
        }
    }

    /// Begins a message, whose prelude is there.
    fn begin(&mut self) {
        let length = |at: usize| {
            u32::from_be_bytes([
                self.prelude[at],
                self.prelude[at + 1],
                self.prelude[at + 2],
                self.prelude[at + 3],
            ])
        };
        let (total, headers) = (length(0), length(4));
        let payload = total.checked_sub(FRAME).and_then(|rest| rest.checked_sub(headers));
        self.part = match payload {
            Some(payload) if total <= MAX_MESSAGE => after_headers(headers, payload),
            Some(_) | None => Part::Broken,
        };
        self.document.reset();
        self.wrapper.reset();
    }

    fn read(&mut self, payload: &[u8], tell: &mut impl FnMut(Member, &str)) {
        self.document.feed(payload, &mut *tell);
        let wrapped = &mut self.wrapped;
        self.wrapper.feed(payload, |_, text| {
            let Ok(text) = serde_json::from_str::<String>(text) else { return };
            let Ok(bytes) = STANDARD.decode(text) else { return };
            wrapped.reset();
            wrapped.feed(&bytes, &mut *tell);
        });
    }
}

const fn after_headers(missing: u32, payload: u32) -> Part {
    if missing == 0 { after_payload(payload) } else { Part::Headers(missing, payload) }
}

const fn after_payload(missing: u32) -> Part {
    if missing == 0 { Part::Checksum(4) } else { Part::Payload(missing) }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const SELECTION: MemberSelection =
        MemberSelection { members: &[("usage", Member::Usage)], inside: &[], in_list: false };

    /// A message with headers of this many bytes.
    pub(in super::super) fn message(headers: usize, payload: &[u8]) -> Vec<u8> {
        let total = u32::try_from(FRAME as usize + headers + payload.len()).unwrap();
        let mut message = total.to_be_bytes().to_vec();
        message.extend(u32::try_from(headers).unwrap().to_be_bytes());
        message.extend([7; 4]);
        message.extend(vec![b'{'; headers]);
        message.extend_from_slice(payload);
        message.extend([9; 4]);
        message
    }

    fn told(stream: &[u8], chunk: usize) -> (Vec<String>, bool) {
        let mut events = EventStream::new(SELECTION);
        let mut told = Vec::new();
        for part in stream.chunks(chunk) {
            events.feed(part, |_, text| told.push(text.to_owned()));
        }
        (told, events.is_within_message())
    }

    #[test]
    fn documents_are_read_bare_and_wrapped_in_any_pieces() {
        let wrapped =
            format!(r#"{{"bytes":"{}","p":"abc"}}"#, STANDARD.encode(r#"{"a":[1],"usage":{"n":2}}"#));
        let stream = [
            message(30, br#"{"usage":{"n":1},"p":"abcdef"}"#),
            message(0, b""),
            message(5, wrapped.as_bytes()),
            message(5, br#"{"cut":"#),
            message(5, br#"{"usage":3}"#),
            message(5, br#"{"bytes":"no base64"}"#),
        ]
        .concat();
        for chunk in [1, 2, 3, 7, 1000] {
            let expected = ["{\"n\":1}", "{\"n\":2}", "3"].map(str::to_owned).to_vec();
            assert_eq!(told(&stream, chunk), (expected, false), "{chunk}");
        }
        assert!(told(&stream[..stream.len() - 1], 10).1, "the last message is cut off");
    }

    #[test]
    fn a_message_of_impossible_lengths_ends_the_reading() {
        for (total, headers) in [(15_u32, 0_u32), (16, 1), (u32::MAX, 0), (0, 0)] {
            let mut stream = total.to_be_bytes().to_vec();
            stream.extend(headers.to_be_bytes());
            stream.extend([0; 4]);
            stream.extend(message(0, br#"{"usage":1}"#));
            assert_eq!(told(&stream, 5), (Vec::new(), false), "{total} {headers}");
            let mut events = EventStream::new(SELECTION);
            events.feed(&stream, |_, _| ());
            assert!(events.is_broken(), "{total} {headers}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_the_same_in_any_pieces(
            noise in prop::collection::vec(any::<u8>(), 0..60), chunk in 1_usize..40, number in 0_u32..1000,
        ) {
            let begun = message(noise.len() % 7, format!(r#"{{"usage":{number}}}"#).as_bytes());
            let stream = [begun, noise].concat();
            let whole = told(&stream, usize::MAX);
            prop_assert_eq!(whole.0.first(), Some(&number.to_string()));
            prop_assert_eq!(told(&stream, chunk), whole);
        }
    }
}
