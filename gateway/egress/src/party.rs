//! The party on whose behalf a call is made. The lookups of names in flight, and the open connections,
//! are limited per party.

/// A party: an id that the caller of this crate chooses, such as a merchant's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Party(pub u128);

tokio::task_local! {
    static PARTY: Party;
}

/// Runs `call` on behalf of `party`: the connections that it makes look names up, and are counted, for
/// this party.
pub async fn on_behalf_of<F: Future>(party: Party, call: F) -> F::Output {
    PARTY.scope(party, call).await
}

/// The party of the running call. Calls of no party count as those of one.
pub(crate) fn current() -> Party {
    PARTY.try_with(|party| *party).unwrap_or_default()
}
