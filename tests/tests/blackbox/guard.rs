//! The address guard: a gateway without allowances reaches public addresses only, in every spelling of an address.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::json;

#[test]
fn private_and_local_addresses_are_refused_in_every_spelling() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gateway = SideGateway::start(merchant.instance, &[]).await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let port = merchant.instance.provider.authority().split(':').nth(1).unwrap().to_owned();
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "017700000001",
            "127.0.0.1.",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "0",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[fc00::1]",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
        ] {
            let url = format!("http://{host}:{port}{}", endpoint.path);
            for target in [format!("/v1/forward?u={}", encoded(&url)), format!("/v1/forward/{url}")] {
                let request = Request::new("GET", target).bearer(&merchant.secret_key);
                let response = request.send(gateway.address).await.unwrap();
                // Spellings that the resolver does not accept are unreachable; no call may reach the endpoint.
                match response.status {
                    400 => {
                        let code = response.json()["error"]["code"].as_str().unwrap().to_owned();
                        assert!(
                            code == "forward_url_forbidden" || code == "forward_url_invalid",
                            "{host}: {code}"
                        );
                    }
                    _ => {
                        response.refused(502, "provider_unreachable");
                    }
                }
            }
        }
        assert!(endpoint.calls().is_empty(), "a call bypassed the guard");
        for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"] {
            let url = format!("http://{host}:{port}/");
            for target in [format!("/v1/forward?u={}", encoded(&url)), format!("/v1/forward/{url}")] {
                let request = Request::new("GET", target).bearer(&merchant.secret_key);
                request.send(gateway.address).await.unwrap().refused(400, "forward_url_forbidden");
            }
        }
        merchant.nothing_is_held().await;
        assert!(merchant.events().await.iter().all(|event| event.kind != "request.metered"));
    });
}

#[test]
fn an_allowance_permits_exactly_the_networks_it_names() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gateway = SideGateway::start(merchant.instance, &["--allow-address", "127.0.0.1/32"]).await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let send = async |url: &str| {
            let request = Request::new("GET", format!("/v1/forward?u={}", encoded(url)));
            request.bearer(&merchant.secret_key).send(gateway.address).await.unwrap()
        };
        send(&endpoint.url).await.expect(200);
        // An IPv4-mapped IPv6 address is checked and dialled as its IPv4 address.
        send(&endpoint.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")).await.expect(200);
        send(&endpoint.url.replace("127.0.0.1", "[::ffff:7f00:1]")).await.expect(200);
        assert_eq!(endpoint.calls().len(), 3, "every allowed call reached the provider");
        for mapped in ["[::ffff:127.0.0.2]", "[::ffff:10.0.0.1]"] {
            let url = endpoint.url.replace("127.0.0.1", mapped);
            send(&url).await.refused(400, "forward_url_forbidden");
        }
        send(&endpoint.url.replace("127.0.0.1", "127.0.0.2")).await.refused(400, "forward_url_forbidden");
        send("http://[::1]:9/").await.refused(400, "forward_url_forbidden");
        send("http://10.0.0.1:9/").await.refused(400, "forward_url_forbidden");
        assert_eq!(endpoint.calls().len(), 3, "no forbidden call reached the provider");
    });
}

#[test]
fn the_callers_provider_key_is_never_sent_to_a_forbidden_address() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gateway = SideGateway::start(merchant.instance, &[]).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let request = Request::new("GET", format!("/v1/forward?u={}", encoded(&url)))
            .bearer(&merchant.secret_key)
            .header("X-Provider-API-Key", "secret");
        request.send(gateway.address).await.unwrap().refused(400, "forward_url_forbidden");
        let dialled = tokio::time::timeout(std::time::Duration::from_millis(200), listener.accept()).await;
        assert!(dialled.is_err(), "not even dialled");
    });
}
