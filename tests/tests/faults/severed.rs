//! Appends severed between a gateway and Postgres: the response is lost, the statement is cut off, or it is delivered after
//! the gateway has given up. The gateway determines the outcome, never guesses it, and nothing is written late.

use std::net::SocketAddr;
use std::sync::Arc;

use chrono::Utc;
use farthing_core::command::{IssueSecretKey, to_millisecond};
use farthing_core::ids::{MerchantId, Mint, SecretKeyId};
use farthing_core::secret::ServerKey;
use farthing_log::appender::{self, Appender};
use farthing_tests::client::{Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, Step, json};
use farthing_tests::proxy::{Fault, Outcome, Proxy};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::load::Load;
use crate::seeds::Run;
use crate::{aftermath, instance, put_away, run};

/// The flags of a gateway beside the dev instance's: loopback addresses are allowed, and the heartbeat is fast enough for their
/// sweepers.
const FLAGS: [&str; 4] = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];

/// The gateway that takes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    /// The one that leads the merchant's partition, behind the proxy.
    Leader,
    /// Another one, which sends its commands to the leader.
    Follower,
}

const GATEWAYS: [Through; 2] = [Through::Leader, Through::Follower];

struct Scene {
    merchant: Merchant,
    proxy: Proxy,
    gateway: SideGateway,
}

impl Scene {
    async fn open(instance: &'static Instance) -> Self {
        let (proxy, gateway, merchant) = behind_proxy(instance).await;
        merchant.credit_own("10").await;
        Self { merchant, proxy, gateway }
    }

    fn address(&self, through: Through) -> SocketAddr {
        match through {
            Through::Leader => self.gateway.address,
            Through::Follower => self.merchant.instance.gateway(0),
        }
    }

    /// Defines a meter: one command, one fact.
    async fn define(&self, through: Through) -> Response {
        let fields = json!({
            "name": ulid(), "rate_type": "fixed", "tier_type": "requests",
            "tiers": [{"start": 0, "rate": "1"}],
        });
        let request = Request::new("POST", "/v1/meters").json(&fields).bearer(&self.merchant.secret_key);
        request.send(self.address(through)).await.unwrap()
    }

    async fn defined(&self) -> usize {
        self.count("meter.defined").await
    }

    async fn count(&self, kind: &str) -> usize {
        self.merchant.events().await.iter().filter(|event| event.kind == kind).count()
    }

    /// Makes a call whose settlement is struck, and asserts that its response is complete and that it is charged once.
    async fn settles_once(&self, through: Through, fault: Fault) -> Outcome {
        let customer = self.merchant.customer_called(&ulid(), "1").await;
        let meter = self.merchant.call_meter("0.25").await;
        // An answer that comes at once would be settled in the append of the opening.
        let gate = Gate::default();
        let held = gate.clone();
        let endpoint = self.merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 1}})));
            steps
        });
        let request = forward("GET", &endpoint.url).bearer(&self.merchant.billing(&customer, &meter));
        let (metered, debited) = (self.count("request.metered").await, self.count("wallet.debited").await);
        let opened = self.count("request.opened").await;
        // Its opening passes.
        let mut strike = self.proxy.strike(fault, 1);
        let address = self.address(through);
        let call = tokio::spawn(async move { request.send(address).await });
        eventually("the call is open", async || {
            (self.count("request.opened").await == opened + 1).then_some(())
        })
        .await;
        gate.open();
        let response = call.await.expect("the call is not cancelled").unwrap();
        response.expect(200);
        strike.struck().await;
        self.merchant.charged(&response).await;
        let outcome = strike.outcome().await;
        assert_eq!(self.count("request.metered").await, metered + 1, "{fault:?}, {through:?}");
        // The customer pays the fee, the merchant pays the service charge.
        assert_eq!(self.count("wallet.debited").await, debited + 2, "{fault:?}, {through:?}");
        assert_eq!(self.merchant.balance(&customer).await, "0.7500000000", "{fault:?}, {through:?}");
        assert_eq!(endpoint.calls().len(), 1, "{fault:?}, {through:?}");
        outcome
    }

    async fn close(self) {
        self.merchant.nothing_is_held().await;
        let report = self.merchant.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        drop(self.gateway);
        put_away(self.merchant.instance).await;
    }
}

/// A gateway behind a proxy, beside the instance's two, and a merchant whose partition it leads.
async fn behind_proxy(instance: &'static Instance) -> (Proxy, SideGateway, Merchant) {
    let ready = instance.ready();
    let (proxy, url) = Proxy::before(&ready.database_url).await;
    let gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
    leader::spread(&instance.log().await.sql, 3).await;
    let merchant = Merchant::led_by(instance, &gateway.id().await).await;
    (proxy, gateway, merchant)
}

fn ulid() -> String {
    MerchantId::new(Mint::default().next(Utc::now())).to_string().replace("mer_", "reference ")
}

#[test]
fn an_append_whose_response_is_lost_is_found_in_the_log_and_confirmed() {
    run(async {
        let scene = Scene::open(instance().await).await;
        for through in GATEWAYS {
            for fault in [Fault::LoseAnswer, Fault::LoseCommitAnswer] {
                let before = scene.defined().await;
                let strike = scene.proxy.strike(fault, 0);
                scene.define(through).await.expect(201);
                assert_eq!(strike.outcome().await, Outcome::Moved(true), "{fault:?}, {through:?}");
                assert_eq!(scene.defined().await, before + 1, "{fault:?}, {through:?}");
                assert_eq!(scene.settles_once(through, fault).await, Outcome::Moved(true));
            }
        }
        scene.close().await;
    });
}

