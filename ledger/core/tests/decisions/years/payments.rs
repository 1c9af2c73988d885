//! Payments in a year.

use farthing_core::command::{
    CompletePayment, CustomerRefusal, Paid, Payee, PaymentRefusal, PlanRefusal, Purchase, Refusal,
    RequestPayment, SubscriptionRefusal, WalletRefusal,
};
use farthing_core::event::DeclineReason;
use farthing_core::ids::{CustomerId, PaymentId};
use farthing_core::state::{OpenPayment, State};

use super::Years;

impl Years {
    pub(crate) fn open_payments(&self) -> Vec<OpenPayment> {
        let payments = self.till.stored("payment").into_iter();
        payments
            .map(|state| match state {
                State::Payment(payment) => *payment,
                other => panic!("{other:?} under a payment's key"),
            })
            .collect()
    }

    pub(crate) fn pay_for(&mut self, customer: CustomerId, purchase: Purchase) {
        let request = RequestPayment {
            merchant_id: self.merchant,
            payment_id: PaymentId::new(self.ulid()),
            payee: Payee::Customer(customer),
            payment_method_id: None,
            purchase,
            offered: None,
            checkout_session_id: None,
            now: self.machine,
        };
        match self.execute(&request) {
            Ok(())
            | Err(
                Refusal::Plan(
                    PlanRefusal::NotFound | PlanRefusal::BundleNotFound | PlanRefusal::BundlePlanMismatch,
                )
                | Refusal::Subscription(SubscriptionRefusal::NotFound | SubscriptionRefusal::AlreadyActive)
                | Refusal::Payment(PaymentRefusal::InProgress)
                | Refusal::Wallet(WalletRefusal::AmountNotPositive),
            ) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    pub(super) fn pay(&mut self, payment: u8, accepts: bool) {
        let payments = self.open_payments();
        if payments.is_empty() {
            return;
        }
        let payment_id = payments[usize::from(payment) % payments.len()].requested.payment_id;
        let paid = if accepts {
            Paid::Accepted("ref".into())
        } else {
            Paid::Declined(DeclineReason::InsufficientFunds)
        };
        let mut complete = CompletePayment { payment_id, paid, now: self.machine };
        let customer = payments[usize::from(payment) % payments.len()].requested.customer_id.unwrap();
        if accepts && !self.customers.contains(&customer) {
            let before = self.till.facts.len();
            assert_eq!(
                self.execute(&complete),
                Err(Refusal::Customer(CustomerRefusal::NotFound)),
                "the money must be refunded"
            );
            assert_eq!(self.till.facts.len(), before);
            complete.paid = Paid::Voided(Some("refund".into()));
        }
        self.execute(&complete).unwrap();
        assert_eq!(
            self.execute(&complete),
            Err(Refusal::Payment(PaymentRefusal::NotOpen)),
            "a second result changes nothing"
        );
    }
}
