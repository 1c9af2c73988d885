//! A provider's usage or cost export, read by a mapping of its columns. Those of OpenAI and Anthropic are built in, as their
//! consoles wrote them in 2026; see docs/auditing.md for the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Context as _, Result, bail, ensure};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use farthing_core::reconcile::usage::{Figures, Measure, UsageKey, UsageRow};
use serde::Deserialize;

use super::csv_file::{Column, CsvFile, CsvRow};
use super::payments_file::in_dollars;

/// OpenAI's usage export, a row for each day, project, key and model.
const OPENAI_USAGE: &str = r#"{
    "day": "start_time_iso", "model": "model", "requests": ["num_model_requests"], "input_tokens": ["input_tokens"],
    "output_tokens": ["output_tokens"], "cache_read_tokens": ["input_cached_tokens"]
}"#;

/// OpenAI's cost export. Grouped by line item, an item is the model, a comma and what was counted.
const OPENAI_COST: &str = r#"{
    "day": "start_time_iso", "model": "line_item", "model_until": ", ", "cost": ["amount_value"],
    "currency": "amount_currency"
}"#;

/// Anthropic's usage export, a row for each day, model, key, workspace and context window.
const ANTHROPIC_USAGE: &str = r#"{
    "day": "usage_date_utc", "model": "model_version",
    "input_tokens": ["usage_input_tokens_no_cache", "usage_input_tokens_cache_write_5m",
        "usage_input_tokens_cache_write_1h", "usage_input_tokens_cache_read"],
    "output_tokens": ["usage_output_tokens"], "cache_read_tokens": ["usage_input_tokens_cache_read"],
    "cache_write_tokens": ["usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write_1h"]
}"#;

/// Anthropic's cost export, a row for each kind of token, in whole cents. Its models have display names.
const ANTHROPIC_COST: &str = r#"{"day": "usage_date_utc", "model": "model", "cost": ["cost_usd"]}"#;

/// The mappings that are built in, by provider.
const BUILT_IN: [(&str, &str); 4] = [
    ("openai", OPENAI_USAGE),
    ("openai", OPENAI_COST),
    ("anthropic", ANTHROPIC_USAGE),
    ("anthropic", ANTHROPIC_COST),
];

/// Plausible Unix seconds: of the years 2001 to 2286. Others may be a bare year, a date without hyphens, or milliseconds.
const UNIX_SECONDS: Range<i64> = 1_000_000_000..10_000_000_000;

/// The columns of an export. A figure is the sum of its columns.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageMapping {
    /// The day: a date, a time (in UTC, if it has no offset) or Unix seconds.
    day: String,
    /// The model.
    model: String,
    /// The model's name ends before this text.
    model_until: Option<String>,
    /// Names of models in the log, by their names in the export.
    #[serde(default)]
    models: BTreeMap<String, String>,
    #[serde(default)]
    requests: Vec<String>,
    #[serde(default)]
    input_tokens: Vec<String>,
    #[serde(default)]
    output_tokens: Vec<String>,
    #[serde(default)]
    cache_read_tokens: Vec<String>,
    #[serde(default)]
    cache_write_tokens: Vec<String>,
    #[serde(default)]
    cost: Vec<String>,
    /// The currency, which must be USD in every row.
    currency: Option<String>,
    /// The delimiter; a comma if absent.
    pub(super) delimiter: Option<char>,
}

/// The rows of an export.
#[derive(Debug)]
pub(super) struct UsageRows {
    pub(super) rows: Vec<UsageRow>,
    pub(super) measures: BTreeSet<Measure>,
    /// The first day of the export and its last one; `None` without any row. Rows of days without usage count.
    pub(super) ends: Option<(NaiveDate, NaiveDate)>,
    /// Rows of days without usage: no model and no figure.
    pub(super) idle: u64,
}

