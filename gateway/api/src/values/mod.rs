//! The values of bodies and queries. Each type is declared once: its schema documents it, and its `Deserialize` reads and
//! checks it by the rules of [`crate::rules`]. The conformance run compares the two.

use std::collections::BTreeMap;

use farthing_core::command::MeterRef;
use farthing_core::event::codec;
use farthing_core::ids::CustomerId;
use farthing_core::metadata;
use farthing_projector::journal::Kinds;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, SchemaType, Type};
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::rules;

/// The schema pattern of a string without NUL.
const NO_NUL: &str = r"^[^\u0000]*$";

/// The schema pattern of a string without NUL that has a character other than white space.
const NOT_BLANK: &str = concat!(
    r"^[^\u0000]*",
    r"[^\u0000\u0009-\u000d\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]",
    r"[^\u0000]*$",
);

/// The longest value of a query parameter, in characters.
const MAX_FILTER: usize = 64 * 1024;

/// The longest provider key, in characters.
const MAX_PROVIDER_KEY: usize = 4_096;

/// The longest URL of a request and its method, in characters.
const MAX_ENDPOINT: usize = 8 * 1024;

/// The longest part of a card that is read, in characters.
const MAX_CARD_TEXT: usize = 64;

/// The most names in one list of models or providers.
const MAX_NAMES: usize = 1_000;

/// The most bytes of such a list as JSON writes its names, in UTF-8 and without the quotes.
const MAX_NAMES_BYTES: usize = 100_000;

/// The most meters of one plan.
const MAX_METERS: usize = 100;

/// Declares a type of values: `Name(Inner) = source(rule), schema`.
macro_rules! value {
    ($(#[doc = $doc:literal])+ $name:ident($inner:ty) = $source:ident($rule:expr), $schema:expr) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $source(deserializer, $rule).map(Self)
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {}
    };
}

mod numbers;
mod times;

pub(crate) use self::numbers::{
    AmountInput, BundlePriceInput, Count, CreditInput, FundingAmount, LogPosition, MetadataValueInput,
    Number, PageLimit, PositionInput, PositiveAmountInput, PriceInput, RateInput, UsageCount, UsageSeconds,
};
pub(crate) use self::times::{Instant, LocalInstant};

/// Reads a string by `rule`.
fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    rule: impl FnOnce(String) -> Result<T, String>,
) -> Result<T, D::Error> {
    rule(String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Reads a list of at most `max` items.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    max: usize,
) -> Result<Vec<T>, D::Error> {
    struct Items<T>(usize, std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            if items.size_hint().is_some_and(|length| length > self.0) {
                return Err(A::Error::custom(format!("must have at most {} items", self.0)));
            }
            let mut values = Vec::new();
            while let Some(value) = items.next_element()? {
                values.push(value);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_seq(Items(max, std::marker::PhantomData))
}

/// Reads an object of [`MetadataKey`]s and values that convert into `T`.
fn pairs<'de, D: Deserializer<'de>, V: Deserialize<'de> + Into<T>, T>(
    deserializer: D,
    max: usize,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Pairs<V, T>(usize, std::marker::PhantomData<(V, T)>);

    impl<'de, V: Deserialize<'de> + Into<T>, T> Visitor<'de> for Pairs<V, T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
            if pairs.size_hint().is_some_and(|length| length > self.0) {
                return Err(A::Error::custom(rules::TOO_MANY_PAIRS));
            }
            let mut metadata = BTreeMap::new();
            while let Some((MetadataKey(key), value)) = pairs.next_entry::<MetadataKey, V>()? {
                metadata.insert(key, value.into());
            }
            Ok(metadata)
        }
    }

    deserializer.deserialize_map(Pairs(max, std::marker::PhantomData::<(V, T)>))
}

/// Reads the metadata of a request.
fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
    max: usize,
) -> Result<BTreeMap<String, String>, D::Error> {
    pairs::<D, Text, String>(deserializer, max)
}

/// Reads the metadata of a customer.
fn scalars<'de, D: Deserializer<'de>>(deserializer: D, max: usize) -> Result<metadata::Metadata, D::Error> {
    pairs::<D, MetadataValueInput, metadata::MetadataValue>(deserializer, max)
}

impl From<Text> for String {
    fn from(Text(text): Text) -> Self {
        text
    }
}

impl From<MetadataValueInput> for metadata::MetadataValue {
    fn from(MetadataValueInput(value): MetadataValueInput) -> Self {
        value
    }
}

/// A list of at most `MAX` items. A longer list is one issue, and none of its items is read. A field documents its
/// items and its length itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        list(deserializer, MAX).map(Self)
    }
}

fn string() -> ObjectBuilder {
    Object::builder().schema_type(SchemaType::Type(Type::String))
}

fn integer() -> ObjectBuilder {
    Object::builder().schema_type(SchemaType::Type(Type::Integer))
}

fn text_schema() -> ObjectBuilder {
    string().min_length(Some(1)).max_length(Some(rules::MAX_TEXT)).pattern(Some(NO_NUL))
}

