//! The codec: the only place that knows how events are written in the log, and every version they ever had.
//!
//! Adding an optional field keeps a version. Any other change is a new version: the old struct is frozen here and
//! [`Kind::read`] lifts it to the present one. A golden file per kind and version (`ledger/tests/golden`) is
//! never edited. An unknown kind or version is an error, and nothing is ever skipped.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    AutopayChanged, BundlePurchased, CheckoutSessionCompleted, CheckoutSessionCreated, ClockAdvanced,
    CreditBundleCreated, CreditBundleDeleted, CreditBundleUpdated, CustomerCreated, CustomerDeleted,
    CustomerUpdated, CycleEnded, Event, KeyRotated, MerchantRegistered, MeterDefined, MeterDeleted,
    MeterUpdated, PaymentDeclined, PaymentMethodAdded, PaymentRequested, PaymentSucceeded, PaymentVoided,
    PlanCreated, PlanDeleted, PlanUpdated, RenewalFailed, RequestFailed, RequestMetered, RequestOpened,
    SecretKeyIssued, SecretKeyRevoked, SpendKeyCreated, SpendKeyDeleted, SpendKeyUpdated,
    SubscriptionCancelled, SubscriptionRenewed, SubscriptionStarted, SubscriptionUpdated,
    SubscriptionUpgraded, WalletCredited, WalletDebited, WebhookCreated, WebhookDeleted, WebhookUpdated,
};

/// An event that this program cannot read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kind that this program does not know.
    #[error("event kind {0:?} is unknown")]
    UnknownKind(String),
    /// A version of a known kind that this program does not know.
    #[error("version {version} of event kind {kind:?} is unknown")]
    UnknownVersion {
        /// The kind.
        kind: &'static str,
        /// The version found.
        version: i32,
    },
    /// The body does not have the shape of its kind and version.
    #[error("body of {kind:?} version {version}: {source}")]
    Body {
        /// The kind.
        kind: &'static str,
        /// The version found.
        version: i32,
        /// What the reader says.
        source: serde_json::Error,
    },
}

/// A kind of event: its name in the log and the version it is written in today.
trait Kind: Serialize + DeserializeOwned {
    /// The name in the log.
    const NAME: &'static str;
    /// The version written today.
    const VERSION: i32 = 1;

    /// Reads a body of any version ever written, lifting old ones to today's shape.
    fn read(version: i32, body: &str) -> Result<Self, Error> {
        if version != Self::VERSION {
            return Err(Error::UnknownVersion { kind: Self::NAME, version });
        }
        parse::<Self, Self>(version, body)
    }
}

/// Parses `body` as the frozen shape `Shape` of the kind `K`.
fn parse<K: Kind, Shape: DeserializeOwned>(version: i32, body: &str) -> Result<Shape, Error> {
    serde_json::from_str(body).map_err(|source| Error::Body { kind: K::NAME, version, source })
}

/// An event as it is written in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The kind's name.
    pub kind: &'static str,
    /// The version of the body's shape.
    pub schema_version: i32,
    /// JSON text; these exact bytes are stored and hashed.
    pub body: String,
}