impl UsageMapping {
    /// The mapping that is built in for a provider's export with this header.
    pub(super) fn built_in(provider: &str, file: &CsvFile) -> Result<Self> {
        let known: Vec<_> = BUILT_IN.into_iter().filter(|(of, _)| *of == provider).collect();
        ensure!(!known.is_empty(), "no columns are built in for {provider:?}: give them with --mapping");
        let mut wanted = Vec::new();
        for (_, mapping) in known {
            let mapping: Self = serde_json::from_str(mapping).context("a built-in mapping")?;
            let columns = mapping.columns();
            if columns.iter().all(|column| file.has(column)) {
                return Ok(mapping);
            }
            wanted.push(columns.join(", "));
        }
        bail!(
            "the header is none of the known exports of {provider} ({}): give the columns with --mapping",
            wanted.join("; or ")
        )
    }

    /// The columns that it names.
    fn columns(&self) -> Vec<&str> {
        let figures = Measure::ALL.into_iter().flat_map(|measure| self.of(measure)).map(String::as_str);
        let texts = [&self.day, &self.model].map(String::as_str);
        texts.into_iter().chain(self.currency.as_deref()).chain(figures).collect()
    }

    /// The columns of a measure.
    fn of(&self, measure: Measure) -> &[String] {
        match measure {
            Measure::Requests => &self.requests,
            Measure::InputTokens => &self.input_tokens,
            Measure::OutputTokens => &self.output_tokens,
            Measure::CacheReadTokens => &self.cache_read_tokens,
            Measure::CacheWriteTokens => &self.cache_write_tokens,
            Measure::Cost => &self.cost,
        }
    }

    /// The rows of an export.
    pub(super) fn rows(&self, file: &CsvFile) -> Result<UsageRows> {
        let (day, model) = (file.column(&self.day)?, file.column(&self.model)?);
        let currency = self.currency.as_ref().map(|name| file.column(name)).transpose()?;
        let mut figures = Vec::new();
        for measure in Measure::ALL {
            let columns = file.columns(self.of(measure))?;
            if !columns.is_empty() {
                figures.push((measure, columns));
            }
        }
        let measures: BTreeSet<_> = figures.iter().map(|(measure, _)| *measure).collect();
        ensure!(
            !measures.is_empty(),
            "the mapping has no figure: name the columns of tokens, requests or cost"
        );
        let (mut rows, mut ends, mut idle) = (Vec::new(), None, 0);
        for row in file.rows() {
            let on = day_of(row, &day)?;
            let (first, last) = ends.unwrap_or((on, on));
            ends = Some((on.min(first), on.max(last)));
            let is_empty = |column: &Column| row.text(column).is_empty();
            if is_empty(&model) && figures.iter().flat_map(|(_, columns)| columns).all(is_empty) {
                idle += 1;
                continue;
            }
            if let Some(currency) = &currency {
                in_dollars(row, currency)?;
            }
            let key = UsageKey { day: on, model: self.model_of(row, &model) };
            rows.push(UsageRow { line: row.line, key, figures: sums(row, &figures)? });
        }
        Ok(UsageRows { rows, measures, ends, idle })
    }

    /// The model's name in the log.
    fn model_of(&self, row: &CsvRow, column: &Column) -> String {
        let text = row.text(column);
        let until = self.model_until.as_deref().and_then(|until| text.split_once(until));
        let name = until.map_or(text, |(name, _)| name);
        self.models.get(name).map_or(name, String::as_str).to_owned()
    }
}

/// The figures of a row.
fn sums(row: &CsvRow, columns: &[(Measure, Vec<Column>)]) -> Result<Figures> {
    let mut figures = Figures::default();
    for (measure, columns) in columns {
        for column in columns {
            let number = row.number(column)?;
            let is_count = *measure != Measure::Cost;
            if is_count && (number.is_sign_negative() && !number.is_zero() || !number.fract().is_zero()) {
                return Err(row.error(column, "is not a count"));
            }
            figures.add(*measure, number).map_err(|_| row.error(column, "is out of range"))?;
        }
    }
    Ok(figures)
}

