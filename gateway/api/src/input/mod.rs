//! Reads bodies and queries into the structs that also document them. Invariant: an answer lists every problem of the
//! input, up to [`MAX_ISSUES`] and [`MAX_BYTES_READ`], each with its path. Serde stops at the first problem, so the
//! reader notes it, skips the member that caused it, and reads again until it finds nothing new.
//!
//! A struct's field types check their own values (`values`); rules between fields are checked afterwards with
//! [`Issues`].

mod node;
mod reader;

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use self::node::{Members, Node};
use self::reader::{Problem, Reader};
use crate::error::{ApiError, Issue};
use crate::rules;

/// The most problems that one answer lists.
const MAX_ISSUES: usize = 100;

/// The most times that one input is read: each issue may also rule out the objects around it.
const MAX_PASSES: usize = 4 * MAX_ISSUES;

/// The most bytes that all passes over one input read together. A larger input gets fewer passes, and its answer may
/// list fewer problems, so that nobody can keep a thread busy with a body full of mistakes.
const MAX_BYTES_READ: usize = 4 * 1024 * 1024;

/// The most members and items that an input has in all. Reading one costs much more than its bytes do; no resource needs half
/// as many.
const MAX_VALUES: usize = 10_000;

/// The passes over an input of `bytes`: at least two, so that an issue is found and confirmed.
fn passes(bytes: usize) -> usize {
    (MAX_BYTES_READ / bytes.max(1)).clamp(2, MAX_PASSES)
}

/// Reads the JSON object `json`: unknown members are ignored, and `null` counts as absent unless the field is a
/// [`Patch`].
pub(crate) fn body<T: DeserializeOwned>(json: &str) -> Result<T, ApiError> {
    body_or_issues(json).map_err(ApiError::validation)
}

/// Reads the JSON object `json` like [`body`], for an object that has an error code of its own.
pub(crate) fn body_or_issues<T: DeserializeOwned>(json: &str) -> Result<T, Vec<Issue>> {
    read(&object(json).map_err(|issue| vec![issue])?, passes(json.len()))
}

/// Reads the JSON object `json` like [`body_or_issues`]. Repeated members, which readers understand in two ways, are
/// refused.
pub(crate) fn unambiguous_body_or_issues<T: DeserializeOwned>(json: &str) -> Result<T, Vec<Issue>> {
    let object = object(json).map_err(|issue| vec![issue])?;
    if let Some(name) = object.members().and_then(Members::repeated) {
        return Err(vec![Issue::new([name], "must not be repeated")]);
    }
    read(&object, passes(json.len()))
}

/// Checks that `json` is a JSON object, whatever its members are.
pub(crate) fn check_object(json: &str) -> Result<(), ApiError> {
    object(json).map(drop).map_err(|issue| ApiError::validation(vec![issue]))
}

/// Reads the parameters of a query. Several structs can be read at once, as a tuple.
pub(crate) fn query<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T, ApiError> {
    let bytes = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    read(&Node::query(pairs), passes(bytes)).map_err(ApiError::validation)
}

/// Reads two structs from the same object, the second only if `reads_second` returns true for the first.
pub(crate) fn read_two<'de, D: Deserializer<'de>, A: Deserialize<'de>, B: Deserialize<'de>>(
    deserializer: D,
    reads_second: impl FnOnce(&A) -> bool,
) -> Result<(A, Option<B>), D::Error> {
    struct Both<A, B, F>(F, PhantomData<(A, B)>);

    impl<'de, A, B, F> Visitor<'de> for Both<A, B, F>
    where
        A: Deserialize<'de>,
        B: Deserialize<'de>,
        F: FnOnce(&A) -> bool,
    {
        type Value = (A, Option<B>);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut object: S) -> Result<Self::Value, S::Error> {
            let first = object.next_element()?.ok_or_else(|| S::Error::invalid_length(0, &self))?;
            let second = if (self.0)(&first) { object.next_element()? } else { None };
            Ok((first, second))
        }
    }

    deserializer.deserialize_tuple(2, Both(reads_second, PhantomData))
}

