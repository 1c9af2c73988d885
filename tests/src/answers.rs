//! Records the answers of gateways: method, path, status, error code and shape of each JSON body, once each. The folder is
//! given by `FARTHING_TEST_ANSWERS`; without it nothing is recorded. `tests/specification/run` compares the records with
//! the specification.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::client::Response;

/// The variable that names the folder of the records.
const FOLDER: &str = "FARTHING_TEST_ANSWERS";

/// The header that every answer of a gateway carries.
const MARK: &str = "x-service-request-id";

/// The path of the API document, which is kept whole.
const DOCUMENT: &str = "/v1/openapi.json";

/// Beginnings of paths whose answers come from a provider, unless they are an error of ours.
const PASSED_THROUGH: [&str; 6] = [
    "/v1/forward",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rewrite/",
];

/// Members whose values are words of an enumeration, which are recorded.
const ENUMERATIONS: [&str; 22] = [
    "base_cost_payer",
    "billing_interval",
    "bundle_rollover_type",
    "checkout_mode",
    "code",
    "cycle",
    "event",
    "events",
    "failure_reason",
    "marks",
    "object",
    "on_disconnect",
    "payer",
    "provider_key_type",
    "rate_type",
    "request_shape",
    "rollover_type",
    "service_charge_payer",
    "status",
    "tier_type",
    "token_basis",
    "type",
];

/// The longest word of an enumeration.
const MAX_WORD: usize = 40;

/// The records of this process.
struct Records {
    folder: PathBuf,
    file: File,
    seen: BTreeSet<String>,
}

static RECORDS: LazyLock<Option<Mutex<Records>>> = LazyLock::new(|| {
    let folder = PathBuf::from(env::var_os(FOLDER)?);
    fs::create_dir_all(&folder).expect("the folder of the answers can be made");
    let file = folder.join(format!("{}.jsonl", process::id()));
    let file = OpenOptions::new().create(true).append(true).open(file);
    let file = file.expect("the file of the answers can be opened");
    Some(Mutex::new(Records { folder, file, seen: BTreeSet::new() }))
});

/// Records the answer to a request of `method` and `target`, if a gateway gave it.
pub(crate) fn record(method: &str, target: &str, answer: &Response) {
    let Some(records) = &*RECORDS else { return };
    if !answer.complete || answer.head.header(MARK).is_none() {
        return;
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let body = is_json(answer).then(|| serde_json::from_slice::<Value>(&answer.body).ok()).flatten();
    let code = body.as_ref().and_then(|body| own_error(body, answer.status));
    let from_provider = code.is_none() && PASSED_THROUGH.iter().any(|start| path.starts_with(start));
    let is_document = path == DOCUMENT && answer.status == 200;
    let shape = body.as_ref().filter(|_| !from_provider && !is_document).map(|body| shape("", body));
    let line = json!({
        "method": method, "path": pattern(path), "status": answer.status, "code": code, "shape": shape,
    });
    let line = format!("{line}\n");
    let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
    if records.seen.insert(line.clone()) {
        if is_document {
            let name = format!("{}-{}.openapi", process::id(), records.seen.len());
            fs::write(records.folder.join(name), &answer.body).expect("the API document can be kept");
        }
        records.file.write_all(line.as_bytes()).expect("an answer can be recorded");
    }
}

fn is_json(answer: &Response) -> bool {
    let media_type = answer.head.header("content-type").unwrap_or_default();
    media_type.starts_with("application/json") && answer.head.header("content-encoding").is_none()
}

/// The code of an error in the gateway's own envelope.
fn own_error(body: &Value, status: u16) -> Option<String> {
    let error = &body["error"];
    let is_own = body.as_object()?.len() == 1 && error["status"] == status && error["message"].is_string();
    is_own.then(|| error["code"].as_str().map(str::to_owned)).flatten()
}

/// The path with `{}` for each segment that is no plain word. Plain words may still be parameters.
fn pattern(path: &str) -> String {
    let segments: Vec<_> = path.split('/').collect();
    let shown = segments.iter().enumerate().map(|(at, segment)| {
        let is_word = segment.chars().all(|c| c.is_ascii_lowercase() || "_-.".contains(c));
        if is_word || (at, *segment) == (1, "v1") { segment } else { "{}" }
    });
    let shown: Vec<_> = shown.collect();
    // The rest is the provider's URL.
    let before_url = match shown.get(2) {
        Some(&"rewrite") => 4,
        Some(&"forward") => 3,
        Some(_) | None => shown.len(),
    };
    let given = segments.get(before_url..).unwrap_or_default();
    if given.iter().all(|segment| segment.is_empty()) {
        return shown.join("/");
    }
    [&shown[..before_url], &["{}"]].concat().join("/")
}

/// The shape of `value`, the member `name`: an object of shapes, a list of the different shapes of its items, or the name of
/// a type. The types of strings are `decimal` (ten fractional digits), `date-time`, an id's prefix (`con_`), `=word` of an
/// enumeration, and `string`.
fn shape(name: &str, value: &Value) -> Value {
    let name_of_type = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(number) if number.is_f64() => "number".to_owned(),
        Value::Number(_) => "integer".to_owned(),
        Value::String(text) => text_type(name, text),
        Value::Array(items) => {
            let mut shapes: Vec<_> = items.iter().map(|item| shape(name, item)).collect();
            shapes.sort_by_key(Value::to_string);
            shapes.dedup();
            return Value::Array(shapes);
        }
        // Its members are the caller's, or those of an event's kind.
        Value::Object(_) if ["metadata", "body"].contains(&name) => "object".to_owned(),
        Value::Object(members) => {
            let shapes = members.iter().map(|(name, value)| (name.clone(), shape(name, value)));
            return Value::Object(shapes.collect::<Map<_, _>>());
        }
    };
    Value::String(name_of_type)
}

