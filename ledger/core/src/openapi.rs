//! OpenAPI schemas of amounts and ids, for the feature `openapi`. Plain structs and enums derive their schemas.

use serde_json::json;
use utoipa::openapi::{Object, RefOr, Schema, schema::SchemaType, schema::Type};
use utoipa::{PartialSchema, ToSchema};

use crate::money::Amount;

/// The schema of a string that matches `pattern`.
pub(crate) fn text(pattern: &str, example: &str, description: Option<&str>) -> RefOr<Schema> {
    Object::builder()
        .schema_type(SchemaType::Type(Type::String))
        .description(description)
        .pattern(Some(pattern))
        .examples([json!(example)])
        .into()
}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        let description = "Dollars: an exact decimal with ten fractional digits.";
        text(r"^-?[0-9]+\.[0-9]{10}$", "12.3400000000", Some(description))
    }
}

impl ToSchema for Amount {}