fn object(json: &str) -> Result<Node<'_>, Issue> {
    if has_more_values(json, MAX_VALUES) {
        return Err(Issue::new([""; 0], format!("must have at most {MAX_VALUES} members and items")));
    }
    let whole: &RawValue = serde_json::from_str(json).map_err(|_| Issue::new([""; 0], "must be JSON"))?;
    let node = Node::json(whole);
    match node.members() {
        Some(_) => Ok(node),
        None => Err(Issue::new([""; 0], "must be a JSON object")),
    }
}

/// Whether a JSON text has more members and items than `most`. It counts the commas between them.
fn has_more_values(json: &str, most: usize) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    let commas = json.bytes().filter(|byte| {
        let is_quote = *byte == b'"' && !is_escaped;
        is_escaped = is_text && *byte == b'\\' && !is_escaped;
        is_text ^= is_quote;
        *byte == b',' && !is_text
    });
    commas.take(most).count() == most
}

fn read<'a, T: Deserialize<'a>>(root: &Node<'a>, passes: usize) -> Result<T, Vec<Issue>> {
    let mut issues = Vec::new();
    for _ in 0..passes {
        let reader = if issues.is_empty() { Reader::new(root) } else { Reader::searching(root) };
        let problem = match T::deserialize(reader) {
            Ok(value) if issues.is_empty() => return Ok(value),
            // All that is wrong has been skipped.
            Ok(_) => break,
            Err(problem) => problem,
        };
        match problem {
            Problem::New { path, message, skipped } => {
                issues.push(Issue::new(path.into_iter().rev(), message));
                if !skipped || issues.len() == MAX_ISSUES {
                    break;
                }
            }
            Problem::Known { skipped: true } => {}
            Problem::Known { skipped: false } | Problem::Missing(_) => break,
        }
    }
    Err(issues)
}

/// The problems that the rules between fields find.
#[derive(Debug, Default)]
pub(crate) struct Issues(Vec<Issue>);

impl Issues {
    /// Notes that the value at `path` breaks a rule; `message` says which. After [`MAX_ISSUES`], nothing is
    /// noted.
    pub(crate) fn refuse<P: Into<String>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) {
        if self.0.len() < MAX_ISSUES {
            self.0.push(Issue::new(path, message));
        }
    }

    /// The value of a field that has an older and a newer name. Both names may be given if their values are equal.
    pub(crate) fn either<T: PartialEq>(
        &mut self,
        (older, by_older): (&str, Option<T>),
        (newer, by_newer): (&str, Option<T>),
    ) -> Option<T> {
        match rules::either(older, by_older, by_newer) {
            Ok(value) => value,
            Err(message) => {
                self.refuse([newer], message);
                None
            }
        }
    }

    /// Notes that the field `name` is absent if there is no value, unless an issue about it was noted before.
    pub(crate) fn required<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.0.iter().any(|issue| issue.path == [name]) {
            self.refuse([name], "is required");
        }
        value
    }

    /// Adds the issues of the object at `path`.
    pub(crate) fn extend<const N: usize>(&mut self, path: &[String; N], inner: Self) {
        for Issue { path: rest, message } in inner.0 {
            self.refuse(path.iter().cloned().chain(rest), message);
        }
    }

    /// The error that lists all issues, if there is any.
    pub(crate) fn checked(self) -> Result<(), ApiError> {
        self.into_result().map_err(ApiError::validation)
    }

    /// All issues, if there is any, for an object that has an error code of its own.
    pub(crate) fn into_result(self) -> Result<(), Vec<Issue>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// A field in which `null` and absence differ, as in a partial update. The field needs `#[serde(default)]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Patch<T> {
    /// The field is absent: an update keeps the value.
    #[default]
    Absent,
    /// The field is `null`: an update clears the value.
    Null,
    /// The new value.
    Value(T),
}

