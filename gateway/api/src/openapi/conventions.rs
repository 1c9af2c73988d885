//! Adds the conventions of all operations to the document: the credential, the headers of the answers and the errors
//! that any call may get (completion.md section 1).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::errors::{Codes, envelope};

/// Errors of every endpoint: the gateway refuses the request before a handler sees it, because of its head or because
/// too many calls are in flight.
const OF_EVERY_CALL: [&str; 3] = ["uri_too_long", "headers_too_large", "ledger_unavailable"];

/// Statuses of errors that occur before the key is known. They carry no rate limit headers.
const BEFORE_THE_KEY: [&str; 3] = ["401", "414", "431"];

/// Errors of every endpoint that takes a secret key.
const OF_A_KEY: [&str; 5] = [
    "auth_header_missing",
    "auth_header_invalid",
    "secret_key_invalid",
    "rate_limit_exceeded",
    "rest_internal_server_error",
];

/// Errors of an endpoint with a body.
const OF_A_BODY: [&str; 3] = ["validation_error", "body_too_large", "content_type_unsupported"];

/// Errors of every POST, whose whole body is read for its `Idempotency-Key`. Concurrent calls with one key are decided
/// in turn and the later ones get the first one's answer, so none gets `idempotency_in_progress`.
const OF_A_POST: [&str; 2] = ["validation_error", "body_too_large"];

/// The error of a POST whose key was used before.
const OF_A_USED_KEY: [&str; 1] = ["idempotency_key_reused"];

/// Errors of a forwarded call that may have an `Idempotency-Key`: all methods except GET and HEAD.
const OF_A_KEYED_CALL: [&str; 3] =
    ["idempotency_in_progress", "idempotency_completed", "idempotency_key_reused"];

/// The kinds of operation that differ in their conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Takes a secret key; the default.
    Standard,
    /// Passes a provider's answers through.
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
        "description": "Calls with the same key within 24 hours are one call: it has one effect and one answer.",
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
            add_method_to_name(kind, method, operation);
            let name = operation["operationId"].as_str().expect("an operation has a name");
            assert!(names.insert(name.to_owned()), "{method} {path}: another operation is called {name}");
        }
    }
}

/// Adds the conventions to an operation.
fn complete(kind: Kind, method: &str, operation: &mut Map<String, Value>) {
    let mut codes = Codes::default();
    codes.add(OF_EVERY_CALL);
    let takes_key = takes_idempotency_key(kind, method) && (kind == Kind::Forward || can_succeed(operation));
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
    // A path that does not decode to UTF-8 matches no route. A provider's URL in it is not decoded.
    if parameters.iter().any(|parameter| parameter["in"] == "path" && parameter["name"] != "url") {
        codes.add(["route_not_found"]);
    }
    if parameters.iter().any(|parameter| parameter["name"] == "cursor") {
        codes.add(["cursor_invalid"]);
    }
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
    if takes_key && responses.keys().any(|status| is_success(status)) {
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

/// Whether the operation has a success. One that has none reads neither an idempotency key nor a body.
fn can_succeed(operation: &Map<String, Value>) -> bool {
    let responses = operation.get("responses").and_then(Value::as_object);
    responses.is_some_and(|responses| responses.keys().any(|status| is_success(status)))
}

fn is_success(status: &str) -> bool {
    status.starts_with('2')
}

/// Whether the operation may take an idempotency key: every POST, and every forwarded call except GET and HEAD.
fn takes_idempotency_key(kind: Kind, method: &str) -> bool {
    match kind {
        Kind::Standard => method == "post",
        Kind::Forward => !["get", "head"].contains(&method),
        Kind::Open => false,
    }
}

/// Marks a body as optional if it has no required member: an absent body counts as `{}`.
fn relax_body(schemas: &Value, operation: &mut Map<String, Value>) {
    let Some(body) = operation.get_mut("requestBody") else { return };
    let reference = body["content"]["application/json"]["schema"]["$ref"].as_str().unwrap_or_default();
    let schema = &schemas[reference.trim_start_matches("#/components/schemas/")];
    body["required"] = (schema.get("required").is_some() || schema.get("oneOf").is_some()).into();
}

/// Gives each method of the forward handler its own operation id.
fn add_method_to_name(kind: Kind, method: &str, operation: &mut Map<String, Value>) {
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
            "description": "A credential of the forward endpoint, as in `Authorization`.",
        })
    };
    json!({
        "secretKey": {
            "type": "http", "scheme": "bearer", "description": "The merchant's secret key, `aks_…`.",
        },
        "forwardToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "base64 of JSON",
            "description": "A plain secret key or spend key, or a base64-encoded JSON object. The object has `spend_key`, or \
                `secret_key` with optional members: the customer (`customer_id` or `connection_secret`), the meter \
                (`meter_slug` or `product_secret`), `provider_key` and `disable_billing`.",
        },
        "forwardXApiKey": in_header("x-api-key"),
        "forwardXGoogApiKey": in_header("x-goog-api-key"),
        "forwardXiApiKey": in_header("xi-api-key"),
        "forwardApiKey": in_header("api-key"),
        "forwardKeyParameter": {
            "type": "apiKey", "in": "query", "name": "key",
            "description": "A credential of the forward endpoint, as in `Authorization`.",
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
            "description": "The id of this call. On the forward endpoint it is the request's id.",
            "required": true,
            "schema": {"type": "string", "pattern": "^req_[0-7][0-9A-HJKMNP-TV-Z]{25}$"},
        },
        "RateLimitLimit": number("Calls per minute with this key."),
        "RateLimitRemaining": number("Remaining calls in this minute."),
        "RateLimitReset": number("When the next minute begins, in seconds since 1970-01-01 UTC."),
        "RetryAfter": {
            "description": "Seconds to wait before retrying the call.",
            "schema": {"type": "integer", "minimum": 1},
        },
        "Authenticate": {
            "description": "The required authentication scheme.", "required": true, "schema": {"type": "string", "const": "Bearer"},
        },
        "Replayed": {
            "description": "The answer is a replay of the first call with the same Idempotency-Key.",
            "schema": {"type": "string", "const": "true"},
        },
        "Stale": {
            "description": "The answer may be older than the latest write.",
            "schema": {"type": "string", "const": "true"},
        },
    })
}
