//! The URLs of webhooks: the other place in which a merchant names an address that a gateway calls. They are held to the
//! rules of forwarded calls, when they are written and when they are dialled.

use std::net::IpAddr;

use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{Step, json as answer_json, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};

use super::addresses::{NOT_PLAIN, NOT_PUBLIC, in_url, no_urls};
use super::webhooks::{attempted, hook, receiver};

/// The webhooks that a merchant may have.
const WEBHOOKS: usize = 3;

/// What is shown of a delivery to an address that may not be called.
const NOT_ALLOWED: &str = "the receiver's address is not allowed";

/// A merchant writes an address in a form that readers of URLs understand differently, or no `http` URL at all: no webhook
/// takes it, neither a new one nor an existing one.
#[test]
fn no_webhook_takes_a_url_whose_host_is_not_in_plain_form() {
    run(async {
        let merchant = Merchant::new().await;
        let good = receiver(&merchant, |_| answer_json(200, &json!({})));
        let path = format!("/v1/webhooks/{}", hook(&merchant, &good.url, &["customer.created"]).await);
        let authority = merchant.instance.provider.authority();
        let (_, port) = authority.rsplit_once(':').unwrap();
        let urls = NOT_PLAIN.iter().map(|host| format!("http://{host}:{port}{}", good.path));
        for url in urls.chain(no_urls(&authority)) {
            let body = json!({"url": url, "events": ["customer.created"]});
            let made = merchant.post("/v1/webhooks", &body).await;
            assert_eq!(made.status, 400, "{url:?}: {}", made.text());
            made.refused(400, "validation_error");
            merchant.patch(&path, &json!({"url": url})).await.refused(400, "validation_error");
        }
        assert_eq!(merchant.get(&path).await.expect(200)["url"], good.url.as_str());
        assert_eq!(merchant.of_kind("webhook.created").await.len(), 1);
    });
}

/// Whether the gateways of the tests may call it.
fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().unwrap().to_canonical().is_loopback()
}

/// A merchant names an address of every kind that is not public as the receiver of a webhook: nothing is sent there.
#[test]
fn no_webhook_is_sent_to_an_address_that_is_not_public() {
    run(async {
        let forbidden: Vec<_> = NOT_PUBLIC.iter().filter(|address| !is_loopback(address)).collect();
        assert!(forbidden.len() > NOT_PUBLIC.len() / 2);
        for addresses in forbidden.chunks(WEBHOOKS) {
            let merchant = Merchant::new().await;
            let mut hooks = Vec::new();
            for address in addresses {
                let url = format!("http://{}:9/", in_url(address));
                hooks.push(hook(&merchant, &url, &["customer.created"]).await);
            }
            merchant.customer("0").await;
            for (id, address) in hooks.iter().zip(addresses) {
                let delivery = attempted(&merchant, id).await;
                assert_eq!(delivery["last_error"], NOT_ALLOWED, "{address}: {delivery}");
                assert_eq!(delivery["last_status_code"], Value::Null, "{address}: {delivery}");
            }
        }
    });
}

/// A merchant names receivers whose name has an internal address beside one that may be called, in the same family, in the
/// other one, and behind an alias: nothing is sent to either address.
#[test]
fn no_webhook_is_sent_to_a_name_with_an_internal_address_among_others() {
    run(async {
        let servers = NameServer::start(|name| match name {
            "mixed.test" => Answer::of(&["127.0.0.1", "10.0.0.1"], 60),
            "families.test" => Answer::of(&["127.0.0.1", "::1"], 60),
            "alias.test" => Answer::alias("mixed.test", &["10.0.0.1", "127.0.0.1"]),
            "good.test" => Answer::of(&["127.0.0.1"], 60),
            _ => Answer::NoSuchName,
        })
        .await;
        let instance = Instance::shared().await;
        let flags = ["--allow-address=127.0.0.0/8", "--webhook-retry-ms=50", &servers.flag()];
        let gateway = SideGateway::start(instance, &flags).await;
        let merchant = gateway.merchant_of_its_own(instance, "1").await;
        let closing = receiver(&merchant, |_| {
            [whole(200, &[("Connection", "close")], b""), vec![Step::Close]].concat()
        });
        let at = |name: &str| closing.url.replace("127.0.0.1", name);
        let names = ["mixed.test", "families.test", "alias.test"];
        let mut hooks = Vec::new();
        for name in names {
            hooks.push(hook(&merchant, &at(name), &["customer.created"]).await);
        }
        merchant.customer_called("first", "0").await;
        for (id, name) in hooks.iter().zip(names) {
            let delivery = attempted(&merchant, id).await;
            assert_eq!(delivery["last_error"], NOT_ALLOWED, "{name}: {delivery}");
        }
        assert!(closing.calls().is_empty());
        // A name of the allowed address alone is called.
        merchant.delete(&format!("/v1/webhooks/{}", hooks[0])).await.expect(200);
        let good = hook(&merchant, &at("good.test"), &["customer.created"]).await;
        merchant.customer_called("second", "0").await;
        assert_eq!(attempted(&merchant, &good).await["last_status_code"], 200);
        assert_eq!(closing.calls().len(), 1);
    });
}
