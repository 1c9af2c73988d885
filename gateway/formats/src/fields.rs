//! Strict reading of a format's objects: each field is taken by name, and what is left over is refused by its path.

use std::collections::HashSet;

use serde_json::Number;

use crate::conversation::Given;
use crate::error::RequestError;
use crate::ignored::{Place, is_ignored};
use crate::json::{Json, Members};
use crate::path::Path;

/// The most bytes of a name that is repeated: an id of an answer is in each of its events and items.
pub(crate) const MAX_NAME_BYTES: usize = 512;

/// The most bytes of the id of an answer that are written, which is in each event. Providers' own ids have up to 70; some
/// gateways make longer ones.
const MAX_WRITTEN_ID: usize = 128;

/// The same of a model, such as an ARN of Bedrock (up to 150) or a path of files.
const MAX_WRITTEN_MODEL: usize = 256;

/// A value with its path, such as `messages[2].content`.
#[derive(Debug)]
pub(crate) struct Field {
    path: Path,
    value: Json,
}

/// The fields of an object that were not taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    path: Path,
    members: Members,
}

impl Field {
    /// A whole document.
    pub(crate) fn root(value: Json) -> Self {
        Self { path: Path::default(), value }
    }

    /// Its path.
    pub(crate) fn path(&self) -> String {
        self.path.to_string()
    }

    /// Its value.
    pub(crate) fn json(self) -> Json {
        self.value
    }

    /// Its value without taking it.
    pub(crate) fn value(&self) -> &Json {
        &self.value
    }

    /// A refusal of a value that the format does not allow.
    pub(crate) fn invalid(&self, message: impl Into<String>) -> RequestError {
        RequestError::Invalid { field: self.path(), message: message.into() }
    }

    /// A refusal of a value that cannot be carried over.
    pub(crate) fn unsupported(&self, why: impl Into<String>) -> RequestError {
        RequestError::Unsupported { field: self.path(), why: why.into() }
    }

    pub(crate) fn text(self) -> Result<String, RequestError> {
        match self.value {
            Json::Text(text) => Ok(text),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::List(_) | Json::Object(_) => {
                Err(self.invalid("must be a string"))
            }
        }
    }

    pub(crate) fn boolean(self) -> Result<bool, RequestError> {
        let Json::Bool(value) = self.value else { return Err(self.invalid("must be a boolean")) };
        Ok(value)
    }

    /// A whole number from 0 on. `40.0` is one.
    pub(crate) fn unsigned(self) -> Result<u64, RequestError> {
        let number = match &self.value {
            Json::Number(number) => {
                let text = number.to_string();
                text.strip_suffix(".0").unwrap_or(&text).parse().ok()
            }
            Json::Null | Json::Bool(_) | Json::Text(_) | Json::List(_) | Json::Object(_) => None,
        };
        number.ok_or_else(|| self.invalid("must be a whole number from 0 on"))
    }

    pub(crate) fn number(self) -> Result<Number, RequestError> {
        let Json::Number(number) = self.value else { return Err(self.invalid("must be a number")) };
        Ok(number)
    }

    pub(crate) fn list(self) -> Result<Vec<Self>, RequestError> {
        let Json::List(values) = self.value else { return Err(self.invalid("must be an array")) };
        let items = values.into_iter().enumerate();
        Ok(items.map(|(n, value)| Self { path: self.path.item(n), value }).collect())
    }

    pub(crate) fn object(self) -> Result<Fields, RequestError> {
        let Json::Object(members) = self.value else { return Err(self.invalid("must be an object")) };
        Ok(Fields { path: self.path, members })
    }

    /// A list of strings.
    pub(crate) fn texts(self) -> Result<Vec<String>, RequestError> {
        self.list()?.into_iter().map(Self::text).collect()
    }

    /// A value with the path of its field.
    pub(crate) fn given<T>(
        self,
        read: impl FnOnce(Self) -> Result<T, RequestError>,
    ) -> Result<Given<T>, RequestError> {
        let field = self.path();
        Ok(Given { field, value: read(self)? })
    }
}

impl Fields {
    /// The path of the object.
    pub(crate) fn path(&self) -> String {
        self.path.to_string()
    }

    /// The same fields with the names of Google's documents. It reads `inline_data` as `inlineData`.
    pub(crate) fn camel_case(mut self) -> Result<Self, RequestError> {
        let mut names = HashSet::new();
        for (name, _) in &mut self.members {
            *name = camel_case(name);
            if !names.insert(name.clone()) {
                let field = self.path.member(name).to_string();
                return Err(RequestError::Invalid { field, message: "is there twice".to_owned() });
            }
        }
        Ok(self)
    }

