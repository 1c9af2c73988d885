//! Reading the path and the query of a call: every problem is collected, unknown parameters are ignored.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, RawPathParams};
use http::request::Parts;

use super::page::PageParams;
use crate::app::App;
use crate::error::{ApiError, Issue, Resource};
use crate::rules;

/// Items of a page when the caller names no limit.
const DEFAULT_LIMIT: u16 = 10;

/// The most items of a page.
const MAX_LIMIT: u16 = 100;

/// The longest value of a filter that is read at all, in characters.
const MAX_FILTER: usize = 64 * 1024;

/// The one parameter of the path, as the caller wrote it; it may be anything.
#[derive(Debug)]
pub(super) struct Named(pub(super) String);

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let nowhere = || ApiError::NotFound(Resource::Route);
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(|_| nowhere())?;
        let name = params.iter().next().map(|(_, value)| Self(value.to_owned()));
        name.ok_or_else(nowhere)
    }
}

/// The two parameters of the path, the outer one first.
#[derive(Debug)]
pub(super) struct NamedWithin(pub(super) String, pub(super) String);

impl FromRequestParts<Arc<App>> for NamedWithin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let nowhere = || ApiError::NotFound(Resource::Route);
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(|_| nowhere())?;
        let mut names = params.iter().map(|(_, value)| value.to_owned());
        let (outer, inner) = names.next().zip(names.next()).ok_or_else(nowhere)?;
        Ok(Self(outer, inner))
    }
}

/// The parameters of the query, with what was found wrong with them so far.
#[derive(Debug)]
pub(super) struct Params {
    pairs: Vec<(String, String)>,
    issues: Vec<Issue>,
}

impl FromRequestParts<Arc<App>> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let query = Query::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let Query(pairs) = query.map_err(|_| ApiError::issue([""; 0], "the query cannot be read"))?;
        Ok(Self::of(pairs))
    }
}

impl Params {
    pub(super) fn of(pairs: Vec<(String, String)>) -> Self {
        Self { pairs, issues: Vec::new() }
    }

    /// The error of all issues found, if any.
    pub(super) fn checked(self) -> Result<(), ApiError> {
        if self.issues.is_empty() { Ok(()) } else { Err(ApiError::validation(self.issues)) }
    }

    /// Notes that `message` is wrong with the parameter `name`.
    pub(super) fn refuse(&mut self, name: &str, message: impl Into<String>) {
        self.issues.push(Issue::new([name], message));
    }

    /// Is the parameter there?
    pub(super) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key == name)
    }

    /// A parameter that may be given once.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let mut values = self.pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone());
        let value = values.next()?;
        if values.next().is_some() {
            self.refuse(name, "must be given once");
            return None;
        }
        self.keep(name, rules::text(value, MAX_FILTER))
    }

    /// A parameter that `rule` accepts.
    pub(super) fn ruled<T>(
        &mut self,
        name: &str,
        rule: impl FnOnce(String) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(name)?;
        self.keep(name, rule(text))
    }

    /// One of two names of the same parameter; both may be given when they agree.
    pub(super) fn either<T: PartialEq>(
        &mut self,
        older: &str,
        newer: &str,
        rule: impl Fn(String) -> Result<T, String>,
    ) -> Option<T> {
        let (by_older, by_newer) = (self.ruled(older, &rule), self.ruled(newer, &rule));
        self.keep(newer, rules::either(older, by_older, by_newer)).flatten()
    }

    fn keep<T>(&mut self, name: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.refuse(name, message)).ok()
    }

    /// `cursor` and `limit`. A cursor is judged where the list is read, since only the list knows it.
    pub(super) fn page(&mut self) -> PageParams {
        let limit = match self.text("limit").map(|text| text.parse::<u16>()) {
            None => DEFAULT_LIMIT,
            Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => limit,
            Some(_) => {
                self.refuse("limit", "must be an integer between 1 and 100");
                DEFAULT_LIMIT
            }
        };
        PageParams { cursor: self.text("cursor"), limit }
    }

    /// `metadata_filters`: a JSON array of [key, value] pairs of strings.
    pub(super) fn metadata_filters(&mut self) -> Vec<(String, String)> {
        const NAME: &str = "metadata_filters";
        let Some(text) = self.text(NAME) else { return Vec::new() };
        let Ok(pairs) = serde_json::from_str::<Vec<(String, String)>>(&text) else {
            self.refuse(NAME, "must be a JSON array of [key, value] pairs of strings");
            return Vec::new();
        };
        if pairs.len() > rules::MAX_METADATA_PAIRS {
            self.refuse(NAME, rules::TOO_MANY_PAIRS);
            return Vec::new();
        }
        let mut filters = Vec::with_capacity(pairs.len());
        for (index, (key, value)) in pairs.into_iter().enumerate() {
            let kept = rules::metadata_key(&key).and_then(|()| rules::text(value, rules::MAX_TEXT));
            match kept {
                Ok(value) => filters.push((key, value)),
                Err(message) => self.issues.push(Issue::new([NAME.to_owned(), index.to_string()], message)),
            }
        }
        filters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn params(pairs: &[(&str, &str)]) -> Params {
        Params::of(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    fn paths(params: Params) -> Vec<String> {
        let Err(ApiError::Input(InputError::Validation(issues))) = params.checked() else {
            return Vec::new();
        };
        issues.into_iter().map(|issue| issue.path.join(".")).collect()
    }

    #[test]
    fn limits_are_between_1_and_100_and_10_when_absent() {
        for (given, limit) in [(None, 10), (Some("1"), 1), (Some("100"), 100)] {
            let pairs: Vec<_> = given.map(|limit| ("limit", limit)).into_iter().collect();
            let mut query = params(&pairs);
            assert_eq!(query.page().limit, limit);
            assert!(query.checked().is_ok());
        }
        for bad in ["0", "101", "-1", "1.5", "ten", "", "99999999999", "\0"] {
            let mut query = params(&[("limit", bad)]);
            query.page();
            assert_eq!(paths(query).first().map(String::as_str), Some("limit"), "{bad:?}");
        }
    }

    #[test]
    fn metadata_filters_are_pairs_of_strings() {
        let mut query = params(&[("metadata_filters", r#"[["a","b"],["c","d"]]"#)]);
        assert_eq!(query.metadata_filters().len(), 2);
        for bad in [
            "{}",
            "[[\"a\"]]",
            "[[\"a\",1]]",
            "x",
            "[[\"a-b\",\"c\"]]",
            "[[\"a\",\"\"]]",
            "[[\"a\",\"\\u0000\"]]",
        ] {
            let mut query = params(&[("metadata_filters", bad)]);
            query.metadata_filters();
            assert_eq!(paths(query).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_parameter_given_twice_is_refused() {
        let mut query = params(&[("cursor", "a"), ("cursor", "b")]);
        assert_eq!(query.page().cursor, None);
        assert_eq!(paths(query), ["cursor"]);
    }
}
