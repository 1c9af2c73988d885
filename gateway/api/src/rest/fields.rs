//! Reading the members of a JSON body: every problem is collected with its path, unknown members are ignored, and
//! numbers are read from their own text, so that no money ever passes through a float.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike as _, Utc};
use farthing_core::command::{Edit, to_millisecond};
use farthing_core::money::{self, Amount};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{ApiError, Issue};
use crate::rules;

/// The last year that a date-time can show.
const MAX_YEAR: i32 = 9999;

/// The members of one JSON object, with what was found wrong with them so far.
///
/// Every reader answers `None` both for a member that is absent or `null` and for one that is wrong; a wrong one
/// is noted, and [`Fields::checked`] refuses the whole body in the end.
pub(super) struct Fields<'a> {
    path: Vec<String>,
    members: BTreeMap<String, &'a RawValue>,
    issues: Vec<Issue>,
}

impl<'a> Fields<'a> {
    /// The members of the body `json`.
    pub(super) fn of(json: &'a str) -> Result<Self, ApiError> {
        let not_json = |_| ApiError::issue([""; 0], "must be JSON");
        let body: &RawValue = serde_json::from_str(json).map_err(not_json)?;
        match members(body) {
            Some(members) => Ok(Self { path: Vec::new(), members, issues: Vec::new() }),
            None => Err(ApiError::issue([""; 0], "must be a JSON object")),
        }
    }

    /// The error of all issues found, if any.
    pub(super) fn checked(self) -> Result<(), ApiError> {
        if self.issues.is_empty() { Ok(()) } else { Err(ApiError::validation(self.issues)) }
    }

    /// Notes that `message` is wrong with the member `name`.
    pub(super) fn refuse(&mut self, name: &str, message: impl Into<String>) {
        self.refuse_at([name], message);
    }

