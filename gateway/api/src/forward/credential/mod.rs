//! Reads the forward credential from any of its slots, in each of its forms (interface.md, Authentication; completion.md
//! section 3). Pure.

mod disguise;
mod token;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use farthing_core::command::{Billing, Caller, CustomerRef, MeterRef};
use farthing_core::secret::ServerKey;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};

use self::token::TokenBody;
use super::headers::Slot;
use crate::error::{ApiError, AuthError, ForwardError, Issue};
use crate::input;

/// The longest credential that is read, in bytes.
const MAX_CREDENTIAL: usize = 16 * 1024;

/// The headers whose whole value is the credential, in the order in which they are searched. The last is that of Azure's
/// clients.
const KEY_HEADERS: [&str; 4] = ["x-api-key", "x-goog-api-key", "xi-api-key", "api-key"];

/// The prefix of a spend key.
const SPEND_KEY: &str = "spk_";

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A credential, checked as far as possible without the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) caller: Caller,
    pub(crate) customer: Option<CustomerRef>,
    pub(crate) meter: Option<MeterRef>,
    pub(crate) billing: Billing,
    /// The caller's own provider key.
    pub(crate) provider_key: Option<String>,
}

impl Credential {
    /// A plain key.
    fn plain(caller: Caller) -> Self {
        Self { caller, customer: None, meter: None, billing: Billing::Usual, provider_key: None }
    }
}

/// A credential and its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) credential: Credential,
    /// The slot it came in.
    pub(crate) slot: Slot,
    /// All slots that hold a credential of this service. None of them reaches the provider.
    pub(crate) slots: Vec<Slot>,
}

/// The content of a slot, before its fields are checked.
enum Token {
    SecretKey(String),
    SpendKey(String),
    /// The JSON object of a forward token.
    Json(String),
    /// Another service's credential, or an invalid one.
    Foreign(ApiError),
}

/// Finds the credential: the first slot that holds one of this service, in the order of the specification.
pub(crate) fn find(headers: &HeaderMap, keys: &[String], server_key: &ServerKey) -> Result<Found, ApiError> {
    let mut first_ours = None;
    let mut first_foreign = None;
    let mut slots = Vec::new();
    for Present { slot, scheme, bytes, text } in present(headers, keys) {
        let token = text.map_or(Token::Foreign(ApiError::Auth(AuthError::HeaderInvalid)), read);
        match (token, scheme) {
            (Token::Foreign(error), scheme) => {
                // It authorises nothing, but may hold a secret of ours all the same.
                slots.extend(disguise::holds_a_secret(bytes).then_some(slot));
                let error = match scheme {
                    Scheme::Right => error,
                    Scheme::Wrong => ApiError::Auth(AuthError::HeaderInvalid),
                };
                first_foreign = first_foreign.or(Some(error));
            }
            // The scheme is wrong, but the value is still a secret to remove.
            (_, Scheme::Wrong) => {
                slots.push(slot);
                first_foreign = first_foreign.or(Some(ApiError::Auth(AuthError::HeaderInvalid)));
            }
            (token, Scheme::Right) => {
                slots.push(slot);
                first_ours = first_ours.or(Some((slot, token)));
            }
        }
    }
    let Some((slot, token)) = first_ours else {
        return Err(first_foreign.unwrap_or(ApiError::Auth(AuthError::HeaderMissing)));
    };
    let credential = match token {
        Token::SecretKey(key) => Credential::plain(Caller::SecretKey(server_key.hash(&key))),
        Token::SpendKey(key) => Credential::plain(Caller::SpendKey(server_key.hash(&key))),
        Token::Json(json) => TokenBody::read(&json)?.credential(server_key)?,
        Token::Foreign(error) => return Err(error),
    };
    Ok(Found { credential, slot, slots })
}

/// Whether this text has the form of a credential of this service.
pub(crate) fn is_ours(text: &str) -> bool {
    !matches!(read(text), Token::Foreign(_))
}

/// Whether this text holds a secret of this service, whatever it is wrapped in.
pub(crate) fn is_within(text: &str) -> bool {
    disguise::holds_a_secret(text.as_bytes())
}

