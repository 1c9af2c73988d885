//! The published list prices, `model-prices.json`: each stands in the built-in catalogue, and calls of each model cost what
//! they make of it in whole numbers, without `Amount`.
//!
//! `model-prices.json` is the file that comes with the specification. With the 12 figures of `oracles.json`, which the unit tests of
//! `pricing` compare, its 181 models are 193 published figures. The calls are 298: one for each model, and one below, at
//! and above each threshold of input tokens.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use farthing_core::model_price::ModelPrice;
use farthing_core::pricing::model_cost;
use farthing_core::usage::{Cached, Split, Usage};
use serde_json::Value;

/// The decimals of an amount.
const SCALE: u32 = 10;

fn models(file: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).unwrap();
    file["models"].as_array().unwrap().clone()
}

fn published() -> Vec<Value> {
    models(include_str!("model-prices.json"))
}

/// A decimal string in units of the last decimal of an amount.
fn scaled(text: &str) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let padded = format!("{whole}{fraction:0<width$}", width = SCALE as usize);
    padded.parse().unwrap()
}

/// The rate of `name` for these input tokens: that of the threshold they exceed, or the model's own.
fn rate(model: &Value, input_tokens: u64, name: &str) -> Option<i128> {
    let steps = model.get("above").and_then(Value::as_array).into_iter().flatten();
    let exceeded = steps.filter(|step| input_tokens > step["input_tokens"].as_u64().unwrap());
    let step = exceeded.max_by_key(|step| step["input_tokens"].as_u64());
    let listed = step.and_then(|step| step.get(name)).or_else(|| model.get(name));
    listed.map(|text| scaled(text.as_str().unwrap()))
}

/// A line of these tokens and their rates per million, rounded half away from zero.
fn line(parts: &[(u64, i128)]) -> i128 {
    let exact: i128 = parts.iter().map(|(tokens, rate)| i128::from(*tokens) * rate).sum();
    (exact + 500_000) / 1_000_000
}

fn shown(units: i128) -> String {
    let one = 10_i128.pow(SCALE);
    format!("{}.{:0width$}", units / one, units % one, width = SCALE as usize)
}

/// Input and output of a call with so much input in all, by the file.
fn expected(model: &Value, usage: &Usage) -> [i128; 2] {
    let (input, output, cached) = (usage.tokens.input, usage.tokens.output, usage.cached);
    let of = |name: &str| rate(model, input, name);
    let plain = of("input_per_1m").unwrap_or(0);
    let parts = [
        (input - cached.read - cached.write, plain),
        (cached.read, of("cache_read_per_1m").unwrap_or(plain)),
        (cached.write, of("cache_write_per_1m").unwrap_or(plain)),
    ];
    [line(&parts), line(&[(output, of("output_per_1m").unwrap_or(0))])]
}

#[test]
fn each_published_model_stands_in_the_built_in_catalogue() {
    let catalogue = models(include_str!("../../../deploy/prices/catalogue.json"));
    let published = published();
    assert_eq!(published.len(), 181);
    for model in published {
        let name =
            |entry: &&Value| entry["provider"] == model["provider"] && entry["model"] == model["model"];
        let found: Vec<&Value> = catalogue.iter().filter(name).collect();
        assert_eq!(found, [&model]);
    }
}

#[test]
fn a_call_of_each_published_model_costs_what_whole_numbers_say() {
    let mut cases = 0;
    for model in published() {
        let price: ModelPrice = serde_json::from_value(model.clone()).unwrap();
        let steps = model.get("above").and_then(Value::as_array).into_iter().flatten();
        let thresholds = steps.map(|step| step["input_tokens"].as_u64().unwrap());
        let inputs = thresholds.flat_map(|threshold| [threshold - 1, threshold, threshold + 1]);
        for input in std::iter::once(2_003).chain(inputs) {
            let usage = Usage {
                tokens: Split { input, output: 337 },
                cached: Cached { read: 1_001, write: 503 },
                ..Usage::default()
            };
            let cost = model_cost(&price, &usage).unwrap();
            let [of_input, of_output] = expected(&model, &usage);
            let told = [cost.input, cost.output, cost.total].map(|amount| amount.to_string());
            assert_eq!(told, [of_input, of_output, of_input + of_output].map(shown), "{input}: {model}");
            cases += 1;
        }
    }
    assert_eq!(cases, 298);
}