    /// Notes that `message` is wrong with what lies at `path` from here.
    pub(super) fn refuse_at<P: Into<String>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) {
        let path = self.path.iter().cloned().chain(path.into_iter().map(Into::into));
        self.issues.push(Issue::new(path, message));
    }

    /// Is the member there, and not `null`?
    pub(super) fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|raw| raw.get() != "null")
    }

    /// Is the member there as `null`?
    pub(super) fn is_null(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|raw| raw.get() == "null")
    }

    /// What a partial update does with the member `name`: an absent one stays, `null` clears it, all else is read by
    /// `read`. A wrong one is noted, and counts as one that stays.
    pub(super) fn edit<T>(&mut self, name: &str, read: impl FnOnce(&mut Self, &str) -> Option<T>) -> Edit<T> {
        match self.members.get(name) {
            None => Edit::Keep,
            Some(raw) if raw.get() == "null" => Edit::Clear,
            Some(_) => read(self, name).map_or(Edit::Keep, Edit::Set),
        }
    }

    /// `value`, which must be there: notes an absent or null member.
    pub(super) fn required<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        if !self.has(name) {
            self.refuse(name, "is required");
        }
        value
    }

    /// A string of 1 to `max` characters without NUL.
    pub(super) fn text(&mut self, name: &str, max: usize) -> Option<String> {
        let text = self.string(name)?;
        self.keep(name, rules::text(text, max))
    }

    /// A string that `rule` accepts.
    pub(super) fn ruled<T>(
        &mut self,
        name: &str,
        rule: impl FnOnce(String) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.string(name)?;
        self.keep(name, rule(text))
    }

    /// One of two names of the same member; both may be given when they agree.
    pub(super) fn either<T: PartialEq>(
        &mut self,
        older: &str,
        newer: &str,
        rule: impl Fn(String) -> Result<T, String>,
    ) -> Option<T> {
        let (by_older, by_newer) = (self.ruled(older, &rule), self.ruled(newer, &rule));
        self.keep(newer, rules::either(older, by_older, by_newer)).flatten()
    }

    /// One of the named values.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.string(name)?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if chosen.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.refuse(name, format!("must be one of: {}", words.join(", ")));
        }
        chosen
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        self.parsed(name, "must be true or false")
    }

    /// An amount: a decimal string, or a number that is an integer.
    pub(super) fn amount(&mut self, name: &str) -> Option<Amount> {
        let text = self.decimal_text(name)?;
        self.keep(name, text.parse().map_err(|error: money::Error| error.to_string()))
    }

    /// An amount that is paid by card.
    pub(super) fn payable(&mut self, name: &str) -> Option<Amount> {
        let amount = self.amount(name)?;
        if !rules::is_payable(amount) {
            self.refuse(name, "must be in whole cents");
        }
        Some(amount)
    }

    /// A whole number, as a string or a number; for positions, which may be counted in anything.
    pub(super) fn whole(&mut self, name: &str) -> Option<Decimal> {
        let text = self.decimal_text(name)?;
        let whole = money::parse_decimal(&text, 0).map_err(|_| "must be a whole number".to_owned());
        self.keep(name, whole)
    }

    /// A number of any precision, exactly as it is written, or a decimal string.
    pub(super) fn number(&mut self, name: &str) -> Option<Decimal> {
        let raw = self.member(name)?;
        let text = if raw.get().starts_with('"') { self.string(name)? } else { raw.get().to_owned() };
        let exact = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text));
        match exact {
            Ok(number) if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                Some(number)
            }
            Ok(_) | Err(_) => {
                self.refuse(name, "must be a number");
                None
            }
        }
    }

    /// An integer of at least 1 and at most 10^12.
    pub(super) fn count(&mut self, name: &str) -> Option<u64> {
        let count: u64 = self.parsed(name, "must be an integer above zero")?;
        self.keep(name, rules::count(count))
    }

    /// An ISO 8601 instant, cut to the millisecond.
    pub(super) fn instant(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let text = self.string(name)?;
        let instant = DateTime::parse_from_rfc3339(&text).ok().map(|instant| instant.with_timezone(&Utc));
        let shown = instant.filter(|instant| instant.year() <= MAX_YEAR).map(to_millisecond);
        self.keep(name, shown.ok_or_else(|| "must be an ISO 8601 date-time with its offset".to_owned()))
    }

    /// Free key-value pairs (interface.md, Limits).
    pub(super) fn metadata(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        let raw = self.member(name)?;
        let Some(pairs) = members(raw) else {
            self.refuse(name, "must be an object");
            return None;
        };
        let mut metadata = BTreeMap::new();
        if pairs.len() > rules::MAX_METADATA_PAIRS {
            self.refuse(name, rules::TOO_MANY_PAIRS);
            return None;
        }
        for (key, value) in pairs {
            if let Err(message) = rules::metadata_key(&key) {
                self.refuse_at([name, &key], message);
                continue;
            }
            match serde_json::from_str(value.get()) {
                Err(_) => self.refuse_at([name, &key], "must be a string"),
                Ok(value) => match rules::text(value, rules::MAX_TEXT) {
                    Err(message) => self.refuse_at([name, &key], message),
                    Ok(value) => drop(metadata.insert(key, value)),
                },
            }
        }
        Some(metadata)
    }

    /// A list of at most `max` strings of 1 to 255 characters.
    pub(super) fn texts(&mut self, name: &str, max: usize) -> Option<Vec<String>> {
        let items = self.items(name, max)?;
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let text = serde_json::from_str(item.get()).map_err(|_| "must be a string".to_owned());
            match text.and_then(|text| rules::text(text, rules::MAX_TEXT)) {
                Ok(text) => texts.push(text),
                Err(message) => self.refuse_at([name, &index.to_string()], message),
            }
        }
        Some(texts)
    }

    /// A list of at most `max` strings that `rule` accepts; none when one of them is wrong.
    pub(super) fn ruled_list<T>(
        &mut self,
        name: &str,
        max: usize,
        rule: impl Fn(String) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let items = self.items(name, max)?;
        let count = items.len();
        let mut values = Vec::with_capacity(count);
        for (index, item) in items.into_iter().enumerate() {
            let text = serde_json::from_str(item.get()).map_err(|_| "must be a string".to_owned());
            match text.and_then(&rule) {
                Ok(value) => values.push(value),
                Err(message) => self.refuse_at([name, &index.to_string()], message),
            }
        }
        (values.len() == count).then_some(values)
    }

    /// An object, read by `read`.
    pub(super) fn object<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
    ) -> Option<T> {
        let raw = self.member(name)?;
        self.nested(vec![name.to_owned()], raw, read)
    }

    /// A list of at most `max` objects, each read by `read`; none when one of them is wrong.
    pub(super) fn objects<T>(
        &mut self,
        name: &str,
        max: usize,
        mut read: impl FnMut(&mut Fields<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.items(name, max)?;
        let count = items.len();
        let indexed = items.into_iter().enumerate();
        let values: Vec<T> = indexed
            .filter_map(|(index, item)| {
                self.nested(vec![name.to_owned(), index.to_string()], item, &mut read)
            })
            .collect();
        (values.len() == count).then_some(values)
    }

    fn nested<T>(
        &mut self,
        path: Vec<String>,
        raw: &'a RawValue,
        read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
    ) -> Option<T> {
        let Some(members) = members(raw) else {
            self.refuse_at(path, "must be an object");
            return None;
        };
        let path = self.path.iter().cloned().chain(path).collect();
        let mut inner = Fields { path, members, issues: Vec::new() };
        let value = read(&mut inner);
        self.issues.append(&mut inner.issues);
        value
    }

    fn items(&mut self, name: &str, max: usize) -> Option<Vec<&'a RawValue>> {
        let raw = self.member(name)?;
        let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(raw.get()) else {
            self.refuse(name, "must be a list");
            return None;
        };
        if items.len() > max {
            self.refuse(name, format!("must hold at most {max} items"));
            return None;
        }
        Some(items)
    }

    fn member(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name).copied().filter(|raw| raw.get() != "null")
    }

    fn string(&mut self, name: &str) -> Option<String> {
        self.parsed(name, "must be a string")
    }

    fn parsed<T: Deserialize<'a>>(&mut self, name: &str, otherwise: &str) -> Option<T> {
        let raw = self.member(name)?;
        self.keep(name, serde_json::from_str(raw.get()).map_err(|_| otherwise.to_owned()))
    }

    /// The text of a decimal string, or of a number that is an integer.
    fn decimal_text(&mut self, name: &str) -> Option<String> {
        let raw = self.member(name)?.get();
        if raw.starts_with('"') {
            return self.string(name);
        }
        let digits = raw.strip_prefix('-').unwrap_or(raw);
        let integer = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| raw.to_owned());
        self.keep(name, integer.ok_or_else(|| "must be a decimal string".to_owned()))
    }

    fn keep<T>(&mut self, name: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.refuse(name, message)).ok()
    }
}

