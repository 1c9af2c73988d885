//! The API document `/v1/openapi.json`: its operations, for tests that must cover every one.

use serde_json::Value;

use crate::client::{Request, Response};
use crate::instance::Instance;

/// The API document that an instance serves.
#[derive(Debug, Clone)]
pub struct Document(pub Value);

/// An operation of the document.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The method, in capitals.
    pub method: String,
    /// The path below `/v1`, with its parameters in braces.
    pub path: String,
    /// Its operation id.
    pub id: String,
    /// The names of its query parameters.
    pub query: Vec<String>,
    /// The names of the body's top-level members, if it has a body.
    pub body: Option<Vec<String>>,
    /// Whether it accepts only a secret key.
    pub takes_secret_key: bool,
    /// Its responses.
    pub responses: Value,
}

impl Document {
    /// The document of the shared instance.
    pub async fn served() -> Self {
        Self::of(Instance::shared().await).await
    }

    /// The document of an instance.
    pub async fn of(instance: &Instance) -> Self {
        let request = Request::new("GET", "/v1/openapi.json");
        Self(request.send(instance.gateway(0)).await.expect("the gateway answers").expect(200))
    }

    /// Every operation.
    pub fn operations(&self) -> Vec<Operation> {
        let paths = self.0["paths"].as_object().expect("paths");
        let of_path = |path: &String, item: &Value| -> Vec<Operation> {
            let item = item.as_object().expect("a path item");
            item.iter().map(|(method, operation)| self.operation(method, path, operation)).collect()
        };
        paths.iter().flat_map(|(path, item)| of_path(path, item)).collect()
    }

    /// The operations that take a merchant's secret key: all but the forward endpoint and the document itself.
    pub fn standard(&self) -> Vec<Operation> {
        self.operations().into_iter().filter(|operation| operation.takes_secret_key).collect()
    }

    /// The first violation of `schema` by `value`, if there is one. Checks types, members, items, enumerations and constants,
    /// but not patterns and bounds.
    pub fn misfit(&self, schema: &Value, value: &Value) -> Option<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let schema = self.0.pointer(reference.trim_start_matches('#')).expect("a reference resolves");
            return self.misfit(schema, value);
        }
        for list in ["oneOf", "anyOf"] {
            let mut choices = schema[list].as_array().into_iter().flatten().peekable();
            if choices.peek().is_some() && choices.all(|choice| self.misfit(choice, value).is_some()) {
                return Some(format!("{value} is none of {list}"));
            }
        }
        let mut misfits = schema["allOf"].as_array().into_iter().flatten();
        if let Some(misfit) = misfits.find_map(|part| self.misfit(part, value)) {
            return Some(misfit);
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect::<Vec<_>>(),
        };
        if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
            return Some(format!("{value} is not of {types:?}"));
        }
        let is_named = |names: &Value| names.as_array().is_none_or(|names| names.contains(value));
        if !is_named(&schema["enum"]) || schema.get("const").is_some_and(|only| only != value) {
            return Some(format!("{value} is not one of {schema}"));
        }
        let within = |name: &str, misfit: String| format!("{name}: {misfit}");
        match value {
            Value::Object(members) => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                if let Some(missing) = required.into_iter().find(|name| !members.contains_key(*name)) {
                    return Some(format!("{missing} is missing"));
                }
                let properties = &schema["properties"];
                members.iter().find_map(|(name, value)| {
                    let misfit = properties.get(name).and_then(|schema| self.misfit(schema, value));
                    misfit.map(|misfit| within(name, misfit))
                })
            }
            Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                let misfit = schema.get("items").and_then(|schema| self.misfit(schema, item));
                misfit.map(|misfit| within(&index.to_string(), misfit))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn operation(&self, method: &str, path: &str, operation: &Value) -> Operation {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let query = parameters.iter().filter(|parameter| parameter["in"] == "query");
        let body = operation.get("requestBody").map(|body| {
            let mut names = Vec::new();
            self.names_of(&body["content"]["application/json"]["schema"], &mut names);
            names
        });
        Operation {
            method: method.to_uppercase(),
            path: path.to_owned(),
            id: operation["operationId"].as_str().unwrap_or_default().to_owned(),
            query: query.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect(),
            body,
            takes_secret_key: operation["security"][0].get("secretKey").is_some(),
            responses: operation["responses"].clone(),
        }
    }

    fn names_of(&self, schema: &Value, names: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let schema = self.0.pointer(reference.trim_start_matches('#'));
            self.names_of(schema.expect("a reference resolves"), names);
        }
        for list in ["oneOf", "anyOf", "allOf"] {
            schema[list].as_array().into_iter().flatten().for_each(|schema| self.names_of(schema, names));
        }
        names
            .extend(schema["properties"].as_object().into_iter().flat_map(|members| members.keys().cloned()));
    }
}

impl Operation {
    /// Method and path.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The parameters of the path, each with the segment before it.
    pub fn path_parameters(&self) -> Vec<(String, String)> {
        let segments: Vec<_> = self.path.split('/').collect();
        let pairs = segments.windows(2).filter(|pair| pair[1].starts_with('{'));
        pairs.map(|pair| (pair[0].to_owned(), pair[1].trim_matches(['{', '}']).to_owned())).collect()
    }

    /// Its target, with each path parameter replaced by `fill` of the segment before it.
    pub fn target(&self, fill: impl Fn(&str) -> String) -> String {
        let mut target = String::from("/v1");
        let mut before = "";
        for segment in self.path.split('/').skip(1) {
            target.push('/');
            target.push_str(&if segment.starts_with('{') { fill(before) } else { segment.to_owned() });
            before = segment;
        }
        target
    }

    /// The codes documented for `status`.
    pub fn codes(&self, status: u16) -> Vec<String> {
        let schema = &self.responses[status.to_string()]["content"]["application/json"]["schema"];
        // If a provider may respond too, the first alternative is Farthing's own.
        let schema = schema.get("anyOf").map_or(schema, |choices| &choices[0]);
        let codes = &schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"];
        codes.as_array().into_iter().flatten().filter_map(|code| code.as_str().map(str::to_owned)).collect()
    }

    /// The documented status of the error `code`.
    pub fn status_of(&self, code: &str) -> Option<u16> {
        let statuses = self.responses.as_object().into_iter().flatten();
        let mut statuses = statuses.filter_map(|(status, _)| status.parse().ok());
        statuses.find(|status| self.codes(*status).iter().any(|told| told == code))
    }

    /// Returns the error code; panics unless `answer` is the envelope of an error documented for this operation.
    pub fn refuses(&self, answer: &Response, what: &str) -> String {
        let code = answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        let at = format!("{} {what}: {} {}", self.name(), answer.status, answer.text());
        answer.refused(answer.status, &code);
        assert!(self.codes(answer.status).contains(&code), "not documented: {at}");
        code
    }
}

/// Whether `value` has this schema type.
fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
