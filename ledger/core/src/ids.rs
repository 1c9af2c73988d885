//! Typed identifiers: `<prefix>_<ULID>` (completion.md section 1). An id is never a bare string in a signature.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;
use zeroize::Zeroize;

/// The text is not an id of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an id of the form {prefix}_<ULID>")]
pub struct Malformed {
    prefix: &'static str,
}

/// Reads the 26 characters of a ULID in its canonical upper-case form.
pub(crate) fn canonical_ulid(text: &str) -> Option<Ulid> {
    let ulid = Ulid::from_string(text).ok()?;
    (ulid.array_to_str(&mut [0; ulid::ULID_LEN]) == text).then_some(ulid)
}

macro_rules! id {
    ($(#[$doc:meta] $name:ident $prefix:literal)+) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            /// The prefix, without its underscore.
            pub const PREFIX: &'static str = $prefix;

            /// The bytes of the text.
            const LEN: usize = Self::PREFIX.len() + 1 + ulid::ULID_LEN;

            /// The id of this ULID.
            pub const fn new(ulid: Ulid) -> Self {
                Self(ulid)
            }

            /// Writes the text, of which an event has a dozen, without the machinery of formats.
            fn text(self, buffer: &mut [u8; Self::LEN]) -> &str {
                let (prefix, ulid) = buffer.split_at_mut(Self::PREFIX.len() + 1);
                prefix.copy_from_slice(concat!($prefix, "_").as_bytes());
                let mut written = [0; ulid::ULID_LEN];
                ulid.copy_from_slice(self.0.array_to_str(&mut written).as_bytes());
                std::str::from_utf8(buffer).expect("the characters of an id are ASCII")
            }

            /// The ULID behind the prefix.
            pub const fn ulid(self) -> Ulid {
                self.0
            }

            /// When the id was created, to the millisecond.
            pub fn made_at(self) -> DateTime<Utc> {
                let ms = i64::try_from(self.0.timestamp_ms()).unwrap_or(i64::MAX);
                DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::<Utc>::MAX_UTC)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text(&mut [0; Self::LEN]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Malformed;

            fn from_str(text: &str) -> Result<Self, Malformed> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(canonical_ulid)
                    .map(Self)
                    .ok_or(Malformed { prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.text(&mut [0; Self::LEN]))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::text::parsed(deserializer)
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::openapi::text(
                    concat!("^", $prefix, "_[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
                    concat!($prefix, "_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
                    None,
                )
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}
    )+};
}

id! {
    /// A merchant.
    MerchantId "mer"
    /// A wallet: one per connection, and one of the merchant's own.
    WalletId "wal"
    /// A customer, which is also the connection: the link between a merchant and a wallet.
    CustomerId "con"
    /// A meter (formerly a product): a price.
    MeterId "prd"
    /// A request: one forwarded call.
    RequestId "req"
    /// A spend key.
    SpendKeyId "sk"
    /// A merchant's secret key.
    SecretKeyId "key"
    /// One credit of a wallet.
    CreditId "crd"
    /// A plan (formerly a subscription config).
    PlanId "sc"
    /// A credit bundle of a plan.
    CreditBundleId "cb"
    /// A customer's subscription to a plan.
    SubscriptionId "sub"
    /// A payment through the payment processor.
    PaymentId "pay"
    /// A payment method of a wallet.
    PaymentMethodId "pm"
    /// A checkout session.
    CheckoutSessionId "cs"
    /// A webhook.
    WebhookId "wh"
    /// One event delivered to one webhook.
    WebhookEventId "evt"
    /// One running gateway process.
    GatewayId "gw"
}

/// Generates ULIDs that never repeat and, within one process, always increase, so that ids sort by creation. Those of one
/// millisecond are far apart, too: the id of a webhook's event is the sum of the webhook's id and a position.
#[derive(Debug, Default)]
pub struct Mint {
    minting: std::sync::Mutex<Minting>,
}

#[derive(Debug, Default)]
struct Minting {
    last: Ulid,
    random: Random,
}

impl Mint {
    /// A new ULID for the instant `now`, greater than every earlier one of this mint.
    pub fn next(&self, now: DateTime<Utc>) -> Ulid {
        let ms = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        let mut minting = self.minting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Minting { last, random } = &mut *minting;
        let random = random.number();
        let fresh = Ulid::from_parts(ms, random);
        // The 48 bits that the fresh one leaves unused.
        let step = (random >> Ulid::RAND_BITS) + 1;
        *last = if fresh > *last { fresh } else { last.0.checked_add(step).map_or(fresh, Ulid) };
        *last
    }
}

/// The random bytes of one id.
const ID_BYTES: usize = size_of::<u128>();

/// The random bytes that are read from the operating system at once.
const READ_BYTES: usize = 64 * ID_BYTES;

/// Random numbers of the operating system, read for many ids at once. Each is used once, and its bytes are overwritten
/// before it is handed out.
struct Random {
    bytes: [u8; READ_BYTES],
    used: usize,
}

impl Random {
    fn number(&mut self) -> u128 {
        if self.used >= READ_BYTES {
            getrandom::fill(&mut self.bytes).expect("the operating system has randomness");
            self.used = 0;
        }
        let unused = &mut self.bytes[self.used..];
        let bytes = unused.first_chunk_mut::<ID_BYTES>().expect("whole numbers of bytes of an id are unused");
        let number = u128::from_be_bytes(*bytes);
        bytes.zeroize();
        self.used += ID_BYTES;
        number
    }
}

/// Without any bytes: the first ones are read with the first number.
impl Default for Random {
    fn default() -> Self {
        Self { bytes: [0; READ_BYTES], used: READ_BYTES }
    }
}

/// Does not show the bytes: they foretell ids.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = RequestId::new(Mint::default().next(DateTime::UNIX_EPOCH));
        assert_eq!(id.to_string().parse::<RequestId>().unwrap(), id);
        assert_eq!(serde_json::from_str::<RequestId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
    }

    #[test]
    fn a_malformed_id_is_refused() {
        let id = RequestId::new(Ulid::from_parts(0xab_cdef, 1)).to_string();
        for text in [&id[1..], &id[..29], &id.to_lowercase(), &id.replace("req", "con"), "req_", "", "req_\0"]
        {
            assert!(text.parse::<RequestId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn ids_of_a_mint_always_increase() {
        let mint = Mint::default();
        let now = DateTime::from_timestamp_millis(1_777_000_000_000).unwrap();
        let ids: Vec<_> = (0..1000).map(|_| mint.next(now)).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn each_random_number_is_used_once_and_then_overwritten() {
        let mut random = Random::default();
        assert_eq!(random.used, READ_BYTES, "nothing is read before it is needed");
        let mut seen = std::collections::HashSet::new();
        for number in 0..1000 {
            assert!(seen.insert(random.number()));
            assert_eq!(random.used, (number * ID_BYTES) % READ_BYTES + ID_BYTES);
            assert!(random.bytes[..random.used].iter().all(|byte| *byte == 0));
            let mut unused = random.bytes[random.used..].chunks(ID_BYTES);
            assert!(unused.all(|bytes| bytes.iter().any(|byte| *byte != 0)));
        }
        assert_eq!(format!("{random:?}"), "Random { .. }");
    }

    #[test]
    fn ids_of_a_later_millisecond_are_random_in_all_their_bits() {
        let mint = Mint::default();
        let ids = (0..1000).map(|ms| mint.next(DateTime::from_timestamp_millis(ms).unwrap()));
        let ids: Vec<_> = ids.collect();
        assert!(ids.iter().zip(0..).all(|(id, ms)| id.timestamp_ms() == ms));
        for bit in 0..Ulid::RAND_BITS {
            let set = ids.iter().filter(|id| (id.random() >> bit) & 1 == 1).count();
            assert!((350..650).contains(&set), "bit {bit} is set in {set} of 1000");
        }
    }

    #[test]
    fn ids_of_one_millisecond_are_far_apart() {
        let mint = Mint::default();
        let ids: Vec<_> = (0..100).map(|_| mint.next(DateTime::UNIX_EPOCH)).collect();
        assert!(ids.windows(2).all(|pair| pair[1].0 - pair[0].0 > 1 << 16), "{ids:?}");
    }
}
