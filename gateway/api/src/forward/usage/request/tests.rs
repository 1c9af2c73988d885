//! Tests of what is read in a request body, and of how it is changed.

use proptest::prelude::*;

use super::super::members::tests::NAMES_READ;
use super::*;

#[test]
fn a_model_is_named_anew_and_every_other_byte_stays() {
    for (body, expected) in [
        (r#"{ "model" : "openai/a" ,"x":[1.50, "model"]}"#, r#"{ "model" : "b\"c" ,"x":[1.50, "model"]}"#),
        (r#"{"x":{"model":"y"},"model":"a"}"#, r#"{"x":{"model":"y"},"model":"b\"c"}"#),
    ] {
        let named = naming_model(body.as_bytes(), "b\"c").unwrap();
        assert_eq!(String::from_utf8(named).unwrap(), expected);
    }
    assert_eq!(naming_model(b"{}", "a"), None);
    let body = br#"{"a" : {"x":1.50},"x":[2],"b\"":3}"#;
    let kept = without_member(body, "x").map(|body| String::from_utf8(body).unwrap());
    assert_eq!(kept.as_deref(), Some(r#"{"a":{"x":1.50},"b\"":3}"#));
    assert_eq!(without_member(b"{}", "x").as_deref(), Some(&b"{}"[..]));
    assert_eq!(naming_model(b"[]", "a"), None);
}

#[test]
fn a_model_in_another_case_is_ambiguous_and_repeated_only_beside_another() {
    for (body, ambiguous, repeats_model) in [
        (r#"{"model":"a"}"#, None, false),
        (r#"{"Model":"a"}"#, Some("model"), false),
        (r#"{"model":"a","Model":"b"}"#, Some("model"), true),
        (r#"{"model":"a","model":"a"}"#, Some("model"), true),
        (r#"{"stream":true,"stream":false}"#, Some("stream"), false),
    ] {
        let options = read_request(body.as_bytes());
        assert_eq!((options.ambiguous, options.repeats_model), (ambiguous, repeats_model), "{body}");
    }
}

#[test]
fn the_limits_of_every_dialect_are_read() {
    for (body, limit) in [
        (r#"{"model":"m","max_tokens":5}"#, Some(5)),
        (r#"{"model":"m","max_tokens":5,"max_completion_tokens":9}"#, Some(9)),
        (r#"{"model":"m","max_output_tokens":7}"#, Some(7)),
        (r#"{"model":"m","generationConfig":{"maxOutputTokens":8}}"#, Some(8)),
        (r#"{"model":"m","generation_config":{"max_output_tokens":8,"candidate_count":2}}"#, Some(16)),
        (
            r#"{"model":"m","generationConfig":{"maxOutputTokens":8},"generation_config":{"max_output_tokens":9}}"#,
            Some(9),
        ),
        (r#"{"model":"m","generationConfig":{"maxOutputTokens":8},"max_tokens":9}"#, Some(9)),
        (r#"{"model":"m","messages":[{"max_tokens":3}]}"#, None),
        (r#"{"model":"m","max_tokens":5,"n":3}"#, Some(15)),
        (r#"{"model":"m","max_tokens":5,"n":3,"prompt":"x"}"#, Some(15)),
        (r#"{"model":"m","max_tokens":5,"n":3,"prompt":["x","y"]}"#, Some(30)),
        (r#"{"model":"m","max_tokens":5,"prompt":[[1,2],[3]]}"#, Some(10)),
        (r#"{"model":"m","max_tokens":5,"prompt":[1,2,3]}"#, Some(5)),
        (r#"{"model":"m","max_tokens":5,"requests":[{},{},{}]}"#, Some(15)),
        (r#"{"model":"m","max_output_tokens":5,"input":[{},{},{}]}"#, Some(5)),
        (r#"{"model":"m","max_tokens":0}"#, None),
        (r#"{"model":"m","max_tokens":-1}"#, None),
        (r#"{"model":"m","max_tokens":"5"}"#, None),
    ] {
        let asked = read_request(body.as_bytes());
        assert_eq!(asked.model.as_deref(), Some("m"), "{body}");
        let told = asked.max_output_tokens(LimitMember::ALL);
        assert_eq!((told, asked.ambiguous), (limit, None), "{body}");
    }
    for body in
        [r#"{"model":"m","model":"n"}"#, r#"{"MODEL":"m","model":"n"}"#, r#"{"mod\u0065l":"m","model":"m"}"#]
    {
        assert_eq!(read_request(body.as_bytes()).ambiguous, Some("model"), "{body}");
    }
    for (body, name) in [
        (r#"{"model":"m","stream":true,"stream":false}"#, "stream"),
        (r#"{"stream":true,"Stream":false,"model":"m"}"#, "stream"),
        (r#"{"model":"m","stream_options":{},"stream_options":null}"#, "stream_options"),
        (r#"{"Model":"m"}"#, "model"),
        (r#"{"model":"m","STREAM":true}"#, "stream"),
        (r#"{"stream_options":{"include_usage":false,"include_usage":true}}"#, "stream_options"),
        (r#"{"stream_options":{"include_usage":true,"include\u005fusage":false}}"#, "stream_options"),
        (r#"{"stream_options":{"include_usage":true,"Include_Usage":false}}"#, "stream_options"),
        (r#"{"stream_options":{"Include_Usage":true}}"#, "stream_options"),
        (r#"{"background":true,"background":false}"#, "background"),
        (r#"{"max_tokens":1000000,"max_tokens":1}"#, "max_tokens"),
        (r#"{"max_tokens":1,"max\u005ftokens":70}"#, "max_tokens"),
        (r#"{"n":100,"n":1}"#, "n"),
        (r#"{"generationConfig":{},"generationConfig":{}}"#, "generationConfig"),
        (r#"{"generationConfig":{"maxOutputTokens":9000,"maxOutputTokens":1}}"#, "generationConfig"),
        (r#"{"inferenceConfig":{"maxTokens":9000,"maxtokens":1}}"#, "inferenceConfig"),
        (r#"{"InferenceConfig":{"maxTokens":9000}}"#, "inferenceConfig"),
    ] {
        assert_eq!(read_request(body.as_bytes()).ambiguous, Some(name), "{body}");
    }
    assert_eq!(read_request(br#"{"model":"models/gemini"}"#).model.as_deref(), Some("gemini"));
    assert_eq!(read_request(b"not json"), RequestedOptions::default());
    let told = read_request(br#"{"stream":true,"stream_options":{"include_usage":true}}"#);
    assert_eq!((told.stream, told.is_background), (RequestedStream::WithUsage, false));
    let hidden = read_request(br#"{"stream":true,"stream_options":{"include_usage":false}}"#);
    assert_eq!(hidden.stream, RequestedStream::WithoutUsage);
    let unused = read_request(br#"{"stream":false,"stream_options":{"include_usage":true}}"#);
    assert_eq!(unused.stream, RequestedStream::None);
    for (stream, expected) in [
        ("true", RequestedStream::WithoutUsage),
        ("false", RequestedStream::None),
        ("null", RequestedStream::None),
        ("1", RequestedStream::WithoutUsage),
        ("\"x\"", RequestedStream::WithoutUsage),
    ] {
        let body = format!(r#"{{"stream":{stream}}}"#);
        assert_eq!(read_request(body.as_bytes()).stream, expected, "{body}");
    }
    for (background, is) in
        [("true", true), ("1", true), ("\"yes\"", true), ("false", false), ("null", false)]
    {
        let body = format!(r#"{{"background":{background}}}"#);
        assert_eq!(read_request(body.as_bytes()).is_background, is, "{body}");
    }
}

/// The names that are read of a body with so many members of its own, and as many in its options.
fn names_read(members: usize) -> (usize, RequestedOptions) {
    let many = vec![r#""x":0"#; members].join(",");
    let body = format!(r#"{{"model":"m","generationConfig":{{{many}}},{many}}}"#);
    let before = NAMES_READ.get();
    let options = read_request(body.as_bytes());
    (NAMES_READ.get() - before, options)
}

#[test]
fn each_member_is_read_once_however_many_there_are() {
    for members in [1, 100, MAX_MEMBERS - 2] {
        let (read, options) = names_read(members);
        assert_eq!(read, 2 + 2 * members);
        assert_eq!((options.model.as_deref(), options.has_too_many_members), (Some("m"), false));
    }
}

#[test]
fn a_body_with_an_object_of_too_many_members_is_not_read() {
    let unread = RequestedOptions { has_too_many_members: true, ..RequestedOptions::default() };
    let (read, options) = names_read(52_000);
    assert_eq!((read, &options), (MAX_MEMBERS + 1, &unread));
    assert_eq!(names_read(MAX_MEMBERS - 1).1, unread);
    let many = vec![r#""maxOutputTokens":9"#; MAX_MEMBERS + 1].join(",");
    for name in ["generationConfig", "generation_config", "inferenceConfig", "stream_options"] {
        let body = format!(r#"{{"model":"m","max_tokens":5,"{name}":{{{many}}}}}"#);
        assert_eq!(read_request(body.as_bytes()), unread, "{name}");
    }
    let body = format!(r#"{{"model":"m","max_tokens":5,"other":{{{many}}}}}"#);
    assert_eq!(read_request(body.as_bytes()).model.as_deref(), Some("m"));
    let body = format!(r#"{{"model":"m","stream_options":{{}},{many}}}"#);
    assert_eq!(requesting_usage(body.as_bytes()), None);
    assert_eq!(naming_model(body.as_bytes(), "n"), None);
    assert_eq!(without_member(body.as_bytes(), "x"), None);
}

#[test]
fn the_characters_of_a_text_to_be_spoken_are_counted_and_those_of_a_list_are_not() {
    for (body, characters) in [
        (r#"{"input":"caf\u00e9 \ud83d\ude00"}"#, Some(6)),
        (r#"{"input":""}"#, Some(0)),
        (r#"{"input":["x"]}"#, None),
        (r#"{"input":null}"#, None),
        ("{}", None),
    ] {
        let mut options = read_request(body.as_bytes());
        assert_eq!(options.input_characters, None, "they are not counted yet: {body}");
        options.read_input_characters(body.as_bytes());
        assert_eq!(options.input_characters, characters, "{body}");
    }
    assert_eq!(read_request(br#"{"input":"x","input":"longer"}"#).ambiguous, Some("input"));
}

#[test]
fn the_characters_of_a_body_that_is_not_read_are_not_counted() {
    let many = vec![r#""x":0"#; MAX_MEMBERS + 1].join(",");
    for body in [
        format!(r#"{{"input":"x",{many}}}"#),
        format!(r#"{{"input":"x","generationConfig":{{{many}}}}}"#),
        format!(r#"{{"input":"x","stream_options":{{{many}}}}}"#),
        r#"{"input":"x""#.to_owned(),
        r#"["input"]"#.to_owned(),
        r#"{"INPUT":"x"}"#.to_owned(),
    ] {
        let mut options = read_request(body.as_bytes());
        let before = options.clone();
        options.read_input_characters(body.as_bytes());
        assert_eq!(options, before);
    }
}

#[test]
fn every_member_that_is_read_is_among_the_known_ones() {
    assert_eq!(BOUNDS[..], [&LimitMember::NAMES[..], &COUNTS].concat());
    assert_eq!(KNOWN[..], [&DECISIVE[..], &BOUNDS, &INPUTS].concat());
}

proptest! {
    #[test]
    fn what_is_given_for_a_name_is_what_its_members_say(
        drawn in proptest::collection::vec((0..KNOWN.len(), 0..4_u8, 0..100_u8), 0..30),
    ) {
        let member = |(name, spelling, value): &(usize, u8, u8)| {
            let name = KNOWN[*name];
            let (first, rest) = name.split_at(1);
            match spelling {
                0 => format!("\"{}\":{value}", name.to_ascii_uppercase()),
                1 => format!("\"\\u{:04x}{rest}\":{value}", first.as_bytes()[0]),
                _ => format!("\"{name}\":{value}"),
            }
        };
        let json = format!("{{{}}}", drawn.iter().map(member).collect::<Vec<_>>().join(","));
        let members = read_members(&json, &KNOWN).unwrap().known;
        prop_assert_eq!(members.len(), drawn.len());
        let given = Given::of(&members);
        for name in KNOWN {
            let named: Vec<_> = members.iter().filter(|member| member.name == name).collect();
            let exact = named.iter().rfind(|member| member.is_exact).map(|member| member.value.get());
            prop_assert_eq!(given.find(name).map_or(0, |given| given.times), named.len());
            prop_assert_eq!(given.value(name).map(RawValue::get), exact);
            let is_ambiguous = named.len() > 1 || (named.len() == 1 && exact.is_none());
            prop_assert_eq!(given.is_ambiguous(name), is_ambiguous);
        }
        prop_assert_eq!(given.has_ambiguous(), KNOWN.iter().any(|name| given.is_ambiguous(name)));
    }

    #[test]
    fn the_characters_of_any_text_are_counted(text in "\\PC{0,40}", model in "\\PC{0,9}") {
        let body = serde_json::json!({"model": model, "input": text, "voice": "a"}).to_string();
        let mut options = read_request(body.as_bytes());
        options.read_input_characters(body.as_bytes());
        prop_assert_eq!(options.input_characters, Some(text.chars().count() as u64));
    }
}

#[test]
fn a_number_of_answers_that_is_no_whole_number_leaves_the_output_unlimited() {
    for (body, name) in [
        (r#"{"max_tokens":5,"n":"3"}"#, "n"),
        (r#"{"max_tokens":5,"n":3.0}"#, "n"),
        (r#"{"max_tokens":5,"n":1e2}"#, "n"),
        (r#"{"max_tokens":5,"n":-1}"#, "n"),
        (r#"{"max_tokens":5,"n":2,"best_of":[]}"#, "best_of"),
        (r#"{"max_tokens":5,"generationConfig":{"candidateCount":"3"}}"#, "candidateCount"),
    ] {
        let options = read_request(body.as_bytes());
        assert_eq!(options.unread_count, Some(name), "{body}");
        assert_eq!(options.max_output_tokens(LimitMember::ALL), None, "{body}");
        assert_eq!((options.limited_answers, options.answers), (None, u64::MAX), "{body}");
    }
    for body in [r#"{"n":null,"max_tokens":5}"#, r#"{"n":0,"max_tokens":5}"#, r#"{"max_tokens":5}"#] {
        let options = read_request(body.as_bytes());
        assert_eq!((options.unread_count, options.limited_answers), (None, Some(1)), "{body}");
        assert_eq!(options.max_output_tokens(LimitMember::ALL), Some(5), "{body}");
    }
}

#[test]
fn answers_are_counted_for_each_input() {
    for (body, answers) in [
        (r#"{"model":"m"}"#, 1),
        (r#"{"model":"m","n":3,"best_of":5}"#, 5),
        (r#"{"model":"m","input":"x"}"#, 1),
        (r#"{"model":"m","input":["x",[1,2],"z"],"n":2}"#, 6),
        (r#"{"model":"m","prompt":[]}"#, 1),
        // What Cohere embeds.
        (r#"{"model":"m","texts":["a","b","c"]}"#, 3),
        (r#"{"model":"m","images":["data:,a","data:,b"]}"#, 2),
        (r#"{"model":"m","inputs":[{"content":[]},{"content":[]}]}"#, 2),
        (r#"{"model":"m","prompt":["a","b"],"generationConfig":{"candidateCount":2}}"#, 4),
        (r#"{"model":"m","n":18446744073709551615,"input":["x","y"]}"#, u64::MAX),
    ] {
        assert_eq!(read_request(body.as_bytes()).answers, answers, "{body}");
    }
}

#[test]
fn a_body_that_asks_for_usage_is_otherwise_as_it_came() {
    for (body, asking) in [
        ("{}", r#"{"stream_options":{"include_usage":true}}"#),
        (
            " { \"model\" : \"m\", \"x\":[1,{}] }\n",
            " {\"stream_options\":{\"include_usage\":true}, \"model\" : \"m\", \"x\":[1,{}] }\n",
        ),
        (r#"{"stream_options": null ,"a":1}"#, r#"{"stream_options": {"include_usage":true} ,"a":1}"#),
        (r#"{"a":1, "stream_options":{}}"#, r#"{"a":1, "stream_options":{"include_usage":true}}"#),
        (
            r#"{"stream_options":{"include_usage":false,"o\"k":[1, 2],"include_usage":null},"a":1}"#,
            r#"{"stream_options":{"include_usage":true,"o\"k":[1, 2]},"a":1}"#,
        ),
    ] {
        let asked = requesting_usage(body.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(asked.clone()).unwrap(), asking);
        let read = serde_json::from_slice::<serde_json::Value>(&asked).unwrap();
        assert_eq!(read["stream_options"]["include_usage"], true);
    }
    for body in
        [r#"{"stream_options":7}"#, r#"{"stream_options":"x"}"#, r#"{"stream_options":[]}"#, "[]", "x"]
    {
        assert_eq!(requesting_usage(body.as_bytes()), None, "{body}");
    }
}