    /// Takes a field. `null` is as good as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Field> {
        let at = self.members.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.members.remove(at);
        (value != Json::Null).then(|| Field { path: self.path.member(name), value })
    }

    /// Whether a field is an object without members.
    pub(crate) fn is_empty_object(&self, name: &str) -> bool {
        let is_empty = |value: &Json| matches!(value, Json::Object(members) if members.is_empty());
        self.members.iter().any(|(key, value)| key == name && is_empty(value))
    }

    /// Takes a field that must be there.
    pub(crate) fn require(&mut self, name: &str) -> Result<Field, RequestError> {
        self.take(name).ok_or_else(|| RequestError::Invalid {
            field: self.path.member(name).to_string(),
            message: "is missing".to_owned(),
        })
    }

    /// Takes the text of a field.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        self.take(name).map(Field::text).transpose()
    }

    /// Takes the text of a field that names something, and is repeated where it is converted.
    pub(crate) fn name(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        let Some(field) = self.take(name) else { return Ok(None) };
        if field.value.as_text().is_some_and(|text| text.len() > MAX_NAME_BYTES) {
            return Err(field.invalid(format!("must have at most {MAX_NAME_BYTES} bytes")));
        }
        field.text().map(Some)
    }

    /// Takes the id of an answer. Of a long one the end is left, which differs where ids begin in the same way.
    pub(crate) fn answer_id(&mut self, name: &str) -> Result<String, RequestError> {
        Ok(end_of(self.name(name)?.unwrap_or_default(), MAX_WRITTEN_ID))
    }

    /// Takes the model of an answer. Of a long one the end is left.
    pub(crate) fn answer_model(&mut self, name: &str) -> Result<String, RequestError> {
        Ok(end_of(self.name(name)?.unwrap_or_default(), MAX_WRITTEN_MODEL))
    }

    /// Takes a whole number.
    pub(crate) fn unsigned(&mut self, name: &str) -> Result<Option<u64>, RequestError> {
        self.take(name).map(Field::unsigned).transpose()
    }

    /// Takes a number with its path.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<Given<Number>>, RequestError> {
        self.take(name).map(|field| field.given(Field::number)).transpose()
    }

    /// Takes a truth value.
    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, RequestError> {
        self.take(name).map(Field::boolean).transpose()
    }

    /// Takes the object of a field.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, RequestError> {
        self.take(name).map(Field::object).transpose()
    }

    /// Takes the items of a field; none if it is absent.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Field>, RequestError> {
        self.take(name).map_or(Ok(Vec::new()), Field::list)
    }

    /// Each field with its name, in their order.
    pub(crate) fn into_each(self) -> Vec<(String, Field)> {
        let path = self.path;
        let each = self.members.into_iter().map(|(name, value)| {
            let path = path.member(&name);
            (name, Field { path, value })
        });
        each.collect()
    }

    /// Drops the fields that are left out of such an object.
    pub(crate) fn ignore(&mut self, place: Place) {
        self.members.retain(|(name, value)| !is_ignored(place, name, value));
    }

    /// Refuses a field that is still there. `null` is as good as absent.
    pub(crate) fn end(self) -> Result<(), RequestError> {
        match self.members.iter().find(|(_, value)| *value != Json::Null) {
            None => Ok(()),
            Some((name, _)) => Err(RequestError::Unsupported {
                field: self.path.member(name).to_string(),
                why: "it has no counterpart in the provider's format".to_owned(),
            }),
        }
    }
}

/// The last bytes of a text, at most so many, without a part of a character.
fn end_of(mut text: String, most: usize) -> String {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.split_off(from)
}

/// `inlineData` for `inline_data`.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Refuses a value that a format does not know.
pub(crate) fn unknown<T>(field: &str, value: &str) -> Result<T, RequestError> {
    Err(RequestError::Unsupported { field: field.to_owned(), why: format!("`{value}` is not known") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_id_the_end_is_left() {
        assert_eq!(end_of("resp_1".to_owned(), 6), "resp_1");
        assert_eq!(end_of("resp_12".to_owned(), 6), "esp_12");
        assert_eq!(end_of("aé12".to_owned(), 3), "12");
        assert_eq!(end_of(String::new(), 3), "");
    }
}
