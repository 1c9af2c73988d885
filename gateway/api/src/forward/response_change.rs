//! What is done to a provider's response before its caller gets it: nothing, the removal of a usage chunk, a mask of the
//! managed key in an error, or the conversion into the caller's format. The response is metered before, as the provider sent it.

use bytes::{Bytes, BytesMut};
use farthing_formats::{Conversion, StreamConverter};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{HeaderName, StatusCode};
use http_body::Frame;

use super::conversion_memory::Extent;
use super::headers::{is_event_stream, is_plain_event_stream, without_digests};
use super::key_mask::KeyMask;
use super::usage::{ChunkFilter, is_uncompressed};
use crate::body_memory::{MemoryFull, MemoryShare, beside_others};

/// The longest response that is converted whole, in bytes.
const MAX_WHOLE_RESPONSE: usize = 32 * 1024 * 1024;

/// What a byte of a whole response is counted for if it becomes events: each small part becomes several.
const WORK_OF_EVENTS: usize = 16;

/// Headers of a provider about its own representation of the response.
const OF_THE_REPRESENTATION: [HeaderName; 4] = [
    HeaderName::from_static("etag"),
    HeaderName::from_static("last-modified"),
    HeaderName::from_static("accept-ranges"),
    HeaderName::from_static("content-language"),
];

/// What is to be done to the response of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponseRule {
    /// It passes unchanged.
    Unchanged,
    /// The usage chunk of a stream is removed: the gateway requested it, and the caller did not.
    WithoutUsageChunk,
    /// It is converted into the caller's format.
    Converted(Conversion, ResponseForm),
}

/// The form of the response that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseForm {
    Whole,
    Stream,
}

