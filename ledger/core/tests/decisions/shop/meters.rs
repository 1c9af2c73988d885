//! Actions on meters.

use farthing_core::command::{DefineMeter, DeleteMeter, Edit, MeterRefusal, Refusal, Slug, UpdateMeter};
use farthing_core::ids::MeterId;
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::money::Amount;
use rust_decimal::Decimal;

use super::{Shop, pick};

impl Shop {
    pub(super) fn define_meter(
        &mut self,
        merchant: u8,
        slug: Option<u8>,
        tier_type: TierType,
        steps: &[(u32, u32)],
        terms: u8,
    ) {
        let merchant = usize::from(merchant);
        let mut start = 0_u64;
        let tiers = steps.iter().enumerate().map(|(at, (step, rate))| {
            start += if at == 0 { 0 } else { u64::from(*step) };
            let rate =
                if *rate == u32::MAX { Decimal::from(1_000_000) } else { Decimal::new((*rate).into(), 5) };
            Tier { start: start.into(), rate: rate.to_string().parse().unwrap() }
        });
        let payer = |bit: u8| if terms & bit == 0 { Payer::Wallet } else { Payer::Merchant };
        let price = Price {
            rate_type: if terms & 0b1_1000 == 0b1_1000 { RateType::Percentage } else { RateType::Fixed },
            tier_type,
            tiers: Tiers::new(tiers.collect()).unwrap(),
            token_basis: if terms & 4 == 0 { TokenBasis::InputOutput } else { TokenBasis::Output },
            base_cost_payer: payer(2),
            service_charge_payer: payer(1),
            on_disconnect: OnDisconnect::Complete,
            max_fee: (terms & 0b10_0000 != 0).then(|| "1".parse().unwrap()),
        };
        let given = slug.map(|number| format!("slug-{number}"));
        let taken = self.meters.iter().any(|(of, id, there)| {
            *of == merchant && Some(there) == given.as_ref() && !self.deleted_meters.contains(id)
        });
        let meter_id = MeterId::new(self.ulid());
        let command = DefineMeter {
            merchant_id: self.merchants[merchant].id,
            meter_id,
            slug: given.map_or_else(|| Slug::Made("meter".into()), Slug::Given),
            name: "meter".into(),
            price,
            now: self.now,
        };
        match self.execute(&command) {
            Ok(slug) => {
                assert!(!taken, "duplicate slug");
                self.meters.push((merchant, meter_id, slug));
            }
            Err(refusal) => {
                assert!(taken);
                assert_eq!(refusal, Refusal::Meter(MeterRefusal::SlugTaken));
            }
        }
    }

    pub(super) fn update_meter(&mut self, merchant: u8, meter: u8, rate: u32) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.meters, meter)) else { return };
        let (owner, meter_id, slug) = self.meters[at].clone();
        let rate: Amount = Decimal::new(rate.into(), 5).to_string().parse().unwrap();
        let tiers = Tiers::new(vec![Tier { start: Decimal::ZERO, rate }]).unwrap();
        let command = UpdateMeter {
            merchant_id: self.merchants[merchant].id,
            meter_id,
            name: None,
            tiers: Some(tiers.clone()),
            base_cost_payer: None,
            service_charge_payer: None,
            on_disconnect: None,
            max_fee: Edit::Keep,
            now: self.now,
        };
        let there = owner == merchant && !self.deleted_meters.contains(&meter_id);
        match self.execute(&command) {
            Ok(updated) => {
                assert!(there);
                assert_eq!((updated.meter_slug, updated.price.tiers), (slug, tiers));
            }
            Err(refusal) => assert_eq!((there, refusal), (false, Refusal::Meter(MeterRefusal::NotFound))),
        }
    }

    pub(super) fn delete_meter(&mut self, merchant: u8, meter: u8) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.meters, meter)) else { return };
        let (owner, meter_id, _) = self.meters[at];
        let merchant_id = self.merchants[merchant].id;
        let answer = self.execute(&DeleteMeter { merchant_id, meter_id, now: self.now });
        let there = owner == merchant && !self.deleted_meters.contains(&meter_id);
        assert_eq!(answer, if there { Ok(()) } else { Err(Refusal::Meter(MeterRefusal::NotFound)) });
        if there {
            self.deleted_meters.insert(meter_id);
        }
    }
}
