//! The effects of the events of wallets.

use crate::event::WalletEvent;
use crate::ids::{MerchantId, WalletId};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::wallet::{Wallet, WalletOwner};
use crate::state::wallet_change::WalletChange;

pub(super) fn effects(event: &WalletEvent) -> Vec<(StateKey, Effect)> {
    match event {
        WalletEvent::Credited(event) => {
            vec![(StateKey::Wallet(event.wallet_id), Effect::Credit(event.amount))]
        }
        WalletEvent::Debited(event) => {
            vec![(StateKey::Wallet(event.wallet_id), Effect::Debit(event.sources.clone()))]
        }
        WalletEvent::AutopayChanged(event) => {
            let change = WalletChange::Autopay(event.autopay, event.revision);
            vec![(StateKey::Wallet(event.wallet_id), Effect::Wallet(change))]
        }
    }
}

/// Creates an empty wallet.
pub(super) fn create(merchant_id: MerchantId, id: WalletId, owner: WalletOwner) -> (StateKey, Effect) {
    let wallet = Box::new(Wallet::empty(merchant_id, owner));
    (StateKey::Wallet(id), Effect::Create(State::Wallet(wallet)))
}
