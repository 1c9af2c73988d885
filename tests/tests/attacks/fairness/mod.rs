//! All ways of attack at once, by an attacker with one spend key and a server of its own, while another merchant makes its
//! calls. None of these calls may break, and each is charged once and exactly. The effect on their latency is a figure,
//! not a verdict: it depends on the machine.
//!
//! The attack takes 6 s; `FARTHING_ATTACK_SECONDS=60` makes it a minute. `FARTHING_ATTACK_WAYS` names the ways, with commas
//! between them; the output lists them. `FARTHING_ATTACK_SCALE=5` holds five times as many connections and responses.
//! `FARTHING_TEST_PROGRAM` names another build of the program, `FARTHING_ATTACK_FLAGS` further flags of the
//! attacked gateway.

mod measure;
mod scene;
mod victim;
mod ways;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant};

use farthing_tests::books::Books;
use farthing_tests::process::resident_kib;
use farthing_tests::run;
use serde_json::json;
use tokio::time::sleep;

use self::measure::Latencies;
use self::scene::Scene;
use self::victim::{Call, Victim};
use self::ways::{Attack, Ways};

/// The attack's time in all, unless `FARTHING_ATTACK_SECONDS` says otherwise.
const ATTACK_SECONDS: u64 = 6;

/// The quiet time after an attack that is not measured: what it left behind is neither attack nor quiet.
const AFTERMATH: Duration = Duration::from_millis(500);

/// An attack in which an exchange of each way comes to its end.
const LONG: Duration = Duration::from_secs(10);

/// The time in which an attack begins all its calls and connections, with more new ones at once than later.
const BEGINNING: Duration = Duration::from_secs(1);

/// The memory that a gateway may have beyond that before the attack: 256 MiB for decoders, of which a merchant has a
/// quarter, and 256 KiB for each of the 1,500 connections and calls that the ways hold.
const MEMORY_KIB: u64 = (64 + 375) * 1024;

/// Attacks and quiet times in turns, so that noise of the machine meets both.
struct Slices {
    count: u32,
    attack: Duration,
    quiet: Duration,
}

impl Slices {
    fn read() -> Self {
        let seconds = std::env::var("FARTHING_ATTACK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        let seconds: u64 = seconds.unwrap_or(ATTACK_SECONDS);
        let count = if seconds < 30 { 3 } else { 6 };
        let attack = Duration::from_secs(seconds) / count;
        Self { count, attack, quiet: (attack / 2).max(Duration::from_secs(1)) }
    }
}

fn say(text: &str) {
    // Not a macro for printing: the figures are to be seen when the test succeeds, too.
    let _ = writeln!(std::io::stderr(), "fairness: {text}");
}

#[test]
fn fairness() {
    run(async {
        let scene = Scene::start().await;
        let ways = Ways::of(&scene);
        ways.each_works().await;
        let slices = Slices::read();
        let (leaders, memory) = (scene.leaders().await, resident_kib(scene.gateway.pid()));
        let victim = Victim::start(&scene);
        measure::give_way_to(victim.thread_id);
        sleep(slices.quiet).await;
        let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
        let mut largest = memory;
        for _ in 0..slices.count {
            let begun = Instant::now();
            sleep(slices.quiet).await;
            quiet.push((begun, Instant::now()));
            let attack = Attack::begin(&ways);
            let begun = Instant::now();
            let until = begun + slices.attack;
            while Instant::now() < until {
                sleep(Duration::from_millis(100)).await;
                largest = largest.max(resident_kib(scene.gateway.pid()));
            }
            attacked.push((begun, Instant::now()));
            drop(attack);
            sleep(AFTERMATH).await;
        }
        let calls = victim.stop();
        let is_in = |times: &[(Instant, Instant)], call: &Call| {
            times.iter().any(|(from, to)| (*from..*to).contains(&call.due))
        };
        let of = |times: &[(Instant, Instant)]| {
            Latencies::of(calls.iter().filter(|call| is_in(times, call)).map(|call| call.latency))
        };
        report(&of(&quiet), &of(&attacked));
        let later: Vec<_> = attacked.iter().map(|(from, to)| (*from + BEGINNING, *to)).collect();
        say(&format!("attacked, without the first second: {}", of(&later)));
        for kind in victim::KINDS {
            let of_kind = calls.iter().filter(|call| call.kind == kind && is_in(&attacked, call));
            say(&format!("attacked, {kind}: {}", Latencies::of(of_kind.map(|call| call.latency))));
        }
        say(&format!("the gateway's memory: {} MiB, at most {} MiB", memory / 1024, largest / 1024));
        ways.report();
        every_call_succeeded_and_is_charged_once(&scene, &calls).await;
        assert_eq!(scene.leaders().await, leaders, "leadership moved");
        assert!(largest <= memory + MEMORY_KIB, "the gateway took {largest} KiB; before, {memory} KiB");
        // In a short one, an exchange that is kept waiting ends with the attack.
        ways.all_were_used(if slices.attack < LONG { 0 } else { slices.count });
        scene.put_away().await;
    });
}

fn report(quiet: &Latencies, attacked: &Latencies) {
    for (when, latencies) in [("quiet", quiet), ("attacked", attacked)] {
        say(&format!("{when}: {latencies}"));
    }
    let hundredths = attacked.p99().as_micros() * 100 / quiet.p99().as_micros().max(1);
    say(&format!("p99 attacked / quiet: {}.{:02}", hundredths / 100, hundredths % 100));
}

/// The victim's calls came back whole and unaltered, and the log has each of them once with its exact charge.
async fn every_call_succeeded_and_is_charged_once(scene: &Scene, calls: &[Call]) {
    let broken: Vec<_> = calls.iter().filter_map(|call| call.outcome.as_ref().err()).collect();
    assert!(broken.is_empty(), "{} of {} calls broke: {:?}", broken.len(), calls.len(), &broken[0]);
    scene.victim.nothing_is_held().await;
    let events = scene.victim.events().await;
    let metered: Vec<_> = events.iter().filter(|event| event.kind == "request.metered").collect();
    assert_eq!(metered.len(), calls.len(), "charges");
    assert!(!events.iter().any(|event| event.kind == "request.failed"), "a call failed");
    let ids: BTreeSet<_> = metered.iter().map(|event| event.text("request_id")).collect();
    assert_eq!(ids.len(), calls.len(), "a call is charged once");
    for event in &metered {
        let id = event.text("request_id");
        let call = calls.iter().find(|call| call.outcome.as_ref().is_ok_and(|answered| answered == id));
        let call = call.unwrap_or_else(|| panic!("{id} is charged, and nobody made it"));
        let body = &event.body;
        assert_eq!(body["usage"]["tokens"]["input"], call.tokens, "{body}");
        assert_eq!(body["total_wallet_cost"], scene::CHARGE, "{body}");
        assert_eq!(body["total_merchant_cost"], scene::SERVICE_CHARGE, "{body}");
        assert_eq!(body["marks"], json!([]), "{body}");
    }
    Books::of(&scene.victim.log.after(0).await);
}