fn text_type(name: &str, text: &str) -> String {
    let is_word = (1..=MAX_WORD).contains(&text.len()) && !text.contains(' ');
    if ENUMERATIONS.contains(&name) && is_word {
        return format!("={text}");
    }
    if let Some(prefix) = id_prefix(text) {
        return prefix.to_owned();
    }
    if is_amount(text) {
        return "decimal".to_owned();
    }
    if text.contains('T') && chrono::DateTime::parse_from_rfc3339(text).is_ok() {
        return "date-time".to_owned();
    }
    "string".to_owned()
}

fn id_prefix(text: &str) -> Option<&str> {
    let (prefix, ulid) = text.split_at_checked(text.find('_')? + 1)?;
    let is_prefix = prefix.len() > 1 && prefix[..prefix.len() - 1].chars().all(|c| c.is_ascii_lowercase());
    let is_ulid = ulid.len() == 26 && ulid.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    (is_prefix && is_ulid).then_some(prefix)
}

fn is_amount(text: &str) -> bool {
    let Some((whole, fraction)) = text.trim_start_matches('-').split_once('.') else { return false };
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole) && are_digits(fraction) && fraction.len() == 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_names_the_types_and_words_of_every_member() {
        let body = json!({
            "data": [
                {"customer_id": "con_01ARZ3NDEKTSV4RRFFQ69G5FAV", "metadata": {"a": 1}, "subscription": null},
                {"customer_id": "con_01ARZ3NDEKTSV4RRFFQ69G5FAW", "metadata": {}, "subscription": null},
                {"balance": "-1.0000000000", "created_at": "2026-01-01T00:00:00.000Z", "status": "active"},
            ],
            "marks": ["partial"], "has_more": false, "start": 1.5, "count": 2, "name": "1.0", "next_cursor": "con_ada",
        });
        let expected = json!({
            "data": [
                {"balance": "decimal", "created_at": "date-time", "status": "=active"},
                {"customer_id": "con_", "metadata": "object", "subscription": "null"},
            ],
            "marks": ["=partial"], "has_more": "boolean", "start": "number", "count": "integer", "name": "string", "next_cursor": "string",
        });
        assert_eq!(shape("", &body), expected);
    }

    #[test]
    fn a_path_keeps_its_words_alone() {
        for (path, shown) in [
            ("/v1/customers/con_01ARZ3NDEKTSV4RRFFQ69G5FAV/wallet", "/v1/customers/{}/wallet"),
            ("/v1/manage/spend_keys/nobody", "/v1/manage/spend_keys/nobody"),
            ("/v1/rewrite/openai/https://a.example/v1/messages", "/v1/rewrite/openai/{}"),
            ("/v1/rewrite/openai/", "/v1/rewrite/openai/"),
            ("/v1/forward/https://a.example/v1/messages", "/v1/forward/{}"),
            ("/v1/forward/nothing", "/v1/forward/{}"),
            ("/v1/forward/", "/v1/forward/"),
            ("/v1/forward", "/v1/forward"),
        ] {
            assert_eq!(pattern(path), shown);
        }
    }

    #[test]
    fn only_the_whole_envelope_is_an_error_of_the_gateway() {
        let envelope = json!({"error": {"code": "a", "message": "b", "status": 400}});
        assert_eq!(own_error(&envelope, 400), Some("a".to_owned()));
        assert_eq!(own_error(&envelope, 401), None);
        assert_eq!(own_error(&json!({"error": {"code": "a", "message": "b"}}), 400), None);
        assert_eq!(own_error(&json!([1]), 400), None);
    }
}
