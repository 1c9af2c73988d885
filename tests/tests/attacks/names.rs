//! Names that a caller chooses: slow ones keep nobody else waiting, and what a name server says, over UDP or TCP, gets
//! nobody past the address guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::client::Response;
use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Step, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use tokio::task::JoinSet;

use super::addresses::NOT_PUBLIC;

/// Calls to slow names at once: more than twice as many as a pool of blocking threads has.
const SLOW_CALLS: usize = 1_200;

/// Calls of another merchant meanwhile, each to a name of its own: fewer than it may look up at once.
pub(super) const GOOD_CALLS: usize = 24;

/// The lookups that a gateway makes for one merchant at once.
pub(super) const LOOKUPS_OF_A_MERCHANT: usize = 32;

/// A provider whose connections are used once, so that every call connects.
pub(super) fn closing(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|_| {
        let mut steps = whole(200, &[("Connection", "close")], b"{}");
        steps.push(Step::Close);
        steps
    })
}

/// The URL of `endpoint` by a name.
pub(super) fn named(endpoint: &Endpoint, name: &str) -> String {
    endpoint.url.replace("127.0.0.1", name)
}

#[test]
fn slow_names_of_one_merchant_do_not_stop_the_calls_of_another() {
    run(async {
        let servers = NameServer::start(|name| match name {
            _ if name.starts_with("slow") => Answer::Silence,
            _ => Answer::of(&["127.0.0.1"], 60),
        })
        .await;
        let (attacker, victim) = (Merchant::funded("100").await, Merchant::funded("10").await);
        let flags = ["--allow-address=127.0.0.0/8", &servers.flag()];
        let gateway = SideGateway::start(attacker.instance, &flags).await;
        let endpoint = closing(&victim);
        let mut slow = Vec::new();
        for number in 0..SLOW_CALLS {
            let call = forward("GET", &named(&endpoint, &format!("slow{number}.test")));
            let (call, to) = (call.bearer(&attacker.secret_key), gateway.address);
            slow.push(tokio::spawn(async move { call.send(to).await.unwrap() }));
        }
        eventually("the attacker's lookups are in flight", async || {
            (servers.names_asked("slow") >= LOOKUPS_OF_A_MERCHANT).then_some(())
        })
        .await;
        let mut good = JoinSet::new();
        for number in 0..GOOD_CALLS {
            let call = forward("GET", &named(&endpoint, &format!("good{number}.test")));
            let (call, to) = (call.bearer(&victim.secret_key), gateway.address);
            good.spawn(async move { call.send(to).await.unwrap() });
        }
        let good: Vec<Response> = good.join_all().await;
        let waiting = slow.iter().filter(|call| !call.is_finished()).count();
        assert!(waiting >= LOOKUPS_OF_A_MERCHANT, "the slow calls are over");
        for response in &good {
            response.expect(200);
        }
        assert_eq!(endpoint.calls().len(), GOOD_CALLS);
        let mut refused = 0;
        for response in slow {
            let response = response.await.unwrap();
            if response.status == 503 {
                response.refused(503, "ledger_unavailable");
                assert!(response.head.header("retry-after").is_some());
                refused += 1;
            } else {
                response.refused(502, "provider_unreachable");
            }
        }
        assert_eq!(SLOW_CALLS - refused, servers.names_asked("slow"), "a refused call asks no name server");
        attacker.nothing_is_held().await;
        assert!(attacker.events().await.iter().all(|event| event.kind != "request.metered"));
    });
}

/// Merchants that together have more lookups than a gateway makes at once.
const ATTACKERS: usize = 9;