value! {
    /// A text of 1 to 255 characters.
    Text(String) = text(|text| rules::text(text, rules::MAX_TEXT)), text_schema()
}

value! {
    /// The name of a person: 1 to 255 characters, not all of them white space.
    PersonName(String) = text(rules::person_name), text_schema().pattern(Some(NOT_BLANK))
}

value! {
    /// A key at a provider. Temporary AWS credentials and short-term keys of Bedrock are long.
    ProviderKeyText(String) = text(|text| rules::text(text, MAX_PROVIDER_KEY)),
        text_schema().max_length(Some(MAX_PROVIDER_KEY))
}

value! {
    /// A text to search for.
    Filter(String) = text(|text| rules::text(text, MAX_FILTER)), text_schema().max_length(None)
}

value! {
    /// Kinds of events, with commas between them.
    EventKinds(Kinds) = text(event_kinds), string().pattern(Some(event_kinds_pattern()))
}

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn event_kinds(names: String) -> Result<Kinds, String> {
    let kinds = Kinds::named(names.split(','));
    kinds.ok_or_else(|| "must be kinds of events, with commas between them".to_owned())
}

fn event_kinds_pattern() -> String {
    let kinds = codec::kinds().map(|kind| kind.replace('.', "\\.")).collect::<Vec<_>>().join("|");
    format!("^({kinds})(,({kinds}))*$")
}

value! {
    /// A merchant's own identifier of a customer. It is accepted wherever a customer's id is.
    ReferenceId(String) = text(rules::reference_id), text_schema().pattern(Some(r"^(?!con_)[^\u0000]*$"))
}

value! {
    /// A customer's id or the merchant's own identifier of the customer.
    ReferenceOrId(String) = text(|name| rules::text(name, rules::MAX_TEXT)),
    text_schema().pattern(Some(r"^(con_[0-7][0-9A-HJKMNP-TV-Z]{25}|(?!con_)[^\u0000]*)$"))
}

/// A customer, as a filter names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CustomerName {
    /// By its id.
    Id(CustomerId),
    /// By the merchant's own identifier.
    Reference(String),
}

value! {
    /// A customer's id or the merchant's own identifier of the customer.
    CustomerFilter(CustomerName) = text(|name| match name.parse() {
        Ok(id) => Ok(CustomerName::Id(id)),
        Err(_) => rules::reference_id(name).map(CustomerName::Reference),
    }),
    ReferenceOrId::schema()
}

value! {
    /// An e-mail address.
    Email(String) = text(rules::email),
    string().max_length(Some(rules::MAX_EMAIL)).pattern(Some(
        r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$",
    ))
}

value! {
    /// An http or https URL with a host name.
    OriginUrl(String) = text(rules::origin_url),
    string().max_length(Some(rules::MAX_URL)).pattern(Some(
        r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~/-]*)?$",
    ))
}

value! {
    /// The http or https URL of a webhook, without user information and fragment.
    WebhookUrl(String) = text(rules::webhook_url),
    string().max_length(Some(rules::MAX_WEBHOOK_URL)).pattern(Some(r"^https?://[A-Za-z0-9][!-\x22$-\[\]-~]*$"))
}

value! {
    /// The method and full URL of a call.
    Endpoint(String) = text(|text| rules::text(text, MAX_ENDPOINT)),
    text_schema().max_length(Some(MAX_ENDPOINT))
}

value! {
    /// A merchant's own id of a call. It must not have the form `req_<ULID>`.
    ReportedId(String) = text(rules::reported_id), text_schema()
}

value! {
    /// A part of a card that is passed to the payment processor.
    CardText(String) = text(|text| rules::text(text, MAX_CARD_TEXT)),
    text_schema().max_length(Some(MAX_CARD_TEXT))
}

value! {
    /// A phone number in E.164.
    Phone(String) = text(rules::phone), string().pattern(Some(r"^\+[1-9][0-9]{1,14}$"))
}

value! {
    /// A meter's slug. It is accepted wherever a meter's id is.
    MeterSlug(String) = text(rules::slug), string().pattern(Some("^(?!prd_)[A-Za-z0-9_-]{1,255}$"))
}

value! {
    /// A meter's id or slug.
    SlugOrId(MeterRef) = text(rules::meter),
    string().pattern(Some("^(prd_[0-7][0-9A-HJKMNP-TV-Z]{25}|(?!prd_)[A-Za-z0-9_-]{1,255})$"))
}

value! {
    /// A key of metadata.
    MetadataKey(String) = text(|key| rules::metadata_key(&key).map(|()| key)),
    string().pattern(Some("^[A-Za-z0-9_]{1,255}$"))
}

value! {
    /// Key-value pairs: at most 100, keys of ASCII letters, digits and underscores, values of 1 to 255 characters.
    Metadata(BTreeMap<String, String>) = texts(rules::MAX_METADATA_PAIRS),
    Object::builder()
        .schema_type(SchemaType::Type(Type::Object))
        .property_names(Some(MetadataKey::schema()))
        .additional_properties(Some(AdditionalProperties::RefOr(text_schema().into())))
        .max_properties(Some(rules::MAX_METADATA_PAIRS))
}

