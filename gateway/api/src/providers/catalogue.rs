//! The price catalogue: the list prices of the providers' models (completion.md section 5). Read at the start, from the
//! file built into the program and those of the operator, and never changed while the process runs. Exact matches
//! only: a model is found by the names that a file gives it.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use farthing_core::model_price::{Above, ModelPrice, PriceFile, TokenRates};
use farthing_core::money::Amount;
use farthing_core::usage::Split;
use serde::Deserialize;

/// The longest name of a provider or model, in characters.
const MAX_NAME: usize = 255;

/// The largest rate that a catalogue may have, in dollars.
const MAX_RATE: i64 = 1_000_000;

/// The most steps by input tokens of one model.
const MAX_STEPS: usize = 10;

/// Why a file is not a catalogue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not JSON of the form of a catalogue. Amounts are decimal strings.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// The file does not say where its prices are from.
    #[error(
        "the field `{field}` is missing: beside `models`, a price file has `source`, `licence` (texts) and `taken` (the day \
         of the prices, YYYY-MM-DD). Add it to the file; only `farthing prices compare` reads one without `licence` and `taken`"
    )]
    Origin {
        /// The missing field.
        field: &'static str,
    },
    /// A text that says where its prices are from says nothing.
    #[error(
        "the field `{field}` is empty: it says where the prices are from, and by which right they may be used"
    )]
    EmptyOrigin {
        /// The empty field.
        field: &'static str,
    },
    /// An entry breaks a rule.
    #[error("{provider} {model:?}: {why}")]
    Entry {
        /// The entry's provider.
        provider: String,
        /// The entry's model.
        model: String,
        /// The rule that it breaks.
        why: &'static str,
    },
}

/// A model of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its list price.
    pub price: ModelPrice,
    /// The most tokens of one input and of one output, if they are known.
    pub max_tokens: Split<Option<u64>>,
    /// The day its price was taken, at midnight UTC.
    pub taken_at: DateTime<Utc>,
}

/// Models by provider and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    providers: BTreeMap<String, BTreeMap<String, Listed>>,
}

/// A catalogue file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: String,
    licence: Option<String>,
    taken: Option<NaiveDate>,
    models: Vec<Entry>,
}

/// A model in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    provider: String,
    model: String,
    #[serde(default)]
    aliases: Vec<String>,
    input_per_1m: Option<Amount>,
    output_per_1m: Option<Amount>,
    cache_read_per_1m: Option<Amount>,
    cache_write_per_1m: Option<Amount>,
    per_request: Option<Amount>,
    per_character: Option<Amount>,
    per_second: Option<Amount>,
    above: Option<Vec<Step>>,
    max_output_tokens: Option<u64>,
    max_input_tokens: Option<u64>,
}

/// The rates of an entry beyond a number of input tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    input_tokens: u64,
    input_per_1m: Option<Amount>,
    output_per_1m: Option<Amount>,
    cache_read_per_1m: Option<Amount>,
    cache_write_per_1m: Option<Amount>,
}

impl Step {
    fn above(&self) -> Above {
        let rates = TokenRates {
            input_per_1m: self.input_per_1m,
            output_per_1m: self.output_per_1m,
            cache_read_per_1m: self.cache_read_per_1m,
            cache_write_per_1m: self.cache_write_per_1m,
        };
        Above { input_tokens: self.input_tokens, rates }
    }
}

impl Entry {
    fn steps(&self) -> &[Step] {
        self.above.as_deref().unwrap_or_default()
    }

    fn price(&self, file: Option<PriceFile>) -> ModelPrice {
        ModelPrice {
            rates: TokenRates {
                input_per_1m: self.input_per_1m,
                output_per_1m: self.output_per_1m,
                cache_read_per_1m: self.cache_read_per_1m,
                cache_write_per_1m: self.cache_write_per_1m,
            },
            per_request: self.per_request,
            per_character: self.per_character,
            per_second: self.per_second,
            above: self.steps().iter().map(Step::above).collect(),
            file,
        }
    }

