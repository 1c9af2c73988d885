//! AWS credentials as one text: `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, or the same with `:SESSION_TOKEN`. Pure.
//!
//! Invariant: no error has a part of the text. The secret access key is overwritten when it is dropped, and is never sent.

use aws_credential_types::Credentials;

/// The lengths of an access key id, as AWS documents them.
const ACCESS_KEY_ID: std::ops::RangeInclusive<usize> = 16..=128;

/// The lengths of a secret access key. AWS makes 40 characters.
const SECRET_ACCESS_KEY: std::ops::RangeInclusive<usize> = 16..=128;

/// What the access key ids of users and of roles begin with. No API key does.
const BEGINS: [&str; 2] = ["AKIA", "ASIA"];

/// The name by which the library knows where credentials come from.
const SOURCE: &str = "provider key";

/// AWS credentials. `Debug` does not reveal the secret access key or the session token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AwsCredentials(Credentials);

/// The text begins as AWS credentials do, and is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be an API key of Bedrock or AWS credentials, as ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]"
)]
pub struct InvalidCredentials;

impl AwsCredentials {
    /// The credentials in `text`; `None` if it is an API key, which has no colon.
    pub(crate) fn within(text: &str) -> Result<Option<Self>, InvalidCredentials> {
        if !text.contains(':') {
            // An access key id without its secret would be sent as an API key.
            return if Self::begin_with_id(text) { Err(InvalidCredentials) } else { Ok(None) };
        }
        let mut parts = text.splitn(3, ':');
        let (id, secret, token) = (parts.next(), parts.next(), parts.next());
        let id = id.filter(|id| is_access_key_id(id)).ok_or(InvalidCredentials)?;
        let is_secret = |text: &&str| SECRET_ACCESS_KEY.contains(&text.len()) && is_base64(text);
        let secret = secret.filter(is_secret).ok_or(InvalidCredentials)?;
        if token.is_some_and(|token| token.is_empty() || !is_base64(token)) {
            return Err(InvalidCredentials);
        }
        Ok(Some(Self(Credentials::new(id, secret, token.map(str::to_owned), None, SOURCE))))
    }

    /// Whether `text`, a key for another provider than Bedrock, is AWS credentials, or begins with the access key id of
    /// some.
    pub(crate) fn resemble(text: &str) -> bool {
        Self::begin_with_id(text) || matches!(Self::within(text), Ok(Some(_)))
    }

    /// Whether `text` is the access key id of a user or of a role, or begins with one and a colon.
    pub(crate) fn begin_with_id(text: &str) -> bool {
        let id = text.split(':').next().unwrap_or_default();
        BEGINS.iter().any(|begin| id.starts_with(begin)) && is_access_key_id(id)
    }

    /// Those of AWS's published examples, whose id is shorter than any real one.
    #[cfg(test)]
    pub(super) fn published() -> Self {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        Self(Credentials::new("AKIDEXAMPLE", secret, None, None, SOURCE))
    }

    pub(super) fn of_library(&self) -> Credentials {
        self.0.clone()
    }
}

fn is_access_key_id(text: &str) -> bool {
    ACCESS_KEY_ID.contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether all characters are of either alphabet of base64.
fn is_base64(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    #[test]
    fn credentials_have_two_or_three_parts() {
        for (text, token) in
            [(format!("{ID}:{SECRET}"), None), (format!("{ID}:{SECRET}:FwoG/x+y=="), Some("FwoG/x+y=="))]
        {
            let read = AwsCredentials::within(&text).unwrap().unwrap();
            let AwsCredentials(inner) = &read;
            assert_eq!((inner.access_key_id(), inner.secret_access_key()), (ID, SECRET));
            assert_eq!(inner.session_token(), token);
            let shown = format!("{read:?}");
            assert!(!shown.contains(SECRET) && !shown.contains("FwoG"), "{shown}");
        }
    }

    #[test]
    fn an_api_key_is_no_credentials() {
        for text in ["ABSKQmVkcm9jaw==", "bedrock-api-key-YmVkcm9jaw==", "sk-x", ""] {
            assert_eq!(AwsCredentials::within(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn credentials_and_access_key_ids_are_recognised_among_keys_of_other_providers() {
        for (text, is_ours, begins) in [
            (format!("{ID}:{SECRET}"), true, true),
            (format!("{ID}:{SECRET}:FwoG/x+y=="), true, true),
            (format!("ASIA{}:{SECRET}", &ID[4..]), true, true),
            (ID.to_owned(), true, true),
            (format!("{ID}:"), true, true),
            (format!("{ID}:short"), true, true),
            (format!("{}:{SECRET}", "X".repeat(20)), true, false),
            ("sk-proj-AKIAIOSFODNN7EXAMPLE".to_owned(), false, false),
            ("AKIA:x".to_owned(), false, false),
            ("a:b".to_owned(), false, false),
            (
                "0c9d7a0e-1111-2222-3333-444455556666:0123456789abcdef0123456789abcdef".to_owned(),
                false,
                false,
            ),
            (String::new(), false, false),
        ] {
            let found = (AwsCredentials::resemble(&text), AwsCredentials::begin_with_id(&text));
            assert_eq!(found, (is_ours, begins), "{text}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused_without_showing_it() {
        for text in [
            ID.to_owned(),
            format!("{ID}:"),
            format!(":{SECRET}"),
            format!("{ID}:short"),
            format!("AKIA:{SECRET}"),
            format!("{ID}:{SECRET}:"),
            format!("{ID}:{SECRET}:a:b"),
            format!("{ID}:{SECRET} "),
            format!("{ID}:{}", "x".repeat(129)),
            "https://AKIAIOSFODNN7EXAMPLE".to_owned(),
        ] {
            let error = AwsCredentials::within(&text).unwrap_err().to_string();
            assert!(error.contains("ACCESS_KEY_ID:SECRET_ACCESS_KEY"), "{error}");
            assert!(!error.contains(ID) && !error.contains("wJalr"), "{error}");
        }
    }
}
