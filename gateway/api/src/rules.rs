//! The rules for plain values: names, addresses, URLs, counts (interface.md, Limits; completion.md sections 1 and 7). Each
//! rule returns the value, or a message that follows the name of the field.

use farthing_core::command::MeterRef;
use farthing_core::ids::RequestId;
use farthing_core::money::Amount;
use http::Uri;
use http::uri::Scheme;

use crate::target;

/// Characters of a name, a reference id, a metadata key or value.
pub(crate) const MAX_TEXT: usize = 255;

/// Characters of an e-mail address (RFC 5321).
pub(crate) const MAX_EMAIL: usize = 254;

/// Characters of a URL.
pub(crate) const MAX_URL: usize = 2_048;

/// Pairs of one metadata object.
pub(crate) const MAX_METADATA_PAIRS: usize = 100;

/// The message for more pairs.
pub(crate) const TOO_MANY_PAIRS: &str = "must have at most 100 pairs";

/// Characters of a webhook's URL.
pub(crate) const MAX_WEBHOOK_URL: usize = 2_048;

/// The smallest payment into a wallet, in dollars.
pub(crate) const MIN_FUNDING: u32 = 10;

/// The largest payment into a wallet, in dollars.
pub(crate) const MAX_FUNDING: u32 = 10_000;

/// The largest count that a limit may name.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// Checks for 1 to `max` characters and no NUL, which Postgres cannot store.
pub(crate) fn text(text: String, max: usize) -> Result<String, String> {
    if text.contains('\0') {
        return Err("must not contain NUL characters".to_owned());
    }
    if text.is_empty() || text.chars().count() > max {
        return Err(format!("must be a string of 1 to {max} characters"));
    }
    Ok(text)
}

/// A metadata key: 1 to 255 ASCII letters, digits and underscores.
pub(crate) fn metadata_key(key: &str) -> Result<(), String> {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain && !key.is_empty() && key.len() <= MAX_TEXT {
        return Ok(());
    }
    Err("must be a key of 1 to 255 ASCII letters, digits and underscores".to_owned())
}

/// A merchant's own identifier of a customer. It is accepted wherever a customer id is, so it must not look like one.
pub(crate) fn reference_id(reference: String) -> Result<String, String> {
    if reference.starts_with("con_") {
        return Err("must not begin with con_".to_owned());
    }
    text(reference, MAX_TEXT)
}

/// Checks the form of an e-mail address: one `@` between two parts without blanks.
pub(crate) fn email(email: String) -> Result<String, String> {
    let email = text(email, MAX_EMAIL)?;
    let blank = email.chars().any(|c| c.is_whitespace() || c.is_control());
    match email.split_once('@') {
        Some((user, host)) if !user.is_empty() && !host.is_empty() && !host.contains('@') && !blank => {
            Ok(email)
        }
        Some(_) | None => Err("must be an e-mail address".to_owned()),
    }
}

/// The name of a person: a text that is not blank, so that it has a first name.
pub(crate) fn person_name(name: String) -> Result<String, String> {
    let name = text(name, MAX_TEXT)?;
    if name.trim().is_empty() { Err("must not be blank".to_owned()) } else { Ok(name) }
}

/// First and last name: the name splits at its first space.
pub(crate) fn split_name(name: &str) -> (Option<String>, Option<String>) {
    let (first, last) = name.trim().split_once(' ').unwrap_or((name.trim(), ""));
    let present = |part: &str| Some(part.trim().to_owned()).filter(|part| !part.is_empty());
    (present(first), present(last))
}

/// Whether a card can pay the amount: it is in whole cents, so the charge and the ledger entry are equal.
pub(crate) fn is_payable(amount: Amount) -> bool {
    amount.decimal().normalize().scale() <= 2
}

/// A phone number in E.164: `+` and up to 15 digits, the first not 0.
pub(crate) fn phone(phone: String) -> Result<String, String> {
    let digits = phone.strip_prefix('+').unwrap_or_default().as_bytes();
    let plain =
        (2..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) && digits[0] != b'0';
    if plain {
        Ok(phone)
    } else {
        Err("must be a phone number in E.164 format, such as +4930123456".to_owned())
    }
}

/// The URL of a merchant's app. Only its [`origin`] is used.
pub(crate) fn origin_url(url: String) -> Result<String, String> {
    let url = text(url, MAX_URL)?;
    match origin(&url) {
        Some(_) => Ok(url),
        None => Err("must be an http or https URL with a host name".to_owned()),
    }
}

/// The origin of an http or https URL as browsers write it. The host has only letters, digits, dots and dashes, so that it
/// is safe in a content security policy.
pub(crate) fn origin(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let (scheme, authority) = (uri.scheme()?, uri.authority()?);
    let default_port = match scheme {
        scheme if *scheme == Scheme::HTTP => 80,
        scheme if *scheme == Scheme::HTTPS => 443,
        _ => return None,
    };
    let host = authority.host().to_ascii_lowercase();
    let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-');
    let edges = host.starts_with(|c: char| c.is_ascii_alphanumeric())
        && host.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !plain || !edges || authority.as_str().contains('@') {
        return None;
    }
    match authority.port_u16() {
        None if authority.as_str().len() != host.len() => None,
        None => Some(format!("{scheme}://{host}")),
        Some(port) if port == default_port => Some(format!("{scheme}://{host}")),
        Some(port) => Some(format!("{scheme}://{host}:{port}")),
    }
}

