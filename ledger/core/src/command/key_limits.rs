//! The checks of a call against the limits of its spend key (completion.md section 6). A refused call costs nothing,
//! takes no token and is not counted.

use chrono::{DateTime, Utc};

use super::refusal::{Refusal, SpendKeyRefusal};
use crate::event::{Hold, KeyUse, SpendKeyStatus};
use crate::ids::SpendKeyId;
use crate::money::Amount;
use crate::spending::Spending;
use crate::state::SpendKey;

/// An active spend key with its counters.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyLimits<'w> {
    pub(super) spend_key_id: SpendKeyId,
    pub(super) key: &'w SpendKey,
    pub(super) spending: &'w Spending,
}

impl SpendKey {
    /// Checks that the key is usable at the instant `at` of its clock ([`Spending::instant`]).
    pub fn check_usable(&self, at: DateTime<Utc>) -> Result<(), Refusal> {
        if self.settings.expires_at.is_some_and(|expires_at| expires_at <= at) {
            return Err(Refusal::SpendKey(SpendKeyRefusal::Expired));
        }
        match self.status {
            SpendKeyStatus::Active => Ok(()),
            SpendKeyStatus::Paused => Err(Refusal::SpendKey(SpendKeyRefusal::Paused)),
        }
    }
}

impl KeyLimits<'_> {
    /// Checks that the key is usable at the instant `now`.
    pub(super) fn check_key(&self, now: DateTime<Utc>) -> Result<(), Refusal> {
        self.key.check_usable(self.spending.instant(now))
    }

    /// Checks that the key allows this provider and model. An empty list allows nothing; a list of models does not
    /// allow a call that names none.
    pub(super) fn check_lists(&self, provider: &str, model: Option<&str>) -> Result<(), Refusal> {
        let settings = &self.key.settings;
        let listed = |list: &[String], name: &str| list.iter().any(|allowed| allowed == name);
        if settings.allowed_providers.as_ref().is_some_and(|list| !listed(list, provider)) {
            return Err(Refusal::SpendKey(SpendKeyRefusal::ProviderNotAllowed));
        }
        let is_allowed = |list: &Vec<String>| model.is_some_and(|model| listed(list, model));
        if settings.allowed_models.as_ref().is_some_and(|list| !is_allowed(list)) {
            return Err(Refusal::SpendKey(SpendKeyRefusal::ModelNotAllowed));
        }
        Ok(())
    }

    /// Whether the key has a spend limit, so that its calls hold an upper bound of their cost.
    pub(super) fn limits_spending(&self) -> bool {
        self.key.settings.spend_limit.is_some()
    }

    /// Checks the limits for one more call with this hold on the wallets, and with `needed` of the spend limit. Returns the
    /// use of the key to record in the call's events.
    pub(super) fn admit(&self, hold: Hold, needed: Amount, now: DateTime<Utc>) -> Result<KeyUse, Refusal> {
        let at = self.spending.instant(now);
        let settings = &self.key.settings;
        if let Some(limit) = settings.request_limit
            && self.spending.window(limit.cycle, at).requests >= limit.count
        {
            let retry_after_seconds = limit.cycle.end(at).map(|end| seconds(end - at));
            return Err(Refusal::SpendKey(SpendKeyRefusal::RequestLimitExceeded { retry_after_seconds }));
        }
        let wait_ms = self.spending.wait_ms(at);
        if wait_ms > 0 {
            return Err(Refusal::SpendKey(SpendKeyRefusal::RateLimitExceeded {
                retry_after_seconds: wait_ms.div_ceil(1_000),
            }));
        }
        if let Some(limit) = settings.spend_limit {
            let window = self.spending.window(limit.cycle, at);
            let left = limit.amount.minus(window.spent.plus(window.held)?)?;
            if needed > left {
                let left = left.max(Amount::ZERO);
                return Err(Refusal::SpendKey(SpendKeyRefusal::SpendLimitExceeded { left, needed }));
            }
        }
        let differs = needed != hold.total()?;
        Ok(KeyUse { spend_key_id: self.spend_key_id, admitted_at: at, held: differs.then_some(needed) })
    }
}

