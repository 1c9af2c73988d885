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
mod tests;
