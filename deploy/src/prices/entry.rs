//! A model as a price file lists it.

use std::collections::BTreeMap;
use std::fmt;

use chrono::NaiveDate;
use farthing_api::catalogue::{Catalogue, Listed};
use farthing_core::model_price::{Above, ModelPrice, TokenRates};
use farthing_core::money::Amount;
use serde::Serialize;
use serde_json::Value;

/// A model with its price, in the form of a price file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    pub(super) provider: String,
    pub(super) model: String,
    #[serde(flatten)]
    pub(super) price: Price,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_input_tokens: Option<u64>,
    /// The day its price was taken. It stands once in a file.
    #[serde(skip)]
    pub(super) taken: NaiveDate,
}

/// A price with the shortest text of each rate. Two texts are the same if their amounts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Price {
    #[serde(flatten)]
    rates: Rates,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_character: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    above: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "a price file has these names")]
struct Rates {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_per_1m: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_per_1m: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_per_1m: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write_per_1m: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Step {
    input_tokens: u64,
    #[serde(flatten)]
    rates: Rates,
}

impl Price {
    fn new(price: &ModelPrice) -> Self {
        let ModelPrice { rates, per_request, per_character, per_second, above, file: _ } = price;
        let step = |Above { input_tokens, rates }: &Above| Step {
            input_tokens: *input_tokens,
            rates: Rates::new(*rates),
        };
        Self {
            rates: Rates::new(*rates),
            per_request: per_request.map(shortest),
            per_character: per_character.map(shortest),
            per_second: per_second.map(shortest),
            above: above.iter().map(step).collect(),
        }
    }
}

impl Rates {
    fn new(rates: TokenRates) -> Self {
        let TokenRates { input_per_1m, output_per_1m, cache_read_per_1m, cache_write_per_1m } = rates;
        Self {
            input_per_1m: input_per_1m.map(shortest),
            output_per_1m: output_per_1m.map(shortest),
            cache_read_per_1m: cache_read_per_1m.map(shortest),
            cache_write_per_1m: cache_write_per_1m.map(shortest),
        }
    }
}

fn shortest(amount: Amount) -> String {
    amount.decimal().normalize().to_string()
}

/// The provider and the name of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Name {
    pub(super) provider: String,
    pub(super) model: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.provider, self.model)
    }
}

impl Entry {
    fn new(provider: &str, model: &str, listed: &Listed) -> Self {
        Self {
            provider: provider.to_owned(),
            model: model.to_owned(),
            price: Price::new(&listed.price),
            max_output_tokens: listed.max_tokens.output,
            max_input_tokens: listed.max_tokens.input,
            taken: listed.taken_at.date_naive(),
        }
    }

    /// Its fields with their values, without its name.
    pub(super) fn fields(&self) -> serde_json::Map<String, Value> {
        let mut fields = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) | Err(_) => serde_json::Map::new(),
        };
        fields.remove("provider");
        fields.remove("model");
        fields
    }
}

/// The models of a catalogue by name. An alias is a model of its own.
pub(super) fn entries(catalogue: &Catalogue) -> BTreeMap<Name, Entry> {
    let models = catalogue.models();
    models
        .map(|(provider, model, listed)| {
            let name = Name { provider: provider.to_owned(), model: model.to_owned() };
            (name, Entry::new(provider, model, listed))
        })
        .collect()
}

/// A value without quotes around a text.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
