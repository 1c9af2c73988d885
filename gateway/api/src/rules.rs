//! The rules that plain values keep wherever they come in (interface.md, Limits; completion.md sections 1 and 7).
//! Each answers the value or the end of a sentence that says what is wrong with it.

use farthing_core::command::MeterRef;
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

/// What is wrong with a larger one.
pub(crate) const TOO_MANY_PAIRS: &str = "must hold at most 100 pairs";

/// Characters of a webhook's URL.
pub(crate) const MAX_WEBHOOK_URL: usize = 2_048;

/// The largest count that a limit may name.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// 1 to `max` characters, none of them NUL, which Postgres cannot keep.
pub(crate) fn text(text: String, max: usize) -> Result<String, String> {
    if text.contains('\0') {
        return Err("must not contain the character NUL".to_owned());
    }
    if text.is_empty() || text.chars().count() > max {
        return Err(format!("must have between 1 and {max} characters"));
    }
    Ok(text)
}

/// A metadata key: 1 to 255 ASCII letters, digits and underscores.
pub(crate) fn metadata_key(key: &str) -> Result<(), String> {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain && !key.is_empty() && key.len() <= MAX_TEXT {
        return Ok(());
    }
    Err("keys must have between 1 and 255 ASCII letters, digits and underscores".to_owned())
}

/// A merchant's own identifier; it stands wherever a customer id does, so it may not look like one.
pub(crate) fn reference_id(reference: String) -> Result<String, String> {
    if reference.starts_with("con_") {
        return Err("must not begin with con_".to_owned());
    }
    text(reference, MAX_TEXT)
}

/// An e-mail address, as far as its form tells: one `@` between two parts without blanks.
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

/// First and last name: the name splits at its first space.
pub(crate) fn split_name(name: &str) -> (Option<String>, Option<String>) {
    let (first, last) = name.trim().split_once(' ').unwrap_or((name.trim(), ""));
    let present = |part: &str| Some(part.trim().to_owned()).filter(|part| !part.is_empty());
    (present(first), present(last))
}

/// Can a card pay it: is it in whole cents? What is charged is then what is entered into the ledger, to the last digit.
pub(crate) fn is_payable(amount: Amount) -> bool {
    amount.decimal().normalize().scale() <= 2
}

/// A phone number in E.164: `+` and up to 15 digits, the first not 0.
pub(crate) fn phone(phone: String) -> Result<String, String> {
    let digits = phone.strip_prefix('+').unwrap_or_default().as_bytes();
    let plain =
        (2..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) && digits[0] != b'0';
    if plain { Ok(phone) } else { Err("must be a phone number in E.164, such as +4930123456".to_owned()) }
}

/// The URL of a merchant's app, of which only the [`origin`] counts.
pub(crate) fn origin_url(url: String) -> Result<String, String> {
    let url = text(url, MAX_URL)?;
    match origin(&url) {
        Some(_) => Ok(url),
        None => Err("must be an http or https URL with the name of a host".to_owned()),
    }
}

/// The origin of an http or https URL as browsers write it. Its host is of letters, digits, dots and dashes alone, so it
/// stands in a content security policy for itself and nothing else.
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

/// A meter's slug: 1 to 255 ASCII letters, digits, dashes and underscores; it stands wherever a meter id does, so it may
/// not look like one.
pub(crate) fn slug(slug: String) -> Result<String, String> {
    if slug.starts_with("prd_") {
        return Err("must not begin with prd_".to_owned());
    }
    let plain = slug.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if plain && !slug.is_empty() && slug.len() <= MAX_TEXT {
        return Ok(slug);
    }
    Err("must have between 1 and 255 ASCII letters, digits, dashes and underscores".to_owned())
}

/// A meter by the name of either vocabulary: its id or its slug.
pub(crate) fn meter(name: String) -> Result<MeterRef, String> {
    match name.parse() {
        Ok(id) => Ok(MeterRef::Id(id)),
        Err(_) => slug(name).map(MeterRef::Slug),
    }
}

/// A thing by its id alone.
#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
pub(crate) fn id<T: std::str::FromStr<Err = farthing_core::ids::Malformed>>(
    text: String,
) -> Result<T, String> {
    text.parse().map_err(|malformed: farthing_core::ids::Malformed| malformed.to_string())
}

/// What a caller names by the `older` name of a thing, by its newer one, or by both: then they must agree. Else the end
/// of a sentence about the newer.
pub(crate) fn either<T: PartialEq>(
    older: &str,
    by_older: Option<T>,
    by_newer: Option<T>,
) -> Result<Option<T>, String> {
    match (by_older, by_newer) {
        (Some(one), Some(other)) if one != other => Err(format!("names another thing than {older}")),
        (by_older, by_newer) => Ok(by_newer.or(by_older)),
    }
}

/// A URL that may be told of news: as one to forward to, and without a fragment.
pub(crate) fn webhook_url(url: String) -> Result<String, String> {
    if url.len() > MAX_WEBHOOK_URL {
        return Err(format!("must have at most {MAX_WEBHOOK_URL} characters"));
    }
    if url.contains('#') {
        return Err("must not hold a fragment".to_owned());
    }
    target::checked(&url).map_err(|why| format!("is not a URL to call: it {why}"))?;
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
    fn two_names_of_one_thing_agree() {
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
