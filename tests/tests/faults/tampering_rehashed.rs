//! The database's owner changes an event, and computes all later hashes and the head anew. Without a published head the chain
//! is sound then, but what the events say of money, states and merchants does not agree, and is found at its place.

use serde_json::{Value, json};

use crate::stored_log::StoredLog;
use crate::tampering_scene::{Scene, check};
use crate::{put_away, run};

/// A change: the event at this position then breaks the check, which expects the one and finds the other.
struct Broken {
    check: &'static str,
    position: i64,
    text: &'static str,
    expected: String,
    found: String,
}

/// The last position whose event is of this kind.
fn last_of(log: &mut StoredLog, kind: &str) -> i64 {
    let starts = format!(r#"{{"kind":"{kind}","#);
    let last = i64::try_from(log.len()).unwrap();
    (1..=last).rev().find(|position| log.event(*position).0.starts_with(&starts)).expect(kind)
}

/// The value of a string in an event.
fn value(line: &str, name: &str) -> String {
    let (_, rest) = line.split_once(&format!(r#""{name}":""#)).expect(name);
    rest.split_once('"').unwrap().0.to_owned()
}

/// Puts another value in the place of a string of the event.
fn put(log: &mut StoredLog, position: i64, name: &str, other: &str) {
    let line = &mut log.event(position).0;
    let old = format!(r#""{name}":"{}""#, value(line, name));
    assert_eq!(line.matches(&old).count(), 1, "{line}");
    *line = line.replace(&old, &format!(r#""{name}":"{other}""#));
}

/// Says another balance after a debit.
fn another_balance(log: &mut StoredLog) -> Broken {
    let position = last_of(log, "wallet.debited");
    let expected = value(&log.event(position).0, "balance_after");
    let found = format!("7{expected}");
    put(log, position, "balance_after", &found);
    Broken { check: "balances_after", position, text: "the balance after it is not 7", expected, found }
}

/// Credits more than the balance after it grows by.
fn more_credit(log: &mut StoredLog) -> Broken {
    let position = last_of(log, "wallet.credited");
    let line = log.event(position).0.clone();
    let (amount, found) = (value(&line, "amount"), value(&line, "balance_after"));
    put(log, position, "amount", &format!("1{amount}"));
    // One digit more in front: with the amount 5, ten more.
    let more = |text: &str| {
        text.split_once('.').map(|(whole, rest)| (whole.parse::<i64>().unwrap(), rest.to_owned()))
    };
    let ((whole, rest), (of_amount, _)) = (more(&found).unwrap(), more(&amount).unwrap());
    let digits = u32::try_from(of_amount.to_string().len()).unwrap();
    let expected = format!("{}.{rest}", whole + 10_i64.pow(digits));
    Broken { check: "balances_after", position, text: "the balance after it is not", expected, found }
}

/// Takes the opening of a call out, and closes the gap.
fn no_opening(log: &mut StoredLog) -> Broken {
    let settled = last_of(log, "request.metered");
    let request = value(&log.event(settled).0, "request_id");
    let is_opening =
        |line: &str| line.starts_with(r#"{"kind":"request.opened","#) && value(line, "request_id") == request;
    let opened = (1..settled).find(|position| is_opening(&log.event(*position).0)).expect("an opening");
    let (batch, index) = log.find(opened);
    log.batches[batch].events.remove(index);
    for later in &mut log.batches[batch + 1..] {
        later.first -= 1;
    }
    log.batches.retain(|batch| !batch.events.is_empty());
    let (expected, found) = ("an event that can follow".to_owned(), request);
    Broken { check: "states", position: settled - 1, text: "", expected, found }
}

/// Stores an event under the key of another fact.
fn another_key(log: &mut StoredLog) -> Broken {
    let position = last_of(log, "wallet.debited");
    let expected = value(&log.event(position).0, "key");
    let found = format!("{expected}0");
    put(log, position, "key", &found);
    Broken { check: "events", position, text: "the stored key is not the key of the fact", expected, found }
}

/// Draws two amounts that add up to none.
fn too_large_parts(log: &mut StoredLog) -> Broken {
    let position = last_of(log, "wallet.debited");
    let line = &mut log.event(position).0;
    let (before, rest) = line.split_once(r#""sources":["#).expect("sources");
    let (_, after) = rest.split_once(']').unwrap();
    let part = r#"{"source":"balance","amount":"1000000000000"}"#;
    *line = format!(r#"{before}"sources":[{part},{part}]{after}"#);
    let (expected, found) = ("an event".to_owned(), "a line that is none".to_owned());
    Broken { check: "events", position, text: "the sum of its parts is out of range", expected, found }
}

#[test]
fn what_a_rehashed_log_says_of_money_states_and_keys_is_found_at_its_position_without_a_published_head() {
    run(async {
        let mut scene = Scene::set().await;
        for (name, change) in [
            ("another balance", another_balance as fn(&mut StoredLog) -> Broken),
            ("more credit", more_credit),
            ("no opening", no_opening),
            ("another key", another_key),
            ("too large parts", too_large_parts),
        ] {
            let before = scene.log().await;
            let mut after = before.clone();
            let broken = change(&mut after);
            let (hash, end) = (after.hash_from(1), i64::try_from(after.len()).unwrap());
            let covered = scene.rewrite(&before, &after, (end, hash)).await;
            // What the read tables are folded from is no reason to say less of the log.
            let (code, report) = scene.verify(&[]).await;
            assert_eq!(code, Some(1), "{name}: {report}");
            for sound in ["record_batches", "positions", "hash_chain", "heads"] {
                assert_eq!(check(&report, sound)["verdict"], "verified", "{name}: {report}");
            }
            let of_check = check(&report, broken.check);
            let is_named = |finding: &&Value| {
                let place = (&finding["partition"], &finding["position"]);
                place == (&json!(before.partition), &json!(broken.position))
                    && (&finding["expected"], &finding["found"])
                        == (&json!(broken.expected), &json!(broken.found))
                    && finding["text"].as_str().unwrap().contains(broken.text)
            };
            let findings = of_check["findings"].as_array().unwrap();
            assert!(findings.iter().any(|finding| is_named(&finding)), "{name}: {of_check}");
            let first = [json!({"partition": before.partition, "position": broken.position})];
            assert_eq!(of_check["first_broken"], Value::from(first.to_vec()), "{name}: {report}");
            // Money that was drawn from no hold is in no sum.
            let sums = check(&report, "balances");
            assert_eq!(sums["broken"] != 0, broken.check == "states", "{name}: {sums}");
            scene.put_back(&after, &before, &covered).await;
        }
        scene.sound().await;
        put_away(scene.instance).await;
    });
}
