//! Renewals when gateways die: the leader of a partition schedules its renewals and carries out its payments. Each cycle
//! begins once, and a paid one is charged once, at whatever point a gateway dies.

use std::collections::BTreeMap;

use farthing_tests::books::{Books, decimal};
use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::leader::{spread, taken_over};
use farthing_tests::log::{Log, Logged};
use farthing_tests::merchant::Merchant;
use farthing_tests::process::{is_running, kill};
use farthing_tests::recurring::{Means, PAYS};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::within;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::{HEAL, instance, put_away, rounds, run};

/// Customers on the free plan, and as many on the paid one.
const SUBSCRIBERS: usize = 20;

/// More payments than a round of a gateway carries out.
const MORE_THAN_A_ROUND: usize = 40;

const DAY: i64 = 86_400;

const CHARGED: &str = "SELECT payment_id, amount::text, declined IS NULL, asked FROM test_processor.charge";

/// Charges that the ledger has not recorded.
const CHARGED_ALONE: &str = "\
SELECT count(*) FROM test_processor.charge AS c
WHERE NOT EXISTS (SELECT 1 FROM ledger.facts WHERE key = c.payment_id || '/succeeded')";

/// Blocks all appends.
const HOLD_THE_HEAD: &str = "BEGIN; SELECT position FROM ledger.heads FOR UPDATE";

/// Blocks the processor.
const HOLD_THE_PROCESSOR: &str = "BEGIN; LOCK TABLE test_processor.charge IN SHARE MODE";

/// Keeps states from being stored.
const HOLD_THE_STATES: &str = "BEGIN; LOCK TABLE ledger.state IN SHARE MODE";

/// Payments that are open, by their stored states.
const STORED_PAYMENTS: &str = "SELECT count(*) FROM ledger.state WHERE kind = 'payment'";

/// Ends the sessions of dead processes that still wait for a lock.
const DROP_WHAT_WAITS: &str = "\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()";

struct Shop {
    instance: &'static Instance,
    merchant: Merchant,
    /// The free and paid subscriptions.
    free: Vec<String>,
    paid: Vec<String>,
}

impl Shop {
    async fn open() -> Self {
        Self::of(Merchant::of(instance().await).await).await
    }

    async fn of(merchant: Merchant) -> Self {
        Self::of_paying(merchant, SUBSCRIBERS, SUBSCRIBERS).await
    }

    /// With so many customers on the free plan, and so many on the paid one.
    async fn of_paying(merchant: Merchant, on_free: usize, on_paid: usize) -> Self {
        let instance = merchant.instance;
        let plan = |name: &str, price: &str| {
            json!({
                "name": name, "period_amount": price, "included_credit": "1.5", "billing_interval": "day",
                "rollover_type": "full", "bundle_rollover_type": "full",
            })
        };
        let free_plan = merchant.post("/v1/plans", &plan("free", "0")).await.expect(201);
        let paid_plan = merchant.post("/v1/plans", &plan("paid", "3")).await.expect(201);
        let (mut free, mut paid) = (Vec::new(), Vec::new());
        let id = |subscription: &Value| subscription["subscription_id"].as_str().unwrap().to_owned();
        for number in 0..on_free {
            let customer = merchant.customer_called(&format!("free {number}"), "0").await;
            free.push(id(&merchant.subscribe(&customer, &free_plan, Means::None).await));
        }
        for number in 0..on_paid {
            let customer = merchant.customer_called(&format!("paid {number}"), "0").await;
            paid.push(id(&merchant.subscribe(&customer, &paid_plan, Means::Card(PAYS)).await));
        }
        Self { instance, merchant, free, paid }
    }

    /// Advances the clock by a day, through the second gateway.
    async fn day(&self) {
        let clock = Request::new("POST", "/v1/test_clock")
            .json(&json!({"advance_seconds": DAY}))
            .bearer(&self.merchant.secret_key);
        clock.send(self.instance.gateway(1)).await.unwrap().expect(200);
    }

    /// The number of renewals of each subscription.
    async fn renewals(&self) -> BTreeMap<String, usize> {
        let mut renewals: BTreeMap<_, _> =
            self.free.iter().chain(&self.paid).map(|id| (id.clone(), 0)).collect();
        for event in self.merchant.of_kind("subscription.renewed").await {
            *renewals.get_mut(event.text("subscription_id")).unwrap() += 1;
        }
        renewals
    }

    /// Waits until all but `ended` are renewed exactly `times` times.
    async fn are_renewed(&self, times: usize, ended: Option<&str>) {
        let due = |id: &String| if Some(id.as_str()) == ended { times - 1 } else { times };
        within(HEAL, "all are renewed", async || {
            let renewals = self.renewals().await;
            renewals.iter().all(|(id, renewed)| *renewed >= due(id)).then_some(())
        })
        .await;
        let renewals = self.renewals().await;
        assert!(renewals.iter().all(|(id, renewed)| *renewed == due(id)), "each once: {renewals:?}");
    }