#[test]
fn slow_names_of_many_merchants_together_leave_lookups_to_another_one() {
    run(async {
        let servers = NameServer::start(|name| match name {
            _ if name.starts_with("slow") => Answer::Silence,
            _ => Answer::of(&["127.0.0.1"], 60),
        })
        .await;
        let victim = Merchant::funded("10").await;
        let flags = ["--allow-address=127.0.0.0/8", &servers.flag()];
        let gateway = SideGateway::start(victim.instance, &flags).await;
        let endpoint = closing(&victim);
        let mut slow = JoinSet::new();
        for attacker in 0..ATTACKERS {
            let merchant = Merchant::funded("10").await;
            for number in 0..2 * LOOKUPS_OF_A_MERCHANT {
                let call = forward("GET", &named(&endpoint, &format!("slow{attacker}-{number}.test")));
                let (call, to) = (call.bearer(&merchant.secret_key), gateway.address);
                slow.spawn(async move { call.send(to).await.unwrap() });
            }
        }
        let mut refused = 0;
        while refused < ATTACKERS * LOOKUPS_OF_A_MERCHANT {
            slow.join_next().await.unwrap().unwrap().refused(503, "ledger_unavailable");
            refused += 1;
        }
        for number in 0..GOOD_CALLS {
            let call = forward("GET", &named(&endpoint, &format!("good{number}.test")));
            call.bearer(&victim.secret_key).send(gateway.address).await.unwrap().expect(200);
        }
        while let Some(refused) = slow.try_join_next() {
            refused.unwrap().refused(503, "ledger_unavailable");
        }
        assert!(slow.len() > LOOKUPS_OF_A_MERCHANT, "the slow calls are over");
        assert_eq!(endpoint.calls().len(), GOOD_CALLS);
    });
}

#[test]
fn every_address_of_a_name_is_checked_whatever_the_name_servers_say() {
    run(async {
        let rebound = Arc::new(AtomicBool::new(false));
        let is_rebound = Arc::clone(&rebound);
        let servers = NameServer::start(move |name| match name {
            "good.test" => Answer::of(&["127.0.0.1"], 60),
            "internal.test" => Answer::of(&["10.0.0.1"], 60),
            "metadata.test" => Answer::of(&["169.254.169.254"], 60),
            "half.test" => Answer::half_silence(&["127.0.0.1"]),
            "half-internal.test" => Answer::half_silence(&["10.0.0.1"]),
            "mixed.test" => Answer::of(&["127.0.0.1", "10.0.0.1"], 60),
            "families.test" => Answer::of(&["127.0.0.1", "::1"], 60),
            "mapped.test" => Answer::of(&["::ffff:10.0.0.1"], 60),
            "alias.test" => Answer::alias("good.test", &["127.0.0.1"]),
            "alone.test" => Answer::AliasAlone("good.test".to_owned()),
            "internal-alias.test" => Answer::alias("internal.test", &["10.0.0.1"]),
            "internal-alone.test" => Answer::AliasAlone("internal.test".to_owned()),
            "loop.test" => Answer::AliasAlone("loop.test".to_owned()),
            "many.test" => Answer::of(&["127.0.0.1"; 129], 60),
            "broken.test" => Answer::Failure,
            "rebound.test" if is_rebound.load(Ordering::SeqCst) => Answer::of(&["10.0.0.1"], 0),
            "rebound.test" => Answer::of(&["127.0.0.1"], 0),
            _ => Answer::NoSuchName,
        })
        .await;
        let merchant = Merchant::funded("10").await;
        let flags = ["--allow-address=127.0.0.0/8", &servers.flag()];
        let gateway = SideGateway::start(merchant.instance, &flags).await;
        let endpoint = closing(&merchant);
        let call = async |name: &str| {
            let call = forward("GET", &named(&endpoint, name)).bearer(&merchant.secret_key);
            call.send(gateway.address).await.unwrap()
        };
        let allowed =
            ["good.test", "GOOD.test", "good.test.", "alias.test", "alone.test", "half.test", "rebound.test"];
        for name in allowed {
            assert_eq!(call(name).await.status, 200, "{name}");
        }
        rebound.store(true, Ordering::SeqCst);
        for name in [
            "rebound.test",
            "internal.test",
            "half-internal.test",
            "metadata.test",
            "mixed.test",
            "families.test",
            "mapped.test",
            "internal-alias.test",
            "internal-alone.test",
        ] {
            // Twice: a kept answer is checked as well.
            for _ in 0..2 {
                call(name).await.refused(400, "forward_url_forbidden");
            }
        }
        for name in ["loop.test", "many.test", "broken.test", "none.test"] {
            call(name).await.refused(502, "provider_unreachable");
        }
        merchant.nothing_is_held().await;
        assert_eq!(endpoint.calls().len(), allowed.len(), "a forbidden address was called");
    });
}

