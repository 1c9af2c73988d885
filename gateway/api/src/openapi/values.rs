//! How the values of bodies and queries are written where no type of ours is written that way. The readers in
//! `rest::fields`, `rest::params` and `rest::rules` decide; the conformance run holds these against them.

use serde_json::json;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::rules;

/// One line of what a string must look like, for `#[schema(pattern = …)]`: no NUL.
pub(crate) const NO_NUL: &str = r"^[^\u0000]*$";

macro_rules! value {
    ($(#[doc = $doc:literal])+ $name:ident = $schema:expr) => {
        $(#[doc = $doc])+
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {}
    };
}

fn string() -> ObjectBuilder {
    Object::builder().schema_type(SchemaType::Type(Type::String))
}

fn integer() -> ObjectBuilder {
    Object::builder().schema_type(SchemaType::Type(Type::Integer))
}

fn text() -> ObjectBuilder {
    string().min_length(Some(1)).max_length(Some(rules::MAX_TEXT)).pattern(Some(NO_NUL))
}

value! {
    /// Any JSON object.
    AnyObject = Object::builder().schema_type(SchemaType::Type(Type::Object))
}

value! {
    /// A text of 1 to 255 characters.
    Text = text()
}

value! {
    /// A text to look for.
    Filter = text().max_length(None)
}

value! {
    /// A merchant's own identifier of a customer; it serves wherever a customer's id does.
    ReferenceId = text().pattern(Some(r"^(?!con_)[^\u0000]*$"))
}

value! {
    /// A customer's id or the merchant's own identifier of it.
    ReferenceOrId = text().pattern(Some(r"^(con_[0-7][0-9A-HJKMNP-TV-Z]{25}|(?!con_)[^\u0000]*)$"))
}

value! {
    /// An e-mail address.
    Email = string().max_length(Some(rules::MAX_EMAIL)).pattern(Some(
        r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$",
    ))
}

value! {
    /// An http or https URL with the name of a host.
    OriginUrl = string().max_length(Some(rules::MAX_URL)).pattern(Some(
        r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~/-]*)?$",
    ))
}

value! {
    /// A plan's id.
    PlanName = string().pattern(Some("^sc_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
}

value! {
    /// A credit bundle's id.
    CreditBundleName = string().pattern(Some("^cb_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
}

value! {
    /// A phone number in E.164.
    Phone = string().pattern(Some(r"^\+[1-9][0-9]{1,14}$"))
}

value! {
    /// A meter's slug; it serves wherever a meter's id does.
    MeterSlug = string().pattern(Some("^(?!prd_)[A-Za-z0-9_-]{1,255}$"))
}

value! {
    /// A meter's id or slug.
    SlugOrId = string().pattern(Some("^(prd_[0-7][0-9A-HJKMNP-TV-Z]{25}|(?!prd_)[A-Za-z0-9_-]{1,255})$"))
}

value! {
    /// Key-value pairs: at most 100, keys of ASCII letters, digits and underscores, values of 1 to 255 characters.
    Metadata = Object::builder()
        .schema_type(SchemaType::Type(Type::Object))
        .property_names(Some(string().pattern(Some("^[A-Za-z0-9_]{1,255}$")).build()))
        .additional_properties(Some(AdditionalProperties::RefOr(text().into())))
        .max_properties(Some(rules::MAX_METADATA_PAIRS))
}

value! {
    /// A dollar amount of zero or more: a decimal string of up to ten fractional digits, or an integer.
    AmountInput = OneOfBuilder::new()
        .item(string().pattern(Some(r"^[0-9]{1,6}(\.[0-9]{1,10})?$")))
        .item(integer().minimum(Some(0)).maximum(Some(1_000_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero: a decimal string of up to ten fractional digits, or an integer.
    PositiveAmountInput = OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{0,11}|0\.[0-9]{0,9}[1-9])$")))
        .item(integer().minimum(Some(1)).maximum(Some(1_000_000_000_000_u64)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount from 10 to 10,000, in whole cents: a decimal string, or an integer.
    FundingAmount = OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{1,3}(\.[0-9]{1,2}0{0,8})?|10000)$")))
        .item(integer().minimum(Some(10)).maximum(Some(10_000)))
        .examples([json!("25")])
}

value! {
    /// A dollar amount of zero to 10,000, in whole cents: a decimal string, or an integer.
    PriceInput = OneOfBuilder::new()
        .item(string().pattern(Some(r"^([0-9]{1,4}(\.[0-9]{1,2}0{0,8})?|10000)$")))
        .item(integer().minimum(Some(0)).maximum(Some(10_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero, at most 10,000, in whole cents: a decimal string, or an integer.
    BundlePriceInput = OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{0,3}(\.[0-9]{1,2}0{0,8})?|0\.(0[1-9]|[1-9][0-9]?)0{0,8}|10000)$")))
        .item(integer().minimum(Some(1)).maximum(Some(10_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero, at most 1,000,000: a decimal string of up to ten fractional digits, or an integer.
    CreditInput = OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{0,5}(\.[0-9]{1,10})?|0\.[0-9]{0,9}[1-9])$")))
        .item(integer().minimum(Some(1)).maximum(Some(1_000_000)))
        .examples([json!("12.5")])
}

value! {
    /// A position in counted units: a whole number, or the same as a string.
    PositionInput = OneOfBuilder::new()
        .item(integer().minimum(Some(0)).maximum(Some(1_000_000_000_000_000_u64)))
        .item(string().pattern(Some("^[0-9]{1,15}$")))
        .examples([json!(1_000_000)])
}

value! {
    /// A count from 1 to 10^12.
    Count = integer().minimum(Some(1)).maximum(Some(1_000_000_000_000_u64))
}

value! {
    /// At most 1,000 names of 1 to 255 characters.
    Names = ArrayBuilder::new().items(text()).max_items(Some(1_000))
}

value! {
    /// At most 100 meters, each by its id or its slug.
    Meters = ArrayBuilder::new().items(SlugOrId::schema()).max_items(Some(100))
}

value! {
    /// A JSON array of [key, value] pairs of strings; all pairs must be there.
    MetadataFilters = string().content_media_type("application/json").examples([json!(r#"[["team","search"]]"#)])
}
