//! Secrets of Farthing in unusual presentations. None of them reaches a provider, in whatever decoding.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use farthing_tests::client::{Body, Request, Response};
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::{Call, Endpoint, json as answer_json};
use farthing_tests::run;
use serde_json::json;

use super::endpoints::Endpoints;

/// The slots of credentials, but for `x-api-key`, in which these tests send their own.
const SLOTS: [&str; 4] = ["Authorization", "x-goog-api-key", "xi-api-key", "api-key"];

/// Headers that are no slots.
const OTHER_HEADERS: [&str; 4] = ["Cookie", "X-Provider-API-Key", "X-Original-URI", "Referer"];

/// Those that hold a key of some provider. They are removed where the model chooses the provider.
const OF_PROVIDERS: [&str; 2] = ["Cookie", "X-Provider-API-Key"];

/// A secret that is in use, as everyone shows it.
struct Secret {
    key: String,
    token: String,
}

async fn secrets(merchant: &Merchant) -> Vec<Secret> {
    let customer = merchant.customer("1").await;
    let spend_key = merchant.post("/v1/spend_keys", &json!({"name": "a test's"})).await.expect(201);
    let spend_key = spend_key["key"].as_str().unwrap().to_owned();
    let with = |member: &str, key: &str| token(&json!({member: key, "provider_key": "sk-theirs"}));
    let mut all = vec![
        Secret { token: with("secret_key", &merchant.secret_key), key: merchant.secret_key.clone() },
        Secret { token: with("spend_key", &spend_key), key: spend_key },
    ];
    let shown = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
    let key = shown["connection_secret"].as_str().unwrap().to_owned();
    let with_customer = json!({"secret_key": merchant.secret_key, "connection_secret": key});
    all.push(Secret { token: token(&with_customer), key });
    all
}

/// Everything that a provider received but the body, in every decoding that is looked for here.
fn decodings(call: &Call) -> Vec<Vec<u8>> {
    // The test's wire reads a byte as the character of its number.
    let bytes =
        |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect::<Vec<_>>();
    let mut all = vec![bytes(&call.head.first_line)];
    all.extend(call.head.headers.iter().map(|(name, value)| bytes(&format!("{name}: {value}"))));
    for _ in 0..3 {
        let decoded: Vec<_> = all.iter().flat_map(|text| undone(text)).collect();
        all.extend(decoded);
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// One decoding of each kind: percent-encoding, JSON escapes, and base64 at each of its alignments.
fn undone(text: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    for (mark, width) in [(&b"%"[..], 2), (&b"\\u00"[..], 2)] {
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((first, after)) = rest.split_first() {
            let escaped =
                rest.strip_prefix(mark).and_then(|rest| Some((hex(rest.get(..width)?)?, &rest[width..])));
            let (byte, after) = escaped.unwrap_or((*first, after));
            plain.push(byte);
            rest = after;
        }
        if plain != text {
            all.push(plain);
        }
    }
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    for run in text.split(|byte| !is_base64(byte)).filter(|run| run.len() >= 24) {
        let standard: Vec<u8> = run
            .iter()
            .map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                byte => *byte,
            })
            .collect();
        for at in 0..4 {
            let part = &standard[at..];
            let whole = part.len() / 4 * 4;
            all.extend(STANDARD.decode(&part[..whole]));
        }
    }
    all
}

fn received_nothing_of(secret: &str, call: &Call) -> Result<(), String> {
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let holds = |text: &Vec<u8>| text.windows(secret.len()).any(|part| part == secret.as_bytes());
    match decodings(call).iter().find(|text| holds(text)) {
        Some(text) => Err(format!("the provider received {:?}: {}", call.head, shown(text))),
        None => Ok(()),
    }
}

