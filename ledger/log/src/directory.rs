//! The directory: the partitions of what is looked up before its merchant is known (`ledger.directory`).
//!
//! Invariant: what is in the log has its entry. The append writes it; on a Citus cluster the leader writes it before the
//! append, because the directory is on the coordinator. An entry never changes and is never removed. Whether its key
//! exists, its state says: an append that failed leaves entries of nothing.

use farthing_core::event::Fact;
use farthing_core::partition::{Partition, Partitions};
use farthing_core::state::{Effect, StateKey, effects};
use tokio_postgres::{Client, Row};

const FIND: &str = "SELECT partition FROM ledger.directory WHERE kind = $1 AND id = $2";

/// Adds the entries of the kinds $2 and the ids $3, all in partition $1. Every transaction adds them in one order.
pub(crate) const ADD: &str = "\
INSERT INTO ledger.directory (kind, id, partition)
SELECT d.kind, d.id, $1::smallint FROM unnest($2::text[], $3::text[]) AS d(kind, id) ORDER BY d.kind, d.id
ON CONFLICT (kind, id) DO NOTHING";

/// A fact by its key, in any partition: a look-up by the primary key for each.
const LOCATE: &str = "SELECT partition FROM ledger.facts WHERE partition = ANY($1::smallint[]) AND key = $2";

/// The partition of a secret key, the hash of a spend key, or a checkout session; `None` if it never existed. The
/// directory has no other kinds of states.
pub async fn find(client: &Client, key: &StateKey) -> Result<Option<Partition>, tokio_postgres::Error> {
    let (kind, id) = key.stored();
    partition(client.query_opt(FIND, &[&kind, &id]).await?)
}

/// The partition of the fact with `key`. It looks in all of `partitions`, so it is for rare commands that name something
/// without its merchant.
pub async fn locate(
    client: &Client,
    partitions: Partitions,
    key: &str,
) -> Result<Option<Partition>, tokio_postgres::Error> {
    let all: Vec<i16> = partitions.all().map(Partition::number).collect();
    partition(client.query_opt(LOCATE, &[&all, &key]).await?)
}

fn partition(row: Option<Row>) -> Result<Option<Partition>, tokio_postgres::Error> {
    row.map(|row| row.try_get(0).map(Partition::new)).transpose()
}

/// The kinds and ids of what `fact` creates for the directory.
pub(crate) fn entries(fact: &Fact) -> impl Iterator<Item = (&'static str, String)> {
    let created = |(key, effect): (StateKey, Effect)| {
        (matches!(effect, Effect::Create(_)) && is_listed(&key)).then(|| key.stored())
    };
    effects(fact).into_iter().filter_map(created)
}

/// Whether the directory has states of this kind.
fn is_listed(key: &StateKey) -> bool {
    match key {
        StateKey::SecretKey(_)
        | StateKey::IssuedKey(_)
        | StateKey::SpendKeyHash(_)
        | StateKey::CheckoutSession(_) => true,
        StateKey::Merchant(_)
        | StateKey::Wallet(_)
        | StateKey::Customer(_)
        | StateKey::Reference(..)
        | StateKey::Meter(_)
        | StateKey::MeterSlug(..)
        | StateKey::SpendKey(_)
        | StateKey::Spending(_)
        | StateKey::Request(_)
        | StateKey::Reported(..)
        | StateKey::TierUsage(..)
        | StateKey::Plan(_)
        | StateKey::CreditBundle(_)
        | StateKey::Subscription(_)
        | StateKey::PaymentMethod(_)
        | StateKey::Payment(_)
        | StateKey::Webhook(_)
        | StateKey::Webhooks(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use farthing_core::event::codec;

    use super::*;

    /// The entries of an event of `kind` with this body.
    fn entries_of(kind: &str, body: &str) -> Vec<(&'static str, String)> {
        let event = codec::decode(kind, 1, body).unwrap();
        let merchant_id = "mer_00000000000000000000000001".parse().unwrap();
        entries(&Fact { merchant_id, occurred_at: DateTime::UNIX_EPOCH, event }).collect()
    }

    macro_rules! golden {
        ($kind:literal) => {
            include_str!(concat!("../../core/tests/golden/", $kind, ".v1.json"))
        };
    }

    #[test]
    fn keys_and_checkout_sessions_have_an_entry_when_they_are_created() {
        let kinds = |kind, body| entries_of(kind, body).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(kinds("secret_key.issued", golden!("secret_key.issued")), ["secret_key", "issued_key"]);
        assert_eq!(kinds("spend_key.created", golden!("spend_key.created")), ["spend_key_hash"]);
        assert_eq!(
            kinds("checkout_session.created", golden!("checkout_session.created")),
            ["checkout_session"]
        );
    }

    #[test]
    fn a_rotated_key_has_an_entry_for_its_new_hash() {
        let body = golden!("key.rotated");
        let hash = serde_json::from_str::<serde_json::Value>(body).unwrap()["key_hash"].clone();
        assert_eq!(entries_of("key.rotated", body), [("spend_key_hash", hash.as_str().unwrap().to_owned())]);
    }

    #[test]
    fn what_names_its_merchant_or_ends_has_no_entry() {
        let others = [
            ("secret_key.revoked", golden!("secret_key.revoked")),
            ("spend_key.deleted", golden!("spend_key.deleted")),
            ("spend_key.updated", golden!("spend_key.updated")),
            ("checkout_session.completed", golden!("checkout_session.completed")),
            ("merchant.registered", golden!("merchant.registered")),
            ("customer.created", golden!("customer.created")),
            ("payment.requested", golden!("payment.requested")),
            ("request.opened", golden!("request.opened")),
        ];
        for (kind, body) in others {
            assert_eq!(entries_of(kind, body), [], "{kind}");
        }
    }
}
