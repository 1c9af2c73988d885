//! What every operation keeps without saying so itself, added to the document: the credential, the headers of the
//! answers, the errors that any call may meet (completion.md section 1).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::errors::{Codes, envelope};

/// The errors of every endpoint: a head that is not read to its end.
const OF_A_HEAD: [&str; 2] = ["uri_too_long", "headers_too_large"];

/// The errors that come before a key is known: they tell of no rate limit.
const BEFORE_THE_KEY: [&str; 3] = ["401", "414", "431"];

/// The errors of every endpoint that takes a secret key.
const OF_A_KEY: [&str; 6] = [
    "auth_header_missing",
    "auth_header_invalid",
    "secret_key_invalid",
    "rate_limit_exceeded",
    "rest_internal_server_error",
    "ledger_unavailable",
];

/// Those of an endpoint with a body.
const OF_A_BODY: [&str; 3] = ["validation_error", "body_too_large", "content_type_unsupported"];

/// Those of every POST, whose body is read whole for the sake of its `Idempotency-Key`. Two that come at once are decided
/// one after the other, so the second is given the answer of the first: none is told to come again.
const OF_A_POST: [&str; 2] = ["validation_error", "body_too_large"];

/// That of a POST whose key may have been used: where nothing ever succeeds, none is.
const OF_A_USED_KEY: [&str; 1] = ["idempotency_key_reused"];

/// Those of a forwarded call whose method may change something, and which so may have an `Idempotency-Key`.
const OF_A_KEYED_CALL: [&str; 3] =
    ["idempotency_in_progress", "idempotency_completed", "idempotency_key_reused"];

/// What an operation is, as far as the conventions care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Takes a secret key: all that say nothing else of their security.
    Standard,
    /// A provider's answers come through it.
    Forward,
    /// Takes no credential.
    Open,
}

/// Completes the document.
pub(super) fn apply(document: &mut Value) {
    let components = &mut document["components"];
    components["securitySchemes"] = security_schemes();
    components["headers"] = headers();
    components["parameters"] = json!({"IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The same key within 24 hours is the same call: it has one effect and one answer.",
        "schema": {"type": "string", "maxLength": 255, "pattern": r"^[\t -~]*[!-~][\t -~]*$"},
    }});
    components["schemas"]["Error"] = envelope();
    let schemas = components["schemas"].clone();
    let paths = document["paths"].as_object_mut().expect("there are paths");
    let mut names = BTreeSet::new();
    for (path, item) in paths {
        let item = item.as_object_mut().expect("a path item is an object");
        for (method, operation) in item {
            let operation = operation.as_object_mut().expect("an operation is an object");
            let kind = kind(operation);
            complete(kind, method, operation);
            relax_body(&schemas, operation);
            name_apart(kind, method, operation);
            let name = operation["operationId"].as_str().expect("an operation has a name");
            assert!(names.insert(name.to_owned()), "{method} {path}: another operation is called {name}");
        }
    }
}

/// Adds what the conventions say of the operation.
fn complete(kind: Kind, method: &str, operation: &mut Map<String, Value>) {
    let mut codes = Codes::default();
    codes.add(OF_A_HEAD);
    match kind {
        Kind::Standard => {
            operation.insert("security".to_owned(), json!([{"secretKey": []}]));
            codes.add(OF_A_KEY);
        }
        Kind::Forward | Kind::Open => {}
    }
    let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
    let parameters = parameters.as_array_mut().expect("parameters are a list");
    let is_in = |place: &str| parameters.iter().any(|parameter| parameter["in"] == place);
    if kind == Kind::Standard && is_in("query") {
        codes.add(["validation_error"]);
    }
    if is_in("path") {
        // A path that is not UTF-8 once it is decoded leads nowhere.
        codes.add(["route_not_found"]);
    }
    if parameters.iter().any(|parameter| parameter["name"] == "cursor") {
        codes.add(["cursor_invalid"]);
    }
    let takes_key = takes_idempotency_key(kind, method);
    if takes_key {
        parameters.push(json!({"$ref": "#/components/parameters/IdempotencyKey"}));
        match kind {
            Kind::Standard => codes.add(OF_A_POST),
            Kind::Forward => codes.add(OF_A_KEYED_CALL),
            Kind::Open => {}
        }
    }
    if parameters.is_empty() {
        operation.remove("parameters");
    }
    if kind == Kind::Forward && ["get", "head"].contains(&method) {
        operation.remove("requestBody");
    }
    if kind == Kind::Standard && operation.contains_key("requestBody") {
        codes.add(OF_A_BODY);
    }
    let responses = operation.entry("responses").or_insert_with(|| json!({}));
    let responses = responses.as_object_mut().expect("responses are an object");
    if takes_key && responses.keys().any(|status| status.starts_with('2')) {
        codes.add(OF_A_USED_KEY);
    }
    codes.take_from(responses);
    for response in responses.values_mut() {
        response["headers"] = success_headers(kind, method);
    }
    responses.extend(codes.responses(kind != Kind::Forward).map(|(status, mut response)| {
        if kind == Kind::Standard && !BEFORE_THE_KEY.contains(&status.as_str()) {
            add_rate_limit(&mut response["headers"]);
        }
        if takes_key {
            response["headers"]["Idempotency-Replayed"] = json!({"$ref": "#/components/headers/Replayed"});
        }
        (status, response)
    }));
}

