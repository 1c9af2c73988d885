//! Appends severed between a gateway and Postgres: the response is lost, the statement is cut off, or it is delivered after
//! the gateway has given up. The gateway determines the outcome, never guesses it, and nothing is written late.

use std::sync::Arc;

use chrono::Utc;
use farthing_core::command::{IssueSecretKey, to_millisecond};
use farthing_core::ids::{MerchantId, Mint, SecretKeyId};
use farthing_core::secret::ServerKey;
use farthing_log::appender::{self, Appender, QueueLimits};
use farthing_log::connect::Role;
use farthing_tests::client::{Request, Response};
use farthing_tests::instance::{Instance, SideGateway};
use farthing_tests::leader;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json;
use farthing_tests::proxy::{Fault, Outcome, Proxy};
use farthing_tests::run;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::load::Load;
use crate::seeds::Run;
use crate::{aftermath, instance, put_away};

/// Writes after which a gateway counts as the only writer: more than it needs.
const CALM: usize = 24;

/// The flags of a gateway beside the dev instance's: loopback addresses are allowed, and the heartbeat is fast enough for their
/// sweepers.
const FLAGS: [&str; 4] = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];

/// Whether another gateway writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// None: the gateway appends with one statement and without a prior lock.
    Alone,
    /// Another gateway wrote just before: the head is locked first.
    Others,
}

const COMPANIES: [Company; 2] = [Company::Alone, Company::Others];

struct Scene {
    merchant: Merchant,
    proxy: Proxy,
    gateway: SideGateway,
}

impl Scene {
    async fn open(instance: &'static Instance) -> Self {
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("10").await;
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        let gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
        Self { merchant, proxy, gateway }
    }

    /// Defines a meter through the proxy: one command, one fact.
    async fn define(&self) -> Response {
        let fields = json!({
            "name": ulid(), "rate_type": "fixed", "tier_type": "requests",
            "tiers": [{"start": 0, "rate": "1"}],
        });
        let request = Request::new("POST", "/v1/meters").json(&fields).bearer(&self.merchant.secret_key);
        request.send(self.gateway.address).await.unwrap()
    }

    async fn defined(&self) -> usize {
        self.count("meter.defined").await
    }

    async fn count(&self, kind: &str) -> usize {
        self.merchant.events().await.iter().filter(|event| event.kind == kind).count()
    }

    async fn in_company(&self, company: Company) {
        match company {
            Company::Alone => {
                for _ in 0..CALM {
                    self.define().await.expect(201);
                }
            }
            Company::Others => {
                self.merchant.post("/v1/spend_keys", &json!({"name": "another writer"})).await.expect(201);
            }
        }
    }