#[test]
fn an_append_that_is_cut_off_writes_nothing_and_is_refused() {
    run(async {
        let scene = Scene::open(instance().await).await;
        for through in GATEWAYS {
            for share in [0, 500, 999] {
                let fault = Fault::CutWithin(share);
                let before = scene.defined().await;
                let strike = scene.proxy.strike(fault, 0);
                scene.define(through).await.refused(503, "ledger_unavailable");
                assert_eq!(strike.outcome().await, Outcome::NotDelivered);
                assert_eq!(scene.defined().await, before, "{share}, {through:?}");
                scene.define(through).await.expect(201);
                assert_eq!(scene.settles_once(through, fault).await, Outcome::NotDelivered);
            }
        }
        scene.close().await;
    });
}

#[test]
fn an_append_that_arrives_after_it_was_given_up_writes_nothing() {
    run(async {
        let scene = Scene::open(instance().await).await;
        for (through, fault) in [
            (Through::Leader, Fault::KeepBack),
            (Through::Follower, Fault::KeepBack),
            (Through::Leader, Fault::KeepBackInSilence),
        ] {
            let before = scene.defined().await;
            let strike = scene.proxy.strike(fault, 0);
            scene.define(through).await.refused(503, "ledger_unavailable");
            assert_eq!(scene.defined().await, before);
            assert_eq!(strike.outcome().await, Outcome::Moved(false), "{fault:?}, {through:?}");
            assert_eq!(scene.defined().await, before, "{fault:?}, {through:?}");
            scene.define(through).await.expect(201);
        }
        for through in GATEWAYS {
            let outcome = scene.settles_once(through, Fault::KeepBack).await;
            assert_eq!(outcome, Outcome::Moved(false), "{through:?}");
        }
        scene.close().await;
    });
}

#[test]
fn a_fact_that_is_already_in_the_log_is_refused_and_not_mistaken_for_a_lost_response() {
    run(async {
        let instance = instance().await;
        let merchant = Merchant::of(instance).await;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let partition = merchant.log.partition_of(&merchant.id).await;
        let lease = leader::take_lease(&merchant.log.sql, partition).await;
        let config = leader::appender(&instance.ready().database_url, partition);
        let appender = Appender::start(config, lease.subscribe(), &stop, &tasks);
        let server_key = ServerKey::from_hex(&"7".repeat(64)).unwrap();
        let merchant_id: MerchantId = merchant.id.parse().unwrap();
        let mint = Mint::default();
        let issue = |secret_key_id, raw: &str| IssueSecretKey {
            merchant_id,
            secret_key_id,
            key_hash: server_key.hash(raw),
            hint: "0000".to_owned(),
            name: "a test".to_owned(),
            now: to_millisecond(Utc::now()),
        };
        let id = SecretKeyId::new(mint.next(Utc::now()));
        appender.submit(None, issue(id, "first")).await.unwrap();
        // The same fact with different content, in one batch with new facts.
        let others: Vec<_> = (0..8)
            .map(|number| issue(SecretKeyId::new(mint.next(Utc::now())), &format!("other {number}")))
            .collect();
        let again = appender.submit(None, issue(id, "second"));
        let (again, others) = tokio::join!(
            again,
            futures_util::future::join_all(others.into_iter().map(|key| appender.submit(None, key)))
        );
        assert!(matches!(again, Err(appender::Error::Internal(_))), "{again:?}");
        for other in others {
            other.unwrap();
        }
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        leader::give_back(&merchant.log.sql, partition).await;
        let issued = merchant.events().await.iter().filter(|event| event.kind == "secret_key.issued").count();
        assert_eq!(issued, 1 + 1 + 8);
        put_away(instance).await;
    });
}

/// Severs random appends of the leader under load, which comes through every one of `gateways`.
async fn severed_at_random(gateways: &'static [Through]) {
    let instance = instance().await;
    let (proxy, gateway, merchant) = behind_proxy(instance).await;
    let (leader, mut merchant) = (gateway.address, Some(merchant));
    for run in Run::all() {
        let mut choices = run.begin();
        let merchant = match merchant.take() {
            Some(merchant) => merchant,
            None => Merchant::led_by(instance, &gateway.id().await).await,
        };
        let way = move |task| match gateways[task % gateways.len()] {
            Through::Follower => instance.try_gateway(task / 2),
            Through::Leader => Some(leader),
        };
        let load = Load::of(merchant, Arc::new(way)).await;
        load.calls(250).await;
        for _ in 0..run.faults {
            let (fault, passing) = (choices.fault(), choices.below(40));
            let mut strike = proxy.strike(fault, passing);
            strike.struck().await;
            load.calls(u64::from(choices.below(30))).await;
            let outcome = strike.outcome().await;
            eprintln!("{fault:?} after {passing}: {outcome:?}");
        }
        load.calls(50).await;
        let load = load.stop().await;
        aftermath::check(instance, &load).await;
    }
    drop(gateway);
    put_away(instance).await;
}

#[test]
fn appends_severed_at_random_lose_and_double_no_charge() {
    run(severed_at_random(&[Through::Leader]));
}

#[test]
fn appends_severed_at_random_under_calls_of_followers_lose_and_double_no_charge() {
    run(severed_at_random(&GATEWAYS));
}
