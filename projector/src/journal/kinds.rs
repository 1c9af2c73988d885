//! The numbers of the kinds of events, and sets of kinds.

/// The kinds by their numbers, which stand in rows: a new kind is added at the end.
const NUMBERED: [&str; 44] = [
    "merchant.registered",
    "clock.advanced",
    "secret_key.issued",
    "secret_key.revoked",
    "customer.created",
    "customer.updated",
    "customer.deleted",
    "meter.defined",
    "meter.updated",
    "meter.deleted",
    "spend_key.created",
    "key.rotated",
    "spend_key.updated",
    "spend_key.deleted",
    "wallet.credited",
    "wallet.debited",
    "wallet.autopay_changed",
    "request.opened",
    "request.metered",
    "request.failed",
    "plan.created",
    "plan.updated",
    "plan.deleted",
    "credit_bundle.created",
    "credit_bundle.updated",
    "credit_bundle.deleted",
    "subscription.started",
    "subscription.updated",
    "subscription.cycle_ended",
    "subscription.renewed",
    "subscription.renewal_failed",
    "subscription.upgraded",
    "subscription.cancelled",
    "bundle.purchased",
    "payment_method.added",
    "payment.requested",
    "payment.succeeded",
    "payment.declined",
    "payment.voided",
    "checkout_session.created",
    "checkout_session.completed",
    "webhook.created",
    "webhook.updated",
    "webhook.deleted",
];

/// A set of kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds(u64);

impl Kinds {
    /// All kinds.
    pub const ALL: Self = Self(u64::MAX);

    /// The set of the kinds with these names; `None` if one is no kind.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        names.into_iter().try_fold(Self::default(), |kinds, name| {
            let number = NUMBERED.iter().position(|kind| *kind == name)?;
            Some(Self(kinds.0 | (1 << number)))
        })
    }

    /// Whether the kind with this number is one of them.
    pub(super) const fn contains(self, number: u8) -> bool {
        number < 64 && self.0 & (1 << number) != 0
    }

    /// As the column `kinds`: a bit for each kind, by its number.
    pub(super) const fn bits(self) -> i64 {
        self.0.cast_signed()
    }

    /// The kinds that are in both.
    pub(super) const fn among(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The kinds of either.
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set of the kind with this number alone.
    pub(super) const fn only(number: u8) -> Self {
        Self(1 << number)
    }
}

/// The number of a kind.
pub(super) fn number(kind: &str) -> u8 {
    let number = NUMBERED.iter().position(|numbered| *numbered == kind);
    number.and_then(|number| u8::try_from(number).ok()).expect("every kind has a number")
}

#[cfg(test)]
mod tests {
    use farthing_core::event::codec;

    use super::*;

    #[test]
    fn every_kind_has_a_number_for_good() {
        const { assert!(NUMBERED.len() <= 64) };
        let mut numbers: Vec<_> = codec::kinds().map(number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..).take(NUMBERED.len()).collect::<Vec<_>>());
        for (kind, expected) in [("merchant.registered", 0), ("request.opened", 17), ("webhook.deleted", 43)]
        {
            assert_eq!(number(kind), expected, "{kind}");
        }
    }

    #[test]
    fn a_set_has_the_kinds_that_were_named() {
        let kinds = Kinds::named(["wallet.credited", "wallet.debited"]).unwrap();
        let contained: Vec<_> = codec::kinds().filter(|kind| kinds.contains(number(kind))).collect();
        assert_eq!(contained, ["wallet.credited", "wallet.debited"]);
        assert_eq!(Kinds::named(["wallet.exploded"]), None);
        assert!(Kinds::ALL.contains(63) && !Kinds::ALL.contains(64));
    }
}