    /// Makes a call whose settlement is struck, and asserts that its response is complete and that it is charged once.
    async fn settles_once(&self, fault: Fault) -> Outcome {
        let customer = self.merchant.customer_called(&ulid(), "1").await;
        let meter = self.merchant.call_meter("0.25").await;
        let endpoint =
            self.merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let request = forward("GET", &endpoint.url).bearer(&self.merchant.billing(&customer, &meter));
        let (metered, debited) = (self.count("request.metered").await, self.count("wallet.debited").await);
        // Its opening passes.
        let mut strike = self.proxy.strike(fault, 1);
        let response = request.send(self.gateway.address).await.unwrap();
        response.expect(200);
        strike.struck().await;
        self.merchant.charged(&response).await;
        let outcome = strike.outcome().await;
        assert_eq!(self.count("request.metered").await, metered + 1, "{fault:?}");
        // The customer pays the fee, the merchant pays the service charge.
        assert_eq!(self.count("wallet.debited").await, debited + 2, "{fault:?}");
        assert_eq!(self.merchant.balance(&customer).await, "0.7500000000", "{fault:?}");
        assert_eq!(endpoint.calls().len(), 1, "{fault:?}");
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

fn ulid() -> String {
    MerchantId::new(Mint::default().next(Utc::now())).to_string().replace("mer_", "reference ")
}

#[test]
fn an_append_whose_response_is_lost_is_found_in_the_log_and_confirmed() {
    run(async {
        let scene = Scene::open(instance().await).await;
        for company in COMPANIES {
            for fault in [Fault::LoseAnswer, Fault::LoseCommitAnswer] {
                scene.in_company(company).await;
                let before = scene.defined().await;
                let strike = scene.proxy.strike(fault, 0);
                scene.define().await.expect(201);
                assert_eq!(strike.outcome().await, Outcome::Moved(true), "{fault:?}, {company:?}");
                assert_eq!(scene.defined().await, before + 1, "{fault:?}, {company:?}");
                scene.in_company(company).await;
                assert_eq!(scene.settles_once(fault).await, Outcome::Moved(true), "{fault:?}, {company:?}");
            }
        }
        scene.close().await;
    });
}

#[test]
fn an_append_that_is_cut_off_writes_nothing_and_is_refused() {
    run(async {
        let scene = Scene::open(instance().await).await;
        for company in COMPANIES {
            for share in [0, 500, 999] {
                scene.in_company(company).await;
                let before = scene.defined().await;
                let strike = scene.proxy.strike(Fault::CutWithin(share), 0);
                scene.define().await.refused(503, "ledger_unavailable");
                assert_eq!(strike.outcome().await, Outcome::NotDelivered);
                assert_eq!(scene.defined().await, before, "{share}, {company:?}");
                scene.define().await.expect(201);
                assert_eq!(scene.settles_once(Fault::CutWithin(share)).await, Outcome::NotDelivered);
            }
        }
        scene.close().await;
    });
}

#[test]
fn an_append_that_arrives_after_it_was_given_up_writes_nothing() {
    run(async {
        let scene = Scene::open(instance().await).await;
        for (company, fault) in [
            (Company::Alone, Fault::KeepBack),
            (Company::Others, Fault::KeepBack),
            (Company::Alone, Fault::KeepBackInSilence),
        ] {
            scene.in_company(company).await;
            let before = scene.defined().await;
            let strike = scene.proxy.strike(fault, 0);
            scene.define().await.refused(503, "ledger_unavailable");
            assert_eq!(scene.defined().await, before);
            fenced_out(company, &strike.outcome().await);
            assert_eq!(scene.defined().await, before, "{fault:?}, {company:?}");
            scene.define().await.expect(201);
        }
        for company in COMPANIES {
            scene.in_company(company).await;
            fenced_out(Company::Others, &scene.settles_once(Fault::KeepBack).await);
        }
        scene.close().await;
    });
}

/// Asserts that the append was fenced by the epoch. Postgres may also have ended its transaction.
fn fenced_out(company: Company, outcome: &Outcome) {
    let ended = *outcome == Outcome::Closed || *outcome == Outcome::Refused("25P03".to_owned());
    assert!(*outcome == Outcome::Moved(false) || (company == Company::Others && ended), "{outcome:?}");
}

#[test]
fn a_fact_that_is_already_in_the_log_is_refused_and_not_mistaken_for_a_lost_response() {
    run(async {
        let instance = instance().await;
        let merchant = Merchant::of(instance).await;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let partition = merchant.log.partition_of(&merchant.id).await;
        let lease = leader::take_lease(&merchant.log.sql, partition).await;
        let config = appender::AppenderConfig {
            database_url: instance.ready().database_url,
            partition,
            role: Role::Gateway,
            gateway: leader::NAME.to_owned(),
            writer: "a test".to_owned(),
            queue: QueueLimits::default(),
        };
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
        appender.submit(issue(id, "first")).await.unwrap();
        // The same fact with different content, in one batch with new facts.
        let others: Vec<_> = (0..8)
            .map(|number| issue(SecretKeyId::new(mint.next(Utc::now())), &format!("other {number}")))
            .collect();
        let again = appender.submit(issue(id, "second"));
        let (again, others) = tokio::join!(
            again,
            futures_util::future::join_all(others.into_iter().map(|key| appender.submit(key)))
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

/// Severs random appends under load. With [`Company::Others`], the instance's gateways write too.
async fn severed_at_random(company: Company) {
    let instance = instance().await;
    let ready = instance.ready();
    let (proxy, url) = Proxy::before(&ready.database_url).await;
    let gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
    let address = gateway.address;
    for run in Run::all() {
        let mut choices = run.begin();
        let load = Load::through(
            instance,
            Arc::new(move |task| match company {
                Company::Others if task % 2 == 0 => instance.try_gateway(task / 2),
                Company::Alone | Company::Others => Some(address),
            }),
        )
        .await;
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
    run(severed_at_random(Company::Alone));
}

#[test]
fn appends_severed_at_random_beside_other_writers_lose_and_double_no_charge() {
    run(severed_at_random(Company::Others));
}
