//! Reads of states. A read returns the states as they were at one position of the log, between its beginning and its end.

use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::state::{State, StateKey};
use ulid::Ulid;

use super::client::{Client, merchants_wallet};

impl Client {
    /// Reads the merchant's wallet with a customer's, a call or a key, and compares them with the log.
    pub(super) async fn read(&mut self) {
        let of_customer = self.pick(|entries| entries.payers.clone());
        let of_customer = of_customer.map_or(Ulid::nil(), CustomerId::ulid);
        let mut keys =
            vec![StateKey::Wallet(merchants_wallet()), StateKey::Wallet(WalletId::new(of_customer))];
        keys.extend(self.pick(|entries| entries.in_flight.iter().copied().collect()).map(StateKey::Request));
        keys.extend(self.pick(|entries| entries.issued.clone()).map(StateKey::IssuedKey));
        let from = self.database.disk().head.position;
        let asked = keys.clone();
        let Ok(states) = self.ask(|appender| async move { appender.states(asked).await }).await else {
            return;
        };
        let disk = self.database.disk();
        let stored: Vec<_> = keys.iter().map(StateKey::stored).collect();
        let read: Vec<_> = states.iter().map(|state| state.as_ref().map(State::to_json)).collect();
        let is_at = |position| {
            stored.iter().zip(&read).all(|(key, state)| disk.history.at(key, position) == state.as_deref())
        };
        let found = (from..=disk.head.position).any(is_at);
        drop(disk);
        self.database.notes.count("states were read");
        if !found {
            self.database.notes.violation(format!("states after {from} were read as {read:?}"));
        }
    }
}
