//! What look-ups leave behind: names that are kept, files and threads, and a gateway that is to stop while they hang.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farthing_tests::client::Connection;
use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::merchant::{Customer, Merchant, forward};
use farthing_tests::process::{open_files, threads};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, settled};
use tokio::task::JoinSet;

use super::names::{GOOD_CALLS, LOOKUPS_OF_A_MERCHANT, closing, named};

const LOCAL: &str = "--allow-address=127.0.0.0/8";

/// More names than a gateway keeps for all merchants together, which is 4,096.
const NAMES: usize = 5_000;

/// The attacker's calls at once: fewer than the look-ups that it may have in flight.
const CALLERS: usize = 24;

/// Some of the first names: more than the gateway keeps came after them.
const FIRST_NAMES: Range<usize> = 0..64;

/// The calls to each name in a row. The later ones need no look-up.
const CALLS_BY_NAME: usize = 2;

/// Files and threads that do not change for so long are those that stay.
const CALM: Duration = Duration::from_millis(500);

/// An attacker makes the gateway keep more names than it has room for, and uses each of them again. The name that another
/// merchant uses stays, although the attacker looked it up first.
#[test]
fn more_names_than_are_kept_do_not_displace_the_one_that_another_merchant_uses() {
    run(async {
        let servers = NameServer::start(|name| match name {
            // A call to it ends after the look-up.
            _ if name.starts_with("many") => Answer::of(&["10.0.0.1"], 300),
            _ => Answer::of(&["127.0.0.1"], 300),
        })
        .await;
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        let gateway = SideGateway::start(attacker.instance, &[LOCAL, &servers.flag()]).await;
        let endpoint = closing(&victim);
        let call_by_name = async |merchant: &Merchant| {
            let call = forward("GET", &named(&endpoint, "kept.test")).bearer(&merchant.secret_key);
            call.send(gateway.address).await.unwrap().expect(200);
        };
        let call_many = async |numbers: Range<usize>| {
            let (next, end) = (Arc::new(AtomicUsize::new(numbers.start)), numbers.end);
            let mut callers = JoinSet::new();
            for _ in 0..CALLERS {
                let (next, key, to) = (Arc::clone(&next), attacker.secret_key.clone(), gateway.address);
                callers.spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= end {
                            return;
                        }
                        for _ in 0..CALLS_BY_NAME {
                            let call = forward("GET", &format!("http://many{number}.test/")).bearer(&key);
                            call.send(to).await.unwrap().refused(400, "forward_url_forbidden");
                        }
                    }
                });
            }
            callers.join_all().await;
        };
        call_by_name(&attacker).await;
        call_by_name(&victim).await;
        let asked = servers.asked("kept.test");
        call_many(0..NAMES).await;
        assert_eq!(servers.names_asked("many"), NAMES);
        call_by_name(&victim).await;
        assert_eq!(servers.asked("kept.test"), asked, "the victim's name was looked up again");

        // There was no room for all of the attacker's names.
        let questions =
            || -> usize { FIRST_NAMES.map(|number| servers.asked(&format!("many{number}.test"))).sum() };
        let before = questions();
        call_many(FIRST_NAMES).await;
        // Two for each name that is not kept.
        let again = questions() - before;
        assert!(again > FIRST_NAMES.len(), "{again} questions for {} names", FIRST_NAMES.len());
    });
}

