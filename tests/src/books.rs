//! Books: a fold of the log that shares no code with the ledger and asserts the rules of money at every event.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde_json::Value;

use crate::log::Logged;

/// A wallet.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// The customer it belongs to; `None` for a merchant's own.
    pub customer_id: Option<String>,
    /// The sum of its credits.
    pub credits: Decimal,
    /// The sum of its debits.
    pub debits: Decimal,
    /// The sum of open holds.
    pub held: Decimal,
    /// The remaining credit of plans and bundles, by the subscription or payment that granted it.
    pub credit: BTreeMap<String, Decimal>,
    /// Whether credit has ever expired. Then holds may exceed the available money.
    credit_expired: bool,
}

impl Account {
    /// Credits less debits.
    pub fn balance(&self) -> Decimal {
        self.credits - self.debits
    }

    fn grant(&mut self, of: &Value, amount: &Value) {
        *self.credit.entry(text(of)).or_default() += decimal(amount);
    }

    fn take_credit(&mut self, of: &Value, amount: &Value) {
        let left = self.credit.get_mut(of.as_str().expect("an id")).expect("credit that was granted");
        *left -= decimal(amount);
        assert!(*left >= Decimal::ZERO, "{of}: more credit drawn than available");
    }

    fn expire(&mut self, of: &Value, amount: &Value) {
        self.take_credit(of, amount);
        self.credit_expired |= decimal(amount) > Decimal::ZERO;
    }

    /// Balance and remaining credit.
    fn money(&self) -> Decimal {
        self.balance() + self.credit.values().sum::<Decimal>()
    }
}

/// The status of a request.
#[derive(Debug, Clone)]
pub enum ClaimStatus {
    /// Open.
    Pending,
    /// Metered.
    Completed(Value),
    /// Failed.
    Error(Value),
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The merchant.
    pub merchant_id: String,
    /// The body of `request.opened`.
    pub opened: Value,
    /// When it was opened.
    pub opened_at: DateTime<Utc>,
    /// Its status.
    pub standing: ClaimStatus,
}

impl Request {
    /// `pending`, `completed` or `error`.
    pub fn status(&self) -> &'static str {
        match self.standing {
            ClaimStatus::Pending => "pending",
            ClaimStatus::Completed(_) => "completed",
            ClaimStatus::Error(_) => "error",
        }
    }
}

/// The books.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// By wallet id.
    pub wallets: BTreeMap<String, Account>,
    /// By request id.
    pub requests: BTreeMap<String, Request>,
    /// The end of the last tier interval, by holder, meter and period.
    pub positions: BTreeMap<String, Decimal>,
    keys: BTreeSet<String>,
    /// Partition and position of the last event.
    last: (i16, i64),
    /// Debits of the last metered request, by wallet, whose events are still to follow.
    due: BTreeMap<String, Decimal>,
}

