//! Settlements that are durable, but not confirmed to their gateway before another one leads the partition.

use farthing_tests::client::Response;
use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, json_text};
use farthing_tests::proxy::{Fault, Outcome, Proxy};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, within};
use serde_json::json;

use crate::{HEAL, instance, put_away, run};

/// The flags of a gateway beside the dev instance's.
const FLAGS: [&str; 4] = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];

/// A gateway behind a proxy, beside the instance's two, and a merchant whose partition it leads.
struct Scene {
    merchant: Merchant,
    proxy: Proxy,
    gateway: SideGateway,
    gate: Gate,
}

impl Scene {
    async fn open() -> Self {
        let instance: &'static Instance = instance().await;
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        let gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
        leader::spread(&instance.log().await.sql, 3).await;
        let merchant = Merchant::led_by(instance, &gateway.id().await).await;
        merchant.credit_own("10").await;
        Self { merchant, proxy, gateway, gate: Gate::default() }
    }

    /// A provider that answers `body` once the gate is open.
    fn provider(&self, body: &'static str) -> Endpoint {
        let gate = self.gate.clone();
        self.merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(gate.clone())];
            steps.extend(json_text(200, body));
            steps
        })
    }

    async fn count(&self, kind: &str) -> usize {
        self.merchant.events().await.iter().filter(|event| event.kind == kind).count()
    }

    /// Another gateway leads the merchant's partition.
    async fn taken_over(&self) {
        let (partition, id) = (self.merchant.partition().await, self.gateway.id().await);
        leader::taken_over(&self.merchant.log.sql, partition, &id).await;
    }

    async fn close(self) {
        self.merchant.nothing_is_held().await;
        let report = self.merchant.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        drop(self.gateway);
        put_away(self.merchant.instance).await;
    }
}

/// Makes a call whose settlement is appended, but not confirmed to its gateway before another one leads the partition.
/// `body` is its provider's answer.
async fn settled_before_a_takeover(body: &'static str) -> (Scene, Response) {
    let scene = Scene::open().await;
    let customer = scene.merchant.customer("1").await;
    let meter = json!({"name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
        "tiers": [{"start": 0, "rate": "1000000"}], "service_charge_payer": "merchant", "max_fee": "1"});
    let meter = scene.merchant.meter(meter).await;
    let endpoint = scene.provider(body);
    let request = forward("GET", &endpoint.url).bearer(&scene.merchant.billing(&customer, &meter));
    // Its opening passes.
    let mut strike = scene.proxy.strike_and_sever(Fault::LoseAnswer, 1);
    let address = scene.gateway.address;
    let call = tokio::spawn(async move { request.send(address).await });
    eventually("the call is open", async || (scene.count("request.opened").await == 1).then_some(())).await;
    scene.gate.open();
    strike.struck().await;
    assert_eq!(strike.outcome().await, Outcome::Moved(true), "the settlement is in the log");
    scene.taken_over().await;
    assert!(!call.is_finished(), "the response ends when its settlement is known");
    scene.proxy.restore();
    let response = within(HEAL, "the caller has its response", async || call.is_finished().then_some(()));
    response.await;
    let response = call.await.unwrap().unwrap();
    assert_eq!(endpoint.calls().len(), 1);
    (scene, response)
}

#[test]
fn a_settlement_that_is_durable_before_a_takeover_is_found_by_its_gateway_and_the_response_completes() {
    run(async {
        let (scene, response) = settled_before_a_takeover(r#"{"usage":{"tokens":1}}"#).await;
        assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
        assert_eq!(scene.merchant.charged(&response).await["total_wallet_cost"], "1.0000000000");
        assert_eq!((scene.count("request.metered").await, scene.count("request.failed").await), (1, 0));
        scene.close().await;
    });
}

#[test]
fn a_settlement_that_was_recorded_as_failed_before_a_takeover_is_found_too() {
    run(async {
        // More than the largest fee: recorded as `usage_invalid`.
        let (scene, response) = settled_before_a_takeover(r#"{"usage":{"tokens":2}}"#).await;
        assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
        assert_eq!(scene.merchant.failed(&response).await["reason"], "usage_invalid");
        assert_eq!((scene.count("request.metered").await, scene.count("request.failed").await), (0, 1));
        scene.close().await;
    });
}

#[test]
fn an_opening_under_an_idempotency_key_that_is_durable_before_a_takeover_is_found_and_sent_once() {
    run(async {
        let scene = Scene::open().await;
        let merchant = &scene.merchant;
        let (customer, meter) = (merchant.customer("1").await, merchant.call_meter("0.5").await);
        let endpoint = scene.provider("{}");
        scene.gate.open();
        let credential = merchant.billing(&customer, &meter);
        let post = || forward("POST", &endpoint.url).header("Idempotency-Key", "one").bearer(&credential);
        let mut strike = scene.proxy.strike_and_sever(Fault::LoseAnswer, 0);
        let (request, address) = (post(), scene.gateway.address);
        let call = tokio::spawn(async move { request.send(address).await });
        strike.struck().await;
        assert_eq!(strike.outcome().await, Outcome::Moved(true), "the opening is in the log");
        scene.taken_over().await;
        scene.proxy.restore();
        let response = call.await.unwrap().unwrap();
        response.expect(200);
        let again = post().send(merchant.instance.gateway(0)).await.unwrap();
        again.expect(200);
        assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
        assert_eq!(endpoint.calls().len(), 1);
        assert_eq!((scene.count("request.metered").await, scene.count("request.failed").await), (1, 0));
        assert_eq!(merchant.balance(&customer).await, "0.5000000000");
        scene.close().await;
    });
}
