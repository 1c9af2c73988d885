//! Reads of states. A read returns the states as they were at one position of the log, between its beginning and its end.

use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::state::{State, StateKey};
use ulid::Ulid;

use super::client::{Asked, Client};
use super::database::Database;
use super::merchant::merchants_wallet;
use crate::appender::Error;

impl Client {
    /// Starts a read of the merchant's wallet with a customer's, a call and a key. The client does not wait for it, as
    /// that gateway may be stalled.
    pub(super) fn start_read(&mut self) {
        let of_customer = self.pick(|entries| entries.payers.clone());
        let of_customer = of_customer.map_or(Ulid::nil(), CustomerId::ulid);
        let mut keys =
            vec![StateKey::Wallet(merchants_wallet()), StateKey::Wallet(WalletId::new(of_customer))];
        keys.extend(self.pick(|entries| entries.in_flight.keys().copied().collect()).map(StateKey::Request));
        keys.extend(self.pick(|entries| entries.issued.clone()).map(StateKey::IssuedKey));
        let asked = self.choose();
        self.reads.spawn(read(self.database.clone(), asked, keys));
    }
}

/// Reads the states of `keys` and compares them with the log.
async fn read(database: Database, asked: Asked, keys: Vec<StateKey>) {
    let from = database.disk().head.position;
    let states = asked.ledger.states_of(database.partition(), None, &keys);
    let states = async { states.await.map_err(|error| Error::Unavailable(error.to_string())) };
    let Ok(states) = asked.run(states).await else { return };
    let stored: Vec<_> = keys.iter().map(StateKey::stored).collect();
    let read: Vec<_> = states.iter().map(|state| state.as_ref().map(State::to_json)).collect();
    let disk = database.disk();
    let is_at = |position| {
        stored.iter().zip(&read).all(|(key, state)| disk.history.at(key, position) == state.as_deref())
    };
    database.notes.count("states were read");
    if !(from..=disk.head.position).any(is_at) {
        database.notes.violation(format!("states after {from} were read as {read:?}"));
    }
}
