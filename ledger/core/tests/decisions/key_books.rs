//! Books of one spend key: a plain list of its calls, from which every limit is counted.

use chrono::{DateTime, Datelike as _, Duration, NaiveTime, Utc};
use farthing_core::command::{OpenRequest, Refusal, SpendKeyRefusal};
use farthing_core::event::{Cycle, RateLimit, SpendKeySettings, SpendKeyStatus};
use farthing_core::ids::RequestId;
use farthing_core::money::Amount;
use farthing_core::spending::Spending;
use rust_decimal::Decimal;

/// A call on the key.
#[derive(Debug)]
struct Call {
    id: RequestId,
    at: DateTime<Utc>,
    held: Decimal,
    spent: Decimal,
}

/// The key.
#[derive(Debug)]
pub(crate) struct KeyBooks {
    settings: SpendKeySettings,
    status: SpendKeyStatus,
    calls: Vec<Call>,
    /// The present rate limit and the calls admitted under it.
    limited_since: DateTime<Utc>,
}

/// The start of the cycle around `at`, counted in days and without the ledger's code.
fn start_of(cycle: Cycle, at: DateTime<Utc>) -> DateTime<Utc> {
    let mut day = at.date_naive();
    let is_first = |day: chrono::NaiveDate| match cycle {
        Cycle::Daily => true,
        Cycle::Weekly => day.weekday() == chrono::Weekday::Mon,
        Cycle::Monthly => day.day() == 1,
        Cycle::Total => day.num_days_from_ce() <= DateTime::UNIX_EPOCH.num_days_from_ce(),
    };
    while !is_first(day) {
        day = day.pred_opt().unwrap();
    }
    day.and_time(NaiveTime::MIN).and_utc()
}

impl KeyBooks {
    pub(crate) fn new(settings: SpendKeySettings, at: DateTime<Utc>) -> Self {
        Self { settings, status: SpendKeyStatus::Active, calls: Vec::new(), limited_since: at }
    }

    pub(crate) fn update(&mut self, status: SpendKeyStatus, settings: SpendKeySettings, at: DateTime<Utc>) {
        if settings.rate_limit != self.settings.rate_limit {
            self.limited_since = at;
        }
        self.status = status;
        self.settings = settings;
    }

    fn in_cycle(&self, cycle: Cycle, at: DateTime<Utc>) -> impl Iterator<Item = &Call> {
        let start = start_of(cycle, at);
        self.calls.iter().filter(move |call| call.at >= start)
    }

    pub(crate) fn admit(&mut self, id: RequestId, at: DateTime<Utc>, held: Amount) {
        assert!(self.calls.last().is_none_or(|last| last.at <= at), "the key's clock runs backwards");
        assert_eq!(self.status, SpendKeyStatus::Active);
        self.calls.push(Call { id, at, held: held.decimal(), spent: Decimal::ZERO });
        if let Some(limit) = self.settings.spend_limit {
            let taken: Decimal = self.in_cycle(limit.cycle, at).map(|call| call.held + call.spent).sum();
            assert!(taken <= limit.amount.decimal(), "{taken} spent and held of {}", limit.amount);
        }
        if let Some(limit) = self.settings.request_limit {
            assert!(self.in_cycle(limit.cycle, at).count() as u64 <= limit.count);
        }
        if let Some(limit) = self.settings.rate_limit {
            self.check_rate(limit, at);
        }
    }

    /// Checks that no span that ends now has more calls than burst and refill.
    fn check_rate(&self, limit: RateLimit, at: DateTime<Utc>) {
        let under_it: Vec<_> = self.calls.iter().filter(|call| call.at >= self.limited_since).collect();
        for (index, call) in under_it.iter().enumerate() {
            let ms = u64::try_from((at - call.at).num_milliseconds()).unwrap();
            let count = (under_it.len() - index) as u64;
            assert!(count * 60_000 <= limit.burst * 60_000 + limit.rpm * ms, "{count} calls in {ms} ms");
        }
    }

    pub(crate) fn settle(&mut self, id: RequestId, cost: Amount) {
        let call = self.calls.iter_mut().find(|call| call.id == id).expect("only an admitted call ends");
        call.held = Decimal::ZERO;
        call.spent = cost.decimal();
    }

    /// Checks all limits but money and tokens, which depend on holds and earlier limits.
    pub(crate) fn may_be_admitted(&self, call: &OpenRequest) -> Result<(), Refusal> {
        let settings = &self.settings;
        if settings.expires_at.is_some_and(|at| at <= call.now) {
            return Err(Refusal::SpendKey(SpendKeyRefusal::Expired));
        }
        if self.status == SpendKeyStatus::Paused {
            return Err(Refusal::SpendKey(SpendKeyRefusal::Paused));
        }
        if settings.allowed_providers.as_ref().is_some_and(|list| !list.contains(&call.provider)) {
            return Err(Refusal::SpendKey(SpendKeyRefusal::ProviderNotAllowed));
        }
        let model = call.model.as_ref();
        if settings
            .allowed_models
            .as_ref()
            .is_some_and(|list| !model.is_some_and(|model| list.contains(model)))
        {
            return Err(Refusal::SpendKey(SpendKeyRefusal::ModelNotAllowed));
        }
        if let Some(limit) = settings.request_limit
            && self.in_cycle(limit.cycle, call.now).count() as u64 >= limit.count
        {
            let end = match limit.cycle {
                Cycle::Daily => Some(start_of(limit.cycle, call.now) + Duration::days(1)),
                Cycle::Weekly => Some(start_of(limit.cycle, call.now) + Duration::days(7)),
                // The first of the next month is at most 31 days away.
                Cycle::Monthly => {
                    let next = start_of(limit.cycle, call.now) + Duration::days(31);
                    Some(start_of(limit.cycle, next))
                }
                Cycle::Total => None,
            };
            let left = end.map(|end| u64::try_from((end - call.now).num_milliseconds()).unwrap());
            return Err(Refusal::SpendKey(SpendKeyRefusal::RequestLimitExceeded {
                retry_after_seconds: left.map(|ms| ms.div_ceil(1_000)),
            }));
        }
        Ok(())
    }

    /// Checks that the ledger's counters of every cycle agree with the list of calls.
    pub(crate) fn check(&self, spending: &Spending, now: DateTime<Utc>) {
        for cycle in Cycle::ALL {
            let window = spending.window(cycle, spending.instant(now));
            let calls: Vec<_> = self.in_cycle(cycle, now).collect();
            assert_eq!(window.requests, calls.len() as u64, "calls of {cycle:?}");
            assert_eq!(window.spent.decimal(), calls.iter().map(|call| call.spent).sum::<Decimal>());
            assert_eq!(window.held.decimal(), calls.iter().map(|call| call.held).sum::<Decimal>());
        }
        assert_eq!(spending.last_used_at, self.calls.last().map(|call| call.at));
    }
}