/// Why the caller gets no complete response although its provider sent one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotConverted {
    #[error(transparent)]
    Form(#[from] farthing_formats::ResponseError),
    #[error("the provider's response is compressed, although it was not asked to be")]
    Compressed,
    #[error("the provider's response is too long to be converted")]
    TooLong,
    #[error("the provider's response is a stream, although none was asked for")]
    UnaskedStream,
    #[error("the provider's stream ended without an event")]
    EmptyStream,
    #[error(transparent)]
    Memory(#[from] MemoryFull),
}

/// What is done to the response that comes.
pub(super) enum ResponseChange {
    /// It passes unchanged.
    None,
    /// The usage chunk is removed.
    WithoutUsageChunk(ChunkFilter),
    /// The managed provider key is masked: the response is an error.
    WithoutKey(KeyMask),
    /// Events are converted as they come.
    Events(Box<ConvertedEvents>),
    /// It is collected, and converted at its end.
    Whole(Box<Whole>),
    /// It cannot be converted. Nothing more passes; its end is an error.
    Failed(NotConverted),
    /// No caller is left to get it.
    Discarded,
}

/// A stream that is converted.
pub(super) struct ConvertedEvents {
    converter: StreamConverter,
    /// Whether the caller gets something already.
    has_passed: bool,
    /// The memory of what the converter keeps: a long event, and an answer that is repeated at its end.
    share: MemoryShare,
}

/// A response that is collected.
pub(super) struct Whole {
    conversion: Conversion,
    /// What the caller gets of a success, whatever the provider sends.
    form: ResponseForm,
    status: StatusCode,
    /// Masks the managed provider key in an error.
    mask: Option<KeyMask>,
    collected: Vec<u8>,
    /// That of what is collected.
    extent: Extent,
    share: MemoryShare,
}

impl ResponseChange {
    /// What is done to the response with this head, whose headers are fitted. An error has a `mask` of the managed provider
    /// key, if it is one on such a key.
    pub(super) fn of(
        rule: ResponseRule,
        mask: Option<KeyMask>,
        status: StatusCode,
        headers: &mut HeaderMap,
        share: impl FnOnce() -> MemoryShare,
    ) -> Self {
        if let Some(mask) = &mask {
            mask.mask_headers(headers);
        }
        match rule {
            ResponseRule::WithoutUsageChunk if status.is_success() && is_plain_event_stream(headers) => {
                headers.remove(CONTENT_LENGTH);
                Self::WithoutUsageChunk(ChunkFilter::new())
            }
            ResponseRule::Unchanged | ResponseRule::WithoutUsageChunk => {
                mask.map_or(Self::None, Self::WithoutKey)
            }
            ResponseRule::Converted(conversion, form) => {
                let is_stream = status.is_success() && is_event_stream(headers);
                let is_plain = is_uncompressed(headers);
                // A whole response becomes events at its end, if the caller asked for them.
                let passes_events = status.is_success() && form == ResponseForm::Stream;
                fit(headers, passes_events);
                if !is_plain && status.is_success() {
                    return Self::Failed(NotConverted::Compressed);
                }
                if is_stream && form == ResponseForm::Whole {
                    return Self::Failed(NotConverted::UnaskedStream);
                }
                let share = share();
                if is_stream {
                    let converter = conversion.stream();
                    return Self::Events(Box::new(ConvertedEvents { converter, has_passed: false, share }));
                }
                Self::Whole(Box::new(Whole {
                    conversion,
                    form,
                    status,
                    mask,
                    collected: Vec::new(),
                    extent: Extent::default(),
                    share,
                }))
            }
        }
    }

    /// Whether the bytes that pass are those that come.
    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether the head waits for the first bytes that pass, or for an error in their place. A response that is collected
    /// has none before its end, and a stream none before its first event.
    pub(super) const fn decides_head(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Events(_) | Self::Failed(_))
    }

    /// Whether events are converted as they come.
    pub(super) const fn is_in_events(&self) -> bool {
        matches!(self, Self::Events(_))
    }

    /// Whether something passes with the next piece, also with one of no bytes.
    pub(super) const fn is_ending(&self) -> bool {
        matches!(self, Self::Events(events) if events.converter.is_ending())
    }

    /// The bytes that are converted when `data` passes, which is not the last.
    pub(super) fn work_on(&self, data: &[u8]) -> usize {
        match self {
            Self::Events(events) => events.converter.work_on(data),
            Self::None
            | Self::WithoutUsageChunk(_)
            | Self::WithoutKey(_)
            | Self::Whole(_)
            | Self::Failed(_)
            | Self::Discarded => 0,
        }
    }

    /// The bytes that are converted at the end, of which `last` comes then.
    pub(super) fn work_at_end(&self, last: &[u8]) -> usize {
        match self {
            Self::Events(events) => events.converter.work_at_end(last),
            Self::Whole(whole) => whole.work_with(last.len()),
            Self::None
            | Self::WithoutUsageChunk(_)
            | Self::WithoutKey(_)
            | Self::Failed(_)
            | Self::Discarded => 0,
        }
    }

    /// How much there is to read in the bytes that are converted when `data` comes. There are `work` of them.
    pub(super) fn extent(&self, data: &[u8], work: usize) -> Extent {
        match self {
            Self::Whole(whole) => whole.extent.and(Extent::of(data)),
            Self::Events(events) => {
                let read = events.converter.read_with(data).min(work);
                Extent::at_most(read).and(Extent::of_texts(work - read))
            }
            Self::None
            | Self::WithoutUsageChunk(_)
            | Self::WithoutKey(_)
            | Self::Failed(_)
            | Self::Discarded => Extent::at_most(work),
        }
    }

    /// What passes of a frame that is not the last.
    pub(super) fn pass(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let changed = match self {
            Self::None => return Some(frame),
            Self::Failed(_) | Self::Discarded => return None,
            Self::WithoutUsageChunk(filter) => Ok(filter.pass(frame.data_ref()?)),
            Self::WithoutKey(mask) => Ok(mask.pass(frame.data_ref()?)),
            Self::Events(events) => events.pass(frame.data_ref()?),
            Self::Whole(whole) => whole.collect(frame.data_ref()?).map(|()| Bytes::new()),
        };
        match changed {
            Ok(bytes) => (!bytes.is_empty()).then(|| Frame::data(bytes)),
            Err(error) => {
                *self = Self::Failed(error);
                None
            }
        }
    }

    /// What passes at the end: the last frame, if one came, with all that was held back.
    pub(super) fn end(
        &mut self,
        mut last: Option<Frame<Bytes>>,
    ) -> Result<Option<Frame<Bytes>>, NotConverted> {
        let is_trailers = last.as_ref().is_some_and(Frame::is_trailers);
        if is_trailers && let Self::None | Self::WithoutUsageChunk(_) = self {
            return Ok(self.held_back().or(last));
        }
        if let Self::WithoutKey(mask) = self
            && let Some(trailers) = last.as_mut().and_then(Frame::trailers_mut)
        {
            mask.mask_headers(trailers);
            let held = mask.end();
            return Ok(if held.is_empty() { last } else { Some(Frame::data(held)) });
        }
        let passed = last.and_then(|last| self.pass(last));
        let mut passed = passed.and_then(|frame| frame.into_data().ok());
        let end = match std::mem::replace(self, Self::Discarded) {
            Self::None | Self::Discarded => Bytes::new(),
            Self::WithoutUsageChunk(mut filter) => filter.end(),
            Self::WithoutKey(mut mask) => mask.end(),
            Self::Events(events) => events.finish(passed.take().unwrap_or_default())?,
            Self::Whole(whole) => whole.convert()?,
            Self::Failed(error) => return Err(error),
        };
        let passed = match (passed, end) {
            (None, end) => end,
            (Some(passed), end) if end.is_empty() => passed,
            (Some(passed), end) => {
                let mut both = BytesMut::from(passed);
                both.extend_from_slice(&end);
                both.freeze()
            }
        };
        Ok((!passed.is_empty()).then(|| Frame::data(passed)))
    }

    /// The bytes that were held back, for a response that breaks off. What is converted is not completed, and a part of a
    /// key is not shown.
    pub(super) fn held_back(&mut self) -> Option<Frame<Bytes>> {
        let Self::WithoutUsageChunk(filter) = self else { return None };
        let held = filter.end();
        (!held.is_empty()).then(|| Frame::data(held))
    }

    /// The caller has left. Only a response that is recorded for a repetition of the call is still made: no stream.
    pub(super) fn leave(&mut self, is_recorded: bool) {
        let is_for_nobody = match self {
            Self::WithoutUsageChunk(_) | Self::Events(_) => true,
            Self::Whole(whole) => !is_recorded || whole.becomes_events(),
            Self::None | Self::WithoutKey(_) | Self::Failed(_) | Self::Discarded => false,
        };
        if is_for_nobody {
            *self = Self::Discarded;
        }
    }
}