/// A text as the test's client writes it byte for byte.
fn as_bytes(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The presentations of a secret and its token in a header, by what follows.
fn presentations(secret: &Secret) -> Vec<String> {
    let Secret { key, token } = secret;
    let json_of = |value: &str| format!(r#"{{"secret_key":"{value}"}}"#);
    let escaped: Vec<_> = key.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let escaped = escaped.concat();
    let long = json!({"x": "x".repeat(17_000), "secret_key": key}).to_string();
    let deep = format!(r#"{{"secret_key":"{key}","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let b64 = |text: &str| STANDARD.encode(text);
    let mut all = vec![
        format!("Basic {}", b64(&format!("{key}:"))),
        format!("Basic {}", b64(&format!("x:{key}"))),
        format!("Basic {}", b64(&format!("us:{key}"))),
        format!("Basic {}", b64(&format!("user:{token}"))),
        format!("Basic {}", URL_SAFE_NO_PAD.encode(format!("é?>:{key}"))),
        format!("Bearer\t{key}"),
        format!("Bearer \"{key}\""),
        format!("Bearer Bearer {key}"),
        format!("Bearer {}", b64(key)),
        format!("Bearer {}", b64(&b64(key))),
        format!("Bearer {}", json_of(key)),
        format!("Bearer [\"{key}\"]"),
        format!("Bearer {}", b64(&format!("[\"{key}\"]"))),
        format!("Bearer {}", b64(&long)),
        format!("Bearer {}", b64(&deep)),
        format!("Bearer {}", b64(&json_of(&escaped))),
        format!("Bearer {}", b64(&format!(r#"{{"secret_key":"{key}","x":"\ud800"}}"#))),
        format!("Bearer {}", b64(&format!("\u{feff}{}", json_of(key)))),
        format!("Bearer {}", encoded(key)),
        format!("{key};"),
        format!("'{key}'"),
        format!("key={key}"),
        format!("{token}, {token}"),
        as_bytes(&[key.as_bytes(), b"\xff"].concat()),
    ];
    all.push(format!("Bearer {}", as_bytes(&[key.as_bytes(), b"\xe9"].concat())));
    all
}

/// Whether the gateway may read this `Authorization` as a forward token.
fn is_an_object(value: &str) -> bool {
    let json = value.strip_prefix("Bearer ").and_then(|token| STANDARD.decode(token).ok());
    json.is_some_and(|json| json.starts_with(b"{"))
}

fn endpoint(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})))
}

async fn send(merchant: &Merchant, request: &Request) -> Response {
    request.send(merchant.gateway()).await.unwrap()
}

#[test]
fn a_secret_beside_the_credential_is_struck_from_every_slot() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = endpoint(&merchant);
        let mut sent = 0;
        for secret in secrets(&merchant).await {
            for value in presentations(&secret) {
                for slot in SLOTS {
                    let call =
                        forward("GET", &endpoint.url).header("x-api-key", merchant.secret_key.as_str());
                    let response = send(&merchant, &call.header(slot, value.clone())).await;
                    if slot == "Authorization" && is_an_object(&value) && response.status != 200 {
                        // It is read as the credential of the call, and refused.
                        assert_eq!(endpoint.calls().len(), sent, "{value}");
                        continue;
                    }
                    assert_eq!(response.status, 200, "{slot}: {value}: {}", response.text());
                    sent += 1;
                    let call = endpoint.calls().pop().unwrap();
                    assert!(call.head.all(&slot.to_lowercase()).is_empty(), "{slot}: {value}");
                    received_nothing_of(&secret.key, &call).unwrap();
                    received_nothing_of(&merchant.secret_key, &call).unwrap();
                }
            }
            let key = encoded(&secret.key);
            for value in [
                format!("%20{key}"),
                format!("{key}%ff"),
                format!("%22{key}%22"),
                encoded(&key),
                encoded(&encoded(&format!("/{}", secret.key))),
                encoded(&STANDARD.encode(format!("x:{}", secret.key))),
                encoded(&format!("[\"{}\"]", secret.key)),
            ] {
                let mut call =
                    forward("GET", &endpoint.url).header("x-api-key", merchant.secret_key.as_str());
                call.target.extend(["&key=", &value]);
                send(&merchant, &call).await.expect(200);
                sent += 1;
                let call = endpoint.calls().pop().unwrap();
                assert!(!call.target().contains("key="), "{}", call.target());
                received_nothing_of(&secret.key, &call).unwrap();
            }
        }
        assert_eq!(endpoint.calls().len(), sent);
    });
}

