//! Actions on spend keys and secret keys.

use farthing_core::command::{
    Caller, CreateSpendKey, CustomerRefusal, DeleteSpendKey, IssueSecretKey, Refusal, RevokeSecretKey,
    Revoker, RotateSpendKey, SecretKeyRefusal, SpendKeyEdits, SpendKeyRefusal, UpdateSpendKey,
};
use farthing_core::event::SpendKeyStatus;
use farthing_core::ids::{SecretKeyId, SpendKeyId};

use super::{KeyOf, Shop, edit, pick, settings_of};
use crate::actions::Asked;

impl Shop {
    pub(super) fn create_spend_key(&mut self, merchant: u8, customer: Option<u8>, limits: u16) {
        let merchant = usize::from(merchant);
        let customer = customer.and_then(|number| pick(&self.customers, number));
        let spend_key_id = SpendKeyId::new(self.ulid());
        let command = CreateSpendKey {
            merchant_id: self.merchants[merchant].id,
            spend_key_id,
            customer_id: customer.map(|at| self.customers[at].1),
            key_hash: self.server_key.hash(&format!("{spend_key_id}/0")),
            key_preview: "spk_abcd****".into(),
            settings: settings_of(limits),
            status: if limits >> 13 == 0 { SpendKeyStatus::Paused } else { SpendKeyStatus::Active },
            now: self.now,
        };
        let foreign = customer.is_some_and(|at| {
            let (owner, id, ..) = &self.customers[at];
            *owner != merchant || self.deleted_customers.contains(id)
        });
        match self.execute(&command) {
            Ok(made) => {
                assert!(!foreign);
                let (merchant_id, now) = (command.merchant_id, self.now);
                let unchanged =
                    UpdateSpendKey { merchant_id, spend_key_id, edits: SpendKeyEdits::default(), now };
                assert_eq!(made.key.status, command.status);
                assert_eq!(self.execute(&unchanged).unwrap(), made, "as its events make it");
                let own = self.merchants[merchant].wallet_id;
                assert_eq!(made.key.wallet_id, customer.map_or(own, |at| self.customers[at].2));
                let hash = command.key_hash;
                let customer = command.customer_id;
                self.spend_keys.push(KeyOf { merchant, customer, id: spend_key_id, hash, is_deleted: false });
            }
            Err(refusal) => {
                assert!(foreign);
                assert_eq!(refusal, Refusal::Customer(CustomerRefusal::NotFound));
            }
        }
    }