impl<T> Patch<T> {
    /// The new value, if there is one.
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }

    /// The command's edit, with `convert` applied to a new value.
    pub(crate) fn edit<U>(self, convert: impl FnOnce(T) -> U) -> farthing_core::command::Edit<U> {
        use farthing_core::command::Edit;
        match self {
            Self::Absent => Edit::Keep,
            Self::Null => Edit::Clear,
            Self::Value(value) => Edit::Set(convert(value)),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|value| value.map_or(Self::Null, Self::Value))
    }
}

/// A field that may be absent, but not `null`. The field needs `#[serde(default)]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given<T>(pub(crate) Option<T>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GivenValue<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for GivenValue<T> {
            type Value = Given<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that is not null")
            }

            fn visit_none<E>(self) -> Result<Given<T>, E> {
                Ok(Given(None))
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Given<T>, D::Error> {
                T::deserialize(value).map(|value| Given(Some(value)))
            }
        }

        deserializer.deserialize_newtype_struct(reader::GIVEN, GivenValue(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::error::InputError;
    use crate::values;

    #[test]
    fn an_input_of_very_many_values_is_refused_before_it_is_read() {
        let check = |members: usize| {
            let members = (0..members).map(|number| format!("\"{number}\":[]")).collect::<Vec<_>>();
            check_object(&format!("{{{}}}", members.join(",")))
        };
        assert_eq!(check(MAX_VALUES), Ok(()));
        assert!(check(MAX_VALUES + 1).is_err());
        let nested = format!(r#"{{"unknown": [[{}0]]}}"#, "0,".repeat(MAX_VALUES));
        assert!(check_object(&nested).is_err());
        // Commas within texts separate nothing, whatever is escaped beside them.
        let text =
            format!(r#"{{"a": "\"{}\\", "b": "{}"}}"#, ",".repeat(MAX_VALUES), ",\\\\".repeat(MAX_VALUES));
        assert_eq!(check_object(&text), Ok(()));
    }

    #[derive(Debug, Deserialize)]
    struct Outer {
        name: values::Text,
        limit: Option<Inner>,
        tags: Option<values::Names>,
        flag: Option<bool>,
        inners: Option<Vec<Inner>>,
        missing: values::Text,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        amount: values::AmountInput,
        cycle: Cycle,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Cycle {
        Daily,
        Weekly,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Edits {
        #[serde(default)]
        set: Patch<values::Text>,
        #[serde(default)]
        clear: Patch<values::Text>,
        #[serde(default)]
        absent: Patch<values::Text>,
    }

    fn issues<T: fmt::Debug>(read: Result<T, ApiError>) -> Vec<(String, String)> {
        let Err(ApiError::Input(InputError::Validation(issues))) = read else { panic!("{read:?}") };
        issues.into_iter().map(|issue| (issue.path.join("."), issue.message)).collect()
    }

    fn paths<T: fmt::Debug>(read: Result<T, ApiError>) -> Vec<String> {
        issues(read).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn all_issues_are_listed_with_their_paths() {
        let json = r#"{"name": 5, "limit": {"amount": "x", "cycle": "hourly"}, "tags": ["a", 7, "b", ""],
            "flag": "yes", "inners": [{}, 3, {"amount": 1, "cycle": "daily"}]}"#;
        assert_eq!(
            issues(body::<Outer>(json)),
            [
                ("name", "must be a string"),
                ("limit.amount", "must be a decimal string such as \"12.5\""),
                ("limit.cycle", "must be one of: daily, weekly"),
                ("tags.1", "must be a string"),
                ("tags.3", "must be a string of 1 to 255 characters"),
                ("flag", "must be true or false"),
                ("inners.0.amount", "is required"),
                ("inners.0.cycle", "is required"),
                ("inners.1", "must be an object"),
                ("missing", "is required"),
            ]
            .map(|(path, message)| (path.to_owned(), message.to_owned()))
        );
    }

    #[test]
    fn a_valid_body_is_read_whole() {
        let json = r#"{"unknown": {"a": "\u0000"}, "name": "n", "limit": {"amount": "1", "cycle": "weekly"}, "missing": "m",
            "flag": null, "inners": []}"#;
        let outer: Outer = body(json).unwrap();
        assert_eq!((outer.name.0.as_str(), outer.missing.0.as_str()), ("n", "m"));
        let limit = outer.limit.unwrap();
        assert_eq!(limit.amount.0.to_string(), "1.0000000000");
        assert!(matches!(limit.cycle, Cycle::Weekly));
        assert!(outer.flag.is_none() && outer.tags.is_none() && outer.inners.is_some());
    }

    #[test]
    fn a_patch_distinguishes_null_from_absence() {
        let edits: Edits = body(r#"{"set": "x", "clear": null}"#).unwrap();
        assert_eq!(edits.set, Patch::Value(values::Text("x".to_owned())));
        assert_eq!((edits.clear, edits.absent), (Patch::Null, Patch::Absent));
        assert_eq!(paths(body::<Edits>(r#"{"set": 7, "clear": ""}"#)), ["set", "clear"]);
    }

    #[test]
    fn a_body_that_is_not_an_object_is_refused() {
        for json in ["", "{", "[]", "null", "5", "\"x\"", "{} {}", "{\"a\":\u{1}}", "{\"\\ud800\":1}"] {
            assert!(
                matches!(check_object(json), Err(ApiError::Input(InputError::Validation(_)))),
                "{json:?}"
            );
        }
        let deep = format!("{{\"set\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(paths(body::<Edits>(&deep)), ["set"]);
    }

    #[test]
    fn the_last_of_two_members_of_one_name_counts() {
        assert_eq!(paths(body::<Edits>(r#"{"set": "x", "set": 7}"#)), ["set"]);
        assert!(body::<Edits>(r#"{"set": 7, "set": "x"}"#).is_ok());
    }

    #[test]
    fn the_number_of_issues_is_bounded() {
        let tags = vec![7; 500];
        let json = serde_json::json!({"name": "n", "missing": "m", "tags": tags}).to_string();
        assert_eq!(issues(body::<Outer>(&json)).len(), MAX_ISSUES);
    }

    #[test]
    fn the_number_of_issues_of_rules_is_bounded() {
        let (mut outer, mut inner) = (Issues::default(), Issues::default());
        for _ in 0..=MAX_ISSUES {
            inner.refuse(["inner"], "is wrong");
        }
        outer.refuse(["outer"], "is wrong");
        outer.extend(&["list".to_owned()], inner);
        assert_eq!(outer.into_result().unwrap_err().len(), MAX_ISSUES);
    }

    #[test]
    fn a_large_input_is_read_a_few_times_only() {
        assert_eq!((passes(0), passes(10_000), passes(1024 * 1024), passes(usize::MAX)), (400, 400, 4, 2));
        let inners = vec!["x".repeat(100); 9_000];
        let json = serde_json::json!({"name": "n", "missing": "m", "inners": inners}).to_string();
        let found = issues(body::<Outer>(&json));
        assert_eq!(found.len(), passes(json.len()));
        assert_eq!(found[0], ("inners.0".to_owned(), "must be an object".to_owned()));
    }

    #[test]
    fn a_query_is_read_into_several_structs() {
        #[derive(Debug, Deserialize)]
        struct First {
            cursor: Option<values::Filter>,
        }
        #[derive(Debug, Deserialize)]
        struct Second {
            slug: Option<values::MeterSlug>,
        }
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let (first, second): (First, Second) = query(pairs(&[("slug", "a"), ("other", "b")])).unwrap();
        assert!(first.cursor.is_none());
        assert_eq!(second.slug.unwrap().0, "a");
        let bad = query::<(First, Second)>(pairs(&[("slug", "a b"), ("cursor", "a"), ("cursor", "b")]));
        assert_eq!(
            issues(bad).into_iter().map(|(path, message)| format!("{path} {message}")).collect::<Vec<_>>(),
            [
                "cursor must be given once",
                "slug must be 1 to 255 ASCII letters, digits, dashes and underscores"
            ]
        );
    }
}