fn kind(operation: &Map<String, Value>) -> Kind {
    match operation.get("security").and_then(Value::as_array) {
        None => Kind::Standard,
        Some(schemes) if schemes.iter().all(|scheme| scheme.as_object().is_none_or(Map::is_empty)) => {
            Kind::Open
        }
        Some(_) => Kind::Forward,
    }
}

/// Every POST takes one, and every forwarded call but those that change nothing.
fn takes_idempotency_key(kind: Kind, method: &str) -> bool {
    match kind {
        Kind::Standard => method == "post",
        Kind::Forward => !["get", "head"].contains(&method),
        Kind::Open => false,
    }
}

/// An absent body counts as `{}`, so it may be left out where nothing in it is required.
fn relax_body(schemas: &Value, operation: &mut Map<String, Value>) {
    let Some(body) = operation.get_mut("requestBody") else { return };
    let reference = body["content"]["application/json"]["schema"]["$ref"].as_str().unwrap_or_default();
    let schema = &schemas[reference.trim_start_matches("#/components/schemas/")];
    body["required"] = (schema.get("required").is_some() || schema.get("oneOf").is_some()).into();
}

/// One handler of several methods is one operation for each.
fn name_apart(kind: Kind, method: &str, operation: &mut Map<String, Value>) {
    if kind == Kind::Forward {
        let name = operation["operationId"].as_str().unwrap_or_default();
        let name = format!("{name}_{method}");
        operation.insert("operationId".to_owned(), name.into());
    }
}

fn success_headers(kind: Kind, method: &str) -> Value {
    let mut headers = json!({"x-service-request-id": {"$ref": "#/components/headers/RequestId"}});
    if kind == Kind::Standard {
        add_rate_limit(&mut headers);
        if method == "get" {
            headers["x-service-stale"] = json!({"$ref": "#/components/headers/Stale"});
        }
    }
    if takes_idempotency_key(kind, method) {
        headers["Idempotency-Replayed"] = json!({"$ref": "#/components/headers/Replayed"});
    }
    headers
}

fn add_rate_limit(headers: &mut Value) {
    for (name, component) in [
        ("X-RateLimit-Limit", "RateLimitLimit"),
        ("X-RateLimit-Remaining", "RateLimitRemaining"),
        ("X-RateLimit-Reset", "RateLimitReset"),
    ] {
        headers[name] = json!({"$ref": format!("#/components/headers/{component}")});
    }
}

fn security_schemes() -> Value {
    let in_header = |name: &str| {
        json!({
            "type": "apiKey", "in": "header", "name": name,
            "description": "The same credentials as in `Authorization` of the forward endpoint.",
        })
    };
    json!({
        "secretKey": {
            "type": "http", "scheme": "bearer", "description": "The merchant's secret key, `aks_…`.",
        },
        "forwardToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "base64 of JSON",
            "description": "A plain secret key or spend key, or base64 of a JSON object: `spend_key`, or `secret_key` with, as the call needs them, \
                the customer (`customer_id` or `connection_secret`), the meter (`meter_slug` or `product_secret`), \
                `provider_key`, `disable_billing`.",
        },
        "forwardXApiKey": in_header("x-api-key"),
        "forwardXGoogApiKey": in_header("x-goog-api-key"),
        "forwardXiApiKey": in_header("xi-api-key"),
        "forwardKeyParameter": {
            "type": "apiKey", "in": "query", "name": "key",
            "description": "The same credentials as in `Authorization` of the forward endpoint.",
        },
    })
}

fn headers() -> Value {
    let number = |description: &str| {
        json!({
            "description": description, "required": true, "schema": {"type": "integer", "minimum": 0},
        })
    };
    json!({
        "RequestId": {
            "description": "Names this call; on the forward endpoint it is the request's id.",
            "required": true,
            "schema": {"type": "string", "pattern": "^req_[0-7][0-9A-HJKMNP-TV-Z]{25}$"},
        },
        "RateLimitLimit": number("Calls per minute with this key."),
        "RateLimitRemaining": number("Calls left in this minute."),
        "RateLimitReset": number("When the next minute begins, in seconds since 1970."),
        "RetryAfter": {
            "description": "Seconds after which the call may be made again.",
            "schema": {"type": "integer", "minimum": 1},
        },
        "Authenticate": {
            "description": "What is wanted.", "required": true, "schema": {"type": "string", "const": "Bearer"},
        },
        "Replayed": {
            "description": "The answer was given before, to the same Idempotency-Key.",
            "schema": {"type": "string", "const": "true"},
        },
        "Stale": {
            "description": "The answer may be older than the latest write.",
            "schema": {"type": "string", "const": "true"},
        },
    })
}