    pub(super) fn rotate(&mut self, merchant: u8, key: u8) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let KeyOf { merchant: owner, id: spend_key_id, is_deleted, .. } = self.spend_keys[at];
        let fresh = self.ulid();
        let command = RotateSpendKey {
            merchant_id: self.merchants[usize::from(merchant)].id,
            spend_key_id,
            key_hash: self.server_key.hash(&fresh.to_string()),
            key_preview: "spk_efgh****".into(),
            now: self.now,
        };
        let answer = self.execute(&command);
        assert_eq!(answer.is_ok(), owner == usize::from(merchant) && !is_deleted, "{answer:?}");
        if let Ok(rotated) = answer {
            assert_eq!(rotated.key.key_hash, command.key_hash);
            let dead = std::mem::replace(&mut self.spend_keys[at].hash, command.key_hash);
            let command = self.command_on_key(dead, "model-0".into(), &Asked::OTHER);
            assert_eq!(
                self.execute(&command),
                Err(Refusal::SpendKey(SpendKeyRefusal::Invalid)),
                "a rotated key works"
            );
        }
    }

    pub(super) fn update_key(&mut self, merchant: u8, key: u8, limits: u16) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let KeyOf { merchant: owner, id: spend_key_id, is_deleted, .. } = self.spend_keys[at];
        let settings = settings_of(limits);
        let status = if limits >> 13 == 0 { SpendKeyStatus::Paused } else { SpendKeyStatus::Active };
        let command = UpdateSpendKey {
            merchant_id: self.merchants[usize::from(merchant)].id,
            spend_key_id,
            edits: SpendKeyEdits {
                status: Some(status),
                allowed_models: edit(settings.allowed_models.clone()),
                allowed_providers: edit(settings.allowed_providers.clone()),
                spend_limit: edit(settings.spend_limit),
                request_limit: edit(settings.request_limit),
                rate_limit: edit(settings.rate_limit),
                expires_at: edit(settings.expires_at),
                ..SpendKeyEdits::default()
            },
            now: self.now,
        };
        match self.execute(&command) {
            Ok(updated) => {
                assert!(owner == usize::from(merchant) && !is_deleted);
                assert_eq!((updated.key.status, &updated.key.settings), (status, &settings));
                let before = self.till.facts.len();
                assert_eq!(self.execute(&command).unwrap().key, updated.key);
                assert_eq!(self.till.facts.len(), before, "a change without effect appends nothing");
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::SpendKey(SpendKeyRefusal::NotFound));
                assert!(owner != usize::from(merchant) || is_deleted);
            }
        }
    }

    pub(super) fn delete_key(&mut self, merchant: u8, key: u8) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let KeyOf { merchant: owner, id: spend_key_id, is_deleted, .. } = self.spend_keys[at];
        let merchant_id = self.merchants[usize::from(merchant)].id;
        let answer = self.execute(&DeleteSpendKey { merchant_id, spend_key_id, now: self.now });
        assert_eq!(answer.is_ok(), owner == usize::from(merchant) && !is_deleted, "{answer:?}");
        self.spend_keys[at].is_deleted |= answer.is_ok();
    }

    pub(super) fn issue_key(&mut self, merchant: u8) {
        let merchant = usize::from(merchant);
        let secret_key_id = SecretKeyId::new(self.ulid());
        let key_hash = self.server_key.hash(&secret_key_id.to_string());
        self.secret_keys.push((merchant, secret_key_id, key_hash.clone()));
        let merchant_id = self.merchants[merchant].id;
        let (hint, name) = ("efgh".into(), "further".into());
        let command = IssueSecretKey { merchant_id, secret_key_id, key_hash, hint, name, now: self.now };
        self.execute(&command).unwrap();
    }

    /// A key of another merchant is not found, the last key stays, and any other key is invalid at once.
    pub(super) fn revoke_key(&mut self, revoker: Option<u8>, key: u8) {
        let Some(at) = pick(&self.secret_keys, key) else { return };
        let (owner, secret_key_id, hash) = self.secret_keys[at].clone();
        let foreign = revoker.is_some_and(|merchant| usize::from(merchant) != owner);
        let last = self.secret_keys.iter().filter(|(of, ..)| *of == owner).count() == 1;
        let revoker = revoker.map_or(Revoker::Operator, |merchant| {
            Revoker::Merchant(self.merchants[usize::from(merchant)].id)
        });
        let command = RevokeSecretKey { revoker, secret_key_id, now: self.now };
        match self.execute(&command) {
            Ok(merchant_id) => {
                assert!(!foreign && !last);
                assert_eq!(merchant_id, self.merchants[owner].id);
                self.secret_keys.remove(at);
                let left = self.secret_keys.iter().find(|(of, ..)| *of == owner).unwrap();
                self.merchants[owner].secret_key = left.2.clone();
                assert_eq!(
                    self.execute(&command),
                    Err(Refusal::SecretKey(SecretKeyRefusal::NotFound)),
                    "revoked twice"
                );
                let mut call = self.open_command(0, None, None, 0, &Asked::OTHER);
                call.caller = Caller::SecretKey(hash);
                assert_eq!(
                    self.execute(&call),
                    Err(Refusal::SecretKey(SecretKeyRefusal::Invalid)),
                    "a dead key still opens calls"
                );
            }
            Err(refusal) if foreign => assert_eq!(refusal, Refusal::SecretKey(SecretKeyRefusal::NotFound)),
            Err(refusal) => {
                assert!(last);
                assert_eq!(refusal, Refusal::SecretKey(SecretKeyRefusal::LastRemaining));
            }
        }
    }
}
