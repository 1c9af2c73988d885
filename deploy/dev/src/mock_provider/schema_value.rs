//! A value that satisfies a JSON schema: arguments of tool calls and structured answers. It knows types, `enum`, `const`,
//! `$ref` within the schema, `anyOf`, `oneOf`, `allOf`, bounds of lengths and numbers, and some formats; not `pattern`.

use serde_json::{Map, Value, json};

/// The deepest value. What lies deeper is null.
const MAX_DEPTH: usize = 32;

/// The longest string or list that a bound asks for.
const MAX_LENGTH: u64 = 1_000;

/// A value that satisfies `schema`. Types may be in upper case, as Google writes them.
pub(super) fn value_of(schema: &Value) -> Value {
    Generator { root: schema }.value(schema, 0)
}

struct Generator<'a> {
    root: &'a Value,
}

impl Generator<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
            let named = path.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return named.map_or(Value::Null, |named| self.value(named, depth + 1));
        }
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        if let Some(first) = schema.pointer("/enum/0") {
            return first.clone();
        }
        let choices = ["anyOf", "oneOf", "any_of"].iter().find_map(|name| schema.get(*name)?.as_array());
        if let Some(choices) = choices {
            let chosen = choices.iter().find(|choice| type_of(choice) != "null").or_else(|| choices.first());
            return chosen.map_or(Value::Null, |chosen| self.value(chosen, depth + 1));
        }
        if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
            return self.all_of(schema, parts, depth);
        }
        match type_of(schema).as_str() {
            "object" => Value::Object(self.members(schema, depth)),
            "array" => self.array(schema, depth),
            "string" => Value::String(string(schema)),
            "integer" => number(schema, json!(1)),
            "number" => number(schema, json!(1.5)),
            "boolean" => Value::Bool(true),
            _ => Value::Null,
        }
    }

    /// The members of every part together, if they are objects; else the value of the first part.
    fn all_of(&self, schema: &Value, parts: &[Value], depth: usize) -> Value {
        let mut members = self.members(schema, depth);
        for part in parts {
            match self.value(part, depth + 1) {
                Value::Object(more) => members.extend(more),
                other if members.is_empty() => return other,
                _ => {}
            }
        }
        Value::Object(members)
    }

    /// Every property, required or not.
    fn members(&self, schema: &Value, depth: usize) -> Map<String, Value> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let named = properties.into_iter().flatten();
        named.map(|(name, property)| (name.clone(), self.value(property, depth + 1))).collect()
    }

    fn array(&self, schema: &Value, depth: usize) -> Value {
        let count = bound(schema, &["minItems", "min_items"]).unwrap_or(1).clamp(1, MAX_LENGTH);
        let most = bound(schema, &["maxItems", "max_items"]).unwrap_or(count);
        let item = schema.get("items").map_or(Value::Null, |items| self.value(items, depth + 1));
        let count = if schema.get("items").is_some() { count.min(most) } else { 0 };
        Value::Array((0..count).map(|_| item.clone()).collect())
    }
}

/// The type in lower case: of several, the first that is not null. An object needs no type.
fn type_of(schema: &Value) -> String {
    let named = match schema.get("type") {
        Some(Value::Array(types)) => {
            types.iter().filter_map(Value::as_str).find(|name| !name.eq_ignore_ascii_case("null"))
        }
        Some(named) => named.as_str(),
        None if schema.get("properties").is_some() => Some("object"),
        None => None,
    };
    named.unwrap_or("null").to_ascii_lowercase()
}

fn bound(schema: &Value, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| {
        let bound = schema.get(*name)?;
        // Google writes 64-bit integers as strings.
        bound.as_u64().or_else(|| bound.as_str()?.parse().ok())
    })
}

fn string(schema: &Value) -> String {
    let text = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-01",
        Some("date-time") => "2026-01-01T00:00:00Z",
        Some("time") => "00:00:00Z",
        Some("email") => "mock@example.com",
        Some("uri" | "url") => "https://example.com/",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("ipv4") => "192.0.2.1",
        _ => "mock",
    };
    let least = bound(schema, &["minLength", "min_length"]).unwrap_or(0).min(MAX_LENGTH);
    let most = bound(schema, &["maxLength", "max_length"]).unwrap_or(u64::MAX);
    let mut text = text.to_owned();
    while (text.len() as u64) < least {
        text.push('x');
    }
    text.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    text
}

/// `usual`, or the lower bound where there is one.
fn number(schema: &Value, usual: Value) -> Value {
    if let Some(least) = schema.get("minimum").filter(|least| least.is_number()) {
        return least.clone();
    }
    if let Some(least) = schema.get("exclusiveMinimum").and_then(Value::as_i64) {
        return json!(least.saturating_add(1));
    }
    match schema.get("maximum") {
        Some(most) if most.is_number() => most.clone(),
        _ => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_every_property_within_its_bounds() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 6},
                "unit": {"enum": ["celsius", "kelvin"]},
                "days": {"type": "integer", "minimum": 3},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 2}, "minItems": 2},
                "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
                "place": {"$ref": "#/$defs/place"},
                "kind": {"const": "forecast"},
                "sure": {"type": ["null", "boolean"]},
            },
            "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
        });
        let expected = json!({
            "name": "mockxx", "unit": "celsius", "days": 3, "tags": ["mo", "mo"], "note": "mock",
            "place": {"lat": 1.5}, "kind": "forecast", "sure": true,
        });
        assert_eq!(value_of(&schema), expected);
    }

    #[test]
    fn a_type_in_upper_case_is_googles() {
        let schema = json!({"type": "OBJECT", "properties": {"city": {"type": "STRING", "minLength": "5"}}});
        assert_eq!(value_of(&schema), json!({"city": "mockx"}));
    }

    #[test]
    fn a_schema_that_contains_itself_has_a_value_all_the_same() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(value_of(&schema).is_object());
        assert_eq!(value_of(&json!({"$ref": "#/missing"})), Value::Null);
    }
}
