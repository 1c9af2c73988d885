//! Unusual spellings that a caller may try: of a provider's host, a second credential, a provider key, a method.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::json;

#[test]
fn a_provider_is_recognised_in_every_spelling_of_its_host_or_the_call_is_refused() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("1").await;
        let price = json!({"name": "per token", "rate_type": "fixed", "tier_type": "tokens_1m",
            "tiers": [{"start": 0, "rate": "1000"}]});
        let billing = merchant.billing(&customer, &merchant.meter(price).await);
        let usage = json!({"usage": {"prompt_tokens": 3, "completion_tokens": 4}});
        let endpoint = merchant.instance.openai.endpoint(move |_| json(200, &usage));
        let authority = merchant.instance.openai.authority();
        let port = authority.rsplit_once(':').unwrap().1;
        let spelled =
            |authority: String| endpoint.url.replace(&merchant.instance.openai.authority(), &authority);

        let mapped = merchant.call(&billing, &spelled(format!("[::ffff:127.0.0.1]:{port}"))).await;
        let charged = merchant.charged(&mapped).await;
        assert_eq!(charged["fee"]["amount"], "0.0070000000", "{charged}");

        let before = endpoint.calls().len();
        for odd in [
            format!("127.0.0.1:0{port}"),
            format!("127.1:{port}"),
            format!("2130706433:{port}"),
            format!("0x7f000001:{port}"),
            format!("0177.0.0.1:{port}"),
        ] {
            merchant.call(&billing, &spelled(odd)).await.refused(400, "forward_url_invalid");
        }
        assert_eq!(endpoint.calls().len(), before);
    });
}

#[test]
fn a_provider_is_recognised_with_and_without_its_default_port() {
    run(async {
        let merchant = Merchant::funded("1").await;
        // No address is allowed, so every call ends at the guard, recorded with the provider that was recognised.
        let hosts = ["--provider-host=openai=LocalHost", "--provider-host=plain=localhost.:80"];
        let gateway = SideGateway::start(merchant.instance, &hosts).await;
        for (url, provider) in [
            ("https://localhost/v1", "openai"),
            ("https://localhost:443/v1", "openai"),
            ("HTTPS://LOCALHOST:443", "openai"),
            ("https://localhost./v1?a=b", "openai"),
            ("http://localhost:443/", "openai"),
            ("http://localhost/v1", "plain"),
            ("http://LOCALHOST.:80/v1", "plain"),
            ("https://localhost:80/", "plain"),
            ("https://localhost:8443/", "other"),
            ("http://localhost.localdomain/", "other"),
        ] {
            let request = forward("GET", url).bearer(&merchant.secret_key);
            let response = request.send(gateway.address).await.unwrap();
            assert!(response.status == 400 || response.status == 502, "{url}: {}", response.text());
            let opened = merchant.log.event(&format!("{}/opened", response.request_id())).await;
            assert_eq!(opened.unwrap().body["provider"], provider, "{url}");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_second_credential_does_not_reach_the_provider() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let credential = token(&json!({"secret_key": merchant.secret_key}));
        let other = &merchant.secret_key;
        let call = || forward("GET", &endpoint.url).header("x-api-key", credential.as_str());
        let target = format!("/v1/forward?u={}&key=foreign&key={other}", encoded(&endpoint.url));
        for request in [
            call().header("Authorization", other.as_str()),
            call().header("Authorization", format!("Token {other}")),
            call()
                .header("Authorization", "Bearer foreign")
                .header("Authorization", format!("Bearer {other}")),
            call().header("x-goog-api-key", format!("Bearer {other}")),
            Request::new("GET", target).header("x-api-key", credential.as_str()),
        ] {
            request.send(merchant.gateway()).await.unwrap().expect(200);
        }
        let calls = endpoint.calls();
        assert_eq!(calls.len(), 5);
        for call in calls {
            let seen = format!("{} {:?}", call.target(), call.head.headers);
            assert!(!seen.contains("aks_") && !seen.contains(&credential), "{seen}");
        }
    });
}

#[test]
fn a_provider_key_in_the_credential_reaches_the_provider_but_not_the_log() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-SECRET"}));
        let target = format!("/v1/forward?u={}&key={}", encoded(&endpoint.url), encoded(&credential));
        let response = Request::new("GET", target).send(merchant.gateway()).await.unwrap();
        response.expect(200);
        assert!(
            endpoint.only_call().target().ends_with("key=sk-SECRET"),
            "{}",
            endpoint.only_call().target()
        );
        merchant.charged(&response).await;
        let logged =
            format!("{:?}", merchant.events().await.iter().map(|event| &event.body).collect::<Vec<_>>());
        assert!(logged.contains("request.opened") || logged.contains("endpoint"), "{logged}");
        assert!(!logged.contains("sk-SECRET"), "{logged}");
    });
}

#[test]
fn other_methods_are_refused_with_the_allowed_ones() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        for method in ["OPTIONS", "TRACE", "FOO"] {
            let response = merchant.send(&merchant.secret_key, forward(method, &endpoint.url)).await;
            response.refused(405, "method_not_allowed");
        }
        assert!(endpoint.calls().is_empty());
    });
}
