//! Whether OpenAI is asked to keep to the schema of an answer.

use std::collections::HashSet;

use crate::conversation::Strictness;
use crate::json::Json;

/// Members that hold schemas and that OpenAI does not take in a strict schema.
const NOT_STRICT: [&str; 16] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "dependencies",
    "dependentSchemas",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "$dynamicRef",
];

/// OpenAI's `strict` for a schema. Where the client's format always keeps to it, it is `true` if OpenAI takes the schema
/// as a strict one: the answer is an object, and each object is closed and requires all of its properties.
pub(crate) fn schema_strictness(strictness: Strictness, schema: &Json) -> Option<bool> {
    match strictness {
        Strictness::Chosen(strict) => strict,
        Strictness::Always => is_strict(schema).then_some(true),
    }
}

fn is_strict(schema: &Json) -> bool {
    let is_object = schema.get("type") == Some(&"object".into());
    is_object && schema.get("anyOf").is_none() && is_closed(schema)
}

/// Whether a schema allows no object but closed ones. One without a type allows any.
fn is_closed(schema: &Json) -> bool {
    let Json::Object(members) = schema else { return false };
    if members.iter().any(|(name, _)| NOT_STRICT.contains(&name.as_str())) {
        return false;
    }
    let has_type = |name: &str| match schema.get("type") {
        Some(Json::Text(kind)) => kind == name,
        Some(Json::List(kinds)) => kinds.contains(&name.into()),
        _ => false,
    };
    let reference = schema.get("$ref");
    let is_described = schema.get("type").is_some() || schema.get("anyOf").is_some() || reference.is_some();
    let is_own = |reference: &Json| reference.as_text().is_some_and(|reference| reference.starts_with('#'));
    let is_object = has_type("object") || schema.get("properties").is_some();
    is_described
        && reference.is_none_or(is_own)
        && (!is_object || is_shut(schema))
        && (!has_type("array") || schema.get("items").is_some())
        && schema.get("items").is_none_or(is_closed)
        && ["properties", "$defs", "definitions"].iter().all(|name| schema.get(name).is_none_or(are_closed))
        && schema
            .get("anyOf")
            .is_none_or(|choices| matches!(choices, Json::List(choices) if choices.iter().all(is_closed)))
}

/// Whether the schemas of an object with names are closed.
fn are_closed(schemas: &Json) -> bool {
    matches!(schemas, Json::Object(schemas) if schemas.iter().all(|(_, schema)| is_closed(schema)))
}

/// Whether the schema of an object allows no other properties than its own, and requires these.
fn is_shut(schema: &Json) -> bool {
    let required: HashSet<&str> = match schema.get("required") {
        Some(Json::List(required)) => required.iter().filter_map(Json::as_text).collect(),
        _ => HashSet::new(),
    };
    let requires_all = match schema.get("properties") {
        Some(Json::Object(properties)) => properties.iter().all(|(name, _)| required.contains(name.as_str())),
        _ => true,
    };
    requires_all && schema.get("additionalProperties") == Some(&false.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema of an object with this schema of its one property.
    fn with_property(schema: &str) -> String {
        format!(
            r#"{{"type":"object","properties":{{"a":{schema}}},"required":["a"],"additionalProperties":false}}"#
        )
    }

    fn strictness(schema: &str) -> Option<bool> {
        schema_strictness(Strictness::Always, &Json::parse(schema.as_bytes()).unwrap())
    }

    #[test]
    fn an_object_that_is_closed_at_all_depths_is_strict() {
        let own = with_property(r##"{"$ref":"#/$defs/b"}"##);
        let own = own.replacen('{', r#"{"$defs":{"b":{"type":"string"}},"#, 1);
        for schema in [
            r#"{"type":"object","additionalProperties":false}"#.to_owned(),
            with_property(r#"{"type":"string","minLength":1,"default":"allOf","enum":["properties"]}"#),
            with_property(r#"{"type":["integer","null"]}"#),
            with_property(r#"{"type":"array","items":{"type":"string"}}"#),
            with_property(r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#),
            with_property(&with_property(r#"{"type":"boolean"}"#)),
            // Properties may have the names of members of a schema.
            with_property(r#"{"type":"string"}"#).replace("\"a\"", "\"properties\""),
            with_property(r#"{"type":"string"}"#).replace("\"a\"", "\"not\""),
            own,
        ] {
            assert_eq!(strictness(&schema), Some(true), "{schema}");
        }
    }

    #[test]
    fn a_schema_whose_root_is_no_object_is_not_strict() {
        let object = with_property(r#"{"type":"string"}"#);
        for schema in [
            r#"{"type":"array","items":{"type":"string"}}"#.to_owned(),
            r#"{"type":"string"}"#.to_owned(),
            r#"{"type":["object","null"],"additionalProperties":false}"#.to_owned(),
            format!(r#"{{"anyOf":[{object}]}}"#),
            object.replacen('{', &format!(r#"{{"anyOf":[{object}],"#), 1),
            format!(r##"{{"$defs":{{"b":{object}}},"$ref":"#/$defs/b"}}"##),
            object.replace(r#""type":"object","#, ""),
            "{}".to_owned(),
            "true".to_owned(),
        ] {
            assert_eq!(strictness(&schema), None, "{schema}");
        }
    }

    #[test]
    fn a_schema_with_an_open_one_at_any_depth_is_not_strict() {
        let open = r#"{"type":"object","properties":{}}"#;
        for schema in [
            open.to_owned(),
            open.replace("object", "null"),
            r#"{"type":["object","null"]}"#.to_owned(),
            format!(r#"{{"type":"array","items":{open}}}"#),
            r#"{"type":"array"}"#.to_owned(),
            format!(r#"{{"anyOf":[{{"type":"null"}},{open}]}}"#),
            format!(r#"{{"oneOf":[{open}]}}"#),
            format!(r#"{{"type":"null","allOf":[{open}]}}"#),
            format!(r##"{{"$defs":{{"b":{open}}},"$ref":"#/$defs/b"}}"##),
            r#"{"$ref":"https://example.com/schema"}"#.to_owned(),
            r#"{"description":"anything"}"#.to_owned(),
            "true".to_owned(),
        ] {
            let schema = with_property(&schema);
            assert_eq!(strictness(&schema), None, "{schema}");
        }
        let optional = with_property(r#"{"type":"string"}"#).replace(r#"["a"]"#, "[]");
        assert_eq!(strictness(&optional), None);
    }

    #[test]
    fn a_client_that_says_whether_a_schema_is_strict_decides() {
        let array = Json::parse(br#"{"type":"array"}"#).unwrap();
        for strict in [None, Some(false), Some(true)] {
            assert_eq!(schema_strictness(Strictness::Chosen(strict), &array), strict);
        }
    }
}
