//! TLS to providers: trust comes from the machine and the operator, and the certificate must be for the URL's host.

use std::process::Stdio;

use farthing_tests::instance::program;
use farthing_tests::merchant::{Customer, Merchant, Meter, encoded, forward};
use farthing_tests::provider::{Endpoint, chunk, event_stream, json, json_text, last_chunk};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tls::{Authority, Validity};
use serde_json::json;

use super::rewrite::{COMPLETION, anthropic_body, rewrite};

const FLAGS: [&str; 3] =
    ["--allow-address=127.0.0.0/8", "--allow-address=::1/128", "--connect-timeout-seconds=5"];

struct Shop {
    merchant: Merchant,
    customer: Customer,
    meter: Meter,
}

/// A customer with 10 on a meter at 1 per million tokens.
async fn shop() -> Shop {
    let merchant = Merchant::funded("10").await;
    let customer = merchant.customer("10").await;
    let price = json!({"name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
        "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant"});
    let meter = merchant.meter(price).await;
    Shop { merchant, customer, meter }
}

impl Shop {
    /// A gateway that trusts `authority`, with `openai` as the host of that provider.
    async fn gateway(&self, authority: Option<&Authority>, openai: &str) -> SideGateway {
        let mut flags = FLAGS.map(str::to_owned).to_vec();
        if let Some(authority) = authority {
            let file = self.merchant.instance.file(&format!("{}.pem", self.merchant.id));
            flags.push(format!("--trust-ca={}", authority.write_to(&file).display()));
        }
        flags.push(format!("--provider-host=openai={openai}"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        SideGateway::start(self.merchant.instance, &flags).await
    }

    async fn call(&self, gateway: &SideGateway, url: &str) -> farthing_tests::client::Response {
        let credential = self.merchant.billing(&self.customer, &self.meter);
        let request = forward("POST", url).json(&json!({"input": "hello"})).bearer(&credential);
        request.send(gateway.address).await.unwrap()
    }

    fn provider(&self) -> String {
        self.merchant.instance.provider.authority()
    }

    fn endpoint(&self) -> Endpoint {
        let usage = json!({"usage": {"prompt_tokens": 300_000, "completion_tokens": 200_000}});
        self.merchant.instance.provider.endpoint(move |_| json(200, &usage))
    }
}

#[test]
fn a_call_over_tls_is_forwarded_metered_and_charged_under_the_urls_host() {
    run(async {
        let shop = shop().await;
        let authority = Authority::new();
        let front = authority.front(&shop.provider(), &["localhost", "127.0.0.1"], Validity::Now).await;
        let port = front.port();
        let gateway = shop.gateway(Some(&authority), &format!("localhost:{port}")).await;
        let endpoint = shop.endpoint();
        for host in ["localhost", "LocalHost"] {
            let url = format!("https://{host}:{port}{}", endpoint.path);
            let response = shop.call(&gateway, &url).await;
            assert_eq!(response.status, 200, "{host}: {}", response.text());
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], json!({"input": 300_000, "output": 200_000}), "{host}");
            assert_eq!(metered["total_wallet_cost"], "0.5000000000", "{host}");
            let shown = shop.merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(
                (&shown["provider"], &shown["endpoint"]),
                (&json!("openai"), &json!(format!("POST {url}")))
            );
        }
        assert_eq!(shop.merchant.balance(&shop.customer).await, "9.0000000000");
        let call = &endpoint.calls()[0];
        assert_eq!(call.head.header("host"), Some(format!("localhost:{port}").as_str()));
        let asked = front.asked_for();
        assert!(!asked.is_empty());
        for name in asked {
            assert_eq!(
                name.unwrap().to_ascii_lowercase(),
                "localhost",
                "the requested server name is the URL's host"
            );
        }

        // An IP address works too, though TLS cannot request it as a server name.
        let url = format!("https://127.0.0.1:{port}{}", endpoint.path);
        shop.call(&gateway, &url).await.expect(200);
        assert_eq!(front.asked_for().last(), Some(&None));
        shop.merchant.nothing_is_held().await;
    });
}