/// The first header whose value holds a secret of this service, whatever it is wrapped in.
pub(crate) fn header_with_one(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.iter().find(|(_, value)| disguise::holds_a_secret(value.as_bytes())).map(|(name, _)| name)
}

/// Whether a value has the scheme that its slot requires.
#[derive(Clone, Copy)]
enum Scheme {
    Right,
    Wrong,
}

/// A value in a slot; without text if it is not printable ASCII.
struct Present<'a> {
    slot: Slot,
    scheme: Scheme,
    /// The whole value.
    bytes: &'a [u8],
    text: Option<&'a str>,
}

/// Every value of every slot, in the order of the specification.
fn present<'a>(headers: &'a HeaderMap, keys: &'a [String]) -> Vec<Present<'a>> {
    let mut found = Vec::with_capacity(2);
    for value in headers.get_all(AUTHORIZATION) {
        let text = value.to_str().ok().map(str::trim);
        let (scheme, text) = match text.and_then(|text| text.split_once(' ')) {
            Some((word, token)) if word.eq_ignore_ascii_case("bearer") => (Scheme::Right, Some(token.trim())),
            Some((_, token)) => (Scheme::Wrong, Some(token.trim())),
            None => (Scheme::Wrong, text),
        };
        found.push(Present { slot: Slot::Authorization, scheme, bytes: value.as_bytes(), text });
    }
    for name in KEY_HEADERS {
        for value in headers.get_all(name) {
            let text = value.to_str().ok().map(str::trim);
            let bare = text.map(|text| match text.split_once(' ') {
                Some((word, token)) if word.eq_ignore_ascii_case("bearer") => token.trim(),
                Some(_) | None => text,
            });
            let (slot, scheme) = (Slot::Plain(name), Scheme::Right);
            found.push(Present { slot, scheme, bytes: value.as_bytes(), text: bare });
        }
    }
    found.extend(keys.iter().map(|key| Present {
        slot: Slot::Query,
        scheme: Scheme::Right,
        bytes: key.as_bytes(),
        text: Some(key),
    }));
    found
}