    /// The payments requested for the paid subscriptions' cycles after the first.
    async fn renewal_payments(&self) -> Vec<Logged> {
        let mut payments = self.merchant.of_kind("payment.requested").await;
        payments.retain(|event| event.body["purpose"]["for"] == "renewal");
        payments
    }

    fn gateways(&self) -> Vec<u32> {
        self.instance.ready().pids.gateways
    }

    /// Waits until other gateways have replaced `killed`.
    async fn heals(&self, killed: &[u32]) {
        within(HEAL, "the gateways are back", async || {
            let pids = self.instance.try_ready()?.pids.gateways;
            if !pids.iter().all(|pid| !killed.contains(pid) && is_running(*pid)) {
                return None;
            }
            for number in 0..pids.len() {
                tokio::net::TcpStream::connect(self.instance.try_gateway(number)?).await.ok()?;
            }
            Some(())
        })
        .await;
    }

    /// Kills both gateways while `held` keeps a lock that they wait for; then releases it.
    async fn both_die(&self, held: &Log) {
        let pids = self.gateways();
        pids.iter().copied().for_each(kill);
        within(HEAL, "the gateways are dead", async || {
            pids.iter().all(|pid| !is_running(*pid)).then_some(())
        })
        .await;
        held.sql.query(DROP_WHAT_WAITS, &[]).await.unwrap();
        held.sql.batch_execute("ROLLBACK").await.unwrap();
        self.heals(&pids).await;
    }

    /// Kills a gateway as soon as some subscriptions are renewed.
    async fn dies_between_renewals(&self, pid: u32, times: usize) {
        self.day().await;
        within(HEAL, "the first renewals", async || {
            self.renewals().await.values().any(|renewed| *renewed == times).then_some(())
        })
        .await;
        kill(pid);
        self.are_renewed(times, None).await;
    }

    /// Advances the clock by a day and waits until every payment is requested. Nothing is charged while the returned connection
    /// blocks the processor.
    async fn day_of_a_silent_processor(&self, times: usize) -> Log {
        let held = self.instance.log().await;
        held.sql.batch_execute(HOLD_THE_PROCESSOR).await.unwrap();
        self.day().await;
        within(HEAL, "every payment is requested", async || {
            (self.renewal_payments().await.len() == self.paid.len() * times).then_some(())
        })
        .await;
        held
    }

    /// Kills both after the processor has charged a renewal that the ledger has not recorded.
    async fn both_die_between_charge_and_completion(&self, times: usize) {
        let processor = self.day_of_a_silent_processor(times).await;
        let head = self.instance.log().await;
        head.sql.batch_execute(HOLD_THE_HEAD).await.unwrap();
        processor.sql.batch_execute("ROLLBACK").await.unwrap();
        within(HEAL, "a charge that the ledger has not recorded", async || {
            let alone: i64 = head.sql.query_one(CHARGED_ALONE, &[]).await.unwrap().get(0);
            (alone > 0).then_some(())
        })
        .await;
        self.both_die(&head).await;
        self.are_renewed(times, None).await;
        let charges = head.sql.query(CHARGED, &[]).await.unwrap();
        assert!(charges.iter().any(|charge| charge.get::<_, i32>(3) > 1), "no charge was requested again");
    }

    /// Kills both while every payment is at the processor. One customer cancels at that moment, for the end of the cycle that is
    /// being paid.
    async fn both_die_while_payments_are_under_way(&self, times: usize, ends: &str) {
        let held = self.day_of_a_silent_processor(times).await;
        let path = format!("/v1/subscriptions/{ends}");
        let shown = self.merchant.delete(&path).await.expect(200)["subscription"].clone();
        assert_eq!(shown["pending_change"]["type"], "cancellation", "{shown}");
        assert_eq!(shown["pending_change"]["effective_at"], shown["cycle_end_at"]);
        self.both_die(&held).await;
        self.are_renewed(times, None).await;
        let shown = self.merchant.get(&path).await.expect(200);
        let pending = json!({"type": "cancellation", "effective_at": shown["cycle_end_at"]});
        assert_eq!(shown["pending_change"], pending, "the pending change is kept: {shown}");
    }