#[test]
fn a_rewrite_to_a_url_without_a_scheme_is_called_over_tls() {
    run(async {
        let shop = shop().await;
        let authority = Authority::new();
        let front = authority.front(&shop.provider(), &["localhost"], Validity::Now).await;
        let host = format!("localhost:{}", front.port());
        let gateway = shop.gateway(Some(&authority), &host).await;
        let endpoint = shop
            .merchant
            .instance
            .provider
            .endpoint_ending("/v1/chat/completions", |_| json_text(200, COMPLETION));
        let url = format!("{host}{}", endpoint.path);
        for written in [
            url.clone(),
            format!("{url}/v1/messages"),
            encoded(&url),
            format!("{}/v1/messages", encoded(&url)),
        ] {
            let request = rewrite("anthropic", &written, &anthropic_body("gpt-4o"));
            let request = request.bearer(&shop.merchant.billing(&shop.customer, &shop.meter));
            let response = request.send(gateway.address).await.unwrap();
            assert_eq!(response.expect(200)["content"][0]["text"], "Hello.", "{written}");
            let call = endpoint.calls().pop().unwrap();
            assert_eq!(
                (call.target(), call.head.header("host")),
                (endpoint.path.as_str(), Some(host.as_str()))
            );
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], json!({"input": 1000, "output": 100}), "{written}");
            assert_eq!(metered["total_wallet_cost"], "0.0011000000", "{written}");
            let shown = shop.merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["endpoint"], format!("POST https://{url}"), "{written}");
        }
        assert!(!front.asked_for().is_empty());
        assert_eq!(endpoint.calls().len(), 4);
        shop.merchant.nothing_is_held().await;
    });
}

#[test]
fn events_over_tls_pass_unchanged_and_their_usage_is_read() {
    run(async {
        let shop = shop().await;
        let authority = Authority::new();
        let front = authority.front(&shop.provider(), &["localhost"], Validity::Now).await;
        let gateway = shop.gateway(Some(&authority), "api.example").await;
        let (first, last) = ("data: {\"a\":1}\n\n", "data: {\"usage\":{\"tokens\":1000000}}\n\n");
        let endpoint = shop
            .merchant
            .instance
            .provider
            .endpoint(move |_| vec![event_stream(), chunk(first), chunk(last), last_chunk()]);
        let url = format!("https://localhost:{}{}", front.port(), endpoint.path);
        let response = shop.call(&gateway, &url).await;
        assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
        assert_eq!(response.text(), format!("{first}{last}"));
        assert_eq!(shop.merchant.charged(&response).await["total_wallet_cost"], "1.0000000000");
    });
}

#[test]
fn an_untrusted_certificate_is_502_and_costs_nothing() {
    run(async {
        let shop = shop().await;
        let (authority, stranger) = (Authority::new(), Authority::new());
        let provider = shop.provider();
        let trusting = shop.gateway(Some(&authority), "api.example").await;
        let wary = shop.gateway(None, "api.example").await;
        let good = authority.front(&provider, &["localhost"], Validity::Now).await;
        let other = authority.front(&provider, &["other.example", "localhost.example"], Validity::Now).await;
        let expired = authority.front(&provider, &["localhost"], Validity::Expired).await;
        let strange = stranger.front(&provider, &["localhost"], Validity::Now).await;
        let endpoint = shop.endpoint();
        let at = |port: u16| format!("https://localhost:{port}{}", endpoint.path);
        let plain: u16 = provider.rsplit_once(':').unwrap().1.parse().unwrap();
        for (what, gateway, url) in [
            ("an authority that is not trusted", &wary, at(good.port())),
            ("another authority", &trusting, at(strange.port())),
            ("another's name", &trusting, at(other.port())),
            (
                "a certificate without its address",
                &trusting,
                at(good.port()).replace("localhost", "127.0.0.1"),
            ),
            ("an expired certificate", &trusting, at(expired.port())),
            // A plain HTTP server waits for a line while TLS waits for its response.
            ("no TLS at all", &trusting, at(plain)),
        ] {
            let response = shop.call(gateway, &url).await;
            assert_eq!(response.status, 502, "{what}: {}", response.text());
            response.refused(502, "provider_unreachable");
            let failed = shop.merchant.failed(&response).await;
            assert_eq!(failed["reason"], "provider_unreachable", "{what}");
        }
        assert!(endpoint.calls().is_empty(), "a call reached an untrusted provider");
        shop.merchant.nothing_is_held().await;
        assert_eq!(shop.merchant.balance(&shop.customer).await, "10.0000000000");
        shop.call(&trusting, &at(good.port())).await.expect(200);
    });
}

#[test]
fn a_gateway_does_not_start_with_unreadable_authorities() {
    run(async {
        let shop = shop().await;
        let ready = shop.merchant.instance.ready();
        let empty = shop.merchant.instance.file("empty.pem");
        std::fs::write(&empty, "nothing in it\n").unwrap();
        for file in ["/nowhere/at/all.pem", empty.to_str().unwrap()] {
            let mut gateway = tokio::process::Command::new(program());
            gateway.args(["gateway", "--listen", "127.0.0.1:0", "--database-url", &ready.database_url]);
            gateway.args(["--trust-ca", file]).stdin(Stdio::null()).kill_on_drop(true);
            let output = gateway.output().await.unwrap();
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(file), "{output:?}");
        }
    });
}