fn members(raw: &RawValue) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn issues(fields: Fields<'_>) -> Vec<(String, String)> {
        let Err(ApiError::Input(InputError::Validation(issues))) = fields.checked() else {
            return Vec::new();
        };
        issues.into_iter().map(|issue| (issue.path.join("."), issue.message)).collect()
    }

    #[test]
    fn every_issue_is_told_with_its_path() {
        let json =
            r#"{"name": 5, "limit": {"amount": "x", "cycle": "hourly"}, "tags": ["a", 7], "flag": "yes"}"#;
        let mut body = Fields::of(json).unwrap();
        assert_eq!(body.text("name", 255), None);
        body.object("limit", |limit| {
            limit.amount("amount");
            limit.choice("cycle", &[("daily", 1)])
        });
        body.texts("tags", 10);
        body.flag("flag");
        let missing = body.text("missing", 255);
        body.required("missing", missing);
        let paths: Vec<_> = issues(body).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["name", "limit.amount", "limit.cycle", "tags.1", "flag", "missing"]);
    }

    #[test]
    fn an_edit_tells_null_from_absence() {
        let mut body = Fields::of(r#"{"set": "x", "clear": null, "wrong": 7}"#).unwrap();
        let mut edit = |name| body.edit(name, |body, name| body.text(name, 255));
        assert_eq!(edit("set"), Edit::Set("x".to_owned()));
        assert_eq!(edit("clear"), Edit::Clear);
        assert_eq!(edit("absent"), Edit::Keep);
        assert_eq!(edit("wrong"), Edit::Keep);
        assert_eq!(issues(body).len(), 1);
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for json in ["", "{", "[]", "null", "5", "\"x\"", "{} {}", "{\"a\":\u{1}}", "{\"\\ud800\":1}"] {
            assert!(matches!(Fields::of(json), Err(ApiError::Input(InputError::Validation(_)))), "{json:?}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Fields::of(&deep).is_ok_and(|mut body| body.text("a", 9).is_none()));
    }

    #[test]
    fn a_number_where_money_belongs_must_be_an_integer() {
        let json = r#"{"a": 5, "b": "0.0000000001", "c": 0.5, "d": 5.0, "e": 1e3, "f": true, "g": "1e3", "h": -1,
            "i": 99999999999999999999999999999999999999}"#;
        let mut body = Fields::of(json).unwrap();
        assert_eq!(body.amount("a").unwrap().to_string(), "5.0000000000");
        assert_eq!(body.amount("b").unwrap().to_string(), "0.0000000001");
        assert_eq!(body.amount("h").unwrap().to_string(), "-1.0000000000");
        for name in ["c", "d", "e", "f", "g", "i"] {
            assert_eq!(body.amount(name), None, "{name}");
        }
        assert_eq!(issues(body).len(), 6);
    }

    #[test]
    fn a_plain_number_keeps_every_digit() {
        let json = r#"{"a": 12345678.0123456789, "b": 5e-7, "c": "0.30", "d": "x", "e": [], "f": "+1"}"#;
        let mut body = Fields::of(json).unwrap();
        assert_eq!(body.number("a").unwrap().to_string(), "12345678.0123456789");
        assert_eq!(body.number("b").unwrap().to_string(), "0.0000005");
        assert_eq!(body.number("c").unwrap().to_string(), "0.30");
        for name in ["d", "e", "f"] {
            assert_eq!(body.number(name), None, "{name}");
        }
    }

    #[test]
    fn strings_are_measured_in_characters_and_hold_no_nul() {
        let long = "é".repeat(256);
        let json = serde_json::json!({"a": "é".repeat(255), "b": long, "c": "x\0y", "d": ""}).to_string();
        let mut body = Fields::of(&json).unwrap();
        assert!(body.text("a", 255).is_some());
        for name in ["b", "c", "d"] {
            assert_eq!(body.text(name, 255), None);
        }
        let mut broken = Fields::of(r#"{"a": "\ud800"}"#).unwrap();
        assert_eq!(broken.text("a", 255), None);
        assert_eq!(issues(broken).len(), 1);
    }

    #[test]
    fn metadata_keeps_its_rules() {
        let many: BTreeMap<_, _> = (0..101).map(|n| (format!("k{n}"), "v")).collect();
        let json = serde_json::json!({
            "good": {"a_1": "v"}, "bad": {"a-b": "v", "": "v", "c": 5, "d": "", "e": "\0", "f": "v"}, "many": many,
            "list": [],
        });
        let json = json.to_string();
        let mut body = Fields::of(&json).unwrap();
        assert_eq!(body.metadata("good").unwrap().len(), 1);
        assert_eq!(body.metadata("absent"), None);
        body.metadata("bad");
        body.metadata("many");
        body.metadata("list");
        let paths: Vec<_> = issues(body).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["bad.", "bad.a-b", "bad.c", "bad.d", "bad.e", "many", "list"]);
    }

    #[test]
    fn null_counts_as_absent_and_unknown_members_are_ignored() {
        let mut body = Fields::of(r#"{"a": null, "b": {"c": "\u0000"}}"#).unwrap();
        assert_eq!(body.text("a", 255), None);
        assert!(!body.has("a"));
        assert!(body.checked().is_ok());
    }
}
