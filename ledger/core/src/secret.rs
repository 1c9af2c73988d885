//! Secrets. Raw keys are generated here, stored only as a keyed hash and shown once. Connection and product secrets are
//! derived from their ids, so that they can be shown again without being stored (completion.md section 1).

mod shape;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::{ZeroizeOnDrop, Zeroizing};

pub use self::shape::{holds_a_secret, masked, masked_pairs};
use crate::ids::{self, CheckoutSessionId, CustomerId, MeterId, WebhookId};

/// Random bytes of a raw key: 216 bits, about 213 after `_` and `-` are replaced.
const KEY_BYTES: usize = 27;

/// Bytes of the MAC in a derived secret: 192 bits.
const MAC_BYTES: usize = 24;

/// Characters of a raw key after its prefix.
const KEY_CHARS: usize = KEY_BYTES.div_ceil(3) * 4;

/// Characters of the MAC in a derived secret.
const MAC_CHARS: usize = MAC_BYTES.div_ceil(3) * 4;

/// How the secrets of every instance begin: secret keys, spend keys, and the secrets of connections, meters, checkout
/// sessions and webhooks.
pub const SECRETS_BEGIN: [&str; 7] =
    ["aks_live_", "aks_test_", "spk_", "cons_", "prds_", "css_", WEBHOOK_SECRET];

/// The version of every checkout session's secret. Sessions live for a day, so their secrets are never replaced.
const CHECKOUT_SECRET_VERSION: u32 = 1;

/// The version of every webhook secret. Webhook secrets are never replaced.
const WEBHOOK_SECRET_VERSION: u32 = 1;

/// The prefix of a webhook's secret.
const WEBHOOK_SECRET: &str = "whsec_";

/// The signatures of a webhook delivery, in both common formats (completion.md section 9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSignatures {
    /// `X-Webhook-Signature`: the hexadecimal HMAC-SHA256 of the body under the text of the secret.
    pub plain: String,
    /// `webhook-signature` of Standard Webhooks: `v1,` and the base64 of the HMAC-SHA256 of id, seconds and body,
    /// separated by full stops, under the decoded bytes of the secret.
    pub standard: String,
}

/// Signs the `body` of the message `id`, sent at `unix_seconds`, under a webhook's `secret`.
pub fn sign_webhook(secret: &str, id: &str, unix_seconds: i64, body: &[u8]) -> WebhookSignatures {
    let key = STANDARD.decode(secret.strip_prefix(WEBHOOK_SECRET).unwrap_or(secret)).unwrap_or_default();
    let signed = [id.as_bytes(), b".", unix_seconds.to_string().as_bytes(), b".", body].concat();
    WebhookSignatures {
        plain: hex(&hmac_sha256(secret.as_bytes(), body)),
        standard: format!("v1,{}", STANDARD.encode(hmac_sha256(&key, &signed))),
    }
}

fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// The mode of an instance. It determines the prefix of secret keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Real money: `aks_live_…`.
    Live,
    /// Test money: `aks_test_…`.
    Test,
}

/// The key of the instance. It hashes raw keys and derives secrets. Its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct ServerKey(Zeroizing<[u8; 32]>);

impl ZeroizeOnDrop for ServerKey {}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerKey(****)")
    }
}

/// A raw key. It is shown once and never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct RawKey(String);

impl RawKey {
    /// The key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part that may be shown later: the prefix, four characters and `****`.
    pub fn preview(&self) -> String {
        let start = self.0.rfind('_').map_or(0, |at| at + 1);
        let shown: String = self.0.chars().take(start + 4).collect();
        format!("{shown}****")
    }

    /// The last four characters, the hint of a secret key.
    pub fn hint(&self) -> String {
        self.0.chars().skip(self.0.chars().count().saturating_sub(4)).collect()
    }
}

impl fmt::Debug for RawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.preview())
    }
}

/// The keyed hash of a raw key, as 64 hexadecimal digits. The ledger stores nothing else of the key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyHash(String);