value! {
    /// Key-value pairs of a customer: at most 100, keys of ASCII letters, digits and underscores; a value is a string of 1 to
    /// 255 characters, a number of at most 255 characters, or a boolean.
    CustomerMetadata(metadata::Metadata) = scalars(rules::MAX_METADATA_PAIRS),
    Object::builder()
        .schema_type(SchemaType::Type(Type::Object))
        .property_names(Some(MetadataKey::schema()))
        .additional_properties(Some(AdditionalProperties::RefOr(MetadataValueInput::schema())))
        .max_properties(Some(rules::MAX_METADATA_PAIRS))
}

value! {
    /// At most 1,000 names of 1 to 255 characters, with 100,000 bytes in all.
    Names(Vec<Text>) = list(MAX_NAMES), ArrayBuilder::new().items(text_schema()).max_items(Some(MAX_NAMES))
}

value! {
    /// At most 100 meters, each by its id or its slug.
    Meters(Vec<SlugOrId>) = list(MAX_METERS),
    ArrayBuilder::new().items(SlugOrId::schema()).max_items(Some(MAX_METERS))
}

value! {
    /// A JSON array of [key, value] pairs of strings. An item matches if it has all pairs.
    MetadataFilters(Vec<(String, String)>) = text(metadata_filters),
    string().content_media_type("application/json").examples([json!(r#"[["team","search"]]"#)])
}

fn metadata_filters(text: String) -> Result<Vec<(String, String)>, String> {
    let text = rules::text(text, MAX_FILTER)?;
    let pairs: Vec<(String, String)> = serde_json::from_str(&text)
        .map_err(|_| "must be a JSON array of [key, value] pairs of strings".to_owned())?;
    if pairs.len() > rules::MAX_METADATA_PAIRS { Err(rules::TOO_MANY_PAIRS.to_owned()) } else { Ok(pairs) }
}

impl Names {
    /// Whether the names together are short enough for an event. An event must fit into a message of the feed, which
    /// carries 1 MB at most: the next events of all merchants of the partition wait behind it.
    pub(crate) fn fit_into_an_event(&self) -> bool {
        let written =
            |Text(name): &Text| serde_json::to_string(name).map_or(usize::MAX, |json| json.len() - 2);
        self.0.iter().map(written).fold(0, usize::saturating_add) <= MAX_NAMES_BYTES
    }

    /// The names as strings.
    pub(crate) fn into_strings(self) -> Vec<String> {
        self.0.into_iter().map(|Text(name)| name).collect()
    }
}

impl Meters {
    /// The meters as commands name them.
    pub(crate) fn into_refs(self) -> Vec<MeterRef> {
        self.0.into_iter().map(|SlugOrId(meter)| meter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn texts_are_measured_in_characters_and_have_no_nul() {
        let text = |content: &str| read::<Text>(&serde_json::json!(content).to_string());
        assert!(text(&"é".repeat(255)).is_some());
        for content in ["é".repeat(256).as_str(), "x\0y", ""] {
            assert_eq!(text(content), None);
        }
        assert_eq!(read::<Text>(r#""\ud800""#), None);
    }

    #[test]
    fn a_name_is_documented_as_it_is_read() {
        let documented = regex::Regex::new(NOT_BLANK).unwrap();
        // The last white space is U+3000.
        for character in '\0'..='\u{3100}' {
            for name in [character.to_string(), format!(" {character}\n")] {
                let is_read = read::<PersonName>(&json!(name).to_string()).is_some();
                assert_eq!(documented.is_match(&name), is_read, "{name:?}");
            }
        }
    }

    #[test]
    fn metadata_has_few_pairs_with_plain_keys() {
        assert_eq!(read::<Metadata>(r#"{"a_1": "v"}"#).unwrap().0.len(), 1);
        for json in
            [r#"{"a-b": "v"}"#, r#"{"": "v"}"#, r#"{"c": 5}"#, r#"{"d": ""}"#, r#"{"e": "\u0000"}"#, "[]"]
        {
            assert_eq!(read::<Metadata>(json), None, "{json}");
        }
    }

    #[test]
    fn metadata_of_a_customer_may_be_numbers_and_booleans() {
        let read = |json: &str| read::<CustomerMetadata>(json).map(|metadata| metadata.0);
        let json = r#"{"a":"v","b":1.50,"c":true,"d":-7}"#;
        assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
        let long = format!(r#"{{"a":{}}}"#, "9".repeat(256));
        for json in
            [r#"{"a":null}"#, r#"{"a":[]}"#, r#"{"a":{}}"#, r#"{"a":""}"#, r#"{"a b":1}"#, long.as_str()]
        {
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn metadata_filters_are_pairs_of_strings() {
        assert_eq!(metadata_filters(r#"[["a","b"],["c","d"]]"#.to_owned()).unwrap().len(), 2);
        for bad in ["{}", "[[\"a\"]]", "[[\"a\",1]]", "x"] {
            assert!(metadata_filters(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