fn read(text: &str) -> Token {
    if text.starts_with("aks_") {
        return Token::SecretKey(text.to_owned());
    }
    if text.starts_with(SPEND_KEY) {
        return Token::SpendKey(text.to_owned());
    }
    let malformed = |message: &str| {
        let issue = Issue::new([""; 0], message);
        Token::Foreign(ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue])))
    };
    if text.is_empty() || text.len() > MAX_CREDENTIAL {
        return malformed("must be base64 of at most 16 KiB");
    }
    let Ok(bytes) = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)) else {
        return malformed("must be base64");
    };
    match String::from_utf8(bytes) {
        Ok(json) if input::check_object(&json).is_ok() => Token::Json(json),
        Ok(_) | Err(_) => malformed("must be base64 of a JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD as B64, URL_SAFE_NO_PAD};
    use farthing_core::ids::{CustomerId, MeterId};
    use http::{HeaderName, HeaderValue};
    use serde_json::{Value, json};

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        pairs.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
    }

    fn token(json: &Value) -> String {
        B64.encode(json.to_string())
    }

    fn from_token(json: &Value, server_key: &ServerKey) -> Result<Credential, ApiError> {
        let bearer = format!("Bearer {}", token(json));
        find(&headers(&[("authorization", &bearer)]), &[], server_key).map(|found| found.credential)
    }

    #[test]
    fn every_carrier_is_read() {
        let server_key = ServerKey::random();
        let bearer = "Bearer aks_test_k";
        for (name, value, slot) in [
            ("authorization", bearer, Slot::Authorization),
            ("authorization", "bearer aks_test_k", Slot::Authorization),
            ("x-api-key", "aks_test_k", Slot::Plain("x-api-key")),
            ("x-goog-api-key", "aks_test_k", Slot::Plain("x-goog-api-key")),
            ("xi-api-key", "aks_test_k", Slot::Plain("xi-api-key")),
            ("api-key", "aks_test_k", Slot::Plain("api-key")),
        ] {
            let found = find(&headers(&[(name, value)]), &[], &server_key).unwrap();
            assert_eq!(found.slot, slot);
            assert_eq!(found.credential.caller, Caller::SecretKey(server_key.hash("aks_test_k")));
        }
        let found = find(&HeaderMap::new(), &["aks_test_k".to_owned()], &server_key).unwrap();
        assert_eq!(found.slot, Slot::Query);
    }

    #[test]
    fn a_foreign_key_beside_ours_is_left_alone_and_a_second_one_of_ours_is_not() {
        let server_key = ServerKey::random();
        let map = headers(&[("authorization", "Bearer sk-provider"), ("x-api-key", "aks_live_k")]);
        let found = find(&map, &["aks_live_z".to_owned()], &server_key).unwrap();
        assert_eq!(found.slot, Slot::Plain("x-api-key"));
        assert_eq!(found.slots, [Slot::Plain("x-api-key"), Slot::Query]);
    }

    #[test]
    fn the_first_slot_with_a_credential_of_ours_decides() {
        let server_key = ServerKey::random();
        let order = ["authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key"];
        let values = order.map(|name| (name, if name == "authorization" { "Bearer aks_k" } else { "aks_k" }));
        for first in 0..values.len() {
            let found = find(&headers(&values[first..]), &["aks_k".to_owned()], &server_key).unwrap();
            let expected = match order[first] {
                "authorization" => Slot::Authorization,
                name => Slot::Plain(name),
            };
            assert_eq!((found.slot, found.slots.len()), (expected, values.len() - first + 1));
        }
        // A key of Azure's own beside ours is the provider's.
        let map = headers(&[("authorization", "Bearer aks_k"), ("api-key", "azures-own")]);
        assert_eq!(find(&map, &[], &server_key).unwrap().slots, [Slot::Authorization]);
    }

    #[test]
    fn no_value_of_ours_stays_in_a_slot_however_it_is_presented() {
        let server_key = ServerKey::random();
        let struck = |pairs: &[(&'static str, &str)], keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            find(&headers(pairs), &keys, &server_key).unwrap().slots
        };
        let (ours, other) = (("x-api-key", "aks_live_k"), "aks_live_other");
        assert_eq!(
            struck(&[ours, ("authorization", other)], &[]),
            [Slot::Authorization, Slot::Plain("x-api-key")]
        );
        let basic = format!("Token {other}");
        assert_eq!(
            struck(&[ours, ("authorization", &basic)], &[]),
            [Slot::Authorization, Slot::Plain("x-api-key")]
        );
        let second = format!("Bearer {other}");
        let repeated = [ours, ("authorization", "Bearer foreign"), ("authorization", &second)];
        assert_eq!(struck(&repeated, &[]), [Slot::Authorization, Slot::Plain("x-api-key")]);
        assert_eq!(struck(&[ours], &["foreign", other]), [Slot::Plain("x-api-key"), Slot::Query]);
    }

    #[test]
    fn both_shapes_and_both_alphabets_are_read() {
        let server_key = ServerKey::random();
        let customer = CustomerId::new(ulid(1));
        let meter = MeterId::new(ulid(2));
        let a =
            from_token(&json!({"secret_key": "s", "customer_id": "user?>é", "meter_slug": "m"}), &server_key);
        let a = a.unwrap();
        assert_eq!(a.customer, Some(CustomerRef::Reference("user?>é".into())));
        assert_eq!(a.meter, Some(MeterRef::Slug("m".into())));
        let b = json!({
            "secret_key": "s", "provider_key": "p",
            "connection_secret": server_key.connection_secret(customer, 1),
            "product_secret": server_key.product_secret(meter, 1),
        });
        let expected = from_token(&b, &server_key).unwrap();
        assert_eq!(expected.customer, Some(CustomerRef::Secret(customer)));
        assert_eq!(expected.meter, Some(MeterRef::Secret(meter)));
        let unpadded = URL_SAFE_NO_PAD.encode(b.to_string());
        let found = find(&headers(&[("x-api-key", &unpadded)]), &[], &server_key).unwrap();
        assert_eq!(found.credential, expected);
        let nobody = json!({"secret_key": "s", "provider_key": "p", "connection_secret": null, "product_secret": null});
        assert_eq!(from_token(&nobody, &server_key).unwrap().billing, Billing::MeteringOnly);
    }

    #[test]
    fn a_spend_key_travels_alone_or_in_a_token_with_the_callers_provider_key() {
        let server_key = ServerKey::random();
        let caller = Caller::SpendKey(server_key.hash("spk_k"));
        for headers in [headers(&[("authorization", "Bearer spk_k")]), headers(&[("xi-api-key", "spk_k")])] {
            let found = find(&headers, &[], &server_key).unwrap();
            assert_eq!(found.credential, Credential::plain(caller.clone()));
        }
        for json in [
            json!({"spend_key": "spk_k", "provider_key": "p"}),
            json!({"secret_key": "spk_k", "provider_key": "p", "connection_secret": null, "product_secret": null}),
        ] {
            let credential = from_token(&json, &server_key).unwrap();
            assert_eq!((credential.caller, credential.provider_key.as_deref()), (caller.clone(), Some("p")));
            assert_eq!((credential.customer, credential.meter), (None, None));
        }
    }

    #[test]
    fn both_names_of_one_thing_may_be_given_when_they_agree() {
        let server_key = ServerKey::random();
        let (customer, meter) = (CustomerId::new(ulid(1)), MeterId::new(ulid(2)));
        for (customer_name, meter_name, customer, meter) in [
            (customer.to_string(), meter.to_string(), CustomerRef::Id(customer), MeterRef::Id(meter)),
            (
                "ada".to_owned(),
                "chat".to_owned(),
                CustomerRef::Reference("ada".to_owned()),
                MeterRef::Slug("chat".to_owned()),
            ),
        ] {
            let both = json!({"secret_key": "s", "customer_id": customer_name, "connection_id": customer_name,
                              "meter_id": meter_name, "product_id": meter_name});
            let read = from_token(&both, &server_key).unwrap();
            assert_eq!((read.customer, read.meter), (Some(customer), Some(meter)));
        }
    }

    fn ulid(n: u128) -> ulid::Ulid {
        ulid::Ulid::from_parts(1, n)
    }

    #[test]
    fn what_is_not_a_credential_says_what_is_wrong() {
        let server_key = ServerKey::random();
        let code =
            |pairs: &[(&'static str, &str)]| find(&headers(pairs), &[], &server_key).unwrap_err().code();
        assert_eq!(code(&[]), "auth_header_missing");
        assert_eq!(code(&[("authorization", "Basic abc")]), "auth_header_invalid");
        assert_eq!(code(&[("authorization", "Bearer")]), "auth_header_invalid");
        assert_eq!(code(&[("authorization", "Bearer !!!")]), "forward_token_json_invalid");
        assert_eq!(code(&[("authorization", "Bearer aGVsbG8=")]), "forward_token_json_invalid");
        assert_eq!(code(&[("authorization", "Bearer WzFd")]), "forward_token_json_invalid");
        let long = "x".repeat(10_240);
        for json in [
            json!({}),
            json!({"secret_key": 1}),
            json!({"secret_key": null}),
            json!({"secret_key": "s", "customer_id": 7}),
            json!({"secret_key": "s", "customer_id": "a\0b"}),
            json!({"secret_key": "s", "customer_id": long}),
            json!({"secret_key": "s", "meter_id": "prd_x"}),
            json!({"secret_key": "s", "meter_id": "m", "product_id": "n"}),
            json!({"secret_key": "s", "meter_id": "m", "meter_slug": "n"}),
            json!({"secret_key": "s", "customer_id": "a", "connection_id": "b"}),
            json!({"secret_key": "s", "disable_billing": "yes"}),
            json!({"secret_key": "s", "spend_key": "spk_k"}),
            json!({"spend_key": 7}),
            json!({"spend_key": "spk_k", "customer_id": "a"}),
            json!({"secret_key": "spk_k", "meter_slug": "m"}),
            json!({"spend_key": "spk_k", "disable_billing": true}),
        ] {
            assert_eq!(
                from_token(&json, &server_key).unwrap_err().code(),
                "forward_token_json_invalid",
                "{json}"
            );
        }
        let forged = json!({"secret_key": "s", "connection_secret": "cons_x"});
        assert_eq!(from_token(&forged, &server_key).unwrap_err().code(), "connection_secret_invalid");
        let forged = json!({"secret_key": "s", "product_secret": "prds_x"});
        assert_eq!(from_token(&forged, &server_key).unwrap_err().code(), "product_secret_invalid");
    }

    #[test]
    fn every_issue_of_a_token_is_listed_with_its_path() {
        let server_key = ServerKey::random();
        let paths = |json: Value| match from_token(&json, &server_key) {
            Err(ApiError::Forward(ForwardError::TokenJsonInvalid(issues))) => {
                issues.into_iter().map(|issue| issue.path.join(".")).collect::<Vec<_>>()
            }
            other => panic!("{json}: {other:?}"),
        };
        assert_eq!(paths(json!({})), ["secret_key"]);
        assert_eq!(paths(json!({"secret_key": "s", "spend_key": "spk_k"})), ["spend_key"]);
        assert_eq!(
            paths(json!({"secret_key": "s", "connection_id": "a", "customer_id": "b"})),
            ["customer_id"]
        );
        assert_eq!(paths(json!({"secret_key": "s", "product_id": "a", "meter_slug": "a"})), ["meter_slug"]);
        assert_eq!(
            paths(
                json!({"disable_billing": 1, "meter_slug": 1.5, "customer_id": "", "provider_key": "p".repeat(4097)})
            ),
            ["provider_key", "customer_id", "meter_slug", "disable_billing"]
        );
        assert_eq!(
            paths(
                json!({"spend_key": "spk_k", "disable_billing": true, "meter_id": "m", "customer_id": "c"})
            ),
            ["customer_id", "meter_id", "disable_billing"]
        );
        // The fields in conflict are reported before a secret that is not valid.
        let conflict = json!({"customer_id": "a", "connection_secret": "cons_x"});
        assert_eq!(paths(conflict), ["secret_key"]);
        let forged = json!({"spend_key": "spk_k", "connection_secret": "cons_x"});
        assert_eq!(from_token(&forged, &server_key).unwrap_err().code(), "connection_secret_invalid");
    }

    #[test]
    fn only_nulls_of_both_names_and_a_provider_key_mean_metering_only() {
        let server_key = ServerKey::random();
        let billing = |json: Value| from_token(&json, &server_key).unwrap().billing;
        for (json, expected) in [
            (json!({"provider_key": "p", "customer_id": null, "meter_slug": null}), Billing::MeteringOnly),
            (json!({"provider_key": "p", "customer_id": null, "product_secret": null}), Billing::Usual),
            (json!({"provider_key": "p", "customer_id": null}), Billing::Usual),
            (json!({"provider_key": "p"}), Billing::Usual),
            (json!({"customer_id": null, "meter_slug": null}), Billing::Usual),
            (
                json!({"provider_key": "p", "customer_id": null, "meter_slug": null, "meter_id": "m"}),
                Billing::Usual,
            ),
            (
                json!({"provider_key": "p", "customer_id": null, "meter_slug": null, "disable_billing": true}),
                Billing::MeteringOnly,
            ),
            (json!({"disable_billing": true}), Billing::Disabled),
            (json!({"disable_billing": null}), Billing::Usual),
        ] {
            let mut token = json.clone();
            token["secret_key"] = json!("s");
            assert_eq!(billing(token), expected, "{json}");
        }
    }

    #[test]
    fn a_token_that_repeats_a_member_is_refused() {
        let server_key = ServerKey::random();
        for (token, member) in [
            (r#"{"secret_key":"s","secret_key":"t"}"#, "secret_key"),
            (r#"{"secret_key":"s","customer_id":"a","customer_id":"b"}"#, "customer_id"),
            (r#"{"secret_key":"s","customer_id":"a","customer_id":null}"#, "customer_id"),
            (r#"{"secret_key":"s","customer_id":"a","customer\u005fid":"b"}"#, "customer_id"),
            (r#"{"secret_key":"s","x":1,"disable_billing":true,"x":1}"#, "x"),
        ] {
            let found = find(&headers(&[("x-api-key", &B64.encode(token))]), &[], &server_key);
            let Err(ApiError::Forward(ForwardError::TokenJsonInvalid(issues))) = found else {
                panic!("{token}: {found:?}")
            };
            assert_eq!(issues, [Issue::new([member], "must not be repeated")], "{token}");
        }
    }
}