macro_rules! kinds {
    ($($event:ident $name:literal)+) => {
        $(impl Kind for $event { const NAME: &'static str = $name; })+

        /// The names of all kinds.
        pub const KINDS: &[&str] = &[$($name),+];

        /// Writes an event in today's version of its kind.
        pub fn encode(event: &Event) -> Encoded {
            match event {
                $(Event::$event(body) => write::<$event>(body),)+
            }
        }

        /// Reads an event of any version ever written.
        pub fn decode(kind: &str, schema_version: i32, body: &str) -> Result<Event, Error> {
            match kind {
                $($name => $event::read(schema_version, body).map(|body| Event::$event(body.into())),)+
                unknown => Err(Error::UnknownKind(unknown.to_owned())),
            }
        }
    };
}

kinds! {
    MerchantRegistered "merchant.registered"
    SecretKeyIssued "secret_key.issued"
    SecretKeyRevoked "secret_key.revoked"
    CustomerCreated "customer.created"
    CustomerUpdated "customer.updated"
    CustomerDeleted "customer.deleted"
    MeterDefined "meter.defined"
    MeterUpdated "meter.updated"
    MeterDeleted "meter.deleted"
    SpendKeyCreated "spend_key.created"
    KeyRotated "key.rotated"
    SpendKeyUpdated "spend_key.updated"
    SpendKeyDeleted "spend_key.deleted"
    WalletCredited "wallet.credited"
    RequestOpened "request.opened"
    RequestMetered "request.metered"
    WalletDebited "wallet.debited"
    RequestFailed "request.failed"
    ClockAdvanced "clock.advanced"
    PlanCreated "plan.created"
    PlanUpdated "plan.updated"
    PlanDeleted "plan.deleted"
    CreditBundleCreated "credit_bundle.created"
    CreditBundleUpdated "credit_bundle.updated"
    CreditBundleDeleted "credit_bundle.deleted"
    SubscriptionStarted "subscription.started"
    SubscriptionUpdated "subscription.updated"
    CycleEnded "subscription.cycle_ended"
    SubscriptionRenewed "subscription.renewed"
    RenewalFailed "subscription.renewal_failed"
    SubscriptionUpgraded "subscription.upgraded"
    SubscriptionCancelled "subscription.cancelled"
    BundlePurchased "bundle.purchased"
    PaymentMethodAdded "payment_method.added"
    AutopayChanged "wallet.autopay_changed"
    PaymentRequested "payment.requested"
    PaymentSucceeded "payment.succeeded"
    PaymentDeclined "payment.declined"
    PaymentVoided "payment.voided"
    CheckoutSessionCreated "checkout_session.created"
    CheckoutSessionCompleted "checkout_session.completed"
    WebhookCreated "webhook.created"
    WebhookUpdated "webhook.updated"
    WebhookDeleted "webhook.deleted"
}

fn write<K: Kind>(body: &K) -> Encoded {
    let body = serde_json::to_string(body).expect("event bodies have string keys and finite numbers");
    Encoded { kind: K::NAME, schema_version: K::VERSION, body }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A kind whose first version called its field otherwise: shows that the chain of versions works.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Renamed {
        amount: String,
    }

    #[derive(Deserialize)]
    struct RenamedV1 {
        sum: String,
    }

    impl Kind for Renamed {
        const NAME: &'static str = "test.renamed";
        const VERSION: i32 = 2;

        fn read(version: i32, body: &str) -> Result<Self, Error> {
            match version {
                1 => parse::<Self, RenamedV1>(version, body).map(|old| Self { amount: old.sum }),
                2 => parse::<Self, Self>(version, body),
                version => Err(Error::UnknownVersion { kind: Self::NAME, version }),
            }
        }
    }

    #[test]
    fn an_old_version_is_lifted_and_an_unknown_one_refused() {
        let now = Renamed { amount: "1".into() };
        assert_eq!(Renamed::read(1, r#"{"sum":"1"}"#).unwrap(), now);
        assert_eq!(Renamed::read(2, &write(&now).body).unwrap(), now);
        assert!(matches!(Renamed::read(3, "{}"), Err(Error::UnknownVersion { version: 3, .. })));
    }

    #[test]
    fn an_unknown_kind_or_version_is_an_error() {
        assert!(matches!(decode("wallet.exploded", 1, "{}"), Err(Error::UnknownKind(_))));
        assert!(matches!(decode("wallet.debited", 9, "{}"), Err(Error::UnknownVersion { .. })));
        assert!(matches!(decode("wallet.debited", 1, "{}"), Err(Error::Body { .. })));
    }

    /// Fields that were added to a version: a file with them stands beside the one without.
    #[test]
    fn fields_added_to_a_version_read_and_write_back_the_same() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        for (kind, file) in [
            ("request.opened", "request.opened.v1.priced.json"),
            ("request.metered", "request.metered.v1.cached.json"),
            ("payment.requested", "payment.requested.v1.card.json"),
        ] {
            let golden = std::fs::read_to_string(folder.join(file)).unwrap();
            let event = decode(kind, 1, &golden).unwrap();
            assert_eq!(encode(&event).body, golden.trim_end(), "{file}");
        }
    }

    #[test]
    fn every_golden_file_reads_and_writes_back_the_same() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        for kind in KINDS {
            let path = folder.join(format!("{kind}.v1.json"));
            let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let event = decode(kind, 1, &golden).unwrap();
            assert_eq!(encode(&event).body, golden.trim_end(), "{kind}");
        }
    }
}
