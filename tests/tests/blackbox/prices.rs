//! `farthing prices`: it shows, compares and checks price files without a database.

use std::path::{Path, PathBuf};
use std::process::Output;

use farthing_tests::instance::program;
use serde_json::{Value, json};

fn prices(arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(program());
    command.arg("prices").args(arguments).env_clear();
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = prices(&[arguments, &["--json"]].concat());
    let told = serde_json::from_slice(&output.stdout);
    (output.status.code(), told.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

/// A price file of these models, in a folder of the test's own.
fn file(test: &str, name: &str, taken: &str, models: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("farthing-prices-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    let content = format!(r#"{{"source":"s","licence":"l","taken":"{taken}","models":[{models}]}}"#);
    std::fs::write(&path, content).unwrap();
    path
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_price_is_shown_at_each_provider_that_has_one() {
    let ours = file(
        "show",
        "ours.json",
        "2026-11-21",
        r#"{"provider":"azure","model":"gpt-4o","input_per_1m":"2.50","per_request":"0.001"}"#,
    );
    let (code, found) = told(&["show", "gpt-4o", "--prices", shown(&ours)]);
    assert_eq!(code, Some(0));
    let azure = json!({"provider": "azure", "model": "gpt-4o", "input_per_1m": "2.5", "per_request": "0.001", "taken": "2026-11-21"});
    assert_eq!(found["data"][0], azure);
    let openai = &found["data"][1];
    assert_eq!((&openai["provider"], &openai["output_per_1m"]), (&json!("openai"), &json!("10")));
    assert_eq!(found["data"].as_array().unwrap().len(), 2);
    let (_, found) = told(&["show", "gpt-4o", "--provider", "openai", "--prices", shown(&ours)]);
    assert_eq!(found["data"].as_array().unwrap().len(), 1);

    let output = prices(&["show", "gpt-4o", "--provider", "azure", "--prices", shown(&ours)]);
    assert_eq!(text(&output), "azure gpt-4o (taken 2026-11-21)\n  input_per_1m: 2.5\n  per_request: 0.001\n");
    for arguments in [&["show", "unheard-of"][..], &["show", "gpt-4o", "--provider", "groq"]] {
        let output = prices(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("is listed"), "{output:?}");
    }
    assert_eq!(prices(&["show"]).status.code(), Some(2));
}

const FIRST: &str = r#"
    {"provider":"p","model":"same","input_per_1m":"1.0","output_per_1m":"2"},
    {"provider":"p","model":"dearer","input_per_1m":"1","above":[{"input_tokens":5,"input_per_1m":"2"}]},
    {"provider":"p","model":"gone","per_request":"1"}"#;

const SECOND: &str = r#"
    {"provider":"p","model":"same","input_per_1m":"1","output_per_1m":"2.00","max_output_tokens":7},
    {"provider":"p","model":"dearer","input_per_1m":"1.5","above":[{"input_tokens":5,"input_per_1m":"2"}]},
    {"provider":"q","model":"new","per_second":"1"}"#;

#[test]
fn two_files_are_compared_model_by_model() {
    let first = file("compare", "first.json", "2026-11-20", FIRST);
    let second = file("compare", "second.json", "2026-11-22", SECOND);
    let (code, comparison) = told(&["compare", shown(&first), shown(&second)]);
    assert_eq!(code, Some(1));
    assert_eq!(
        comparison,
        json!({
            "same": 0,
            "different": [
                {"provider": "p", "model": "dearer", "first": {"input_per_1m": "1"}, "second": {"input_per_1m": "1.5"}},
                {"provider": "p", "model": "same", "first": {}, "second": {"max_output_tokens": 7}},
            ],
            "only_in_first": [{"provider": "p", "model": "gone"}],
            "only_in_second": [{"provider": "q", "model": "new"}],
        })
    );
    let output = prices(&["compare", shown(&first), shown(&second)]);
    assert_eq!(
        text(&output),
        "different: p dearer\n  input_per_1m: 1 | 1.5\ndifferent: p same\n  max_output_tokens: - | 7\n\
         only in the first: p gone\nonly in the second: q new\n\
         0 the same, 2 different, 1 only in the first, 1 only in the second\n"
    );
    // The day is not compared.
    let again = file("compare", "again.json", "2026-11-22", FIRST);
    let (code, comparison) = told(&["compare", shown(&first), shown(&again)]);
    assert_eq!((code, &comparison["same"]), (Some(0), &json!(3)));
}

#[test]
fn a_file_without_its_origin_is_compared_and_not_valid() {
    let whole = file("origin", "whole.json", "2026-11-20", FIRST);
    let bare = whole.with_file_name("bare.json");
    std::fs::write(&bare, format!(r#"{{"source":"s","models":[{FIRST}]}}"#)).unwrap();
    let (code, comparison) = told(&["compare", shown(&whole), shown(&bare)]);
    assert_eq!((code, &comparison["same"]), (Some(0), &json!(3)));
    let (code, verdict) = told(&["validate", shown(&bare)]);
    assert_eq!((code, &verdict["valid"]), (Some(1), &json!(false)));
    let error = verdict["error"].as_str().unwrap();
    for part in ["`licence` is missing", "`taken`", "YYYY-MM-DD", "farthing prices compare"] {
        assert!(error.contains(part), "{error}");
    }
    // A file with a wrong price is none for a comparison either.
    let wrong = whole.with_file_name("wrong.json");
    std::fs::write(&wrong, r#"{"source":"s","models":[{"provider":"p","model":"m","input_per_1m":"-1"}]}"#)
        .unwrap();
    for (first, second) in [(&whole, &wrong), (&wrong, &whole)] {
        let output = prices(&["compare", shown(first), shown(second)]);
        assert_eq!((output.status.code(), text(&output)), (Some(2), String::new()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("wrong.json") && error.contains("between 0 and 1000000"), "{error}");
    }
}

#[test]
fn a_comparison_of_what_cannot_be_read_ends_with_2_and_says_nothing_of_a_difference() {
    let whole = file("unreadable", "whole.json", "2026-11-20", FIRST);
    let json = whole.with_file_name("no.json");
    std::fs::write(&json, "{").unwrap();
    let missing = whole.with_file_name("missing.json");
    for (first, second, named) in [
        (&whole, &json, &json),
        (&json, &whole, &json),
        (&whole, &missing, &missing),
        (&missing, &missing, &missing),
    ] {
        for more in [&[][..], &["--json"]] {
            let output = prices(&[&["compare", shown(first), shown(second)], more].concat());
            assert_eq!((output.status.code(), text(&output)), (Some(2), String::new()), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(shown(named)), "{output:?}");
        }
    }
    let output = prices(&["compare", shown(&whole)]);
    assert_eq!(output.status.code(), Some(2), "bad usage");
}

#[test]
fn a_file_of_what_two_others_agree_on_is_valid() {
    let first = file("agree", "first.json", "2026-11-20", FIRST);
    let second = file("agree", "second.json", "2026-11-22", SECOND);
    let arguments = ["agree", shown(&first), shown(&second), "--source", "two \"files\"", "--licence", "l"];
    let output = prices(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let agreed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        agreed,
        json!({"source": "two \"files\"", "licence": "l", "taken": "2026-11-20", "models": [
            {"provider": "p", "model": "same", "input_per_1m": "1", "output_per_1m": "2", "max_output_tokens": 7},
        ]})
    );
    let path = first.with_file_name("agreed.json");
    std::fs::write(&path, &output.stdout).unwrap();
    assert_eq!(told(&["validate", shown(&path), "--provider-host", "p=p.example"]).0, Some(0));
    for arguments in [["--source", "s", "--licence", ""], ["--source", "", "--licence", "l"]] {
        let output = prices(&[&["agree", shown(&first), shown(&second)], &arguments[..]].concat());
        assert_eq!((output.status.code(), text(&output)), (Some(2), String::new()), "no such file is valid");
    }
    let other = file("agree", "other.json", "2026-11-22", r#"{"provider":"x","model":"y","per_second":"1"}"#);
    let output = prices(&["agree", shown(&first), shown(&other), "--source", "s", "--licence", "l"]);
    assert_eq!((output.status.code(), text(&output)), (Some(1), String::new()));
}

#[test]
fn a_file_is_valid_if_a_gateway_would_read_it() {
    let good = file("validate", "good.json", "2026-11-20", FIRST);
    let named = ["validate", shown(&good), "--provider-host", "p=p.example"];
    assert_eq!(text(&prices(&named)), "valid: 3 names of models at 1 providers\n");
    let (code, verdict) = told(&named);
    assert_eq!((code, verdict), (Some(0), json!({"valid": true, "models": 3, "providers": 1})));
    let bad =
        file("validate", "bad.json", "2026-11-20", r#"{"provider":"p","model":"m","input_per_1m":0.15}"#);
    let (code, verdict) = told(&["validate", shown(&bad)]);
    assert_eq!((code, &verdict["valid"]), (Some(1), &json!(false)));
    assert!(verdict["error"].as_str().unwrap().contains("floating point"), "{verdict}");
    let output = prices(&["validate", shown(&bad)]);
    assert_eq!((output.status.code(), text(&output)), (Some(1), String::new()));
    let missing = prices(&["validate", "/nowhere/at/all"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nowhere/at/all"));
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn a_file_that_no_call_could_use_or_that_does_not_say_where_it_is_from_is_not_valid() {
    let refused = |name: &str, content: &Value, more: &[&str], parts: &[&str]| {
        let path = file("refused", name, "2026-11-20", "");
        std::fs::write(&path, content.to_string()).unwrap();
        let (code, verdict) = told(&[&["validate", shown(&path)], more].concat());
        assert_eq!((code, &verdict["valid"]), (Some(1), &json!(false)), "{content}");
        let output = prices(&[&["validate", shown(&path)], more].concat());
        assert_eq!((output.status.code(), text(&output)), (Some(1), String::new()), "{content}");
        let error = verdict["error"].as_str().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains(error), "{output:?}");
        for part in [&[name], parts].concat() {
            assert!(error.contains(part), "{content}: {error}");
        }
    };
    let whole = |source: &str, licence: &str, entry: &Value| json!({"source": source, "licence": licence, "taken": "2026-11-20", "models": [entry]});
    let good = json!({"provider": "openai", "model": "m", "input_per_1m": "1"});
    let other = |name: &str| json!({"provider": name, "model": "m", "input_per_1m": "1"});
    for (more, name) in [(&[][..], "opnai"), (&["--provider-host=ours=h.example"], "our")] {
        let typo = whole("s", "l", &other(name));
        refused("provider.json", &typo, more, &[name, "\"m\"", "no built-in provider", "--provider-host"]);
    }
    refused("licence.json", &whole("s", "", &good), &[], &["`licence` is empty"]);
    refused("blank.json", &whole("s", " \n", &good), &[], &["`licence` is empty"]);
    refused("source.json", &whole("", "l", &good), &[], &["`source` is empty"]);
    let steps = json!({"provider": "openai", "model": "m", "input_per_1m": "1", "above": []});
    refused("above.json", &whole("s", "l", &steps), &[], &["openai", "empty `above`"]);

    let path = file("refused", "ours.json", "2026-11-20", &other("ours").to_string());
    for flag in ["--provider-host=ours=h.example:8443", "--provider-host=a=b.example,ours=h.example"] {
        assert_eq!(told(&["validate", shown(&path), flag]).0, Some(0), "{flag}");
    }
}

#[test]
fn the_built_in_catalogue_is_a_valid_file_of_built_in_providers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prices/catalogue.json");
    let (code, verdict) = told(&["validate", path]);
    assert_eq!((code, &verdict["valid"]), (Some(0), &json!(true)));
    let (code, comparison) = told(&["compare", path, path]);
    assert_eq!((code, &comparison["same"]), (Some(0), &verdict["models"]));
}