/// A meter's slug: 1 to 255 ASCII letters, digits, dashes and underscores. It is accepted wherever a meter id is, so it
/// must not look like one.
pub(crate) fn slug(slug: String) -> Result<String, String> {
    if slug.starts_with("prd_") {
        return Err("must not begin with prd_".to_owned());
    }
    let plain = slug.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if plain && !slug.is_empty() && slug.len() <= MAX_TEXT {
        return Ok(slug);
    }
    Err("must be 1 to 255 ASCII letters, digits, dashes and underscores".to_owned())
}

/// A meter's id or slug.
pub(crate) fn meter(name: String) -> Result<MeterRef, String> {
    match name.parse() {
        Ok(id) => Ok(MeterRef::Id(id)),
        Err(_) => slug(name).map(MeterRef::Slug),
    }
}

/// A merchant's own id of a reported call: any text but a request id of this service. Providers' ids begin with `req_` too.
pub(crate) fn reported_id(id: String) -> Result<String, String> {
    if id.parse::<RequestId>().is_ok() {
        return Err("must not have the form req_<ULID>".to_owned());
    }
    text(id, MAX_TEXT)
}

/// The value of a field that has an older and a newer name. If both are given, they must be equal; otherwise the error is
/// about the newer name.
pub(crate) fn either<T: PartialEq>(
    older: &str,
    by_older: Option<T>,
    by_newer: Option<T>,
) -> Result<Option<T>, String> {
    match (by_older, by_newer) {
        (Some(one), Some(other)) if one != other => Err(format!("must be the same as {older}")),
        (by_older, by_newer) => Ok(by_newer.or(by_older)),
    }
}

/// A URL that events are delivered to: the rules for forwarding, and no fragment.
pub(crate) fn webhook_url(url: String) -> Result<String, String> {
    if url.len() > MAX_WEBHOOK_URL {
        return Err(format!("must have at most {MAX_WEBHOOK_URL} characters"));
    }
    if url.contains('#') {
        return Err("must not have a fragment".to_owned());
    }
    target::checked(&url).map_err(|why| format!("must be a URL that can be called: it {why}"))?;
    Ok(url)
}

/// A count above zero.
pub(crate) fn count(count: u64) -> Result<u64, String> {
    if (1..=MAX_COUNT).contains(&count) {
        Ok(count)
    } else {
        Err("must be an integer above zero, at most 10^12".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phones_are_e164() {
        for good in ["+4930123456", "+15551234567", "+12"] {
            assert!(phone(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "+", "4930123456", "+0301234", "+1 555", "+1234567890123456", "+٣٤", "+1"] {
            assert!(phone(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for (url, written) in [
            ("https://App.Example", "https://app.example"),
            ("https://app.example:443/a?b", "https://app.example"),
            ("http://app.example:443", "http://app.example:443"),
            ("http://127.0.0.1:3000/x", "http://127.0.0.1:3000"),
        ] {
            assert_eq!(origin(url).as_deref(), Some(written), "{url}");
        }
        for url in [
            "",
            "app.example",
            "/a",
            "ftp://a",
            "javascript:alert(1)",
            "https://",
            "https://*",
            "https://a;b",
            "https://a,b",
            "https://u@a",
            "https://[::1]",
            "https://a b",
            "https://a'b",
            "https://-a",
            "https://a:99999",
            "https://a:",
            "//a",
            "data:text/html,x",
            "https://ü.example",
        ] {
            assert_eq!(origin(url), None, "{url}");
        }
    }

    #[test]
    fn addresses_have_two_parts() {
        for good in ["a@b", "a.b+c@example.org", "ü@example.org"] {
            assert!(email(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b\n", "a@b\0"] {
            assert!(email(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn two_names_of_one_field_must_agree() {
        assert_eq!(either::<u8>("a", None, None), Ok(None));
        assert_eq!(either("a", Some(1), None), Ok(Some(1)));
        assert_eq!(either("a", None, Some(2)), Ok(Some(2)));
        assert_eq!(either("a", Some(1), Some(1)), Ok(Some(1)));
        assert!(either("a", Some(1), Some(2)).is_err());
    }

    #[test]
    fn a_slug_does_not_look_like_an_id() {
        assert!(slug("prd_1".to_owned()).is_err());
        assert!(slug("chat-prd_1".to_owned()).is_ok());
        assert!(slug("chat output".to_owned()).is_err());
    }

    #[test]
    fn a_reference_id_does_not_look_like_an_id() {
        assert!(reference_id("con_1".to_owned()).is_err());
        assert!(reference_id("user-con_1".to_owned()).is_ok());
        assert!(reference_id("🦊".repeat(255)).is_ok());
        assert!(reference_id("🦊".repeat(256)).is_err());
    }

    #[test]
    fn the_name_of_a_person_has_a_first_name() {
        for good in ["Ada", " Ada ", "\u{3000}Ada", "-"] {
            assert_eq!(person_name(good.to_owned()).as_deref(), Ok(good));
            assert!(split_name(good).0.is_some(), "{good:?}");
        }
        for bad in ["", " ", "\t\r\n", "\u{85}\u{a0}\u{2003}\u{3000}", "A\0"] {
            assert!(person_name(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(person_name("é".repeat(255)).is_ok());
        assert!(person_name("é".repeat(256)).is_err());
    }

    #[test]
    fn a_name_splits_at_its_first_space() {
        let split = |name| {
            let (first, last) = split_name(name);
            (first.unwrap_or_default(), last.unwrap_or_default())
        };
        assert_eq!(split("Ada King Lovelace"), ("Ada".into(), "King Lovelace".into()));
        assert_eq!(split("Ada"), ("Ada".into(), String::new()));
        assert_eq!(split(" Ada  King "), ("Ada".into(), "King".into()));
        assert_eq!(split("  "), (String::new(), String::new()));
    }
}
