//! Tests of what is done to a response, its conversion above all.

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
    ResponseChange::of(ResponseRule::Converted(conversion, form), None, StatusCode::OK, &mut headers, share)
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
        for sent in [&[][..], &[": a comment\n\n"], &["data: [DONE]\n\n"], &[": one\n", "\ndata: [DONE]\n\n"]]
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
