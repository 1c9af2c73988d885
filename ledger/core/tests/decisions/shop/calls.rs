//! Actions on calls: opened, settled and reported.

use std::collections::BTreeMap;

use farthing_core::command::{
    Billing, Caller, Command as _, Completeness, CustomerRef, CustomerRefusal, DecideError, Failed, MeterRef,
    MeterRefusal, Metered, OpenRequest, Refusal, ReportRequest, Reported, RequestRefusal, RequestSettings,
    SettleRequest, Settled, SpendKeyRefusal, WalletRefusal,
};
use farthing_core::event::{Charge, Event, FailureReason, Hold, Mark, ProviderKeyType, RequestEvent};
use farthing_core::ids::{GatewayId, RequestId};
use farthing_core::meter::RateType;
use farthing_core::model_price::ListPrice;
use farthing_core::pricing::{Fee, SizeHint};
use farthing_core::secret::KeyHash;
use farthing_core::state::EvolveError;
use farthing_core::usage::{Counted, Usage};
use rust_decimal::Decimal;
use ulid::Ulid;

use super::{KeyOf, Shop, pick};
use crate::actions::{Asked, Ended, USUAL_BY_ID};

impl Shop {
    pub(super) fn command_on_key(&mut self, hash: KeyHash, model: String, asked: &Asked) -> OpenRequest {
        let command = self.open_command(0, None, None, USUAL_BY_ID, asked);
        OpenRequest { caller: Caller::SpendKey(hash), model: Some(model), ..command }
    }

