//! Tests of how reports of usage are read.

use super::*;

fn reported(shape: Shape, reports: &[&str]) -> ReportedUsage {
    let mut counts = TokenCounts::default();
    for text in reports {
        let google = shape == Shape::Google && text.contains("Count");
        counts.report(shape, if google { Member::UsageMetadata } else { Member::Usage }, text);
    }
    counts.reported(shape)
}

fn tokens(input: u64, output: u64) -> ReportedUsage {
    ReportedUsage::Usage(Usage { tokens: Split { input, output }, ..Usage::default() })
}

#[test]
fn the_standard_object_is_read() {
    let standard = |text| reported(Shape::Standard, &[text]);
    assert_eq!(standard(r#"{"tokens":7}"#), tokens(7, 0));
    assert_eq!(standard(r#"{"tokens":9,"input_tokens":3,"output_tokens":4}"#), tokens(3, 4));
    assert_eq!(standard(r#"{"output_tokens":1e3}"#), tokens(0, 1000));
    assert_eq!(standard(r#"{"input_tokens":5.0,"output_tokens":null}"#), tokens(5, 0));
    assert_eq!(standard(r#"{"prompt_tokens":5}"#), tokens(0, 0));
    assert_eq!(standard("null"), ReportedUsage::Nothing);
    let ReportedUsage::Usage(usage) = standard(r#"{"characters":12,"duration_seconds":1.25}"#) else {
        panic!("usage is reported")
    };
    assert_eq!(usage.characters.input, 12);
    assert_eq!(usage.seconds.input.to_string(), "1.25");
}

#[test]
fn the_openai_object_is_read_and_the_last_report_wins() {
    let chunks = [
        "null",
        r#"{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}"#,
        r#"{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}"#,
    ];
    assert_eq!(reported(Shape::OpenAi, &chunks), tokens(10, 20));
    assert_eq!(reported(Shape::OpenAi, &[r#"{"input_tokens":4,"output_tokens":5}"#]), tokens(4, 5));
    assert_eq!(reported(Shape::OpenAi, &[r#"{"total_tokens":8}"#]), tokens(8, 0));
}

fn cached(input: u64, output: u64, read: u64, write: u64, reasoning_tokens: u64) -> ReportedUsage {
    let (tokens, cached) = (Split { input, output }, Cached { read, write });
    ReportedUsage::Usage(Usage { tokens, cached, reasoning_tokens, ..Usage::default() })
}

#[test]
fn cached_tokens_are_among_the_input_whichever_way_they_are_counted() {
    let openai = |text| reported(Shape::OpenAi, &[text]);
    assert_eq!(
        openai(
            r#"{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920},
            "completion_tokens_details":{"reasoning_tokens":128}}"#
        ),
        cached(2006, 300, 1920, 0, 128)
    );
    assert_eq!(
        openai(
            r#"{"input_tokens":75,"input_tokens_details":{"cached_tokens":5},"output_tokens":1186,
            "output_tokens_details":{"reasoning_tokens":1024},"total_tokens":1261}"#
        ),
        cached(75, 1186, 5, 0, 1024)
    );
    assert_eq!(
        openai(
            r#"{"input_tokens":75,"input_tokens_details":{"cached_tokens":5,"cache_write_tokens":60},"output_tokens":186,
            "output_tokens_details":{"reasoning_tokens":24},"total_tokens":261}"#
        ),
        cached(75, 186, 5, 60, 24)
    );
    assert_eq!(
        openai(
            r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3}"#
        ),
        cached(9, 1, 6, 0, 0)
    );
    assert_eq!(
        openai(r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":null}"#),
        tokens(9, 1)
    );
    let anthropic = |reports: &[&str]| reported(Shape::Anthropic, reports);
    assert_eq!(
        anthropic(&[
            r#"{"input_tokens":3,"cache_creation_input_tokens":12304,"cache_read_input_tokens":0,"output_tokens":550}"#
        ]),
        cached(12_307, 550, 0, 12_304, 0)
    );
    assert_eq!(
        anthropic(&[
            r#"{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":12304,"output_tokens":2}"#,
            r#"{"output_tokens":550}"#,
        ]),
        cached(12_307, 550, 12_304, 0, 0)
    );
    let google = |text| reported(Shape::Google, &[text]);
    assert_eq!(
        google(
            r#"{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":20,"thoughtsTokenCount":7,
            "toolUsePromptTokenCount":5,"totalTokenCount":132}"#
        ),
        cached(105, 27, 40, 0, 7)
    );
    assert_eq!(google(r#"{"promptTokenCount":8,"totalTokenCount":8}"#), tokens(8, 0));
    assert_eq!(google(r#"{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}"#), tokens(8, 2));
    let more_cached = r#"{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":6}}"#;
    assert_eq!(openai(more_cached), ReportedUsage::Inconsistent);
    for text in [
        r#"{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}"#,
        r#"{"prompt_tokens":5,"completion_tokens_details":{"reasoning_tokens":0.5}}"#,
    ] {
        assert_eq!(openai(text), ReportedUsage::Invalid, "{text}");
    }
}

#[test]
fn what_anthropic_used_to_shorten_a_conversation_is_beside_its_own_counts() {
    let anthropic = |reports: &[&str]| reported(Shape::Anthropic, reports);
    let message = r#"{"type":"message","input_tokens":23000,"output_tokens":1000}"#;
    let shortened = |iterations: &str| {
        format!(r#"{{"input_tokens":23000,"output_tokens":1000,"iterations":[{iterations}]}}"#)
    };
    let once = r#"{"type":"compaction","input_tokens":180000,"output_tokens":3500}"#;
    assert_eq!(anthropic(&[&shortened(&format!("{once},{message}"))]), tokens(203_000, 4500));
    assert_eq!(anthropic(&[&shortened(&format!("{once},{message},{once}"))]), tokens(383_000, 8000));
    let cached_part = r#"{"type":"compaction","input_tokens":10,"cache_read_input_tokens":170000,"cache_creation_input_tokens":300,"output_tokens":3500}"#;
    assert_eq!(
        anthropic(&[&shortened(&format!("{cached_part},{message}"))]),
        cached(193_310, 4500, 170_000, 300, 0)
    );
    // A stream tells of it with its last counts; a call that only shortens has no others.
    let begun = r#"{"input_tokens":23000,"output_tokens":1}"#;
    let ended = format!(r#"{{"output_tokens":1000,"iterations":[{once},{message}]}}"#);
    assert_eq!(anthropic(&[begun, &ended]), tokens(203_000, 4500));
    assert_eq!(anthropic(&[begun, &ended, &ended]), tokens(203_000, 4500));
    let alone = format!(r#"{{"input_tokens":0,"output_tokens":0,"iterations":[{once}]}}"#);
    assert_eq!(anthropic(&[&alone]), tokens(180_000, 3500));
    // Other models have other prices.
    let advised = r#"{"type":"advisor_message","model":"other","input_tokens":900,"output_tokens":90}"#;
    for other in [message, advised, "7", r#"{"input_tokens":9}"#] {
        assert_eq!(anthropic(&[&shortened(other)]), tokens(23_000, 1000), "{other}");
    }
    for other in ["null", "[]", "7"] {
        let text = format!(r#"{{"input_tokens":5,"output_tokens":6,"iterations":{other}}}"#);
        assert_eq!(anthropic(&[&text]), tokens(5, 6), "{other}");
    }
    let most = r#"{"type":"compaction","input_tokens":1000000000000}"#;
    // Also beside the counts of the answer.
    for invalid in [r#"{"type":"compaction","input_tokens":-1}"#, &format!("{most},{most}"), most] {
        assert_eq!(anthropic(&[&shortened(invalid)]), ReportedUsage::Invalid, "{invalid}");
    }
}

#[test]
fn the_usage_of_a_choice_counts_only_where_none_of_the_whole_answer_was_reported() {
    let (part, whole) = (
        r#"{"prompt_tokens":5,"completion_tokens":2,"cached_tokens":1}"#,
        r#"{"prompt_tokens":5,"completion_tokens":9}"#,
    );
    let mut counts = TokenCounts::default();
    assert!(!counts.report(Shape::OpenAi, Member::ItemUsage, "null"));
    assert!(counts.report(Shape::OpenAi, Member::ItemUsage, part));
    assert_eq!(counts.reported(Shape::OpenAi), cached(5, 2, 1, 0, 0));
    assert!(counts.report(Shape::OpenAi, Member::Usage, whole));
    assert_eq!(counts.reported(Shape::OpenAi), tokens(5, 9), "nothing of the part is left");
    let mut counts = TokenCounts::default();
    assert!(counts.report(Shape::OpenAi, Member::Usage, whole));
    assert!(!counts.report(Shape::OpenAi, Member::ItemUsage, part), "it is a part of the whole");
    assert_eq!(counts.reported(Shape::OpenAi), tokens(5, 9));
}

#[test]
fn reasoning_beside_the_completion_is_output_where_the_total_says_so() {
    let openai = |text| reported(Shape::OpenAi, &[text]);
    let details = r#""completion_tokens_details":{"reasoning_tokens":91}"#;
    let beside = format!(r#"{{"prompt_tokens":41,"completion_tokens":87,"total_tokens":219,{details}}}"#);
    assert_eq!(openai(&beside), cached(41, 178, 0, 0, 91));
    let within = format!(r#"{{"prompt_tokens":41,"completion_tokens":178,"total_tokens":219,{details}}}"#);
    assert_eq!(openai(&within), cached(41, 178, 0, 0, 91));
}

#[test]
fn googles_total_has_the_thinking_that_its_openai_compatible_path_reports_nowhere_else() {
    let google = |reports: &[&str]| reported(Shape::Google, reports);
    let thought = r#"{"completion_tokens":1,"prompt_tokens":9,"total_tokens":103}"#;
    assert_eq!(google(&[thought]), tokens(9, 94));
    let chunks = [r#"{"completion_tokens":0,"prompt_tokens":9,"total_tokens":60}"#, thought];
    assert_eq!(google(&chunks), tokens(9, 94));
    assert_eq!(google(&[r#"{"completion_tokens":1,"prompt_tokens":9}"#]), tokens(9, 1));
    assert_eq!(google(&[r#"{"completion_tokens":7,"prompt_tokens":9,"total_tokens":10}"#]), tokens(9, 7));
    assert_eq!(google(&[r#"{"completion_tokens":7,"total_tokens":10}"#]), tokens(0, 7));
    assert_eq!(google(&[r#"{"prompt_tokens":8,"total_tokens":8}"#]), tokens(8, 0));
    // Tokens of reasoning that are reported count once, whether they are among the completion or not.
    for completion in [1, 94] {
        let details = format!(
            r#"{{"completion_tokens":{completion},"prompt_tokens":9,"total_tokens":103,"prompt_tokens_details":{{"cached_tokens":4}},
            "completion_tokens_details":{{"reasoning_tokens":93}}}}"#
        );
        assert_eq!(google(&[&details]), cached(9, 94, 4, 0, 93));
    }
    // In its own format each count stands by itself, and the total of another provider may have any reason.
    let own =
        r#"{"promptTokenCount":9,"candidatesTokenCount":1,"thoughtsTokenCount":93,"totalTokenCount":200}"#;
    assert_eq!(google(&[own]), cached(9, 94, 0, 0, 93));
    assert_eq!(reported(Shape::OpenAi, &[thought]), tokens(9, 1));
    let absurd = r#"{"completion_tokens":1,"prompt_tokens":9,"total_tokens":-1}"#;
    assert_eq!(google(&[absurd]), ReportedUsage::Invalid);
}

#[test]
fn cached_tokens_beside_the_details_count_once() {
    let openai = |text: &str| reported(Shape::OpenAi, &[text]);
    let counts = r#""prompt_tokens":19,"completion_tokens":21,"total_tokens":40"#;
    let details = r#""prompt_tokens_details":{"cached_tokens":10}"#;
    for rest in [
        // Moonshot's, without and with details.
        r#""cached_tokens":10"#.to_owned(),
        r#""cached_tokens":10,"prompt_tokens_details":null"#.to_owned(),
        format!(r#""cached_tokens":10,{details}"#),
        format!(r#"{details},"cached_tokens":10"#),
        // Mistral's.
        r#""num_cached_tokens":10"#.to_owned(),
        r#""prompt_token_details":{"cached_tokens":10}"#.to_owned(),
        format!(r#""num_cached_tokens":10,"prompt_token_details":{{"cached_tokens":10}},{details}"#),
    ] {
        assert_eq!(openai(&format!("{{{counts},{rest}}}")), cached(19, 21, 10, 0, 0), "{rest}");
    }
    let invalid = format!(r#"{{{counts},"cached_tokens":-1}}"#);
    assert_eq!(openai(&invalid), ReportedUsage::Invalid);
}

#[test]
fn the_units_that_cohere_bills_win_over_its_tokens() {
    let cohere = |text| reported(Shape::Cohere, &[text]);
    let both = r#"{"billed_units":{"input_tokens":5.0,"output_tokens":418},"tokens":{"input_tokens":71,"output_tokens":420}}"#;
    assert_eq!(cohere(both), tokens(5, 418));
    assert_eq!(cohere(r#"{"tokens":{"input_tokens":71,"output_tokens":420}}"#), tokens(71, 420));
    assert_eq!(cohere(r#"{"api_version":{"version":"2"},"billed_units":{"input_tokens":9}}"#), tokens(9, 0));
    assert_eq!(cohere(r#"{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}"#), tokens(4, 2));
    assert_eq!(cohere(r#"{"billed_units":{"input_tokens":-5}}"#), ReportedUsage::Invalid);
}

#[test]
fn the_length_of_a_transcription_counts_unless_its_seconds_are_reported() {
    let seconds = |durations: &[&str], usage: Option<&str>| {
        let mut counts = TokenCounts::default();
        for text in durations {
            counts.report_duration(text);
        }
        if let Some(text) = usage {
            counts.report(Shape::Transcription, Member::Usage, text);
        }
        match counts.reported(Shape::Transcription) {
            ReportedUsage::Usage(usage) => usage.seconds.input.to_string(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(seconds(&["8.47"], None), "8.47");
    assert_eq!(seconds(&["\"8.47\""], None), "8.47");
    assert_eq!(seconds(&["8.47"], Some(r#"{"type":"duration","seconds":9}"#)), "9");
    for (text, kept) in [
        ("8.470000267028809", "8.470000267"),
        ("\"8.470000267028809\"", "8.470000267"),
        ("0.0000000005", "0.000000001"),
        ("0.00000000049999999999999999999999999999", "0"),
        ("12.3456789012345678901234567890123456789", "12.345678901"),
        ("1.25e1", "12.5"),
    ] {
        assert_eq!(seconds(&[text], None), kept, "{text}");
        let usage = format!(r#"{{"type":"duration","seconds":{text}}}"#);
        if !text.starts_with('"') {
            assert_eq!(seconds(&[], Some(&usage)), kept, "{text}");
        }
    }
    let usage = r#"{"type":"duration","seconds":9}"#;
    assert_eq!(seconds(&["8.470000267028809"], Some(usage)), "9");
    assert_eq!(seconds(&["null"], None), "Nothing");
    for text in ["-1", "\"x\"", "1e13", "true", "{}"] {
        assert_eq!(seconds(&[text], None), "Invalid", "{text}");
    }
}

#[test]
fn what_cannot_be_is_not_believed() {
    for text in [
        r#"{"tokens":-1}"#,
        r#"{"tokens":1.5}"#,
        r#"{"tokens":"7"}"#,
        r#"{"tokens":true}"#,
        r#"{"tokens":[]}"#,
        r#"{"tokens":1000000000001}"#,
        r#"{"tokens":1e13}"#,
        r#"{"tokens":1e400}"#,
        r#"{"characters":0.1}"#,
        r#"{"tokens":99999999999999999999999999999999999999}"#,
        r#"{"duration_seconds":-0.5}"#,
        r#"{"tokens":1e-1}"#,
        "7",
        "[]",
        r#""tokens""#,
        "{",
        r#"{"input_tokens":1,"output_tokens":-5}"#,
    ] {
        assert_eq!(reported(Shape::Standard, &[text]), ReportedUsage::Invalid, "{text}");
    }
    assert_eq!(reported(Shape::Standard, &[r#"{"tokens":1000000000000}"#]), tokens(1_000_000_000_000, 0));
}

#[test]
fn a_zero_beside_a_count_under_another_name_is_none() {
    let both = r#"{"prompt_tokens":9,"completion_tokens":7,"input_tokens":0,"output_tokens":0}"#;
    assert_eq!(reported(Shape::OpenAi, &[both]), tokens(9, 7));
    let other = r#"{"prompt_tokens":0,"completion_tokens":0,"input_tokens":9,"output_tokens":7}"#;
    assert_eq!(reported(Shape::OpenAi, &[other]), tokens(9, 7));
    assert_eq!(reported(Shape::Google, &[both]), tokens(9, 7));
    let nothing = r#"{"prompt_tokens":0,"completion_tokens":0}"#;
    assert_eq!(reported(Shape::OpenAi, &[both, nothing]), tokens(0, 0), "a later report replaces it");
    // Cohere bills other units than it counts.
    let cohere = r#"{"tokens":{"input_tokens":9,"output_tokens":7},"billed_units":{"input_tokens":0}}"#;
    assert_eq!(reported(Shape::Cohere, &[cohere]), tokens(0, 7));
}

#[test]
fn mistrals_seconds_of_sound_are_read() {
    for shape in [Shape::OpenAi, Shape::Transcription] {
        for (text, seconds) in [("4", "4"), ("null", "0"), ("{}", "0")] {
            let usage =
                format!(r#"{{"prompt_audio_seconds":{text},"prompt_tokens":3,"completion_tokens":5}}"#);
            let ReportedUsage::Usage(usage) = reported(shape, &[&usage]) else { panic!("{usage}") };
            assert_eq!(
                (usage.tokens, usage.seconds.input.to_string()),
                (Split { input: 3, output: 5 }, seconds.to_owned())
            );
        }
    }
}
