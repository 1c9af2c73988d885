//! Every documented response occurs: the successes and errors of each operation are provoked over HTTP. A documented response
//! without a case here is a failure, and so are an undocumented case and an undocumented response. An error changes nothing.

mod clock;
mod common;
mod converted;
mod forward;
mod money;
mod people;
mod prices;
mod recurring;
mod scene;
mod webhooks;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use farthing_tests::document::{Document, Operation};
use farthing_tests::run;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use self::scene::{Call, Scene};

/// Operations that are tested at once.
const AT_ONCE: usize = 4;

/// Attempts at a response that depends on the clock.
const ATTEMPTS: usize = 5;

/// Responses that require a fault; `faults/documented.rs` provokes them on every operation that documents them.
const BY_FAULTS: [&str; 3] = ["ledger_unavailable", "rest_internal_server_error", "payment_in_progress"];

/// Errors of forwarded calls and payments that were recorded before they failed: the log has them, and no money moved.
const ON_RECORD: [&str; 3] = ["provider_unreachable", "provider_timeout", "payment_declined"];

/// Event kinds that move money.
const OF_MONEY: [&str; 3] = ["wallet.debited", "wallet.credited", "request.metered"];

/// Prepares the conditions of a response and returns the call that gets it.
type Provoke = for<'a> fn(&'a Scene, &'a Operation) -> Pin<Box<dyn Future<Output = Call> + 'a>>;

/// A case: how to provoke one response of one operation.
#[derive(Clone, Copy)]
struct Case {
    /// The operation's name, the same for all of its paths.
    operation: &'static str,
    /// The status of a success, or the code of an error.
    answer: &'static str,
    provoke: Provoke,
}

/// A list of cases: operation, response, and the function that makes the call.
macro_rules! cases {
    ($scene:ident, $at:ident; $($operation:literal $answer:literal => $call:expr;)*) => {
        vec![$($crate::documented::Case {
            operation: $operation,
            answer: $answer,
            provoke: |$scene, $at| Box::pin(async move { $call }),
        }),*]
    };
}
use cases;

/// The cases of single operations; shared ones are in [`common`].
fn own_cases() -> Vec<Case> {
    [
        people::cases(),
        prices::cases(),
        money::cases(),
        recurring::cases(),
        webhooks::cases(),
        forward::cases(),
        converted::cases(),
        common::not_found(),
    ]
    .concat()
}

/// The name of an operation, the same for all of its paths and methods.
fn kind(operation: &Operation) -> &str {
    if operation.path.starts_with("/forward") {
        return "forward";
    }
    let id = operation.id.split("_at_").next().unwrap_or_default();
    // The method of an operation whose calls are forwarded is a part of its id.
    if operation.takes_secret_key { id } else { id.trim_end_matches("_post") }
}

/// The documented responses: success statuses and error codes.
fn documented(operation: &Operation) -> Vec<String> {
    let mut answers = Vec::new();
    for status in operation.responses.as_object().unwrap().keys() {
        match status.parse::<u16>() {
            Ok(success) if success < 300 => answers.push(status.clone()),
            Ok(error) => answers.extend(operation.codes(error)),
            // The provider's own responses.
            Err(_) => assert_eq!(status, "default"),
        }
    }
    answers
}

/// The case of `answer` of `operation`: the operation's own, else the shared one.
fn provoker(own: &[Case], operation: &Operation, answer: &str) -> Option<Provoke> {
    let own = own.iter().find(|case| case.operation == kind(operation) && case.answer == answer);
    own.map(|case| case.provoke).or_else(|| common::provoker(answer))
}

#[test]
fn every_documented_response_has_a_case_and_every_case_is_documented() {
    run(async {
        let own = own_cases();
        let (mut seen, mut missing) = (BTreeSet::new(), Vec::new());
        let operations = Document::served().await.operations();
        for operation in &operations {
            let answers = documented(operation);
            assert!(!answers.is_empty(), "{}", operation.name());
            for answer in answers {
                if !BY_FAULTS.contains(&answer.as_str()) && provoker(&own, operation, &answer).is_none() {
                    missing.push(format!("{} {answer}", operation.name()));
                }
                seen.insert((kind(operation).to_owned(), answer));
            }
        }
        assert!(missing.is_empty(), "no case provokes\n{}", missing.join("\n"));
        let stale = own.iter().map(|case| (case.operation.to_owned(), case.answer.to_owned()));
        let stale: Vec<_> = stale.filter(|case| !seen.contains(case)).collect();
        assert!(stale.is_empty(), "the document does not name {stale:?}");
        assert!(operations.len() > 80 && seen.len() > 500, "{} {}", operations.len(), seen.len());
    });
}

#[test]
fn every_documented_response_occurs_and_no_error_changes_anything() {
    run(async {
        let document = Document::served().await;
        let walks = document.operations().into_iter().map(|operation| {
            let document = &document;
            async move {
                // Its failure is printed already; the others are still tested.
                let walked = AssertUnwindSafe(walk(document, &operation)).catch_unwind().await;
                walked.is_err().then(|| operation.name())
            }
        });
        let walked: Vec<_> = stream::iter(walks).buffer_unordered(AT_ONCE).collect().await;
        let failed: Vec<_> = walked.into_iter().flatten().collect();
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// Provokes every response of one operation, with a new merchant.
async fn walk(document: &Document, operation: &Operation) {
    let (scene, own) = (Scene::new().await, own_cases());
    for answer in documented(operation) {
        if !BY_FAULTS.contains(&answer.as_str()) {
            let provoke = provoker(&own, operation, &answer).unwrap();
            happens(document, &scene, operation, &answer, provoke).await;
        }
    }
    scene.close().await;
}

async fn happens(document: &Document, scene: &Scene, operation: &Operation, answer: &str, provoke: Provoke) {
    let what = format!("{} {answer}", operation.name());
    for attempt in 1..=ATTEMPTS {
        let Call { request, to } = provoke(scene, operation).await;
        assert_eq!(request.method, operation.method, "{what}: another operation is called");
        let before = scene.merchant.events().await.len();
        let response = request.send(to).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        if let Ok(status) = answer.parse::<u16>() {
            assert_eq!(response.status, status, "{what}: {}", response.text());
            response.request_id();
            let schema = &operation.responses[answer]["content"]["application/json"]["schema"];
            if !schema.is_null() {
                let shown = response.json();
                let misfit = document.misfit(schema, &shown);
                assert_eq!(misfit, None, "{what}: {shown}");
            }
            return;
        }
        // The minute in which a key's calls were used up may have ended.
        let overtaken = answer == "rate_limit_exceeded" && response.status != 429;
        if overtaken && attempt < ATTEMPTS {
            continue;
        }
        if operation.method == "HEAD" {
            let status = operation.status_of(answer).unwrap();
            assert_eq!((response.status, response.body.len()), (status, 0), "{what}");
        } else {
            assert_eq!(operation.refuses(&response, answer), answer, "{what}: {}", response.text());
        }
        let retry = response.head.header("retry-after");
        assert_eq!(
            retry.is_some(),
            [429, 503].contains(&response.status) || answer == "idempotency_in_progress",
            "{what}"
        );
        let after = scene.merchant.events().await.split_off(before);
        if ON_RECORD.contains(&answer) {
            let moved: Vec<_> =
                after.iter().filter(|event| OF_MONEY.contains(&event.kind.as_str())).collect();
            assert!(moved.is_empty(), "{what}: {moved:?}");
        } else {
            assert!(after.is_empty(), "{what} changed something: {after:?}");
        }
        return;
    }
}
