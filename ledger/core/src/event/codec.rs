//! The codec: reads and writes events of every kind and of every version that the log ever had.
//!
//! A golden file per kind and version (`ledger/core/tests/golden`) is never edited. An unknown kind or version is an
//! error, and nothing is ever skipped.

pub use super::kind::{Encoded, Error};
use super::{
    CheckoutEvent, CustomerEvent, Event, MerchantEvent, MeterEvent, PaymentEvent, PlanEvent, RequestEvent,
    SecretKeyEvent, SpendKeyEvent, SubscriptionEvent, WalletEvent, WebhookEvent,
};
use crate::entry::Entry;

macro_rules! areas {
    ($($area:ident($events:ident))+) => {
        /// Writes an event in the present version of its kind.
        pub fn encode(event: &Event) -> Encoded {
            match event {
                $(Event::$area(event) => event.encode(),)+
            }
        }

        /// Reads an event of any version ever written. The parts of its money add up to amounts.
        pub fn decode(kind: &str, schema_version: i32, body: &str) -> Result<Event, Error> {
            $(if let Some(event) = $events::decode(kind, schema_version, body) {
                return event.map(Event::$area).and_then(|event| adds_up(event, kind));
            })+
            Err(Error::UnknownKind(kind.to_owned()))
        }

        /// The names of all kinds.
        pub fn kinds() -> impl Iterator<Item = &'static str> {
            [$($events::KINDS),+].into_iter().flatten().copied()
        }
    };
}

areas! {
    Merchant(MerchantEvent)
    SecretKey(SecretKeyEvent)
    Customer(CustomerEvent)
    Meter(MeterEvent)
    SpendKey(SpendKeyEvent)
    Wallet(WalletEvent)
    Request(RequestEvent)
    Plan(PlanEvent)
    Subscription(SubscriptionEvent)
    Payment(PaymentEvent)
    Checkout(CheckoutEvent)
    Webhook(WebhookEvent)
}

/// Refuses an event whose parts are amounts, and whose sum is none. None was appended so.
fn adds_up(event: Event, kind: &str) -> Result<Event, Error> {
    match Entry::of(&event) {
        Ok(_) => Ok(event),
        Err(source) => Err(Error::Parts { kind: kind.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_whose_parts_add_up_to_no_amount_cannot_be_read() {
        let most = r#"{"source":"balance","amount":"1000000000000"}"#;
        let debit = |sources: &str| {
            let golden = include_str!("../../tests/golden/wallet.debited.v1.json");
            let mut body: serde_json::Value = serde_json::from_str(golden).unwrap();
            body["sources"] = serde_json::from_str(&format!("[{sources}]")).unwrap();
            decode("wallet.debited", 1, &body.to_string())
        };
        assert!(debit(most).is_ok());
        let error = debit(&format!("{most},{most}")).unwrap_err();
        assert_eq!(error.to_string(), r#"body of "wallet.debited": the sum of its parts is out of range"#);
    }

    #[test]
    fn no_two_kinds_have_the_same_name() {
        let mut names: Vec<_> = kinds().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_kind_or_version_is_an_error() {
        assert!(matches!(decode("wallet.exploded", 1, "{}"), Err(Error::UnknownKind(_))));
        assert!(matches!(decode("wallet.debited", 9, "{}"), Err(Error::UnknownVersion { .. })));
        assert!(matches!(decode("wallet.debited", 1, "{}"), Err(Error::Body { .. })));
    }

    /// Fields that were added to a version have a golden file of their own.
    #[test]
    fn fields_added_to_a_version_read_and_write_back_the_same() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        for (kind, file) in [
            ("request.opened", "request.opened.v1.priced.json"),
            ("request.metered", "request.metered.v1.cached.json"),
            ("request.metered", "request.metered.v1.hold_charged.json"),
            ("request.metered", "request.metered.v1.counted.json"),
            ("request.metered", "request.metered.v1.counted_characters.json"),
            ("request.metered", "request.metered.v1.usage_invalid.json"),
            ("meter.defined", "meter.defined.v1.max_fee.json"),
            ("payment.requested", "payment.requested.v1.card.json"),
            ("request.opened", "request.opened.v1.held.json"),
            ("request.metered", "request.metered.v1.held.json"),
            ("request.failed", "request.failed.v1.held.json"),
            ("customer.created", "customer.created.v1.literals.json"),
            ("customer.updated", "customer.updated.v1.literals.json"),
            ("webhook.created", "webhook.created.v1.name.json"),
            ("webhook.updated", "webhook.updated.v1.name.json"),
            ("subscription.updated", "subscription.updated.v1.outlasting.json"),
            ("subscription.started", "subscription.started.v1.chosen.json"),
            ("subscription.updated", "subscription.updated.v1.chosen.json"),
            ("subscription.renewed", "subscription.renewed.v1.outlasting.json"),
            ("subscription.renewal_failed", "subscription.renewal_failed.v1.awaiting.json"),
        ] {
            let golden = std::fs::read_to_string(folder.join(file)).unwrap();
            let event = decode(kind, 1, &golden).unwrap();
            assert_eq!(encode(&event).body, golden.trim_end(), "{file}");
        }
    }

    #[test]
    fn every_golden_file_reads_and_writes_back_the_same() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        for kind in kinds() {
            let path = folder.join(format!("{kind}.v1.json"));
            let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let event = decode(kind, 1, &golden).unwrap();
            assert_eq!(encode(&event).body, golden.trim_end(), "{kind}");
        }
    }
}
