//! Calls in a year.

use std::collections::BTreeMap;

use farthing_core::command::{
    Billing, Caller, Completeness, CustomerRef, Failed, MeterRef, Metered, OpenRequest, Refusal,
    RequestSettings, SettleRequest, Settled, WalletRefusal,
};
use farthing_core::event::{Event, FailureReason, Mark, ProviderKeyType, RequestEvent};
use farthing_core::ids::{CustomerId, GatewayId, RequestId};
use farthing_core::model_price::ListPrice;
use farthing_core::pricing::SizeHint;
use farthing_core::usage::{Split, Usage};
use ulid::Ulid;

use super::{Years, cents};

impl Years {
    pub(super) fn call(&mut self, customer: CustomerId, meter: u8, output_limit: u32) {
        let request_id = RequestId::new(self.ulid());
        let open = OpenRequest {
            request_id,
            gateway_id: GatewayId::new(Ulid::from_parts(1, 1)),
            merchant_id: self.merchant,
            caller: Caller::SecretKey(self.secret_key.clone()),
            customer: Some(CustomerRef::Id(customer)),
            meter: Self::pick(&self.meters, meter).map(MeterRef::Id),
            billing: Billing::Usual,
            provider: "other".into(),
            provider_key_type: ProviderKeyType::Unmanaged,
            endpoint: "POST https://example.com/".into(),
            model: None,
            list_price: ListPrice::Nothing,
            metadata: BTreeMap::new(),
            size: SizeHint {
                input_bytes: 100,
                max_output_tokens: Some(output_limit.into()),
                ..SizeHint::default()
            },
            settings: RequestSettings {
                service_charge_rate: "0.019".parse().unwrap(),
                default_hold: cents(10),
                hold_cap: cents(150),
            },
            now: self.machine,
        };
        match self.execute(&open) {
            Ok(_) => self.calls.push(request_id),
            Err(Refusal::Wallet(WalletRefusal::InsufficientBalance { .. })) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    pub(super) fn settle(&mut self, call: u8, tokens: Option<u32>) {
        let Some(request_id) = Self::pick(&self.calls, call) else { return };
        self.calls.retain(|open| *open != request_id);
        let settled = match tokens {
            Some(tokens) => Settled::Metered(Metered {
                http_status: 200,
                usage: Some(Usage { tokens: Split { input: tokens.into(), output: 0 }, ..Usage::default() }),
                ending: Completeness::Whole,
                counted: None,
                raw_usage: None,
                response_id: None,
                model: None,
                provider_timestamp: None,
            }),
            None => Settled::Failed(Failed::because(FailureReason::ProviderGone)),
        };
        let before = self.till.facts.len();
        self.execute(&SettleRequest { request_id, settled, now: self.machine }).unwrap();
        let overrun = self.till.facts[before..].iter().any(
            |fact| matches!(&fact.event, Event::Request(RequestEvent::Metered(event)) if event.marks.contains(&Mark::Overrun)),
        );
        let settled = &self.till.facts[before..];
        // The merchant's part is stated in the event.
        for fact in settled {
            if let Event::Request(RequestEvent::Metered(event)) = &fact.event {
                assert_eq!(event.overrun.is_positive(), overrun);
            }
        }
    }
}