/// A name of an address of every kind that is not public, alone, before and behind an address that may be called, and as the
/// last of a hundred that come over TCP: each forbids the host.
#[test]
fn a_name_of_any_address_that_is_not_public_is_forbidden_whatever_stands_beside_it() {
    run(async {
        let servers = NameServer::start(|name| {
            let number = |kind: &str| name.strip_prefix(kind)?.strip_suffix(".test")?.parse::<usize>().ok();
            let (good, not_public) = ("127.0.0.1", |number: usize| NOT_PUBLIC[number]);
            if let Some(number) = number("alone") {
                Answer::of(&[not_public(number)], 60)
            } else if let Some(number) = number("before") {
                Answer::of(&[not_public(number), good], 60)
            } else if let Some(number) = number("behind") {
                Answer::of(&[good, not_public(number)], 60)
            } else if let Some(number) = number("many") {
                Answer::of(&[&[good; 99][..], &[not_public(number)]].concat(), 60).over_tcp()
            } else if name == "good.test" {
                Answer::of(&[good; 100], 60).over_tcp()
            } else {
                Answer::NoSuchName
            }
        })
        .await;
        let merchant = Merchant::funded("10").await;
        let flags = ["--allow-address=127.0.0.0/8", &servers.flag()];
        let gateway = SideGateway::start(merchant.instance, &flags).await;
        let endpoint = closing(&merchant);
        let call = async |name: &str| {
            let call = forward("GET", &named(&endpoint, name)).bearer(&merchant.secret_key);
            call.send(gateway.address).await.unwrap()
        };
        for (number, address) in NOT_PUBLIC.iter().enumerate() {
            for kind in ["alone", "before", "behind", "many"] {
                let response = call(&format!("{kind}{number}.test")).await;
                assert_eq!(response.status, 400, "{kind} {address}: {}", response.text());
                response.refused(400, "forward_url_forbidden");
            }
        }
        assert!(endpoint.calls().is_empty(), "a forbidden name was called");
        call("good.test").await.expect(200);
        assert_eq!(servers.names_asked_over_tcp("many"), NOT_PUBLIC.len());
        merchant.nothing_is_held().await;
    });
}

#[test]
fn answers_are_kept_so_that_few_calls_ask_a_name_server() {
    const CALLS: usize = 10;
    run(async {
        let servers = NameServer::start(|name| match name {
            "kept.test" => Answer::of(&["127.0.0.1"], 300),
            "brief.test" => Answer::of(&["127.0.0.1"], 0),
            _ => Answer::NoSuchName,
        })
        .await;
        let merchant = Merchant::funded("10").await;
        let flags = ["--allow-address=127.0.0.0/8", &servers.flag()];
        let gateway = SideGateway::start(merchant.instance, &flags).await;
        let endpoint = closing(&merchant);
        for (name, status) in [("kept.test", 200), ("brief.test", 200), ("none.test", 502)] {
            for _ in 0..CALLS {
                let call = forward("GET", &named(&endpoint, name)).bearer(&merchant.secret_key);
                assert_eq!(call.send(gateway.address).await.unwrap().status, status, "{name}");
            }
        }
        // A call that asks does so for both families.
        assert!(servers.asked("kept.test") < CALLS, "{}", servers.asked("kept.test"));
        assert!(servers.asked("brief.test") >= 2 * CALLS, "its time to live is zero");
        assert!(servers.asked("none.test") < 2 * CALLS, "that a name does not exist is kept for a while");
    });
}