/// Whole seconds, rounded up.
fn seconds(left: chrono::Duration) -> u64 {
    u64::try_from(left.num_milliseconds()).unwrap_or(0).div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use chrono::Duration;
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Cycle, SpendKeySettings, SpendLimit};
    use crate::ids::{MerchantId, WalletId};
    use crate::secret::ServerKey;

    fn key(settings: SpendKeySettings) -> SpendKey {
        let ulid = ulid::Ulid::from_parts(1, 1);
        SpendKey {
            merchant_id: MerchantId::new(ulid),
            wallet_id: WalletId::new(ulid),
            customer_id: None,
            key_hash: ServerKey::from_hex(&"5a".repeat(32)).unwrap().hash("spk_x"),
            key_preview: String::new(),
            rotation: 0,
            revision: 0,
            status: SpendKeyStatus::Active,
            settings,
            created_at: DateTime::UNIX_EPOCH,
        }
    }

    fn cents(cents: u32) -> Amount {
        rust_decimal::Decimal::new(cents.into(), 2).to_string().parse().unwrap()
    }

    fn limits<'w>(key: &'w SpendKey, spending: &'w Spending) -> KeyLimits<'w> {
        KeyLimits { spend_key_id: SpendKeyId::new(ulid::Ulid::from_parts(1, 2)), key, spending }
    }

    /// A step of the test: a call with this hold opens, or the call with this number ends at this share of its hold.
    #[derive(Debug, Clone)]
    enum Step {
        Call { after_minutes: i64, hold_cents: u32, of_merchant: bool },
        End { call: usize, share: u32 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0_i64..600, 0_u32..60, any::<bool>()).prop_map(|(after_minutes, hold_cents, of_merchant)| {
                Step::Call { after_minutes, hold_cents, of_merchant }
            }),
            2 => (any::<usize>(), 0_u32..=4).prop_map(|(call, share)| Step::End { call, share }),
        ]
    }

    proptest! {
        #[test]
        fn where_holds_are_exact_no_cycle_ever_spends_or_holds_more_than_its_limit(
            limit_cents in 1_u32..300, cycle in 0_usize..4, steps in proptest::collection::vec(step(), 1..150),
        ) {
            let cycle = Cycle::ALL[cycle];
            let spend_limit = Some(SpendLimit { amount: cents(limit_cents), cycle });
            let key = key(SpendKeySettings { spend_limit, ..SpendKeySettings::default() });
            let mut now: DateTime<Utc> = "2026-02-26T20:00:00Z".parse().unwrap();
            let mut spending = Spending::new(None, now);
            // Hold and cost in cents, and whether the call is open.
            let mut calls: Vec<(DateTime<Utc>, Hold, u32, bool)> = Vec::new();
            for step in steps {
                match step {
                    Step::Call { after_minutes, hold_cents, of_merchant } => {
                        now += Duration::minutes(after_minutes);
                        let (wallet, merchant) =
                            if of_merchant { (0, hold_cents) } else { (hold_cents, 0) };
                        let hold = Hold { wallet: cents(wallet), merchant: cents(merchant), beside_plan: false, plan_changes: 0 };
                        let taken: u32 = calls.iter()
                            .filter(|(at, ..)| cycle.start(*at) == cycle.start(now)).map(|call| call.2).sum();
                        let admitted = limits(&key, &spending).admit(hold, hold.total().unwrap(), now);
                        prop_assert_eq!(admitted.is_ok(), taken + hold_cents <= limit_cents, "{:?}", admitted);
                        if let Ok(used) = admitted {
                            spending.admit(used.admitted_at, hold.total().unwrap()).unwrap();
                            calls.push((used.admitted_at, hold, hold_cents, true));
                        }
                    }
                    Step::End { call, share } => {
                        let Some(at) = call.checked_rem(calls.len()) else { continue };
                        let (admitted_at, hold, taken, open) = &mut calls[at];
                        if std::mem::take(open) {
                            *taken = *taken * share / 4;
                            spending.settle(*admitted_at, hold.total().unwrap(), cents(*taken)).unwrap();
                        }
                    }
                }
                prop_assert!(spending.is_sound());
                let window = spending.window(cycle, spending.instant(now));
                prop_assert!(window.spent.plus(window.held).unwrap() <= cents(limit_cents));
            }
        }
    }

    #[test]
    fn a_refusal_says_what_is_left_and_how_long_to_wait() {
        let settings = SpendKeySettings {
            spend_limit: Some(SpendLimit { amount: cents(100), cycle: Cycle::Daily }),
            request_limit: Some(crate::event::RequestLimit { count: 2, cycle: Cycle::Daily }),
            rate_limit: Some(crate::event::RateLimit { rpm: 1, burst: 1 }),
            ..SpendKeySettings::default()
        };
        let noon: DateTime<Utc> = "2026-11-21T12:00:00.001Z".parse().unwrap();
        let key = key(settings);
        let mut spending = Spending::new(key.settings.rate_limit, noon);
        let hold = |amount| Hold {
            wallet: cents(amount),
            merchant: Amount::ZERO,
            beside_plan: false,
            plan_changes: 0,
        };
        let admit =
            |spending: &Spending, amount, at| limits(&key, spending).admit(hold(amount), cents(amount), at);
        let (left, needed) = (cents(100), cents(101));
        assert_eq!(
            admit(&spending, 101, noon),
            Err(Refusal::SpendKey(SpendKeyRefusal::SpendLimitExceeded { left, needed }))
        );
        admit(&spending, 60, noon).unwrap();
        spending.admit(noon, cents(60)).unwrap();
        let soon = noon + Duration::seconds(59);
        assert_eq!(
            admit(&spending, 1, soon),
            Err(Refusal::SpendKey(SpendKeyRefusal::RateLimitExceeded { retry_after_seconds: 1 }))
        );
        let later = noon + Duration::seconds(60);
        let (left, needed) = (cents(40), cents(41));
        assert_eq!(
            admit(&spending, 41, later),
            Err(Refusal::SpendKey(SpendKeyRefusal::SpendLimitExceeded { left, needed }))
        );
        admit(&spending, 40, later).unwrap();
        spending.admit(later, cents(40)).unwrap();
        let until_midnight = Some(12 * 3_600 - 60);
        let full =
            Refusal::SpendKey(SpendKeyRefusal::RequestLimitExceeded { retry_after_seconds: until_midnight });
        assert_eq!(admit(&spending, 0, later), Err(full));
        admit(&spending, 100, "2026-11-22T00:00:00Z".parse().unwrap()).unwrap();
    }

    #[test]
    fn an_empty_list_allows_nothing_and_a_call_without_a_model_is_not_on_a_list() {
        let lists = |models: Option<&[&str]>, providers: Option<&[&str]>| {
            let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            key(SpendKeySettings {
                allowed_models: models.map(owned),
                allowed_providers: providers.map(owned),
                ..SpendKeySettings::default()
            })
        };
        let spending = Spending::new(None, DateTime::UNIX_EPOCH);
        for (key, model, expected) in [
            (lists(None, None), None, Ok(())),
            (lists(Some(&["m"]), Some(&["openai"])), Some("m"), Ok(())),
            (lists(Some(&["m"]), None), Some("M"), Err(Refusal::SpendKey(SpendKeyRefusal::ModelNotAllowed))),
            (lists(Some(&["m"]), None), None, Err(Refusal::SpendKey(SpendKeyRefusal::ModelNotAllowed))),
            (lists(Some(&[]), None), Some("m"), Err(Refusal::SpendKey(SpendKeyRefusal::ModelNotAllowed))),
            (lists(None, Some(&[])), Some("m"), Err(Refusal::SpendKey(SpendKeyRefusal::ProviderNotAllowed))),
            (
                lists(None, Some(&["other"])),
                Some("m"),
                Err(Refusal::SpendKey(SpendKeyRefusal::ProviderNotAllowed)),
            ),
        ] {
            assert_eq!(limits(&key, &spending).check_lists("openai", model), expected, "{:?}", key.settings);
        }
    }
}