    /// The first rule that the entry breaks.
    fn fault(&self) -> Option<&'static str> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if self.provider.is_empty() || !self.provider.bytes().all(plain) {
            return Some("the provider must be of lower-case letters, digits, `-` and `_`");
        }
        let is_name = |name: &String| {
            !name.trim().is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control)
        };
        if !std::iter::once(&self.model).chain(&self.aliases).all(is_name) {
            return Some("a model's name must have 1 to 255 characters and no control characters");
        }
        let rates_of_steps = self.steps().iter().flat_map(|step| {
            [step.input_per_1m, step.output_per_1m, step.cache_read_per_1m, step.cache_write_per_1m]
        });
        let own = [
            self.input_per_1m,
            self.output_per_1m,
            self.cache_read_per_1m,
            self.cache_write_per_1m,
            self.per_request,
            self.per_character,
            self.per_second,
        ];
        if own.iter().all(Option::is_none) {
            return Some("has no price; one that costs nothing says so with \"0\"");
        }
        let is_rate = |rate: Amount| !rate.is_negative() && rate.decimal() <= MAX_RATE.into();
        if !own.into_iter().chain(rates_of_steps).flatten().all(is_rate) {
            return Some("a rate must be between 0 and 1000000");
        }
        if [self.max_input_tokens, self.max_output_tokens].contains(&Some(0)) {
            return Some("a limit of tokens must be above 0");
        }
        if self.above.as_ref().is_some_and(Vec::is_empty) {
            return Some("has an empty `above`; a price without steps leaves it out");
        }
        let steps = self.steps();
        let thresholds: BTreeSet<u64> = steps.iter().map(|step| step.input_tokens).collect();
        if thresholds.len() != steps.len() || steps.len() > MAX_STEPS {
            return Some("must have at most 10 steps in `above`, each with an input_tokens of its own");
        }
        None
    }
}