/// A name server says that its answers are too long for UDP, and is silent over TCP. The look-ups end, the other merchant's
/// go on meanwhile, and a second round takes no more files and threads than the first one left.
#[test]
fn look_ups_that_hang_over_tcp_leave_no_files_and_no_threads() {
    run(async {
        let servers = NameServer::start(|name| match name {
            _ if name.starts_with("slow") => Answer::Silence.over_tcp(),
            _ if name.starts_with("large") => Answer::of(&["127.0.0.1"], 60).over_tcp(),
            _ => Answer::of(&["127.0.0.1"], 60),
        })
        .await;
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        let gateway = SideGateway::start(attacker.instance, &[LOCAL, &servers.flag()]).await;
        let endpoint = closing(&victim);
        let to = gateway.address;
        let call = |name: &str, key: &str| forward("GET", &named(&endpoint, name)).bearer(key);
        // Connections to the name server and between gateways may be kept, so the first round shows the usual level.
        let mut left = None;
        for round in 0..2 {
            if round == 1 {
                // This time a connection to the name server is there already.
                call("large-first.test", &victim.secret_key).send(to).await.unwrap().expect(200);
            }
            let mut slow = JoinSet::new();
            for number in 0..LOOKUPS_OF_A_MERCHANT {
                let call = call(&format!("slow{round}-{number}.test"), &attacker.secret_key);
                slow.spawn(async move { call.send(to).await.unwrap() });
            }
            eventually("the attacker's questions wait for an answer over TCP", async || {
                let asked = servers.names_asked_over_tcp(&format!("slow{round}-"));
                (asked == LOOKUPS_OF_A_MERCHANT).then_some(())
            })
            .await;
            let mut good = JoinSet::new();
            for number in 0..GOOD_CALLS {
                let kind = if round == 0 && number % 2 == 0 { "large" } else { "good" };
                let call = call(&format!("{kind}{round}-{number}.test"), &victim.secret_key);
                good.spawn(async move { call.send(to).await.unwrap() });
            }
            for response in good.join_all().await {
                response.expect(200);
            }
            assert_eq!(servers.names_asked_over_tcp("large0-"), GOOD_CALLS / 2);
            for response in slow.join_all().await {
                response.refused(502, "provider_unreachable");
            }
            // The next look-up closes connections to the name server that have failed.
            call(&format!("after{round}.test"), &victim.secret_key).send(to).await.unwrap().expect(200);
            let now = || (open_files(gateway.pid()), threads(gateway.pid()));
            if let Some((files_before, threads_before)) = left {
                // Other work of the gateway may take some; the look-ups would leave one each.
                let some = LOOKUPS_OF_A_MERCHANT / 2;
                eventually("files and threads are back at their level", async || {
                    let (files, threads) = now();
                    (files < files_before + some && threads < threads_before + some).then_some(())
                })
                .await;
            } else {
                left = Some(settled(CALM, async || now()).await);
            }
        }
        attacker.nothing_is_held().await;
        assert!(attacker.events().await.iter().all(|event| event.kind != "request.metered"));
    });
}

/// Calls whose look-ups are in flight, and are never answered.
struct Hanging {
    merchant: Merchant,
    customer: Customer,
    gateway: SideGateway,
    calls: Vec<Connection>,
}

impl Hanging {
    /// Calls that bill a customer with 10 at a gateway with this grace period.
    async fn begin(grace: &str) -> Self {
        let servers = NameServer::start(|_| Answer::Silence).await;
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let credential = merchant.billing(&customer, &merchant.call_meter("0.01").await);
        let gateway = SideGateway::start(merchant.instance, &[LOCAL, &servers.flag(), grace]).await;
        let mut calls = Vec::new();
        for number in 0..LOOKUPS_OF_A_MERCHANT {
            let mut connection = Connection::open(gateway.address).await.unwrap();
            let call = forward("GET", &format!("http://slow{number}.test/")).bearer(&credential);
            connection.send(&call).await.unwrap();
            calls.push(connection);
        }
        let hanging = Self { merchant, customer, gateway, calls };
        eventually("the look-ups are in flight", async || {
            let are_opened = hanging.count("request.opened").await == LOOKUPS_OF_A_MERCHANT;
            (are_opened && servers.names_asked("slow") == LOOKUPS_OF_A_MERCHANT).then_some(())
        })
        .await;
        hanging
    }

    async fn count(&self, kind: &str) -> usize {
        self.merchant.events().await.iter().filter(|event| event.kind == kind).count()
    }

    /// The gateway has ended as it should, and each call as an error that is not charged.
    async fn has_ended(mut self) {
        assert!(self.gateway.ended().await.success());
        self.merchant.nothing_is_held().await;
        assert_eq!(self.count("request.failed").await, LOOKUPS_OF_A_MERCHANT);
        assert_eq!(self.count("request.metered").await, 0);
        assert_eq!(self.merchant.balance(&self.customer).await, "10.0000000000");
        assert_eq!(self.merchant.own_balance().await, "10.0000000000");
    }
}

/// Look-ups that hang end within the grace period by their own limit.
#[test]
fn a_gateway_that_stops_answers_calls_whose_look_ups_hang() {
    run(async {
        let mut hanging = Hanging::begin("--grace-seconds=60").await;
        hanging.gateway.terminate();
        for call in &mut hanging.calls {
            call.response("GET").await.unwrap().refused(502, "provider_unreachable");
        }
        hanging.has_ended().await;
    });
}

/// The grace period is over before the look-ups have ended: the calls are cut off, and nothing waits for the name server.
#[test]
fn look_ups_that_hang_do_not_keep_a_gateway_from_its_end() {
    run(async {
        let mut hanging = Hanging::begin("--grace-seconds=1").await;
        hanging.gateway.terminate();
        for call in &mut hanging.calls {
            // On a busy machine a look-up may end before.
            if let Ok(response) = call.response("GET").await {
                response.refused(502, "provider_unreachable");
            }
        }
        hanging.has_ended().await;
    });
}