#[test]
fn a_secret_anywhere_else_refuses_the_call() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = endpoint(&merchant);
        let call = |url: &str| forward("GET", url).header("x-api-key", merchant.secret_key.as_str());
        for secret in secrets(&merchant).await {
            for name in OTHER_HEADERS {
                for value in presentations(&secret) {
                    let response = send(&merchant, &call(&endpoint.url).header(name, value.clone())).await;
                    assert_eq!(response.status, 400, "{name}: {value}: {}", response.text());
                    let error = response.refused(400, "validation_error");
                    assert_eq!(error["issues"][0]["path"], json!([name.to_lowercase()]), "{value}");
                    assert!(!response.text().contains(&secret.key));
                }
            }
            let key = &secret.key;
            let basic = STANDARD.encode(format!("x:{key}"));
            for value in [key, &secret.token, &basic, &encoded(key), &STANDARD.encode(&secret.token)] {
                for name in ["api_key", "access_token", "token", "KEY", "x", "%6beys"] {
                    let mut beside = call(&endpoint.url);
                    beside.target.extend(["&", name, "=", &encoded(value)]);
                    send(&merchant, &beside).await.refused(400, "forward_url_invalid");
                    let within = call(&format!("{}?{name}={value}", endpoint.url));
                    send(&merchant, &within).await.refused(400, "forward_url_invalid");
                }
                let mut bare = call(&endpoint.url);
                bare.target.extend(["&", &encoded(value)]);
                send(&merchant, &bare).await.refused(400, "forward_url_invalid");
                let path = call(&format!("{}/{}/x", endpoint.url, encoded(value)));
                send(&merchant, &path).await.refused(400, "forward_url_invalid");
            }
            let own = json!({"secret_key": merchant.secret_key, "provider_key": key});
            let refused = merchant.send(&token(&own), forward("GET", &endpoint.url)).await;
            let error = refused.refused(400, "forward_token_json_invalid");
            assert_eq!(error["issues"][0]["path"], json!(["provider_key"]));
        }
        assert!(endpoint.calls().is_empty());
        merchant.nothing_is_held().await;
    });
}

/// Each presentation in one slot and in one other header at each endpoint. These take turns.
#[test]
fn no_endpoint_passes_a_secret_on() {
    run(async {
        let endpoints = Endpoints::start(&[("Content-Type", "application/json")]).await;
        let merchant = Merchant::funded("100").await;
        let mut slots = SLOTS.into_iter().cycle();
        let mut others = OTHER_HEADERS.into_iter().cycle();
        let mut sent = 0;
        for secret in secrets(&merchant).await {
            for call in endpoints.calls() {
                let asked = call.request.clone().header("x-api-key", merchant.secret_key.as_str());
                let received_no_secret = || {
                    let received = call.reaches.calls().pop().unwrap();
                    received_nothing_of(&secret.key, &received).unwrap();
                    received_nothing_of(&merchant.secret_key, &received).unwrap();
                };
                for value in presentations(&secret) {
                    let slot = slots.next().unwrap();
                    let at = format!("{}: {slot}: {value}", call.target());
                    let response = endpoints.send(&asked.clone().header(slot, value.clone())).await;
                    if slot == "Authorization" && is_an_object(&value) && response.status != 200 {
                        // It is read as the credential of the call, and refused.
                        assert_eq!(endpoints.received(), sent, "{at}");
                    } else {
                        assert_eq!(response.status, 200, "{at}: {}", response.text());
                        sent += 1;
                        received_no_secret();
                    }
                    let name = others.next().unwrap();
                    let at = format!("{}: {name}: {value}", call.target());
                    let response = endpoints.send(&asked.clone().header(name, value)).await;
                    if call.is_by_model() && OF_PROVIDERS.contains(&name) {
                        assert_eq!(response.status, 200, "{at}: {}", response.text());
                        sent += 1;
                        received_no_secret();
                    } else {
                        assert_eq!(response.status, 400, "{at}: {}", response.text());
                        let error = response.refused(400, "validation_error");
                        assert_eq!(error["issues"][0]["path"], json!([name.to_lowercase()]), "{at}");
                        assert!(!response.text().contains(&secret.key), "{at}");
                    }
                    assert_eq!(endpoints.received(), sent, "{at}");
                }
                let key = &secret.key;
                let basic = STANDARD.encode(format!("x:{key}"));
                let joint = if call.target().contains('?') { "&" } else { "?" };
                for value in [key, &secret.token, &basic, &encoded(key), &STANDARD.encode(&secret.token)] {
                    for added in [format!("x={}", encoded(value)), encoded(value)] {
                        let mut asked = asked.clone();
                        asked.target.extend([joint, added.as_str()]);
                        endpoints.send(&asked).await.refused(400, "forward_url_invalid");
                    }
                }
                let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": key}));
                let refused = endpoints.send(&call.request.clone().bearer(&own)).await;
                let error = refused.refused(400, "forward_token_json_invalid");
                assert_eq!(error["issues"][0]["path"], json!(["provider_key"]));
            }
        }
        assert_eq!(endpoints.received(), sent);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn what_only_looks_like_a_secret_passes_unaltered() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = endpoint(&merchant);
        let aws = r#"{"access_key":"AKIAIOSFODNN7EXAMPLE","secret_key":"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}"#;
        let long = STANDARD.encode((0..=255).cycle().take(3_000).collect::<Vec<u8>>());
        let headers = [
            (
                "Authorization",
                format!("Basic {}", STANDARD.encode("user:password-of-a-provider-that-is-long")),
            ),
            ("x-goog-api-key", "AIzaSyA1234567890abcdefghijklmnopqrstuv".to_owned()),
            ("xi-api-key", long.clone()),
            ("ocp-apim-subscription-key", STANDARD.encode(aws)),
            ("X-Provider-API-Key", aws.to_owned()),
            ("Cookie", "spk_=1; css_class=breaks_after_aks_live_; cons_=%20\\".to_owned()),
            ("X-Custom", "spk_01KAM5F7Z8Q9X0Y1V2W3E4R5T6".to_owned()),
        ];
        let mut call = forward("POST", &endpoint.url).header("x-api-key", merchant.secret_key.as_str());
        for (name, value) in &headers {
            call = call.header(name, value.clone());
        }
        // A body is the caller's own word.
        let body = merchant.secret_key.clone().into_bytes();
        call = call.body(Body::Whole(body.clone()));
        let query = format!("token={}&leaks_live_=%2525&x=spk_{}", encoded(&long[..400]), "0".repeat(26));
        call.target.extend(["&", &query]);
        send(&merchant, &call).await.expect(200);
        let received = endpoint.only_call();
        for (name, value) in &headers {
            assert_eq!(received.head.all(&name.to_lowercase()), [value.as_str()], "{name}");
        }
        assert!(received.target().ends_with(&query), "{}", received.target());
        assert_eq!(received.body, body);
    });
}

