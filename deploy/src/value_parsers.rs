//! Parsers for flag values. A value they refuse is bad usage (exit code 2).

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::error::ErrorKind;
use farthing_core::ids::SecretKeyId;
use farthing_core::money::Amount;
use farthing_core::statement::Period;

/// The longest name or reason, in characters (interface.md, Limits).
const MAX_CHARACTERS: usize = 255;

/// A name or a reason: 1 to 255 characters, no control characters.
pub(crate) fn line(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    if text.chars().count() > MAX_CHARACTERS {
        return Err(format!("must not be longer than {MAX_CHARACTERS} characters"));
    }
    Ok(text.to_owned())
}

/// Parses the id of a secret key. Somebody may give the key in its place, so what is refused is not repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyId;

impl TypedValueParser for KeyId {
    type Value = SecretKeyId;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<SecretKeyId, clap::Error> {
        let refused =
            || clap::Error::raw(ErrorKind::ValueValidation, "a key is named by its id, key_<ULID>\n");
        let id = value.to_str().and_then(|text| text.parse().ok());
        id.ok_or_else(|| refused().with_cmd(command))
    }
}

/// Parses a URL. It may have a password in it, so what is refused is not repeated.
#[derive(Debug, Clone)]
pub(crate) struct UnrepeatedUrl<T>(PhantomData<T>);

impl<T> UnrepeatedUrl<T> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: FromStr<Err = String> + Clone + Send + Sync + 'static> TypedValueParser for UnrepeatedUrl<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        flag: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let flag = flag.and_then(clap::Arg::get_long).unwrap_or("url");
        // A value that is no UTF-8 text is refused like one that is empty.
        let url = value.to_str().unwrap_or_default().parse::<T>();
        url.map_err(|why| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("--{flag} {why}\n")).with_cmd(command)
        })
    }
}

/// How many NATS servers may store the feed. The doctor takes what a projector takes.
pub(crate) fn feed_replicas() -> RangedU64ValueParser<u8> {
    RangedU64ValueParser::new().range(1..=5)
}

/// How many connections a projector may have for rows. The doctor takes what a projector takes.
pub(crate) fn write_connections() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=100)
}

/// How many connections to Postgres a gateway may have. The doctor takes what a gateway takes.
pub(crate) fn postgres_connections() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(8..=2_000)
}

/// The period of `--from` and `--to`.
pub(crate) fn period(from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> anyhow::Result<Period> {
    if let (Some(from), Some(to)) = (from, to) {
        anyhow::ensure!(from < to, "--to is not after --from");
    }
    Ok(Period { from, to })
}

/// An amount greater than zero.
pub(crate) fn positive_amount(text: &str) -> Result<Amount, String> {
    let amount = any_amount(text)?;
    if amount.is_positive() { Ok(amount) } else { Err("must be greater than zero".to_owned()) }
}

/// An amount of zero or more.
pub(crate) fn amount(text: &str) -> Result<Amount, String> {
    let amount = any_amount(text)?;
    if amount.is_negative() { Err("must not be negative".to_owned()) } else { Ok(amount) }
}

fn any_amount(text: &str) -> Result<Amount, String> {
    text.parse().map_err(|error: farthing_core::money::Error| error.to_string())
}

/// An instant: RFC 3339, or a date, which is its midnight in UTC.
pub(crate) fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(date) = text.parse::<NaiveDate>() {
        return Ok(date.and_time(NaiveTime::MIN).and_utc());
    }
    let instant = DateTime::parse_from_rfc3339(text).map(|instant| instant.to_utc());
    instant.map_err(|_| "must be a date, or a time such as 2026-11-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_a_date_or_a_time() {
        let midnight = DateTime::parse_from_rfc3339("2026-11-01T00:00:00Z").unwrap().to_utc();
        assert_eq!(instant("2026-11-01"), Ok(midnight));
        assert_eq!(instant("2026-11-01T01:00:00+01:00"), Ok(midnight));
        for text in ["", "now", "2026-11", "2026-11-31", "2026-11-01T00:00:00", "1"] {
            assert!(instant(text).is_err(), "{text}");
        }
    }
}