/// The day of a row, in UTC.
fn day_of(row: &CsvRow, column: &Column) -> Result<NaiveDate> {
    let text = row.required(column)?;
    let time = |format| NaiveDateTime::parse_from_str(text, format).ok().map(|time| time.date());
    let seconds = || {
        let seconds = text.parse::<i64>().ok().filter(|seconds| UNIX_SECONDS.contains(seconds))?;
        Some(DateTime::from_timestamp(seconds, 0)?.date_naive())
    };
    let instant = || Some(DateTime::parse_from_rfc3339(text).ok()?.to_utc().date_naive());
    let day = text.parse::<NaiveDate>().ok().or_else(instant).or_else(seconds);
    let day = day.or_else(|| time("%Y-%m-%d %H:%M:%S")).or_else(|| time("%Y-%m-%dT%H:%M:%S"));
    day.ok_or_else(|| row.error(column, "is not a date such as 2026-11-01, a time or Unix seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(provider: &str, text: &str) -> Result<UsageRows> {
        let file = CsvFile::parse(text.as_bytes(), b',').unwrap();
        UsageMapping::built_in(provider, &file)?.rows(&file)
    }

    fn shown(rows: &UsageRows) -> Vec<String> {
        let row = |row: &UsageRow| {
            let figures = rows.measures.iter().map(|measure| row.figures.get(*measure).to_string());
            format!("{} {} {}", row.key.day, row.key.model, figures.collect::<Vec<_>>().join(" "))
        };
        rows.rows.iter().map(row).collect()
    }

    #[test]
    fn the_exports_of_openai_are_known() {
        let rows = read(
            "openai",
            "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,model,batch,\
             service_tier,input_tokens,output_tokens,input_cached_tokens,input_uncached_tokens\n\
             1759622400,1759708800,2025-10-05T00:00:00+00:00,2025-10-06T00:00:00+00:00,proj_1,10.0,user-1,key_1,\
             gpt-4o-2024-08-06,FALSE,default,59200.0,10646.0,5760.0,53440.0\n\
             1759881600,1759968000,2025-10-08T00:00:00+00:00,2025-10-09T00:00:00+00:00,,,,,,,,,,,\n",
        );
        let rows = rows.unwrap();
        assert_eq!(shown(&rows), ["2025-10-05 gpt-4o-2024-08-06 10 59200 10646 5760"]);
        assert_eq!(rows.idle, 1);
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        let ends = (day("2025-10-05"), day("2025-10-08"));
        assert_eq!(rows.ends, Some(ends), "a day without usage is one of the file");
        let rows = read(
            "openai",
            "start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id\n\
             1,2,2025-10-05T00:00:00+00:00,x,0.8958740000000000,usd,\"gpt-4o-2024-08-06, input\",p\n\
             1,2,2025-10-05T00:00:00+00:00,x,0.1000000000000000055,usd,\"gpt-4o-2024-08-06, output\",p\n",
        );
        let expected =
            ["2025-10-05 gpt-4o-2024-08-06 0.895874", "2025-10-05 gpt-4o-2024-08-06 0.1000000000000000055"];
        assert_eq!(shown(&rows.unwrap()), expected);
    }

    #[test]
    fn the_exports_of_anthropic_are_known() {
        let rows = read(
            "anthropic",
            "usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,\
             usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,\
             usage_output_tokens,web_search_count,inference_geo,speed\n\
             2026-08-05,claude-opus-5,k,Default,standard,\u{2264} 200k,100,20,3,4000,7,0,global,\n",
        );
        assert_eq!(shown(&rows.unwrap()), ["2026-08-05 claude-opus-5 4123 7 4000 23"]);
        let rows = read(
            "anthropic",
            "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type\n\
             2026-08-04,Claude Haiku 4.5,Default,k,message,\u{2264} 200k,output,0.02,0.02,token\n",
        );
        assert_eq!(shown(&rows.unwrap()), ["2026-08-04 Claude Haiku 4.5 0.02"]);
    }

    #[test]
    fn a_mapping_renames_models_and_reads_other_times() {
        let mapping = r#"{"day": "at", "model": "m", "cost": ["c", "d"], "models": {"Big": "big-1"}, "delimiter": ";"}"#;
        let mapping: UsageMapping = serde_json::from_str(mapping).unwrap();
        let text = "at;m;c;d\n1759622400;Big;1.5;0.25\n2025-10-05 23:59:59;small;2;\n2025-10-06T00:30:00+02:00;x;1;1\n";
        let file = CsvFile::parse(text.as_bytes(), b';').unwrap();
        let rows = mapping.rows(&file).unwrap();
        assert_eq!(shown(&rows), ["2025-10-05 big-1 1.75", "2025-10-05 small 2", "2025-10-05 x 2"]);
    }

    #[test]
    fn the_ends_are_those_of_all_rows_in_any_order() {
        let head = "usage_date_utc,model,cost_usd\n";
        let ends = |rows: &str| {
            let read = read("anthropic", &format!("{head}{rows}")).unwrap();
            let ends = read.ends.map(|(first, last)| format!("{first} {last}"));
            (ends.unwrap_or_default(), read.rows.len(), read.idle)
        };
        assert_eq!(ends(""), (String::new(), 0, 0));
        let idle = "2026-08-09,,\n2026-08-01,,\n";
        assert_eq!(ends(idle), ("2026-08-01 2026-08-09".to_owned(), 0, 2));
        let rows = format!("2026-08-07,m,1\n{idle}2026-08-02,m,1\n");
        assert_eq!(ends(&rows), ("2026-08-01 2026-08-09".to_owned(), 2, 2));
        let error = read("anthropic", &format!("{head}soon,,\n")).unwrap_err().to_string();
        assert!(error.starts_with("line 2, column \"usage_date_utc\": \"soon\" is not a date"), "{error}");
    }

    #[test]
    fn a_number_that_is_no_plausible_time_in_seconds_is_refused() {
        let read = |day: &str| read("anthropic", &format!("usage_date_utc,model,cost_usd\n{day},m,1\n"));
        assert_eq!(shown(&read("1000000000").unwrap()), ["2001-09-09 m 1"]);
        assert_eq!(shown(&read("9999999999").unwrap()), ["2286-11-20 m 1"]);
        for day in ["2026", "20260804", "999999999", "10000000000", "1785801600000", "-1785801600", "0"] {
            let error = read(day).unwrap_err().to_string();
            let why = format!("line 2, column \"usage_date_utc\": \"{day}\" is not a date");
            assert!(error.starts_with(&why), "{error}");
        }
    }

    #[test]
    fn bad_values_and_unknown_headers_are_refused() {
        let head = "usage_date_utc,model,cost_usd\n";
        for (provider, text, why) in [
            (
                "anthropic",
                format!("{head}soon,m,1\n"),
                "line 2, column \"usage_date_utc\": \"soon\" is not a date",
            ),
            (
                "anthropic",
                format!("{head}2026-08-04,m,\"1,000\"\n"),
                "line 2, column \"cost_usd\": \"1,000\" is not a plain",
            ),
            ("anthropic", "a,b\n1,2\n".to_owned(), "none of the known exports of anthropic"),
            ("mistral", "a,b\n1,2\n".to_owned(), "no columns are built in for \"mistral\""),
            (
                "openai",
                "start_time_iso,amount_value,amount_currency,line_item\n2026-08-04,1,eur,m\n".to_owned(),
                "\"eur\" is not USD",
            ),
            (
                "openai",
                "start_time_iso,model,num_model_requests,input_tokens,output_tokens,input_cached_tokens\n\
                 2026-08-04,m,1.5,1,1,1\n"
                    .to_owned(),
                "\"1.5\" is not a count",
            ),
        ] {
            let error = format!("{:#}", read(provider, &text).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
        let none: UsageMapping = serde_json::from_str(r#"{"day": "a", "model": "b"}"#).unwrap();
        let file = CsvFile::parse(b"a,b\n1,2\n", b',').unwrap();
        assert!(none.rows(&file).unwrap_err().to_string().contains("has no figure"));
    }
}
