//! Commands under one idempotency key in one batch.

use farthing_core::command::Refusal;
use farthing_core::idempotency::{Claim, Scope};

use super::merchant::{issue, merchant_id, server_key};
use super::single_gateway::{id, with_leader};
use crate::appender::{Appender, ClaimRecord, Error, IdempotentOutcome, QueueLimits};

type Answer = Result<IdempotentOutcome<()>, Error>;

/// Issues the key of a number under the one idempotency key.
async fn submit(appender: &Appender, number: u128) -> Answer {
    let scope = Scope { merchant_id: merchant_id(), method: "POST", path: "/v1/secret_keys" };
    let claim = Claim::new(&server_key(), scope, "a key", &[b"a body"]);
    let record = |_: &Result<(), Refusal>| ClaimRecord::Answer(b"sealed".to_vec().into());
    appender.submit_idempotent(None, issue(id(number)), claim, record).await
}

#[test]
fn a_recorded_claim_is_repeated_to_every_command_of_a_batch() {
    let database = with_leader(QueueLimits::default(), async |_, appender, _| {
        let first = submit(&appender, 0).await;
        assert!(matches!(first, Ok(IdempotentOutcome::Decided(Ok(()), _))), "{first:?}");
        let (second, third) = tokio::join!(submit(&appender, 1), submit(&appender, 2));
        for answer in [second, third] {
            assert!(matches!(answer, Ok(IdempotentOutcome::Repeated(_))), "{answer:?}");
        }
    });
    assert_eq!(database.disk().events.len(), 2 + 1, "the merchant, its first key and one command");
}