#[test]
fn a_truncated_answer_is_asked_for_again_over_tcp_and_its_addresses_are_checked() {
    run(async {
        let servers = NameServer::start(|name| match name {
            "large.test" => Answer::of(&["127.0.0.1"; 100], 60).over_tcp(),
            "alias.test" => Answer::alias("large.test", &["127.0.0.1"]).over_tcp(),
            "internal.test" => Answer::of(&["10.0.0.1"], 60).over_tcp(),
            "mixed.test" => Answer::of(&["127.0.0.1", "10.0.0.1"], 60).over_tcp(),
            "families.test" => Answer::of(&["127.0.0.1", "::1"], 60).over_tcp(),
            "internal-alias.test" => Answer::alias("internal.test", &["10.0.0.1"]).over_tcp(),
            "many.test" => Answer::of(&["127.0.0.1"; 129], 60).over_tcp(),
            "none.test" => Answer::NoSuchName.over_tcp(),
            "broken.test" => Answer::Failure.over_tcp(),
            "endless.test" => Answer::of(&["127.0.0.1"], 60).over_tcp().over_tcp(),
            _ => Answer::NoSuchName,
        })
        .await;
        let merchant = Merchant::funded("10").await;
        let flags = ["--allow-address=127.0.0.0/8", &servers.flag()];
        let gateway = SideGateway::start(merchant.instance, &flags).await;
        let endpoint = closing(&merchant);
        let call = async |name: &str| {
            let call = forward("GET", &named(&endpoint, name)).bearer(&merchant.secret_key);
            call.send(gateway.address).await.unwrap()
        };
        let allowed = ["large.test", "alias.test"];
        for name in allowed {
            call(name).await.expect(200);
        }
        for name in ["internal.test", "mixed.test", "families.test", "internal-alias.test"] {
            // Twice: a kept answer is checked as well.
            for _ in 0..2 {
                call(name).await.refused(400, "forward_url_forbidden");
            }
        }
        for name in ["many.test", "none.test", "broken.test", "endless.test"] {
            call(name).await.refused(502, "provider_unreachable");
            assert!(servers.asked_over_tcp(name) > 0, "{name}");
        }
        assert!(servers.asked("large.test") > 0 && servers.asked_over_tcp("large.test") > 0);
        merchant.nothing_is_held().await;
        assert_eq!(endpoint.calls().len(), allowed.len(), "a forbidden address was called");
    });
}

#[test]
fn the_next_name_server_is_asked_while_those_before_it_are_silent() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = closing(&merchant);
        let mut silent = Vec::new();
        for count in 1..=2 {
            silent.push(NameServer::start(|_| Answer::Silence).await);
            let answering = NameServer::start(|name| match name {
                "internal.test" => Answer::of(&["10.0.0.1"], 60),
                _ => Answer::of(&["127.0.0.1"], 60),
            })
            .await;
            let mut flags = vec!["--allow-address=127.0.0.0/8".to_owned()];
            flags.extend(silent.iter().chain([&answering]).map(NameServer::flag));
            let flags: Vec<_> = flags.iter().map(String::as_str).collect();
            let gateway = SideGateway::start(merchant.instance, &flags).await;
            let call = async |name: &str| {
                let call = forward("GET", &named(&endpoint, name)).bearer(&merchant.secret_key);
                call.send(gateway.address).await.unwrap()
            };
            let name = format!("good{count}.test");
            call(&name).await.expect(200);
            assert!(silent.iter().all(|server| server.asked(&name) > 0), "the servers have an order");
            call("internal.test").await.refused(400, "forward_url_forbidden");
        }
        merchant.nothing_is_held().await;
        assert_eq!(endpoint.calls().len(), 2, "a forbidden address was called");
    });
}
