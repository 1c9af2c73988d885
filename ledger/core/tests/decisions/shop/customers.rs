//! Actions on customers and wallets.

use std::collections::BTreeMap;

use farthing_core::command::{
    CreateCustomer, CreatedCustomer, CreditTarget, CreditWallet, CustomerRefusal, DeleteCustomer, Edit,
    PersonalData, Refusal, UpdateCustomer, WalletRefusal,
};
use farthing_core::ids::{CreditId, CustomerId, WalletId};
use farthing_core::money::Amount;
use rust_decimal::Decimal;

use super::{Shop, pick};

impl Shop {
    pub(super) fn create_customer(&mut self, merchant: u8, reference: Option<u8>) {
        let merchant = usize::from(merchant);
        let reference = reference.map(|number| format!("reference-{number}"));
        let (customer_id, wallet_id) = (CustomerId::new(self.ulid()), WalletId::new(self.ulid()));
        let known = self
            .customers
            .iter()
            .find(|(of, _, _, there)| *of == merchant && there.is_some() && *there == reference);
        let known = known.map(|(_, id, _, _)| *id);
        let command = CreateCustomer {
            merchant_id: self.merchants[merchant].id,
            customer_id,
            wallet_id,
            reference_id: reference.clone(),
            metadata: BTreeMap::new(),
            metadata_literals: std::collections::BTreeSet::new(),
            personal: PersonalData::default(),
            now: self.now,
        };
        let before = self.till.facts.len();
        match (self.execute(&command).unwrap(), known) {
            (CreatedCustomer::Existing(id), Some(known)) => {
                assert_eq!(id, known);
                assert_eq!(self.till.facts.len(), before, "a known reference id appends nothing");
            }
            (CreatedCustomer::Created(id), None) => self.customers.push((merchant, id, wallet_id, reference)),
            (made, known) => panic!("{made:?}, but {known:?} was known"),
        }
    }

    pub(super) fn update_customer(&mut self, merchant: u8, customer: u8, reference: Edit<u8>) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.customers, customer)) else { return };
        let (owner, customer_id, _, old) = self.customers[at].clone();
        let named = |number: &u8| format!("reference-{number}");
        let (new, reference_id) = match &reference {
            Edit::Keep => (old.clone(), Edit::Keep),
            Edit::Clear => (None, Edit::Clear),
            Edit::Set(number) => (Some(named(number)), Edit::Set(named(number))),
        };
        let command = UpdateCustomer {
            merchant_id: self.merchants[merchant].id,
            customer_id,
            reference_id,
            metadata: None,
            metadata_literals: std::collections::BTreeSet::new(),
            contact: Vec::new(),
            personal: PersonalData::default(),
            now: self.now,
        };
        let there = owner == merchant && !self.deleted_customers.contains(&customer_id);
        let taken = self
            .customers
            .iter()
            .any(|(of, id, _, there)| *of == owner && *id != customer_id && new.is_some() && *there == new);
        let before = self.till.facts.len();
        match self.execute(&command) {
            Ok(()) => {
                assert!(there && !taken);
                assert_eq!(
                    self.till.facts.len() - before,
                    usize::from(old != new),
                    "nothing new appends nothing"
                );
                self.customers[at].3 = new;
            }
            Err(Refusal::Customer(CustomerRefusal::NotFound)) => assert!(!there),
            Err(Refusal::Customer(CustomerRefusal::ReferenceIdTaken)) => assert!(there && taken),
            Err(other) => panic!("unexpected refusal: {other}"),
        }
    }

    pub(super) fn delete_customer(&mut self, merchant: u8, customer: u8) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.customers, customer)) else { return };
        let (owner, customer_id, ..) = self.customers[at];
        let merchant_id = self.merchants[merchant].id;
        let answer = self.execute(&DeleteCustomer { merchant_id, customer_id, now: self.now });
        let there = owner == merchant && !self.deleted_customers.contains(&customer_id);
        assert_eq!(answer, if there { Ok(()) } else { Err(Refusal::Customer(CustomerRefusal::NotFound)) });
        if there {
            self.deleted_customers.insert(customer_id);
            self.customers[at].3 = None;
        }
    }

    pub(super) fn credit(&mut self, target: CreditTarget, cents: u32) {
        let amount: Amount = Decimal::new(cents.into(), 2).to_string().parse().unwrap();
        let credit_id = CreditId::new(self.ulid());
        let command = CreditWallet { credit_id, target, amount, reason: "paid".into(), now: self.now };
        match self.execute(&command) {
            Ok(credited) => {
                let balance = self.books.accounts[&credited.wallet_id].balance();
                assert_eq!(credited.balance.decimal(), balance);
            }
            Err(Refusal::Customer(CustomerRefusal::NotFound)) => match target {
                CreditTarget::Customer(id) => assert!(self.deleted_customers.contains(&id)),
                CreditTarget::Merchant(id) => panic!("{id} is no customer"),
            },
            Err(refusal) => {
                assert_eq!(cents, 0);
                assert_eq!(refusal, Refusal::Wallet(WalletRefusal::AmountNotPositive));
            }
        }
    }
}