    /// Asserts that each cycle was charged once, by the processor's journal, and credited once, by independent books.
    async fn adds_up(&self, cycles: usize, ended: &str) {
        let events = self.merchant.events().await;
        let books = Books::of(&events);
        let paid_cycles = |id: &String| if id == ended { cycles - 1 } else { cycles };
        let credit = |cycles: usize| Decimal::new(15, 1) * Decimal::from(cycles);
        for (id, wanted) in
            self.free.iter().map(|id| (id, credit(cycles))).chain(
                self.paid.iter().map(|id| (id, if id == ended { Decimal::ZERO } else { credit(cycles) })),
            )
        {
            let account = books.wallets.values().find(|account| account.credit.contains_key(id)).unwrap();
            assert_eq!((account.credit[id], account.balance()), (wanted, Decimal::ZERO), "{id}");
            let shown = self.merchant.get(&format!("/v1/subscriptions/{id}")).await.expect(200);
            assert_eq!(decimal(&shown["credits"]["total_remaining"]), wanted, "{shown}");
        }
        let mut payments: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
        let mut succeeded: BTreeMap<&str, usize> = BTreeMap::new();
        for event in &events {
            match event.kind.as_str() {
                "payment.requested" => {
                    let purpose = &event.body["purpose"];
                    let cycle = purpose["cycle_number"].as_u64().unwrap_or(0);
                    let id = purpose["subscription_id"].as_str().unwrap();
                    payments.insert(event.text("payment_id"), (id, cycle));
                }
                "payment.succeeded" => *succeeded.entry(event.text("payment_id")).or_default() += 1,
                "payment.declined" | "subscription.renewal_failed" => panic!("{event:?}"),
                _ => {}
            }
        }
        assert!(succeeded.len() == payments.len() && succeeded.values().all(|times| *times == 1));
        let rows = self.merchant.log.sql.query(CHARGED, &[]).await.unwrap();
        let mut charged: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for row in &rows {
            let (id, cycle) = payments[row.get::<_, &str>(0)];
            assert_eq!((row.get::<_, &str>(1).parse(), row.get(2)), (Ok(Decimal::from(3)), true));
            charged.entry(id).or_default().push(cycle);
        }
        assert_eq!(charged.len(), SUBSCRIBERS);
        for id in &self.paid {
            charged.get_mut(id.as_str()).unwrap().sort_unstable();
            let wanted: Vec<_> = (0..u64::try_from(paid_cycles(id)).unwrap()).collect();
            assert_eq!(charged[id.as_str()], wanted, "{id}: each cycle is charged once");
        }
    }
}

#[test]
fn gateways_that_die_during_renewals_leave_one_renewal_and_one_charge_of_each() {
    run(async {
        let shop = Shop::open().await;
        let mut times = 0;
        for _ in 0..rounds() {
            times += 1;
            let pid = shop.gateways()[0];
            shop.dies_between_renewals(pid, times).await;
            shop.heals(&[pid]).await;
            times += 1;
            shop.both_die_between_charge_and_completion(times).await;
        }
        times += 1;
        let ends = shop.paid[0].clone();
        shop.both_die_while_payments_are_under_way(times, &ends).await;
        times += 1;
        shop.day().await;
        shop.are_renewed(times, Some(&ends)).await;
        shop.merchant.comes_to(&ends, "subscription.cancelled", 1).await;
        shop.adds_up(times + 1, &ends).await;
        for command in ["subscriptions", "connections", "checkout_sessions", "payment_methods"] {
            let report = shop.instance.operate(&["projections", "verify", command]).await;
            assert_eq!(report["differences"], 0, "{command}: {report}");
        }
        let report = shop.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        put_away(shop.instance).await;
    });
}

#[test]
fn all_payments_are_carried_out_while_no_state_can_be_stored() {
    run(async {
        let shop = Shop::of_paying(Merchant::of(instance().await).await, 0, MORE_THAN_A_ROUND).await;
        let processor = shop.day_of_a_silent_processor(1).await;
        let states = shop.instance.log().await;
        within(HEAL, "each open payment is stored", async || {
            let open: i64 = states.sql.query_one(STORED_PAYMENTS, &[]).await.unwrap().get(0);
            (usize::try_from(open) == Ok(MORE_THAN_A_ROUND)).then_some(())
        })
        .await;
        states.sql.batch_execute(HOLD_THE_STATES).await.unwrap();
        processor.sql.batch_execute("ROLLBACK").await.unwrap();
        shop.are_renewed(1, None).await;
        states.sql.batch_execute("ROLLBACK").await.unwrap();
        put_away(shop.instance).await;
    });
}

#[test]
fn renewals_go_on_when_the_leader_of_their_partition_dies() {
    run(async {
        let instance = Instance::of_test(1).await;
        let side = SideGateway::start(instance, &[]).await;
        let log = instance.log().await;
        spread(&log.sql, 2).await;
        let side_id = side.id().await;
        let shop = Shop::of(Merchant::led_by(instance, &side_id).await).await;
        // The day comes through the gateway that does not lead the partition.
        shop.dies_between_renewals(side.pid(), 1).await;
        taken_over(&log.sql, shop.merchant.partition().await, &side_id).await;
        shop.day().await;
        shop.are_renewed(2, None).await;
        shop.adds_up(3, "").await;
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        drop(side);
        put_away(instance).await;
    });
}
