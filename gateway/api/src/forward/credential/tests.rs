//! Tests of how a call's credential is found and read.

use base64::engine::general_purpose::{STANDARD as B64, URL_SAFE_NO_PAD};
use farthing_core::ids::{CustomerId, MeterId};
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
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
fn an_object_with_fields_that_are_refused_is_ours_and_what_is_no_object_is_foreign() {
    let server_key = ServerKey::random();
    let (key, azures) = (("x-api-key", "aks_live_k"), "api-key");
    for (text, is_object) in [
        ("{}", true),
        (r#"{"secret_key":1}"#, true),
        (r#"{"secret_key":"s","secret_key":"t"}"#, true),
        (r#" {"x":[{"y":null}]} "#, true),
        (r#"{"secret_key":"\ud800"}"#, true),
        (r#"{"\ud800":"s"}"#, false),
        (r#"{"secret_key":"s"} x"#, false),
        (r#"{"secret_key":"s""#, false),
        (r#"[{"secret_key":"s"}]"#, false),
        ("null", false),
        ("7", false),
        ("", false),
        ("sk-live", false),
    ] {
        let token = B64.encode(text);
        let is_ours = is_ours(&token);
        assert_eq!(is_ours, is_object, "{text}");
        // The first one of ours decides. What is foreign is left alone in any slot.
        let bearer = format!("Bearer {token}");
        let before = find(&headers(&[("authorization", &bearer), key]), &[], &server_key);
        let after = find(&headers(&[key, (azures, &token)]), &[], &server_key).unwrap();
        let caller = Caller::SecretKey(server_key.hash("aks_live_k"));
        assert_eq!(after.credential.caller, caller, "{text}");
        if is_object {
            assert_eq!(before.unwrap_err().code(), "forward_token_json_invalid", "{text}");
            assert_eq!(after.slots, [Slot::Plain("x-api-key"), Slot::Plain("api-key")], "{text}");
        } else {
            assert_eq!(before.unwrap().slots, [Slot::Plain("x-api-key")], "{text}");
            assert_eq!(after.slots, [Slot::Plain("x-api-key")], "{text}");
        }
        let basic = format!("Basic {token}");
        let wrong = find(&headers(&[("authorization", &basic)]), &[], &server_key);
        assert_eq!(wrong.unwrap_err().code(), "auth_header_invalid", "{text}");
    }
}

proptest! {
    #[test]
    fn a_token_that_is_read_once_is_the_one_that_is_checked_and_read_again(
        members in proptest::collection::vec((0_usize..12, 0_usize..12), 0..5),
        (cut, odd) in (0_usize..100, any::<char>()),
    ) {
        const NAMES: [&str; 12] = [
            "secret_key", "spend_key", "provider_key", "customer_id", "connection_id", "connection_secret",
            "meter_id", "meter_slug", "product_secret", "disable_billing", "x", "secret\\u005fkey",
        ];
        const VALUES: [&str; 12] = [
            "\"s\"", "\"spk_k\"", "null", "true", "7", "\"\"", "[1,{}]", "{\"a\":\"b\"}", "\"a\\u0000b\"",
            "\"\\ud800\"", "1e999", "",
        ];
        let server_key = ServerKey::random();
        let member = |(name, value): &(usize, usize)| format!("\"{}\":{}", NAMES[*name], VALUES[*value]);
        let mut json = format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","));
        if cut < json.len() {
            json.replace_range(cut..=cut, odd.encode_utf8(&mut [0; 4]));
        }
        let checked = input::check_object(&json).map_err(|_| foreign("must be base64 of a JSON object"));
        let twice = checked.map(|()| TokenBody::read(&json)?.credential(&server_key));
        let encoded = B64.encode(&json);
        prop_assert_eq!(is_ours(&encoded), twice.is_ok());
        prop_assert_eq!(read(&encoded).and_then(|token| token.credential(&server_key)), twice);
    }
}

#[test]
fn both_shapes_and_both_alphabets_are_read() {
    let server_key = ServerKey::random();
    let customer = CustomerId::new(ulid(1));
    let meter = MeterId::new(ulid(2));
    let a = from_token(&json!({"secret_key": "s", "customer_id": "user?>é", "meter_slug": "m"}), &server_key);
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
    let nobody =
        json!({"secret_key": "s", "provider_key": "p", "connection_secret": null, "product_secret": null});
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

#[test]
fn an_id_beside_its_own_secret_names_nobody_else() {
    let server_key = ServerKey::random();
    let (customer, meter) = (CustomerId::new(ulid(1)), MeterId::new(ulid(2)));
    let (cons, prds) = (server_key.connection_secret(customer, 1), server_key.product_secret(meter, 1));
    let with = |fields: &Value| {
        let mut token = json!({"secret_key": "s", "connection_secret": cons, "product_secret": prds});
        token.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        from_token(&token, &server_key)
    };
    let (con, prd) = (customer.to_string(), meter.to_string());
    for fields in [
        json!({}),
        json!({"customer_id": con}),
        json!({"connection_id": con}),
        json!({"meter_id": prd}),
        json!({"product_id": prd}),
        json!({"customer_id": con, "connection_id": con, "meter_id": prd, "product_id": prd}),
    ] {
        let read = with(&fields).unwrap();
        let expected = (Some(CustomerRef::Secret(customer)), Some(MeterRef::Secret(meter)));
        assert_eq!((read.customer, read.meter), expected, "{fields}");
    }
    let another_con = CustomerId::new(ulid(3)).to_string();
    let another_prd = MeterId::new(ulid(3)).to_string();
    for (fields, refused) in [
        (json!({"customer_id": another_con}), "connection_secret"),
        (json!({"connection_id": another_con}), "connection_secret"),
        (json!({"customer_id": "a-reference"}), "connection_secret"),
        (json!({"meter_id": another_prd}), "product_secret"),
        (json!({"product_id": another_prd}), "product_secret"),
        (json!({"meter_id": "a-slug"}), "product_secret"),
        (json!({"meter_slug": "a-slug"}), "product_secret"),
        (json!({"customer_id": con, "connection_id": another_con}), "customer_id"),
    ] {
        let Err(ApiError::Forward(ForwardError::TokenJsonInvalid(issues))) = with(&fields) else {
            panic!("{fields} is accepted")
        };
        let paths: Vec<_> = issues.into_iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, [refused], "{fields}");
    }
    // An id and a slug, as before: both are names, and neither is a secret.
    let names = json!({"secret_key": "s", "meter_id": prd, "meter_slug": "a-slug"});
    assert_eq!(from_token(&names, &server_key).unwrap_err().code(), "forward_token_json_invalid");
}

fn ulid(n: u128) -> ulid::Ulid {
    ulid::Ulid::from_parts(1, n)
}

#[test]
fn what_is_not_a_credential_says_what_is_wrong() {
    let server_key = ServerKey::random();
    let code = |pairs: &[(&'static str, &str)]| find(&headers(pairs), &[], &server_key).unwrap_err().code();
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
fn an_empty_slot_counts_as_absent() {
    let server_key = ServerKey::random();
    let empty = [String::new()];
    let code = |pairs: &[(&'static str, &str)], keys: &[String]| {
        find(&headers(pairs), keys, &server_key).unwrap_err().code()
    };
    assert_eq!(code(&[], &empty), "auth_header_missing");
    for name in KEY_HEADERS {
        for value in ["", " ", "\t"] {
            assert_eq!(code(&[(name, value)], &[]), "auth_header_missing", "{name}: {value:?}");
            assert_eq!(code(&[(name, value)], &empty), "auth_header_missing", "{name}: {value:?}");
            // Another slot decides, and the empty one holds nothing of ours.
            let beside = |other| find(&headers(&[(name, value), other]), &empty, &server_key);
            assert_eq!(beside(("authorization", "Bearer aks_k")).unwrap().slots, [Slot::Authorization]);
            let refused = beside(("authorization", "Bearer !!!")).unwrap_err();
            assert_eq!(refused.code(), "forward_token_json_invalid");
            assert_eq!(beside(("authorization", "Basic abc")).unwrap_err().code(), "auth_header_invalid");
        }
        assert_eq!(code(&[(name, "!!!")], &empty), "forward_token_json_invalid");
    }
    // A header without a token is no empty slot.
    assert_eq!(code(&[("authorization", "")], &empty), "auth_header_invalid");
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
    assert_eq!(paths(json!({"secret_key": "s", "connection_id": "a", "customer_id": "b"})), ["customer_id"]);
    assert_eq!(paths(json!({"secret_key": "s", "product_id": "a", "meter_slug": "a"})), ["meter_slug"]);
    assert_eq!(
        paths(
            json!({"disable_billing": 1, "meter_slug": 1.5, "customer_id": "", "provider_key": "p".repeat(4097)})
        ),
        ["provider_key", "customer_id", "meter_slug", "disable_billing"]
    );
    assert_eq!(
        paths(json!({"spend_key": "spk_k", "disable_billing": true, "meter_id": "m", "customer_id": "c"})),
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