/// A random value with `key` in it: wrapped up to twice, with something around it.
fn random_value(random: &mut fastrand::Rng, key: &str) -> String {
    let mut word = || -> String { (0..random.usize(0..8)).map(|_| random.alphanumeric()).collect() };
    let mut value = format!("{}\"{key}\"{}", word(), word());
    for _ in 0..random.u8(0..3) {
        value = match random.u8(0..5) {
            0 => STANDARD.encode(&value),
            1 => URL_SAFE_NO_PAD.encode(&value),
            2 => format!("user:{value}"),
            3 => format!("Bearer {value}"),
            _ => json!({"secret_key": value}).to_string(),
        };
    }
    value
}

#[test]
fn a_random_secret_in_a_random_presentation_never_reaches_a_provider() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = endpoint(&merchant);
        let secrets = secrets(&merchant).await;
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let places = ["Authorization", "x-goog-api-key", "api-key", "X-Anything", "&key=", "&other=", "path"];
        let (mut passed, mut refused) = (0, 0);
        for _ in 0..500 {
            let secret = &secrets[random.usize(..secrets.len())];
            let value = random_value(&mut random, &secret.key);
            let place = places[random.usize(..places.len())];
            let mut shown = encoded(&value);
            for _ in 0..random.u8(0..3) {
                shown = encoded(&shown);
            }
            let mut call = forward("GET", &endpoint.url);
            match place {
                "path" => call = forward("GET", &format!("{}/{shown}", endpoint.url)),
                parameter if parameter.starts_with('&') => call.target.extend([parameter, &shown]),
                header => call = call.header(header, value.clone()),
            }
            let before = endpoint.calls().len();
            let response = send(&merchant, &call.header("x-api-key", merchant.secret_key.as_str())).await;
            let calls = endpoint.calls();
            match response.status {
                200 => {
                    passed += 1;
                    received_nothing_of(&secret.key, calls.last().unwrap())
                        .unwrap_or_else(|why| panic!("seed {seed}: {place}: {value}: {why}"));
                }
                400 => {
                    refused += 1;
                    assert_eq!(calls.len(), before, "seed {seed}: {place}: {value}");
                }
                status => panic!("seed {seed}: {status} for {place}: {value}: {}", response.text()),
            }
        }
        assert!(passed > 50 && refused > 50, "seed {seed}: {passed} passed, {refused} refused");
    });
}