impl KeyHash {
    /// The hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({}…)", self.0.get(..8).unwrap_or_default())
    }
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn random_text() -> String {
    let mut bytes = [0_u8; KEY_BYTES];
    getrandom::fill(&mut bytes).expect("the operating system has randomness");
    // `_` separates the prefix from the key in previews, so the key itself contains none.
    URL_SAFE_NO_PAD.encode(bytes).replace(['_', '-'], "A")
}

/// Generates a merchant's secret key.
pub fn new_secret_key(mode: Mode) -> RawKey {
    let prefix = match mode {
        Mode::Live => "aks_live_",
        Mode::Test => "aks_test_",
    };
    RawKey(format!("{prefix}{}", random_text()))
}

/// Generates a spend key.
pub fn new_spend_key() -> RawKey {
    RawKey(format!("spk_{}", random_text()))
}

impl ServerKey {
    /// A new random key.
    pub fn random() -> Self {
        let mut key = Self(Zeroizing::new([0; 32]));
        getrandom::fill(key.0.as_mut_slice()).expect("the operating system has randomness");
        key
    }

    /// Reads a key of 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?);
        bytes.as_slice().try_into().ok().map(|key| Self(Zeroizing::new(key)))
    }

    /// The key as 64 hexadecimal digits, for storage.
    pub fn to_hex(&self) -> String {
        hex(self.0.as_slice())
    }

    fn mac(&self, purpose: &str, text: &str) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.as_slice()).expect("HMAC takes a key of any length");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// The token by which the gateways of the instance know each other.
    pub fn token_of_gateways(&self) -> String {
        hex(&self.mac_of("gateways", &[]))
    }

    /// A mark that differs for another key. It does not reveal the key.
    pub fn mark(&self) -> String {
        hex(&self.mac_of("mark", &[]))
    }

    /// The MAC of `parts` for `purpose`; the boundaries between the parts matter.
    pub(crate) fn mac_of(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.as_slice()).expect("HMAC takes a key of any length");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// The keyed hash of a raw key.
    pub fn hash(&self, raw: &str) -> KeyHash {
        KeyHash(hex(&self.mac("key", raw)))
    }

    /// The secret of a connection, `cons_…`.
    pub fn connection_secret(&self, id: CustomerId, version: u32) -> String {
        self.derive("cons", id.ulid(), version)
    }

    /// The secret of a meter, `prds_…`.
    pub fn product_secret(&self, id: MeterId, version: u32) -> String {
        self.derive("prds", id.ulid(), version)
    }

    /// The secret of a checkout session, `css_…`, which allows its bearer to complete the session.
    pub fn checkout_secret(&self, id: CheckoutSessionId) -> String {
        self.derive("css", id.ulid(), CHECKOUT_SECRET_VERSION)
    }

    /// Reads a checkout session's secret: the session, if this key derived it.
    pub fn read_checkout_secret(&self, secret: &str) -> Option<CheckoutSessionId> {
        let read = self.read("css", secret).filter(|(_, version)| *version == CHECKOUT_SECRET_VERSION);
        read.map(|(ulid, _)| CheckoutSessionId::new(ulid))
    }

    /// The secret of a webhook, `whsec_` and the base64 of 192 bits. It signs all deliveries to the webhook.
    pub fn webhook_secret(&self, id: WebhookId) -> String {
        let mac = self.mac("whsec", &format!("{}/{WEBHOOK_SECRET_VERSION}", id.ulid()));
        format!("{WEBHOOK_SECRET}{}", STANDARD.encode(&mac[..MAC_BYTES]))
    }

    /// Reads a connection secret: the connection and the version of its secret, if this key derived it.
    pub fn read_connection_secret(&self, secret: &str) -> Option<(CustomerId, u32)> {
        self.read("cons", secret).map(|(ulid, version)| (CustomerId::new(ulid), version))
    }

    /// Reads a product secret: the meter and the version of its secret, if this key derived it.
    pub fn read_product_secret(&self, secret: &str) -> Option<(MeterId, u32)> {
        self.read("prds", secret).map(|(ulid, version)| (MeterId::new(ulid), version))
    }

    fn derive(&self, prefix: &str, ulid: ulid::Ulid, version: u32) -> String {
        let mac = self.mac(prefix, &format!("{ulid}/{version}"));
        format!("{prefix}_{ulid}{version:x}.{}", URL_SAFE_NO_PAD.encode(&mac[..MAC_BYTES]))
    }

    fn read(&self, prefix: &str, secret: &str) -> Option<(ulid::Ulid, u32)> {
        let rest = secret.strip_prefix(prefix)?.strip_prefix('_')?;
        let (id, _) = rest.split_once('.')?;
        let ulid = ids::canonical_ulid(id.get(..ulid::ULID_LEN)?)?;
        let version = u32::from_str_radix(id.get(ulid::ULID_LEN..)?, 16).ok()?;
        let right = self.derive(prefix, ulid, version);
        bool::from(right.as_bytes().ct_eq(secret.as_bytes())).then_some((ulid, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_server_key_is_overwritten_when_it_is_dropped() {
        // All that it holds is of a type that overwrites itself. A field of another type does not compile here.
        fn overwrites_itself<T: ZeroizeOnDrop>(_: &T) {}
        let key = ServerKey::random();
        overwrites_itself(&key);
        let ServerKey(held) = &key;
        overwrites_itself(held);
    }

    #[test]
    fn a_derived_secret_reads_back_and_nothing_else_does() {
        let key = ServerKey::random();
        let id = CustomerId::new(ulid::Ulid::from_parts(7, 9));
        let secret = key.connection_secret(id, 3);
        assert_eq!(key.read_connection_secret(&secret), Some((id, 3)));
        assert_eq!(key.read_product_secret(&secret.replace("cons", "prds")), None);
        assert_eq!(ServerKey::random().read_connection_secret(&secret), None);
        for at in 0..secret.len() {
            let mut bytes = secret.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(key.read_connection_secret(&String::from_utf8(bytes).unwrap()), None);
        }
        assert_eq!(key.read_connection_secret(""), None);
        let session = CheckoutSessionId::new(ulid::Ulid::from_parts(7, 9));
        let secret = key.checkout_secret(session);
        assert_eq!(key.read_checkout_secret(&secret), Some(session));
        assert_eq!(key.read_checkout_secret(&key.connection_secret(id, 1)), None);
        assert_eq!(key.read_checkout_secret(&key.derive("css", session.ulid(), 2)), None);
        assert_eq!(key.read_connection_secret("cons_é"), None);
    }

    #[test]
    fn a_webhooks_secret_is_standard_base64_of_its_own() {
        let key = ServerKey::random();
        let id = WebhookId::new(ulid::Ulid::from_parts(7, 9));
        let secret = key.webhook_secret(id);
        assert_eq!(STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap().len(), MAC_BYTES);
        assert_ne!(secret, ServerKey::random().webhook_secret(id));
    }

    /// The published example of the Standard Webhooks specification's libraries.
    #[test]
    fn a_standard_signature_is_as_published() {
        let signed = sign_webhook(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed.standard, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn keys_carry_their_prefix_and_preview() {
        let key = new_secret_key(Mode::Test);
        assert!(key.reveal().starts_with("aks_test_"));
        assert_eq!(key.preview().len(), "aks_test_".len() + 8);
        assert_eq!(new_spend_key().preview().len(), "spk_".len() + 8);
        assert!(key.reveal().len() >= 9 + 36);
    }

    #[test]
    fn a_server_key_survives_its_text() {
        let key = ServerKey::random();
        assert_eq!(ServerKey::from_hex(&key.to_hex()).unwrap().to_hex(), key.to_hex());
        assert_eq!(ServerKey::from_hex(&key.to_hex().to_uppercase()).unwrap().to_hex(), key.to_hex());
        for malformed in ["zz", "", &key.to_hex()[2..], &"+1".repeat(32)] {
            assert!(ServerKey::from_hex(malformed).is_none(), "{malformed:?}");
        }
    }
}