/// A decimal of the log; zero if it is absent.
pub fn decimal(value: &Value) -> Decimal {
    value.as_str().map_or(Decimal::ZERO, |text| text.parse().unwrap_or_else(|_| panic!("{value}")))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Books {
    /// Folds the log from its beginning.
    pub fn of(events: &[Logged]) -> Self {
        let mut books = Self::default();
        for event in events {
            books.enter(event);
        }
        books.check_no_debit_is_due();
        books
    }

    /// Applies the next event.
    pub fn enter(&mut self, event: &Logged) {
        let place = (event.partition, event.position);
        assert!(place > self.last, "in order");
        self.last = place;
        assert!(self.keys.insert(event.key.clone()), "duplicate fact: {}", event.key);
        if event.kind != "wallet.debited" {
            self.check_no_debit_is_due();
        }
        let body = &event.body;
        match event.kind.as_str() {
            "merchant.registered" => {
                self.wallets.insert(text(&body["wallet_id"]), Account::default());
            }
            "customer.created" => {
                let customer_id = Some(text(&body["customer_id"]));
                self.wallets.insert(text(&body["wallet_id"]), Account { customer_id, ..Account::default() });
            }
            "wallet.credited" => {
                let wallet = self.wallet(&body["wallet_id"]);
                wallet.credits += decimal(&body["amount"]);
                assert_eq!(wallet.balance(), decimal(&body["balance_after"]), "{}", event.key);
            }
            "wallet.debited" => self.debit(event),
            "request.opened" => self.open(event),
            "request.metered" => self.meter(event),
            "request.failed" => {
                self.end(event, ClaimStatus::Error(body.clone()));
            }
            // These events move no money; the wallet of a deleted customer keeps its balance.
            "secret_key.issued"
            | "secret_key.revoked"
            | "spend_key.created"
            | "spend_key.updated"
            | "spend_key.deleted"
            | "key.rotated"
            | "customer.updated"
            | "customer.deleted"
            | "meter.defined"
            | "meter.updated"
            | "meter.deleted"
            | "plan.created"
            | "plan.updated"
            | "plan.deleted"
            | "credit_bundle.created"
            | "credit_bundle.updated"
            | "credit_bundle.deleted"
            | "checkout_session.created"
            | "checkout_session.completed"
            | "clock.advanced"
            | "payment_method.added"
            | "payment.requested"
            | "payment.succeeded"
            | "payment.declined"
            | "payment.voided"
            | "wallet.autopay_changed"
            | "subscription.updated"
            | "subscription.renewal_failed"
            | "webhook.created"
            | "webhook.updated"
            | "webhook.deleted" => {}
            "subscription.started" | "subscription.renewed" | "subscription.upgraded" => {
                self.wallet(&body["wallet_id"]).grant(&body["subscription_id"], &body["granted"]);
            }
            "bundle.purchased" => {
                self.wallet(&body["wallet_id"]).grant(&body["payment_id"], &body["granted"]);
            }
            "subscription.cancelled" => {
                self.wallet(&body["wallet_id"]).expire(&body["subscription_id"], &body["expired"]);
            }
            "subscription.cycle_ended" => {
                let wallet = self.wallet(&body["wallet_id"]);
                wallet.expire(&body["subscription_id"], &body["expired"]);
                for bundle in body["expired_bundles"].as_array().expect("bundles") {
                    wallet.expire(&bundle["payment_id"], &bundle["amount"]);
                }
            }
            unknown => panic!("event kind {unknown} is not in these books"),
        }
    }

    fn wallet(&mut self, id: &Value) -> &mut Account {
        self.wallets
            .get_mut(id.as_str().expect("a wallet id"))
            .expect("a wallet is created before it is used")
    }

    fn debit(&mut self, event: &Logged) {
        let body = &event.body;
        let amount = decimal(&body["amount"]);
        assert!(amount > Decimal::ZERO);
        let due = self.due.remove(&text(&body["wallet_id"]));
        assert_eq!(due, Some(amount), "{}: a debit follows its request", event.key);
        let sources = body["sources"].as_array().expect("sources");
        assert_eq!(sources.iter().map(|source| decimal(&source["amount"])).sum::<Decimal>(), amount);
        let wallet = self.wallet(&body["wallet_id"]);
        for part in sources {
            match part["source"].as_object().and_then(|source| source.iter().next()) {
                None => {
                    assert_eq!(part["source"], "balance", "{}", event.key);
                    wallet.debits += decimal(&part["amount"]);
                }
                Some((_, of)) => wallet.take_credit(of, &part["amount"]),
            }
        }
        assert_eq!(wallet.balance(), decimal(&body["balance_after"]), "{}", event.key);
        assert!(
            wallet.customer_id.is_none() || wallet.balance() >= Decimal::ZERO,
            "{}: below zero",
            event.key
        );
    }

    fn check_no_debit_is_due(&self) {
        assert!(
            self.due.is_empty(),
            "before partition and position {:?}: debits missing: {:?}",
            self.last,
            self.due
        );
    }

    fn open(&mut self, event: &Logged) {
        let body = &event.body;
        let request = Request {
            merchant_id: event.merchant_id.clone(),
            opened: body.clone(),
            opened_at: event.occurred_at,
            standing: ClaimStatus::Pending,
        };
        self.hold(body, Decimal::ONE);
        let there = self.requests.insert(text(&body["request_id"]), request);
        assert!(there.is_none(), "{}: opened twice", event.key);
    }

    fn hold(&mut self, body: &Value, sign: Decimal) {
        let (parties, hold) = (&body["parties"], &body["hold"]);
        for (wallet, amount) in
            [(&parties["wallet_id"], &hold["wallet"]), (&parties["merchant_wallet_id"], &hold["merchant"])]
        {
            let amount = decimal(amount);
            if !amount.is_zero() {
                let account = self.wallet(wallet);
                account.held += sign * amount;
                assert!(account.held >= Decimal::ZERO, "holds below zero");
                assert!(
                    account.customer_id.is_none()
                        || account.credit_expired
                        || account.held <= account.money(),
                    "held more than available"
                );
            }
        }
    }

    fn end(&mut self, event: &Logged, standing: ClaimStatus) -> Value {
        let id = event.text("request_id");
        let request = self.requests.get_mut(id).unwrap_or_else(|| panic!("{}: never opened", event.key));
        assert!(matches!(request.standing, ClaimStatus::Pending), "{}: ended twice", event.key);
        request.standing = standing;
        let opened = request.opened.clone();
        assert_eq!(opened["hold"], event.body["hold"], "{}: the released hold equals the hold", event.key);
        self.hold(&opened, Decimal::NEGATIVE_ONE);
        opened
    }

    fn meter(&mut self, event: &Logged) {
        let body = &event.body;
        let opened = self.end(event, ClaimStatus::Completed(body.clone()));
        let on_wallet = decimal(&body["total_wallet_cost"]);
        let on_merchant = decimal(&body["total_merchant_cost"]);
        assert_eq!(on_wallet + on_merchant, decimal(&body["total_request_cost"]), "{}", event.key);
        let lines = body["fee"]["breakdown"].as_array().expect("a breakdown");
        let costs: Decimal = lines.iter().map(|line| decimal(&line["cost"])).sum();
        assert_eq!(costs, decimal(&body["fee"]["amount"]), "{}: lines sum to the fee", event.key);
        let marked = body["marks"].as_array().is_some_and(|marks| marks.iter().any(|mark| mark == "overrun"));
        assert_eq!(marked, decimal(&body["overrun"]) > Decimal::ZERO, "{}: overrun", event.key);
        for (wallet, amount) in [
            (&body["parties"]["wallet_id"], on_wallet),
            (&body["parties"]["merchant_wallet_id"], on_merchant),
        ] {
            if !amount.is_zero() {
                self.due.insert(text(wallet), amount);
            }
        }
        if let Some(meter) = body["meter_id"].as_str() {
            let customer = body["parties"]["customer_id"].as_str();
            let holder = customer.unwrap_or(&event.merchant_id);
            let place = format!("{holder}/{meter}/{}", body["period_start"]);
            let position = self.positions.entry(place).or_default();
            assert_eq!(decimal(&body["tier_position"]), *position, "{}: tier positions", event.key);
            let units = decimal(&body["units"]);
            let counted: Decimal = lines.iter().map(|line| decimal(&line["units"])).sum();
            assert_eq!(counted, units, "{}: every unit is in one tier", event.key);
            *position += units;
        }
        assert_eq!(opened["parties"], body["parties"], "{}", event.key);
    }

    /// The requests of a merchant, newest first, as the API lists them.
    pub fn newest_first(&self, merchant_id: &str) -> Vec<(&String, &Request)> {
        let mut requests: Vec<_> =
            self.requests.iter().filter(|(_, request)| request.merchant_id == merchant_id).collect();
        requests.sort_by(|a, b| (b.1.opened_at, b.0).cmp(&(a.1.opened_at, a.0)));
        requests
    }

    /// The wallet of a customer.
    pub fn of_customer(&self, customer_id: &str) -> &Account {
        let mine = |account: &&Account| account.customer_id.as_deref() == Some(customer_id);
        self.wallets.values().find(mine).unwrap_or_else(|| panic!("{customer_id} has no wallet"))
    }
}