impl Catalogue {
    /// Reads a file.
    pub fn read(json: &str) -> Result<Self, Error> {
        let file: File = serde_json::from_str(json)?;
        let licence = file.licence.ok_or(Error::Origin { field: "licence" })?;
        let origin = [("source", file.source), ("licence", licence)];
        if let Some((field, _)) = origin.into_iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(Error::EmptyOrigin { field });
        }
        let taken = file.taken.ok_or(Error::Origin { field: "taken" })?;
        Self::of_models(file.models, taken, Some(&PriceFile::new(taken, json)))
    }

    /// Reads a file that need not have `licence` and `taken`, to compare its prices with those of another. Without a day,
    /// they count as taken on 1970-01-01.
    pub fn read_prices(json: &str) -> Result<Self, Error> {
        let file: File = serde_json::from_str(json)?;
        Self::of_models(file.models, file.taken.unwrap_or_default(), None)
    }

    fn of_models(models: Vec<Entry>, taken: NaiveDate, file: Option<&PriceFile>) -> Result<Self, Error> {
        let taken_at = taken.and_time(NaiveTime::MIN).and_utc();
        let mut catalogue = Self::default();
        for entry in models {
            let wrong =
                |why| Error::Entry { provider: entry.provider.clone(), model: entry.model.clone(), why };
            if let Some(why) = entry.fault() {
                return Err(wrong(why));
            }
            let models = catalogue.providers.entry(entry.provider.clone()).or_default();
            for name in std::iter::once(&entry.model).chain(&entry.aliases) {
                let max_tokens = Split { input: entry.max_input_tokens, output: entry.max_output_tokens };
                let listed = Listed { price: entry.price(file.cloned()), max_tokens, taken_at };
                if models.insert(name.clone(), listed).is_some() {
                    return Err(wrong("a name of it stands twice in the file"));
                }
            }
        }
        Ok(catalogue)
    }

    /// Adds the entries of `over`. They replace entries of the same names.
    pub fn extend(&mut self, over: Self) {
        for (provider, models) in over.providers {
            self.providers.entry(provider).or_default().extend(models);
        }
    }

    /// The model of this name.
    pub(crate) fn find(&self, provider: &str, model: &str) -> Option<&Listed> {
        self.providers.get(provider)?.get(model)
    }

    /// The providers that offer a model of this name, in order.
    pub(crate) fn providers_of(&self, model: &str) -> impl Iterator<Item = &str> {
        let offering = self.providers.iter().filter(move |(_, models)| models.contains_key(model));
        offering.map(|(provider, _)| provider.as_str())
    }

    /// Every model by its names, in order: provider, name, model.
    pub fn models(&self) -> impl Iterator<Item = (&str, &str, &Listed)> {
        self.providers.iter().flat_map(|(provider, models)| {
            models.iter().map(move |(name, listed)| (provider.as_str(), name.as_str(), listed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(models: &str) -> String {
        format!(r#"{{"source":"s","licence":"l","taken":"2026-11-20","models":[{models}]}}"#)
    }

    fn fault(models: &str) -> String {
        Catalogue::read(&file(models)).unwrap_err().to_string()
    }

    #[test]
    fn an_entry_is_found_by_its_names_and_by_no_other() {
        let json = file(
            r#"{"provider":"p","model":"m","aliases":["m-latest"],"input_per_1m":"1.5","above":[{"input_tokens":5,"output_per_1m":"2"}]}"#,
        );
        let catalogue = Catalogue::read(&json).unwrap();
        let listed = catalogue.find("p", "m").unwrap();
        assert_eq!(catalogue.find("p", "m-latest"), Some(listed));
        assert_eq!(listed.price.rates.input_per_1m, Some("1.5".parse().unwrap()));
        assert_eq!(listed.price.above[0].rates.output_per_1m, Some("2".parse().unwrap()));
        assert_eq!(listed.taken_at.to_rfc3339(), "2026-11-20T00:00:00+00:00");
        let day = listed.taken_at.date_naive();
        assert_eq!(listed.price.file, Some(PriceFile::new(day, &json)), "each call records its file");
        for (provider, model) in [("p", "m-2024-01-01"), ("p", "M"), ("q", "m"), ("p", "")] {
            assert_eq!(catalogue.find(provider, model), None, "{provider} {model}");
        }
    }

    #[test]
    fn a_file_without_its_origin_is_read_for_a_comparison_alone() {
        let models = r#"{"provider":"p","model":"m","per_request":"1"}"#;
        for (head, missing) in [
            (String::new(), "licence"),
            (r#""taken":"2026-11-20","#.to_owned(), "licence"),
            (r#""licence":"l","#.to_owned(), "taken"),
        ] {
            let json = format!(r#"{{"source":"s",{head}"models":[{models}]}}"#);
            let error = Catalogue::read(&json).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the field `{missing}` is missing")), "{error}");
            let price = &Catalogue::read_prices(&json).unwrap().find("p", "m").unwrap().price.clone();
            assert_eq!(price.per_request, Some("1".parse().unwrap()));
        }
    }

    #[test]
    fn a_file_whose_origin_says_nothing_is_read_for_a_comparison_alone() {
        for (source, licence, empty) in [("", "l", "source"), ("s", "", "licence"), ("s", " \t", "licence")] {
            let json = serde_json::json!({"source": source, "licence": licence, "taken": "2026-11-20", "models": []});
            let error = Catalogue::read(&json.to_string()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the field `{empty}` is empty")), "{error}");
            assert!(Catalogue::read_prices(&json.to_string()).is_ok());
        }
    }

    #[test]
    fn a_later_file_takes_the_place_of_whole_entries_and_adds_others() {
        let mut catalogue = Catalogue::read(&file(
            r#"{"provider":"p","model":"a","input_per_1m":"1","output_per_1m":"9"},{"provider":"p","model":"b","per_request":"1"}"#,
        ))
        .unwrap();
        let over = file(
            r#"{"provider":"p","model":"a","input_per_1m":"2"},{"provider":"q","model":"c","per_second":"0"}"#,
        );
        catalogue.extend(Catalogue::read(&over).unwrap());
        let price = &catalogue.find("p", "a").unwrap().price;
        assert_eq!((price.rates.input_per_1m, price.rates.output_per_1m), (Some("2".parse().unwrap()), None));
        let names: Vec<_> = catalogue.models().map(|(provider, model, _)| (provider, model)).collect();
        assert_eq!(names, [("p", "a"), ("p", "b"), ("q", "c")]);
    }

    #[test]
    fn what_could_be_misread_as_a_price_is_refused() {
        for (models, why) in [
            (r#"{"provider":"p","model":"m","input_per_1m":0.15}"#, "invalid type: floating point"),
            (r#"{"provider":"p","model":"m","input_per_1m":1}"#, "invalid type: integer"),
            (r#"{"provider":"p","model":"m","input_per_1m":"1e-3"}"#, "decimal string"),
            (r#"{"provider":"p","model":"m","input_per_1m":"0.00000000001"}"#, "ten fractional digits"),
            (r#"{"provider":"p","model":"m","input_per_1m":"-1"}"#, "between 0 and 1000000"),
            (r#"{"provider":"p","model":"m","input_per_1k":"1"}"#, "unknown field"),
            (r#"{"provider":"p","model":"m"}"#, "has no price"),
            (r#"{"provider":"p","model":"m","per_request":"1","max_output_tokens":0}"#, "above 0"),
            (r#"{"provider":"P q","model":"m","per_request":"1"}"#, "lower-case"),
            (r#"{"provider":"p","model":" ","per_request":"1"}"#, "1 to 255 characters"),
            (
                r#"{"provider":"p","model":"m","per_request":"1","above":[{"input_tokens":5},{"input_tokens":5}]}"#,
                "of its own",
            ),
            (r#"{"provider":"p","model":"m","per_request":"1","above":[]}"#, "empty `above`"),
            (
                r#"{"provider":"p","model":"m","per_request":"1"},{"provider":"p","model":"n","aliases":["m"],"per_request":"1"}"#,
                "twice",
            ),
        ] {
            let told = fault(models);
            assert!(told.contains(why), "{models}: {told}");
        }
        assert!(Catalogue::read("[]").is_err());
    }
}