impl ConvertedEvents {
    /// A long event is read at its end, and a long answer repeated at the end of the stream. Until then there is little to
    /// do, and a thread for each piece would cost more.
    fn pass(&mut self, data: &Bytes) -> Result<Bytes, NotConverted> {
        let Self { converter, has_passed, share } = self;
        let work = converter.work_on(data);
        share.grow_to(converter.kept_bytes() + data.len())?;
        let converted = beside_others(work, || converter.feed(data))?;
        *has_passed |= !converted.is_empty();
        Ok(share.keep(converted)?)
    }

    /// The rest, after the converted part that comes with it. A stream of which nothing passes is no answer.
    fn finish(self, before: Bytes) -> Result<Bytes, NotConverted> {
        let Self { converter, has_passed, share } = self;
        let rest = beside_others(converter.work_at_end(&[]), || converter.finish())?;
        if rest.is_empty() && !has_passed {
            return Err(NotConverted::EmptyStream);
        }
        if rest.is_empty() {
            return Ok(before);
        }
        Ok(share.keep([&before[..], &rest].concat())?)
    }
}

impl Whole {
    fn collect(&mut self, data: &[u8]) -> Result<(), NotConverted> {
        let length = self.collected.len() + data.len();
        if length > MAX_WHOLE_RESPONSE {
            return Err(NotConverted::TooLong);
        }
        self.share.grow_to(length)?;
        self.extent = self.extent.and(Extent::of(data));
        self.collected.extend_from_slice(data);
        Ok(())
    }

