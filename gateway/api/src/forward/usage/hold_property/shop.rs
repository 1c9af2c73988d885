//! A merchant in memory, whose calls are decided as the ledger decides them.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::command::{
    Billing, Caller, Command, Completeness, CreateCustomer, CreateSpendKey, CreditTarget, CreditWallet,
    CustomerRef, DecideError, DefineMeter, IssueSecretKey, MeterRef, Metered, OpenRequest, PersonalData,
    RegisterMerchant, RequestSettings, SettleRequest, Settled, Slug, decide,
};
use farthing_core::event::{
    Cycle, Event, Fact, ProviderKeyType, RequestEvent, RequestMetered, RequestOpened, SpendKeySettings,
    SpendKeyStatus, SpendLimit,
};
use farthing_core::ids::{
    CreditId, CustomerId, GatewayId, MerchantId, MeterId, RequestId, SecretKeyId, SpendKeyId, WalletId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::{ListPrice, ModelPrice};
use farthing_core::money::Amount;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_core::size_hint::SizeHint;
use farthing_core::state::{EvolveError, Missing, StateCache};
use farthing_core::usage::Usage;
use ulid::Ulid;

/// The most that is held for a call.
pub(super) const HOLD_CAP: &str = "1000000000";

/// The payer that is a spend key.
pub(super) const BY_SPEND_KEY: usize = 1;

/// A merchant with a customer, meters and a spend key, in memory.
pub(super) struct Shop {
    states: StateCache,
    made: u128,
    now: DateTime<Utc>,
    merchant: MerchantId,
    secret_key: KeyHash,
    spend_key: KeyHash,
    customer: CustomerId,
    meters: Vec<MeterId>,
}

pub(super) fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

impl Shop {
    pub(super) fn new() -> Self {
        let server_key = ServerKey::from_hex(&"5a".repeat(32)).unwrap();
        let (secret_key, spend_key) = (server_key.hash("aks_x"), server_key.hash("spk_x"));
        let now = "2026-11-20T10:00:00Z".parse().unwrap();
        let customer = CustomerId::new(Ulid::from_parts(1, 1));
        let (states, made, meters) = (StateCache::default(), 100, Vec::new());
        let merchant_id = MerchantId::new(Ulid::from_parts(1, 2));
        let mut shop = Self {
            states,
            made,
            now,
            merchant: merchant_id,
            secret_key: secret_key.clone(),
            spend_key: spend_key.clone(),
            customer,
            meters,
        };
        let secret_key_id = SecretKeyId::new(shop.ulid());
        let (hint, name) = ("abcd".into(), "first".into());
        let first_key = IssueSecretKey { merchant_id, secret_key_id, key_hash: secret_key, hint, name, now };
        let wallet_id = WalletId::new(shop.ulid());
        shop.execute(&RegisterMerchant { wallet_id, name: "shop".into(), first_key, now });
        let wallet_id = WalletId::new(shop.ulid());
        shop.execute(&CreateCustomer {
            merchant_id,
            customer_id: customer,
            wallet_id,
            reference_id: None,
            metadata: BTreeMap::new(),
            metadata_literals: BTreeSet::new(),
            personal: PersonalData::default(),
            now,
        });
        for target in [CreditTarget::Customer(customer), CreditTarget::Merchant(merchant_id)] {
            let credit_id = CreditId::new(shop.ulid());
            let (amount, reason) = (amount("90000000000"), "a test".into());
            shop.execute(&CreditWallet { credit_id, target, amount, reason, now });
        }
        for (rate_type, tier_type) in [
            (RateType::Percentage, TierType::Tokens1m),
            (RateType::Fixed, TierType::Tokens1m),
            (RateType::Fixed, TierType::Requests),
            (RateType::Fixed, TierType::Characters1m),
        ] {
            shop.meter(merchant_id, rate_type, tier_type);
        }
        let limit = SpendLimit { amount: amount("90000000000"), cycle: Cycle::Total };
        let settings = SpendKeySettings { spend_limit: Some(limit), ..SpendKeySettings::default() };
        let spend_key_id = SpendKeyId::new(shop.ulid());
        let (key_hash, key_preview) = (spend_key, String::new());
        let customer_id = None;
        shop.execute(&CreateSpendKey {
            merchant_id,
            spend_key_id,
            customer_id,
            key_hash,
            key_preview,
            settings,
            status: SpendKeyStatus::Active,
            now,
        });
        shop
    }

    /// A meter whose tiers end within a call.
    fn meter(&mut self, merchant_id: MerchantId, rate_type: RateType, tier_type: TierType) {
        let meter_id = MeterId::new(self.ulid());
        let tier = |(start, rate): (u32, &str)| Tier { start: start.into(), rate: rate.parse().unwrap() };
        let tiers =
            [(0, "3.3333333333"), (7, "7.7777777777"), (501, "7.7777777777"), (100_003, "0.0000000001")];
        let price = Price {
            rate_type,
            tier_type,
            tiers: Tiers::new(tiers.map(tier).to_vec()).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
            max_fee: None,
        };
        let (slug, name) = (Slug::Made("meter".into()), "meter".into());
        self.execute(&DefineMeter { merchant_id, meter_id, slug, name, price, now: self.now });
        self.meters.push(meter_id);
    }

    fn ulid(&mut self) -> Ulid {
        self.made += 1;
        Ulid::from_parts(1, self.made)
    }

    /// Nothing is stored.
    fn load(&mut self, Missing(keys): Missing) {
        for key in keys {
            self.states.load(key, None);
        }
    }

    fn execute<C: Command>(&mut self, command: &C) -> Vec<Fact> {
        let decision = loop {
            match decide(command, &self.states) {
                Ok(decision) => break decision,
                Err(DecideError::Missing(missing)) => self.load(missing),
                Err(DecideError::Refused(refusal)) => panic!("{refusal}"),
            }
        };
        while let Err(stuck) = self.states.evolve(&decision.facts) {
            match stuck {
                EvolveError::Missing(missing) => self.load(missing),
                EvolveError::InvariantBroken(broken) => panic!("{broken}"),
            }
        }
        decision.facts
    }

    /// The events of a call of this size at this price, which reports this usage.
    pub(super) fn open_and_settle(
        &mut self,
        price: &ModelPrice,
        payer: usize,
        size: SizeHint,
        usage: Usage,
    ) -> (RequestOpened, RequestMetered) {
        let (customer, meter) = match payer {
            0 | 1 => (None, None),
            2 => (Some(self.customer), None),
            of_meter => (Some(self.customer), Some(self.meters[of_meter - 3])),
        };
        let caller = if payer == BY_SPEND_KEY {
            Caller::SpendKey(self.spend_key.clone())
        } else {
            Caller::SecretKey(self.secret_key.clone())
        };
        let request_id = RequestId::new(self.ulid());
        let opened = self.execute(&OpenRequest {
            request_id,
            gateway_id: GatewayId::new(Ulid::from_parts(1, 3)),
            merchant_id: self.merchant,
            caller,
            customer: customer.map(CustomerRef::Id),
            meter: meter.map(MeterRef::Id),
            billing: Billing::Usual,
            provider: "openai".to_owned(),
            provider_key_type: ProviderKeyType::Managed,
            endpoint: "POST https://provider.example/".to_owned(),
            model: None,
            list_price: ListPrice::Listed(price.clone()),
            metadata: BTreeMap::new(),
            size,
            settings: RequestSettings {
                service_charge_rate: "0.019".parse().unwrap(),
                default_hold: amount("0.01"),
                hold_cap: amount(HOLD_CAP),
            },
            now: self.now,
        });
        let Event::Request(RequestEvent::Opened(opened)) = &opened[0].event else { panic!("{opened:?}") };
        let metered = Metered {
            http_status: 200,
            usage: Some(usage),
            ending: Completeness::Whole,
            counted: None,
            raw_usage: None,
            response_id: None,
            model: None,
            provider_timestamp: None,
        };
        let settle = SettleRequest { request_id, settled: Settled::Metered(metered), now: self.now };
        let settled = self.execute(&settle);
        let Event::Request(RequestEvent::Metered(metered)) = &settled[0].event else { panic!("{settled:?}") };
        ((**opened).clone(), (**metered).clone())
    }
}
