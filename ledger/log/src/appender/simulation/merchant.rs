//! The merchant of all commands, and the commands of its keys.

use chrono::{DateTime, Utc};
use farthing_core::command::{IssueSecretKey, RegisterMerchant};
use farthing_core::ids::{MerchantId, SecretKeyId, WalletId};
use farthing_core::secret::{KeyHash, ServerKey};
use ulid::Ulid;

/// The time of every command: the appender does not look at it.
pub(super) const NOW: DateTime<Utc> = DateTime::<Utc>::UNIX_EPOCH;

/// The merchant of all commands.
pub(super) fn merchant_id() -> MerchantId {
    MerchantId::new(Ulid::from_parts(1, 1))
}

/// The key that hashes keys.
pub(super) fn server_key() -> ServerKey {
    ServerKey::from_hex(&"7".repeat(64)).unwrap()
}

/// The command that issues a secret key of the merchant.
pub(in crate::appender) fn issue(secret_key_id: SecretKeyId) -> IssueSecretKey {
    IssueSecretKey {
        merchant_id: merchant_id(),
        secret_key_id,
        key_hash: server_key().hash(&secret_key_id.to_string()),
        hint: "0000".to_owned(),
        name: "a key".to_owned(),
        now: NOW,
    }
}

fn first_key() -> SecretKeyId {
    SecretKeyId::new(Ulid::from_parts(1, 2))
}

/// The hash of the merchant's first secret key, which is never revoked.
pub(super) fn merchants_key() -> KeyHash {
    issue(first_key()).key_hash
}

/// The wallet of the merchant of all commands.
pub(super) fn merchants_wallet() -> WalletId {
    WalletId::new(Ulid::from_parts(1, 3))
}

/// The command that registers the merchant of all commands.
pub(in crate::appender) fn registration() -> RegisterMerchant {
    let (wallet_id, first_key) = (merchants_wallet(), issue(first_key()));
    RegisterMerchant { wallet_id, name: "a merchant".to_owned(), first_key, now: NOW }
}
