//! JSON Schema of Google's own schema, a subset of OpenAPI's with types in capitals.

use std::collections::HashMap;

use crate::error::RequestError;
use crate::fields::Field;
use crate::json::{Json, Members};

/// Members whose value is the same in JSON Schema.
const SAME: [&str; 12] = [
    "title",
    "description",
    "enum",
    "format",
    "default",
    "required",
    "minimum",
    "maximum",
    "pattern",
    "$ref",
    "additionalProperties",
    "const",
];

/// Whole numbers, which Google also writes as strings.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// Reads a schema.
pub(super) fn json_schema(field: Field) -> Result<Json, RequestError> {
    let mut fields = field.object()?.camel_case()?;
    let is_nullable = fields.boolean("nullable")?.unwrap_or(false);
    let order = fields.take("propertyOrdering").map(Field::texts).transpose()?;
    let mut schema = Members::new();
    if let Some(kind) = fields.take("type") {
        let name: Json = kind.text()?.to_ascii_lowercase().into();
        let kind = if is_nullable { Json::List(vec![name, "null".into()]) } else { name };
        schema.push(("type".to_owned(), kind));
    } else if is_nullable {
        let message = "needs a type".to_owned();
        return Err(RequestError::Invalid { field: format!("{}.nullable", fields.path()), message });
    }
    for name in SAME {
        schema.extend(fields.take(name).map(|field| (name.to_owned(), field.json())));
    }
    for name in COUNTS {
        schema.extend(fields.take(name).map(count).transpose()?.map(|count| (name.to_owned(), count)));
    }
    if let Some(properties) = fields.take("properties") {
        schema.push(("properties".to_owned(), read_properties(properties, order.as_deref())?));
    }
    if let Some(items) = fields.take("items") {
        schema.push(("items".to_owned(), json_schema(items)?));
    }
    if let Some(choices) = fields.take("anyOf") {
        let choices = choices.list()?.into_iter().map(json_schema).collect::<Result<_, _>>()?;
        schema.push(("anyOf".to_owned(), Json::List(choices)));
    }
    if let Some(example) = fields.take("example") {
        schema.push(("examples".to_owned(), Json::List(vec![example.json()])));
    }
    fields.end()?;
    Ok(Json::Object(schema))
}

fn count(field: Field) -> Result<Json, RequestError> {
    let parsed = field.value().as_text().and_then(|text| text.parse::<u64>().ok());
    Ok(parsed.map_or_else(|| field.unsigned(), Ok)?.into())
}

/// Reads properties in the order that the schema gives them.
fn read_properties(field: Field, order: Option<&[String]>) -> Result<Json, RequestError> {
    let mut properties = Members::new();
    for (name, field) in field.object()?.into_each() {
        properties.push((name, json_schema(field)?));
    }
    if let Some(order) = order {
        let places: HashMap<&str, usize> = order.iter().map(String::as_str).zip(0..).collect();
        properties.sort_by_key(|(name, _)| places.get(name.as_str()).copied().unwrap_or(order.len()));
    }
    Ok(Json::Object(properties))
}