    fn becomes_events(&self) -> bool {
        self.form == ResponseForm::Stream && self.status.is_success()
    }

    /// The bytes that are converted together with `more`.
    fn work_with(&self, more: usize) -> usize {
        let bytes = self.collected.len() + more;
        if self.becomes_events() { bytes.saturating_mul(WORK_OF_EVENTS) } else { bytes }
    }

    fn convert(self) -> Result<Bytes, NotConverted> {
        let work = self.work_with(0);
        let Self { conversion, form, status, mask, mut collected, mut share, .. } = self;
        if let Some(mask) = mask {
            mask.mask(&mut collected);
        }
        let converted = beside_others(work, || match form {
            _ if !status.is_success() => Ok(conversion.error(status.as_u16(), &collected)),
            ResponseForm::Whole => conversion.response(&collected),
            ResponseForm::Stream => conversion.response_as_stream(&collected),
        })?;
        // It may be several times as long: a client of Responses gets each text five times.
        share.grow_to(converted.len())?;
        Ok(share.kept_by(converted))
    }
}

/// Fits the headers to a converted response.
fn fit(headers: &mut HeaderMap, is_stream: bool) {
    without_digests(headers);
    for name in [CONTENT_LENGTH, CONTENT_ENCODING].iter().chain(&OF_THE_REPRESENTATION) {
        headers.remove(name);
    }
    let media_type = if is_stream { "text/event-stream" } else { "application/json" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
}

#[cfg(test)]
mod tests {
    use farthing_formats::Format;

    use super::super::turns::tests::merchant;
    use super::*;
    use crate::body_memory::{BodyKind, BodyMemory};

    const FIRST: &str = "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hi\"}}]}\n\n";

    const LAST: &str = "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    /// A response of Chat Completions for a client of another format.
    fn response(
        memory: &BodyMemory,
        client: Format,
        media_type: &'static str,
        form: ResponseForm,
    ) -> ResponseChange {
        let conversion = Conversion::between(client, Format::OpenaiChat).unwrap();
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]);
        let share = || memory.share(merchant(1), BodyKind::Response);
        ResponseChange::of(
            ResponseRule::Converted(conversion, form),
            None,
            StatusCode::OK,
            &mut headers,
            share,
        )
    }

    fn stream(client: Format, form: ResponseForm) -> ResponseChange {
        response(&BodyMemory::default(), client, "text/event-stream", form)
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_stream_without_an_event_is_no_answer() {
        for client in [Format::Anthropic, Format::Google, Format::OpenaiResponses] {
            for sent in
                [&[][..], &[": a comment\n\n"], &["data: [DONE]\n\n"], &[": one\n", "\ndata: [DONE]\n\n"]]
            {
                let mut change = stream(client, ResponseForm::Stream);
                assert!(change.decides_head());
                for text in sent {
                    assert!(change.pass(data(text)).is_none(), "{client:?} {text}");
                }
                let end = change.end(None);
                assert!(matches!(end, Err(NotConverted::EmptyStream)), "{client:?} {sent:?}: {end:?}");
            }
        }
    }

    #[test]
    fn a_stream_with_an_event_may_end_early() {
        let mut change = stream(Format::Anthropic, ResponseForm::Stream);
        assert!(change.pass(data(FIRST)).is_some());
        assert!(change.end(None).unwrap().is_none());
        let mut change = stream(Format::Anthropic, ResponseForm::Stream);
        assert!(change.end(Some(data(FIRST))).unwrap().is_some());
    }

    #[test]
    fn a_stream_that_was_not_asked_for_is_not_converted() {
        let mut change = stream(Format::Anthropic, ResponseForm::Whole);
        assert!(change.decides_head());
        assert!(change.pass(data(FIRST)).is_none());
        assert!(matches!(change.end(None), Err(NotConverted::UnaskedStream)));
    }

    #[test]
    fn a_caller_who_asked_for_a_stream_gets_one_whatever_its_provider_sends() {
        let body = "{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
        for (status, media_type, part) in [
            (StatusCode::OK, "text/event-stream", "event: message_stop\n"),
            (StatusCode::BAD_REQUEST, "application/json", "{\"type\":\"error\""),
        ] {
            let conversion = Conversion::between(Format::Anthropic, Format::OpenaiChat).unwrap();
            let mut headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
            let share = || BodyMemory::default().share(merchant(1), BodyKind::Response);
            let rule = ResponseRule::Converted(conversion, ResponseForm::Stream);
            let mut change = ResponseChange::of(rule, None, status, &mut headers, share);
            assert_eq!(headers[CONTENT_TYPE], media_type);
            assert!(change.pass(data(&body[..20])).is_none());
            let end = change.end(Some(data(&body[20..]))).unwrap().unwrap().into_data().unwrap();
            assert!(std::str::from_utf8(&end).unwrap().contains(part), "{end:?}");
        }
    }

    #[test]
    fn trailers_of_a_converted_response_do_not_pass() {
        let whole = "{\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
        for form in [ResponseForm::Whole, ResponseForm::Stream] {
            let mut change = response(&BodyMemory::default(), Format::Anthropic, "application/json", form);
            assert!(change.pass(data(whole)).is_none());
            let end = change.end(Some(Frame::trailers(HeaderMap::new()))).unwrap();
            assert!(end.is_some_and(|end| end.is_data()), "{form:?}");
        }
        let mut change = stream(Format::Anthropic, ResponseForm::Stream);
        assert!(change.pass(data(FIRST)).is_some());
        let end = change.end(Some(Frame::trailers(HeaderMap::new()))).unwrap();
        assert!(end.is_none_or(|end| end.is_data()));
    }

    #[test]
    fn what_takes_long_is_known_before_it_is_done() {
        let memory = BodyMemory::default();
        let mut whole = response(&memory, Format::Anthropic, "application/json", ResponseForm::Whole);
        assert_eq!((whole.work_on(b"x\n"), whole.work_at_end(b"x")), (0, 1));
        assert!(whole.pass(data("0123456789")).is_none());
        assert_eq!((whole.work_on(b"x\n"), whole.work_at_end(b"x")), (0, 11));
        let mut whole = response(&memory, Format::Anthropic, "application/json", ResponseForm::Stream);
        assert!(whole.pass(data("0123456789")).is_none());
        assert_eq!((whole.work_on(b"x\n"), whole.work_at_end(b"x")), (0, 11 * WORK_OF_EVENTS));
        let mut events = stream(Format::Anthropic, ResponseForm::Stream);
        assert!(events.pass(data("data: 0123456789")).is_none());
        for (piece, work) in [(&b"x"[..], 1), (b"x\n\n", 19), (b"x\r\r", 19)] {
            assert_eq!((events.work_on(piece), events.work_at_end(piece)), (work, 16 + piece.len()));
        }
        let mut events = stream(Format::OpenaiResponses, ResponseForm::Stream);
        let text = FIRST.replace("Hi", &"x".repeat(300_000));
        assert!(events.pass(Frame::data(text.into())).is_some());
        assert_eq!(events.work_on(b"\n"), 1, "what is kept is not read again");
        let kept = events.work_at_end(b"");
        assert!(kept > 300_000, "it is repeated at the end");
        let read_and_repeated = Extent::at_most(1).and(Extent::of_texts(kept));
        assert_eq!(events.extent(b"x", kept + 1), read_and_repeated);
        assert_eq!(events.extent(b"\n", 1), Extent::at_most(1));
        for nothing in [ResponseChange::None, ResponseChange::Discarded] {
            assert_eq!((nothing.work_on(b"\n"), nothing.work_at_end(b"\n")), (0, 0));
        }
    }

    #[test]
    fn a_long_answer_is_repeated_apart_from_the_events_before_its_end() {
        let done = format!("{LAST}data: [DONE]\n\n");
        let completed = |frame: Option<Frame<Bytes>>| {
            let data = frame.and_then(|frame| frame.into_data().ok()).unwrap_or_default();
            std::str::from_utf8(&data).unwrap().contains("event: response.completed\n")
        };
        for (length, is_apart) in [(10, false), (300_000, true)] {
            let text = FIRST.replace("Hi", &"x".repeat(length));
            let events = || {
                let mut events = stream(Format::OpenaiResponses, ResponseForm::Stream);
                assert!(events.pass(Frame::data(text.clone().into())).is_some());
                events
            };
            let mut passed = events();
            assert_eq!(completed(passed.pass(Frame::data(done.clone().into()))), !is_apart, "{length}");
            assert_eq!(passed.is_ending(), is_apart);
            let work = passed.work_on(b"");
            assert_eq!(work > length, is_apart);
            assert_eq!(passed.work_at_end(b"x"), work, "what comes after the end is not read");
            assert_eq!(passed.extent(b"x", work), Extent::of_texts(work), "it is only written");
            assert_eq!(completed(passed.pass(data(""))), is_apart);
            assert_eq!((passed.work_on(b"x"), passed.work_at_end(b"x")), (0, 0), "nothing is written again");
            assert!(!passed.is_ending() && passed.end(None).unwrap().is_none());
            let mut ended = events();
            assert!(completed(ended.end(Some(Frame::data(done.clone().into()))).unwrap()), "{length}");
        }
    }

    #[test]
    fn a_converted_response_has_memory_for_all_that_it_became() {
        let text = "x".repeat(1024 * 1024);
        let body = format!(
            "{{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\
             \"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}]}}"
        );
        let events = format!("{}{LAST}data: [DONE]\n\n", FIRST.replace("Hi", &text));
        let memory = BodyMemory::default();
        let taken = || memory.bytes(BodyKind::Response);
        for (sent, media_type, form, times) in [
            (&body, "application/json", ResponseForm::Stream, 5.0),
            (&body, "application/json", ResponseForm::Whole, 1.0),
            (&events, "text/event-stream", ResponseForm::Stream, 5.0),
        ] {
            let mut change = response(&memory, Format::OpenaiResponses, media_type, form);
            let end = change.end(Some(Frame::data(sent.clone().into()))).unwrap().unwrap();
            drop(change);
            let length = f64::from(u32::try_from(end.data_ref().unwrap().len()).unwrap());
            assert!(length >= times * 1024.0 * 1024.0, "{length}");
            assert!(taken() >= length - 256.0 * 1024.0, "{} of {length}", taken());
            drop(end);
            assert!(taken() < 1.0, "{}", taken());
        }
    }

    #[test]
    fn a_response_of_a_caller_who_has_left_is_made_if_it_is_recorded_and_no_stream() {
        for (form, is_recorded, is_made) in [
            (ResponseForm::Whole, true, true),
            (ResponseForm::Whole, false, false),
            (ResponseForm::Stream, true, false),
            (ResponseForm::Stream, false, false),
        ] {
            let mut change = response(&BodyMemory::default(), Format::Anthropic, "application/json", form);
            change.leave(is_recorded);
            assert_eq!(matches!(change, ResponseChange::Whole(_)), is_made, "{form:?} {is_recorded}");
            if !is_made {
                assert!(change.pass(data("0123456789")).is_none());
                assert_eq!(change.work_at_end(b"x"), 0, "it takes no turn");
            }
        }
        let mut change = stream(Format::Anthropic, ResponseForm::Stream);
        change.leave(true);
        assert!(matches!(change, ResponseChange::Discarded));
        assert!(change.pass(data(FIRST)).is_none());
    }
}