    pub(super) fn open_on_key(&mut self, key: u8, model: u8, asked: &Asked, model_limit: Option<u32>) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let hash = self.spend_keys[at].hash.clone();
        let mut command = self.command_on_key(hash, format!("model-{}", model % 2), asked);
        command.size.model_output_tokens = model_limit.map(u64::from);
        let KeyOf { merchant, customer, id, is_deleted, .. } = self.spend_keys[at];
        command.merchant_id = self.merchants[merchant].id;
        let is_dead = is_deleted || customer.is_some_and(|id| self.deleted_customers.contains(&id));
        // The books decide whether the call is admitted; a refusal must have a reason that they show.
        let may = self.books.may_be_admitted(id, &command);
        let before = self.till.facts.len();
        match self.execute(&command) {
            Ok(opened) => {
                assert!(!is_dead, "a deleted key works");
                assert_eq!(opened.merchant_id, self.merchants[merchant].id);
                assert_eq!(may, Ok(()));
                self.requests.push(command);
            }
            Err(Refusal::SpendKey(SpendKeyRefusal::Invalid)) => assert!(is_dead),
            Err(Refusal::SpendKey(SpendKeyRefusal::SpendLimitExceeded { left, needed })) => {
                // Calls that cost more than their bound can take a key beyond its limit: then no call fits.
                assert!(left < needed || left.is_zero());
            }
            Err(Refusal::Request(RequestRefusal::ModelNotPriced)) => {
                assert_eq!((asked.key, &asked.list_price), (ProviderKeyType::Managed, &ListPrice::Unlisted));
            }
            Err(Refusal::Wallet(WalletRefusal::InsufficientBalance { available, needed, .. })) => {
                assert!(available < needed);
            }
            Err(Refusal::SpendKey(SpendKeyRefusal::RateLimitExceeded { retry_after_seconds })) => {
                assert!(retry_after_seconds > 0);
            }
            Err(refusal) => assert_eq!(may, Err(refusal)),
        }
        if let Some(fact) = self.till.facts.get(before) {
            let Event::Request(RequestEvent::Opened(event)) = &fact.event else { panic!("{fact:?}") };
            let used = event.spend_key.unwrap();
            assert_eq!(used.spend_key_id, id);
            // What the call can be charged, if its usage does not become known, is part of what it takes of the limit.
            assert!(used.held(event.hold).unwrap() >= event.hold.total().unwrap(), "{event:?}");
        }
    }

    pub(super) fn open_command(
        &mut self,
        merchant: u8,
        customer: Option<u8>,
        meter: Option<u8>,
        shape: u8,
        asked: &Asked,
    ) -> OpenRequest {
        let customer = customer.and_then(|number| pick(&self.customers, number)).map(|at| {
            let (_, id, _, reference) = &self.customers[at];
            match (shape & 3, reference) {
                (0, Some(reference)) => CustomerRef::Reference(reference.clone()),
                (1, _) => CustomerRef::Secret(*id),
                _ => CustomerRef::Id(*id),
            }
        });
        let meter = meter.and_then(|number| pick(&self.meters, number)).map(|at| {
            let (_, id, slug) = &self.meters[at];
            match (shape >> 2) & 3 {
                0 => MeterRef::Slug(slug.clone()),
                1 => MeterRef::Secret(*id),
                _ => MeterRef::Id(*id),
            }
        });
        let metering_only = customer.is_none() && meter.is_none() && shape & 16 != 0;
        let billing = match (metering_only, shape >> 5) {
            (true, _) => Billing::MeteringOnly,
            (false, 0) => Billing::Disabled,
            (false, _) => Billing::Usual,
        };
        OpenRequest {
            request_id: RequestId::new(self.ulid()),
            gateway_id: GatewayId::new(Ulid::from_parts(1, 1)),
            merchant_id: self.merchants[usize::from(merchant)].id,
            caller: Caller::SecretKey(self.merchants[usize::from(merchant)].secret_key.clone()),
            customer,
            meter,
            billing,
            provider: "other".into(),
            provider_key_type: asked.key,
            endpoint: "POST http://provider.example/".into(),
            model: None,
            list_price: asked.list_price.clone(),
            metadata: BTreeMap::new(),
            size: SizeHint {
                max_output_tokens: asked.output_limit.map(u64::from),
                input_bytes: 1_000,
                ..SizeHint::default()
            },
            settings: RequestSettings {
                service_charge_rate: Decimal::new(19, 3),
                default_hold: "0.25".parse().unwrap(),
                hold_cap: "1".parse().unwrap(),
            },
            now: self.now,
        }
    }

    /// Returns whether the customer and the meter are not the merchant's.
    pub(super) fn foreign(
        &self,
        merchant: usize,
        customer: Option<&CustomerRef>,
        meter: Option<&MeterRef>,
    ) -> (bool, bool) {
        let mut customers = self
            .customers
            .iter()
            .filter(|(of, id, ..)| *of == merchant && !self.deleted_customers.contains(id));
        let mut meters =
            self.meters.iter().filter(|(of, id, _)| *of == merchant && !self.deleted_meters.contains(id));
        let no_customer = customer.is_some_and(|customer| {
            !customers.any(|(_, id, _, reference)| match customer {
                CustomerRef::Id(wanted) | CustomerRef::Secret(wanted) => id == wanted,
                CustomerRef::Reference(wanted) => reference.as_ref() == Some(wanted),
            })
        });
        let no_meter = meter.is_some_and(|meter| {
            !meters.any(|(_, id, slug)| match meter {
                MeterRef::Id(wanted) | MeterRef::Secret(wanted) => id == wanted,
                MeterRef::Slug(wanted) => slug == wanted,
            })
        });
        (no_customer, no_meter)
    }

    pub(super) fn open_request(&mut self, command: OpenRequest) -> bool {
        let Caller::SecretKey(secret_key) = &command.caller else { panic!("not a merchant's call") };
        let merchant = self.merchants.iter().position(|merchant| merchant.secret_key == *secret_key).unwrap();
        let (foreign_customer, foreign_meter) =
            self.foreign(merchant, command.customer.as_ref(), command.meter.as_ref());
        let before = self.till.facts.len();
        let managed = command.provider_key_type == ProviderKeyType::Managed;
        let unpriced =
            Some(command.list_price.clone()).filter(|list_price| *list_price == ListPrice::Unlisted);
        let answer = self.execute(&command);
        match &answer {
            Ok(opened) => {
                assert!(!managed || unpriced.is_none(), "a managed call without a price");
                assert!(!foreign_customer && !foreign_meter, "admitted on another merchant's things");
                assert_eq!(opened.merchant_id, self.merchants[merchant].id);
                self.requests.push(command);
            }
            Err(refusal) => {
                assert_eq!(self.till.facts.len(), before);
                match refusal {
                    Refusal::Customer(CustomerRefusal::NotFound | CustomerRefusal::SecretInvalid) => {
                        assert!(foreign_customer);
                    }
                    Refusal::Meter(MeterRefusal::NotFound | MeterRefusal::SecretInvalid) => {
                        assert!(foreign_meter);
                    }
                    Refusal::Request(RequestRefusal::ModelNotPriced) => {
                        assert_eq!(unpriced, Some(ListPrice::Unlisted));
                    }
                    Refusal::Wallet(WalletRefusal::InsufficientBalance { available, needed, .. }) => {
                        assert!(available < needed);
                    }
                    other => panic!("unexpected refusal: {other}"),
                }
            }
        }
        answer.is_ok()
    }

    /// Opens an open request again: the states refuse the whole append.
    pub(super) fn reopen(&mut self, request: u8) {
        let Some(at) = pick(&self.requests, request) else { return };
        let command = self.requests[at].clone();
        // If the state is not known, the log's unique key refuses it.
        if !self.till.states.request(command.request_id).is_ok_and(|open| open.is_some()) {
            return;
        }
        let decision = loop {
            match command.decide(&self.till.states) {
                Ok(decision) => break decision,
                Err(DecideError::Missing(missing)) => self.till.load(missing),
                Err(DecideError::Refused(_)) => return,
            }
        };
        loop {
            match self.till.states.evolve(&decision.facts) {
                Ok(()) => panic!("a request was opened twice"),
                Err(EvolveError::Missing(missing)) => self.till.load(missing),
                Err(EvolveError::InvariantBroken(_)) => break,
            }
        }
        assert_eq!(self.till.states.take_changes(), [], "all or nothing");
    }

    pub(super) fn settle(&mut self, request: u8, how: &Ended) {
        let Some(at) = pick(&self.requests, request) else { return };
        let request_id = self.requests[at].request_id;
        let was_open = self.books.open.contains_key(&request_id);
        // Nobody pays for a call that is only metered.
        let opened = self.books.open.get(&request_id);
        let is_managed = opened.is_some_and(|opened| {
            opened.provider_key_type == ProviderKeyType::Managed && opened.charge != Charge::MeteringOnly
        });
        let is_priced = opened.is_some_and(|opened| opened.model_price.is_some());
        // A percentage of a price per call may be above the largest fee of its meter without any usage.
        let may_be_above_max = opened.and_then(|opened| opened.terms.as_ref()).is_some_and(|terms| {
            terms.price.rate_type == RateType::Percentage && terms.price.max_fee.is_some()
        });
        let usage = match how {
            Ended::Reported { usage, .. } => Some(*usage),
            Ended::Left { usage } => *usage,
            Ended::Silent | Ended::Unread | Ended::Failed => None,
        };
        let settled = match how {
            Ended::Failed => Settled::Failed(Failed::because(FailureReason::ProviderGone)),
            Ended::Silent | Ended::Unread | Ended::Left { .. } | Ended::Reported { .. } => {
                Settled::Metered(Metered {
                    http_status: 200,
                    usage,
                    ending: match how {
                        Ended::Reported { ending, .. } => *ending,
                        Ended::Unread => Completeness::Unread,
                        Ended::Left { .. } => Completeness::GivenUp(FailureReason::CallerGone),
                        Ended::Silent | Ended::Failed => Completeness::Whole,
                    },
                    // More or less than the hold, by the number of the request.
                    counted: matches!(how, Ended::Left { .. }).then(|| {
                        let number = u64::from(request);
                        // The characters of a call are counted, or its tokens.
                        if number.is_multiple_of(4) {
                            Counted { characters: number, ..Counted::default() }
                        } else {
                            Counted { input: number, output: number << 8, ..Counted::default() }
                        }
                    }),
                    raw_usage: None,
                    response_id: None,
                    model: None,
                    provider_timestamp: None,
                })
            }
        };
        let before = self.till.facts.len();
        let is_to_be_metered = matches!(settled, Settled::Metered(_));
        let answer = self.execute(&SettleRequest { request_id, settled, now: self.now });
        if !was_open {
            assert_eq!(answer, Err(Refusal::Request(RequestRefusal::NotOpen)), "settled twice");
            return;
        }
        let unmetered = answer.expect("an open request can always be ended");
        let failed = match &self.till.facts[before].event {
            Event::Request(RequestEvent::Failed(failed)) => Some(failed.reason),
            _ => None,
        };
        assert_eq!(unmetered, failed.filter(|_| is_to_be_metered), "the answer says what was appended");
        match (&self.till.facts[before].event, how) {
            (Event::Request(RequestEvent::Metered(event)), Ended::Reported { .. } | Ended::Left { .. })
                if event.marks.contains(&Mark::UsageInvalid) =>
            {
                assert!(is_managed && is_priced, "only managed calls");
                // A usage whose fee alone is too high is recorded, without the fee.
                let is_without_fee = event.usage == usage.unwrap_or_default() && event.fee == Fee::default();
                assert!(is_without_fee || event.usage == Usage::default(), "{event:?}");
                assert!(
                    event.total_request_cost >= event.model_cost.total,
                    "the provider is paid: {event:?}"
                );
            }
            (Event::Request(RequestEvent::Metered(event)), Ended::Unread) => {
                assert_eq!(event.usage, Usage::default());
                assert!(is_managed || !event.marks.contains(&Mark::HoldCharged), "only managed calls");
                let paid = event.total_request_cost;
                assert!(!is_managed || paid >= event.model_cost.total, "the provider is paid: {event:?}");
            }
            (Event::Request(RequestEvent::Metered(event)), Ended::Left { .. }) => {
                assert!(event.marks.contains(&Mark::Partial));
                assert_eq!(event.usage, usage.unwrap_or_default());
                let held = event.hold.wallet.plus(event.hold.merchant).unwrap();
                let paid = event.total_request_cost;
                let is_of_hold = event.marks.contains(&Mark::HoldCharged);
                assert!(!is_of_hold || (is_managed && is_priced), "only managed calls");
                assert!(!is_managed || paid >= event.model_cost.total, "the provider is paid: {event:?}");
                assert!(event.counted.is_none() || (is_managed && is_priced), "{event:?}");
                let fees = event.fee.amount.plus(event.service_charge.amount).unwrap();
                let owed = held.max(event.model_cost.total.plus(fees).unwrap());
                let is_counted =
                    !(is_managed && is_priced) && (event.units > Decimal::ZERO || fees.is_positive());
                assert!(usage.is_some() || is_counted || (is_managed && is_priced), "{event:?}");
                assert!(usage.is_some() || paid <= owed, "{event:?}");
            }
            (Event::Request(RequestEvent::Failed(event)), Ended::Left { usage: None }) => {
                assert_eq!(event.reason, FailureReason::CallerGone);
                assert!(!(is_managed && is_priced), "no managed call is free");
            }
            (Event::Request(RequestEvent::Metered(event)), Ended::Reported { .. } | Ended::Silent) => {
                assert!(!event.marks.contains(&Mark::HoldCharged));
                assert_eq!(event.usage, usage.unwrap_or_default());
            }
            (Event::Request(RequestEvent::Failed(event)), Ended::Failed) => {
                assert_eq!(event.reason, FailureReason::ProviderGone);
            }
            (
                Event::Request(RequestEvent::Failed(event)),
                Ended::Reported { .. } | Ended::Left { usage: Some(_) } | Ended::Silent | Ended::Unread,
            ) => {
                assert_eq!(event.reason, FailureReason::UsageInvalid, "only implausible counts are rejected");
                assert!(!(is_managed && is_priced), "no managed call is free");
                assert!(usage.is_some() || may_be_above_max, "{event:?}");
            }
            (event, how) => panic!("{how:?} ended as {event:?}"),
        }
    }

    /// Reports a call without a hold; only the first report of an id counts.
    pub(super) fn report(&mut self, merchant: u8, id: u8, call: OpenRequest, how: &Ended) {
        let merchant = usize::from(merchant);
        let (foreign_customer, foreign_meter) =
            self.foreign(merchant, call.customer.as_ref(), call.meter.as_ref());
        let usage = match how {
            Ended::Reported { usage, .. } => Some(*usage),
            Ended::Left { usage } => *usage,
            Ended::Silent | Ended::Unread | Ended::Failed => None,
        };
        let command = ReportRequest {
            merchant_id: self.merchants[merchant].id,
            reported_id: format!("call {id}"),
            request_id: call.request_id,
            gateway_id: call.gateway_id,
            customer: call.customer,
            meter: call.meter,
            provider: call.provider,
            endpoint: call.endpoint,
            metadata: call.metadata,
            list_price: call.list_price,
            metered: Metered {
                http_status: 200,
                usage,
                ending: Completeness::Whole,
                counted: None,
                raw_usage: None,
                response_id: None,
                model: None,
                provider_timestamp: None,
            },
            service_charge_rate: call.settings.service_charge_rate,
            now: self.now,
        };
        let before = self.till.facts.len();
        let known = self.reported.get(&(merchant, id)).copied();
        match self.execute(&command) {
            Ok(Reported::Existing(request_id)) => {
                assert_eq!(Some(request_id), known);
                assert_eq!(self.till.facts.len(), before, "a known id appends nothing");
            }
            Ok(Reported::New(opened, metered)) => {
                assert!(known.is_none() && !foreign_customer && !foreign_meter);
                assert_eq!((opened.request_id, opened.hold), (command.request_id, Hold::default()));
                assert_eq!(metered.usage, usage.unwrap_or_default());
                assert!(self.till.facts.len() >= before + 2, "opened and metered at once");
                self.reported.insert((merchant, id), command.request_id);
            }
            Err(refusal) => {
                assert_eq!(self.till.facts.len(), before);
                match refusal {
                    Refusal::Customer(CustomerRefusal::NotFound | CustomerRefusal::SecretInvalid) => {
                        assert!(foreign_customer);
                    }
                    Refusal::Meter(MeterRefusal::NotFound | MeterRefusal::SecretInvalid) => {
                        assert!(foreign_meter);
                    }
                    Refusal::Request(RequestRefusal::UsageOutOfRange) => {
                        assert!(usage.is_some(), "nothing was counted");
                    }
                    other => panic!("unexpected refusal: {other}"),
                }
            }
        }
    }
}
