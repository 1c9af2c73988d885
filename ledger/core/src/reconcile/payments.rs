//! The payments of the log against the payment processor's list.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Class;
use crate::ids::{CustomerId, MerchantId, PaymentId};
use crate::money::{Amount, Error, Total};

/// The status of a payment at the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListedStatus {
    /// The money was taken.
    Succeeded,
    /// It was declined.
    Failed,
    /// The money was taken and given back.
    Refunded,
    /// It has not ended.
    Pending,
}

impl ListedStatus {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refunded => "refunded",
            Self::Pending => "pending",
        }
    }
}

/// The status of a payment in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedStatus {
    /// It has not ended.
    Open,
    /// The money was taken.
    Succeeded,
    /// The processor declined it.
    Declined,
    /// It ended without the processor: its payment method was removed, or its customer was deleted before it was charged.
    NotCharged,
    /// Its customer was deleted, and the charge was refunded.
    Refunded,
}

impl RecordedStatus {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Succeeded => "succeeded",
            Self::Declined => "declined",
            Self::NotCharged => "not_charged",
            Self::Refunded => "refunded",
        }
    }

    /// Whether the processor says the same.
    const fn agrees(self, listed: ListedStatus) -> bool {
        match self {
            Self::Open => matches!(listed, ListedStatus::Pending),
            Self::Succeeded => matches!(listed, ListedStatus::Succeeded),
            Self::Declined | Self::NotCharged => matches!(listed, ListedStatus::Failed),
            Self::Refunded => matches!(listed, ListedStatus::Refunded),
        }
    }

    /// Whether the processor took the money, so that a try that failed is not the one that ended the payment.
    const fn was_charged(self) -> bool {
        match self {
            Self::Succeeded | Self::Refunded => true,
            Self::Open | Self::Declined | Self::NotCharged => false,
        }
    }
}

/// Whether the processor's list has payments that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    /// It has; a declined payment of the log must be in it.
    Listed,
    /// It has those that took money alone.
    NotListed,
}

/// A row of the processor's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedPayment {
    /// The line of the file.
    pub line: u64,
    /// The processor's id, or ours.
    pub id: String,
    /// Our id, if the list has it apart.
    pub payment_id: Option<String>,
    /// The amount.
    pub amount: Amount,
    /// The status.
    pub status: ListedStatus,
    /// The time, as the file has it.
    pub time: Option<String>,
}

impl ListedPayment {
    /// The money that it took.
    pub const fn money(&self) -> Amount {
        match self.status {
            ListedStatus::Succeeded => self.amount,
            ListedStatus::Failed | ListedStatus::Refunded | ListedStatus::Pending => Amount::ZERO,
        }
    }
}

/// A payment of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedPayment {
    /// The payment.
    pub payment_id: PaymentId,
    /// Its merchant.
    pub merchant_id: MerchantId,
    /// The customer whose wallet it is for.
    pub customer_id: Option<CustomerId>,
    /// The processor's id: of the payment, or of its refund. The log has none of a payment that was declined.
    pub reference: Option<String>,
    /// The amount that was requested.
    pub amount: Amount,
    /// The status.
    pub status: RecordedStatus,
    /// When it ended; when it was requested, if it is open.
    pub occurred_at: DateTime<Utc>,
}

impl RecordedPayment {
    /// The money that it took.
    pub const fn money(&self) -> Amount {
        match self.status {
            RecordedStatus::Succeeded => self.amount,
            RecordedStatus::Open
            | RecordedStatus::Declined
            | RecordedStatus::NotCharged
            | RecordedStatus::Refunded => Amount::ZERO,
        }
    }
}

/// Two rows have the same id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: the id {id:?} is in line {first} already")]
pub struct Duplicate {
    /// The later line.
    pub line: u64,
    /// The earlier line.
    pub first: u64,
    /// The id.
    pub id: String,
}

/// A payment of the log, a row of the list, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PaymentMatch {
    /// The class.
    pub class: Class,
    /// In the log.
    pub recorded: Option<RecordedPayment>,
    /// In the list.
    pub listed: Option<ListedPayment>,
}

/// The sums of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PaymentTotals {
    /// The payments of the log.
    pub recorded: u64,
    /// The rows of the list.
    pub listed: u64,
    /// The money taken by the log.
    pub recorded_amount: Total,
    /// The money taken by the list.
    pub listed_amount: Total,
}

impl PaymentTotals {
    fn add(
        &mut self,
        recorded: Option<&RecordedPayment>,
        listed: Option<&ListedPayment>,
    ) -> Result<(), Error> {
        if let Some(recorded) = recorded {
            self.recorded += 1;
            self.recorded_amount = self.recorded_amount.plus(recorded.money())?;
        }
        if let Some(listed) = listed {
            self.listed += 1;
            self.listed_amount = self.listed_amount.plus(listed.money())?;
        }
        Ok(())
    }
}

/// Matches the payments of the log with the rows of the list. A row takes part in one match at most.
#[derive(Debug)]
pub struct PaymentMatching {
    failures: Failures,
    rows: Vec<Option<ListedPayment>>,
    by_id: HashMap<String, usize>,
    by_payment_id: HashMap<String, usize>,
    /// Our ids of payments of the log that the list names.
    known: HashSet<String>,
    matches: Vec<PaymentMatch>,
    total: PaymentTotals,
}

impl PaymentMatching {
    /// With these rows.
    pub fn new(rows: Vec<ListedPayment>, failures: Failures) -> Result<Self, Duplicate> {
        let (mut by_id, mut by_payment_id) = (HashMap::new(), HashMap::<String, usize>::new());
        for (index, row) in rows.iter().enumerate() {
            if let Some(first) = by_id.insert(row.id.clone(), index) {
                return Err(Duplicate { line: row.line, first: rows[first].line, id: row.id.clone() });
            }
            // Processors list each try. The one that took the money counts.
            if let Some(payment_id) = &row.payment_id {
                let present = by_payment_id.get(payment_id).map(|first| rows[*first].status);
                if present.is_none()
                    || (row.status != ListedStatus::Failed && present == Some(ListedStatus::Failed))
                {
                    by_payment_id.insert(payment_id.clone(), index);
                }
            }
        }
        let rows = rows.into_iter().map(Some).collect();
        let total = PaymentTotals::default();
        let known = HashSet::new();
        Ok(Self { failures, rows, by_id, by_payment_id, known, matches: Vec::new(), total })
    }

    /// Adds a payment of the log. One outside of the period counts only if the list has it.
    pub fn add(&mut self, recorded: RecordedPayment, is_in_period: bool) -> Result<(), Error> {
        let listed = self.take(&recorded);
        let class = match &listed {
            Some(listed) if recorded.status.agrees(listed.status) && recorded.amount == listed.amount => {
                Class::Matched
            }
            Some(_) => Class::Different,
            None if !is_in_period => return Ok(()),
            None => self.class_of_unlisted(recorded.status),
        };
        self.total.add(Some(&recorded), listed.as_ref())?;
        self.matches.push(PaymentMatch { class, recorded: Some(recorded), listed });
        Ok(())
    }

    const fn class_of_unlisted(&self, status: RecordedStatus) -> Class {
        match (status, self.failures) {
            (RecordedStatus::Open | RecordedStatus::NotCharged, _)
            | (RecordedStatus::Declined | RecordedStatus::Refunded, Failures::NotListed) => {
                Class::NothingMoved
            }
            (RecordedStatus::Succeeded, _)
            | (RecordedStatus::Declined | RecordedStatus::Refunded, Failures::Listed) => Class::MissingInList,
        }
    }

    /// The row of a payment that no other payment has: by our id if it was refunded, else by the processor's first. The
    /// id of a refund may be that of a row beside the payment's own.
    fn take(&mut self, recorded: &RecordedPayment) -> Option<ListedPayment> {
        let ours = recorded.payment_id.to_string();
        let by_reference =
            recorded.reference.as_ref().and_then(|reference| self.by_id.get(reference)).copied();
        let by_ours = self.by_id.get(&ours).copied();
        let by_payment_id = self.by_payment_id.get(&ours).copied();
        if by_ours.is_some() || by_payment_id.is_some() {
            self.known.insert(ours);
        }
        // The list has failed tries alone.
        let by_payment_id = by_payment_id.filter(|index| {
            let is_failed = |row: &ListedPayment| row.status == ListedStatus::Failed;
            !(recorded.status.was_charged() && self.rows[*index].as_ref().is_some_and(is_failed))
        });
        let by_our_ids = by_ours.or(by_payment_id);
        let index = match recorded.status {
            RecordedStatus::Refunded => by_our_ids.or(by_reference),
            RecordedStatus::Open
            | RecordedStatus::Succeeded
            | RecordedStatus::Declined
            | RecordedStatus::NotCharged => by_reference.or(by_our_ids),
        };
        self.rows[index?].take()
    }

    /// The class of a row that no payment of the log has.
    fn class_of_unrecorded(&self, listed: &ListedPayment) -> Class {
        let is_known = |id: &String| self.known.contains(id);
        if listed.status == ListedStatus::Failed && listed.payment_id.as_ref().is_some_and(is_known) {
            Class::FailedTry
        } else {
            Class::MissingInLog
        }
    }

    /// The matches, differences first; and the totals of each class.
    pub fn conclude(mut self) -> Result<PaymentReport, Error> {
        for listed in std::mem::take(&mut self.rows).into_iter().flatten() {
            self.total.add(None, Some(&listed))?;
            let class = self.class_of_unrecorded(&listed);
            self.matches.push(PaymentMatch { class, recorded: None, listed: Some(listed) });
        }
        let (mut matches, total) = (self.matches, self.total);
        matches.sort_by_key(|found| {
            let line = found.listed.as_ref().map(|listed| listed.line);
            let recorded = found.recorded.as_ref().map(|recorded| recorded.payment_id);
            (!found.class.is_a_difference(), found.class, line, recorded)
        });
        let mut classes = BTreeMap::<Class, PaymentTotals>::new();
        for found in &matches {
            classes.entry(found.class).or_default().add(found.recorded.as_ref(), found.listed.as_ref())?;
        }
        let mut sum = PaymentTotals::default();
        for class in classes.values() {
            sum.recorded += class.recorded;
            sum.listed += class.listed;
            sum.recorded_amount = sum.recorded_amount.and(class.recorded_amount)?;
            sum.listed_amount = sum.listed_amount.and(class.listed_amount)?;
        }
        assert_eq!(sum, total, "every payment and every row is in one class");
        Ok(PaymentReport { matches, classes, total })
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub struct PaymentReport {
    /// The matches, differences first.
    pub matches: Vec<PaymentMatch>,
    /// The sums of each class that has a match.
    pub classes: BTreeMap<Class, PaymentTotals>,
    /// The sums of all payments and rows.
    pub total: PaymentTotals,
}

impl PaymentReport {
    /// Whether there is a difference.
    pub fn has_differences(&self) -> bool {
        self.classes.keys().any(|class| class.is_a_difference())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ulid::Ulid;

    use super::*;

    fn id(number: u8) -> PaymentId {
        PaymentId::new(Ulid::from_parts(1, number.into()))
    }

    fn recorded(number: u8, reference: Option<&str>, amount: u32, status: RecordedStatus) -> RecordedPayment {
        RecordedPayment {
            payment_id: id(number),
            merchant_id: MerchantId::new(Ulid::from_parts(1, 1)),
            customer_id: None,
            reference: reference.map(ToOwned::to_owned),
            amount: Amount::last_digits(amount),
            status,
            occurred_at: DateTime::UNIX_EPOCH,
        }
    }

    fn listed(line: u64, id: &str, amount: u32, status: ListedStatus) -> ListedPayment {
        let amount = Amount::last_digits(amount);
        ListedPayment { line, id: id.to_owned(), payment_id: None, amount, status, time: None }
    }

    fn classes(rows: Vec<ListedPayment>, payments: Vec<RecordedPayment>, failures: Failures) -> Vec<Class> {
        let mut matching = PaymentMatching::new(rows, failures).unwrap();
        for payment in payments {
            matching.add(payment, true).unwrap();
        }
        matching.conclude().unwrap().matches.iter().map(|found| found.class).collect()
    }

    #[test]
    fn a_payment_is_matched_by_the_processors_id_or_by_ours() {
        let ours = id(2).to_string();
        let rows = vec![
            listed(2, "ch_1", 5, ListedStatus::Succeeded),
            listed(3, &ours, 7, ListedStatus::Failed),
            ListedPayment {
                payment_id: Some(id(3).to_string()),
                ..listed(4, "ch_3", 9, ListedStatus::Succeeded)
            },
        ];
        let payments = vec![
            recorded(1, Some("ch_1"), 5, RecordedStatus::Succeeded),
            recorded(2, None, 7, RecordedStatus::Declined),
            recorded(3, None, 9, RecordedStatus::Succeeded),
        ];
        assert_eq!(classes(rows, payments, Failures::Listed), [Class::Matched; 3]);
    }

    #[test]
    fn another_amount_or_status_is_a_difference() {
        let rows =
            vec![listed(2, "a", 5, ListedStatus::Succeeded), listed(3, "b", 5, ListedStatus::Refunded)];
        let payments = vec![
            recorded(1, Some("a"), 6, RecordedStatus::Succeeded),
            recorded(2, Some("b"), 5, RecordedStatus::Succeeded),
            recorded(3, Some("c"), 5, RecordedStatus::Succeeded),
        ];
        let expected = [Class::Different, Class::Different, Class::MissingInList];
        assert_eq!(classes(rows, payments, Failures::Listed), expected);
    }

    #[test]
    fn a_payment_that_moved_nothing_need_not_be_listed() {
        let payments = || {
            vec![
                recorded(1, None, 6, RecordedStatus::Declined),
                recorded(2, None, 6, RecordedStatus::Open),
                recorded(3, None, 6, RecordedStatus::NotCharged),
            ]
        };
        assert_eq!(classes(vec![], payments(), Failures::NotListed), [Class::NothingMoved; 3]);
        let expected = [Class::MissingInList, Class::NothingMoved, Class::NothingMoved];
        assert_eq!(classes(vec![], payments(), Failures::Listed), expected);
    }

    #[test]
    fn of_several_tries_the_one_that_took_the_money_is_matched() {
        let tried = |line, id: &str, status| ListedPayment {
            payment_id: Some(self::id(1).to_string()),
            ..listed(line, id, 5, status)
        };
        let rows = vec![
            tried(2, "a", ListedStatus::Failed),
            tried(3, "b", ListedStatus::Succeeded),
            tried(4, "c", ListedStatus::Failed),
        ];
        let payments = vec![recorded(1, None, 5, RecordedStatus::Succeeded)];
        let expected = [Class::Matched, Class::FailedTry, Class::FailedTry];
        assert_eq!(classes(rows.clone(), payments, Failures::Listed), expected);

        // Matched by the processor's id, or failed in the end.
        let payments = vec![recorded(1, Some("b"), 5, RecordedStatus::Succeeded)];
        assert_eq!(classes(rows.clone(), payments, Failures::Listed), expected);
        let failed = vec![rows[0].clone(), rows[2].clone()];
        let payments = vec![recorded(1, None, 5, RecordedStatus::Declined)];
        assert_eq!(classes(failed.clone(), payments, Failures::Listed), expected[..2]);

        // The success itself is not in the list, and in its period or not.
        let succeeded = recorded(1, Some("b"), 5, RecordedStatus::Succeeded);
        let expected = [Class::MissingInList, Class::FailedTry, Class::FailedTry];
        assert_eq!(classes(failed.clone(), vec![succeeded.clone()], Failures::Listed), expected);
        let mut matching = PaymentMatching::new(failed.clone(), Failures::Listed).unwrap();
        matching.add(succeeded, false).unwrap();
        let report = matching.conclude().unwrap();
        assert_eq!(report.classes[&Class::FailedTry].listed, 2);
        assert!(!report.has_differences() && report.total.listed_amount == Total::default());

        // A failed row whose payment the log does not have, and a second one that took money.
        assert_eq!(classes(failed, vec![], Failures::Listed), [Class::MissingInLog; 2]);
        let twice = vec![rows[1].clone(), tried(5, "d", ListedStatus::Succeeded)];
        let payments = vec![recorded(1, Some("b"), 5, RecordedStatus::Succeeded)];
        assert_eq!(classes(twice, payments, Failures::Listed), [Class::MissingInLog, Class::Matched]);
    }

    #[test]
    fn a_refunded_payment_is_matched_by_our_id_or_by_the_processors_id_of_the_refund() {
        let refunded = || vec![recorded(1, Some("re_1"), 5, RecordedStatus::Refunded)];
        let of_refund = listed(2, "re_1", 5, ListedStatus::Refunded);
        assert_eq!(classes(vec![of_refund.clone()], refunded(), Failures::Listed), [Class::Matched]);
        let of_charge = ListedPayment {
            payment_id: Some(id(1).to_string()),
            ..listed(3, "ch_1", 5, ListedStatus::Refunded)
        };
        let mut matching = PaymentMatching::new(vec![of_refund, of_charge], Failures::Listed).unwrap();
        matching.add(refunded().remove(0), true).unwrap();
        let report = matching.conclude().unwrap();
        let lines = report.matches.iter().map(|found| (found.class, found.listed.as_ref().unwrap().line));
        assert_eq!(lines.collect::<Vec<_>>(), [(Class::MissingInLog, 2), (Class::Matched, 3)]);
    }

    #[test]
    fn an_id_that_is_listed_twice_is_refused_with_its_lines() {
        let rows =
            vec![listed(2, "a", 5, ListedStatus::Succeeded), listed(9, "a", 5, ListedStatus::Succeeded)];
        let error = PaymentMatching::new(rows, Failures::Listed).unwrap_err();
        assert_eq!(error.to_string(), "line 9: the id \"a\" is in line 2 already");
    }

    fn any_listed() -> impl Strategy<Value = ListedStatus> {
        prop::sample::select(vec![
            ListedStatus::Succeeded,
            ListedStatus::Failed,
            ListedStatus::Refunded,
            ListedStatus::Pending,
        ])
    }

    fn any_recorded() -> impl Strategy<Value = RecordedStatus> {
        prop::sample::select(vec![
            RecordedStatus::Open,
            RecordedStatus::Succeeded,
            RecordedStatus::Declined,
            RecordedStatus::NotCharged,
            RecordedStatus::Refunded,
        ])
    }

    proptest! {
        #[test]
        fn every_row_and_every_payment_ends_in_exactly_one_class(
            rows in prop::collection::btree_map(0..30_u8, (0..3_u8, 0..3_u32, any_listed(), 0..30_u8), 0..25),
            payments in prop::collection::btree_map(0..30_u8, (any::<bool>(), 0..3_u32, any_recorded(), any::<bool>()), 0..25),
            lists in any::<bool>(),
        ) {
            let rows: Vec<_> = rows.into_iter().map(|(number, (form, amount, status, of))| {
                let id = if form == 0 { id(number).to_string() } else { format!("ch_{number}") };
                let payment_id = (form == 2).then(|| self::id(of).to_string());
                ListedPayment { payment_id, ..listed(u64::from(number) + 2, &id, amount, status) }
            }).collect();
            let payments: Vec<_> = payments.into_iter().map(|(number, (known, amount, status, within))| {
                let reference = format!("ch_{number}");
                (recorded(number, known.then_some(reference.as_str()), amount, status), within)
            }).collect();
            let failures = if lists { Failures::Listed } else { Failures::NotListed };
            let mut matching = PaymentMatching::new(rows.clone(), failures).unwrap();
            for (payment, within) in &payments {
                matching.add(payment.clone(), *within).unwrap();
            }
            let report = matching.conclude().unwrap();
            let mut lines: Vec<_> = report.matches.iter().filter_map(|found| Some(found.listed.as_ref()?.line)).collect();
            lines.sort_unstable();
            prop_assert_eq!(lines, rows.iter().map(|row| row.line).collect::<Vec<_>>());
            for (payment, within) in &payments {
                let found: Vec<_> =
                    report.matches.iter().filter(|found| found.recorded.as_ref() == Some(payment)).collect();
                prop_assert!(found.len() <= 1);
                prop_assert!(!within || found.len() == 1);
                if !within && let Some(found) = found.first() {
                    prop_assert!(found.listed.is_some());
                }
            }
            let taken = Amount::sum(rows.iter().map(ListedPayment::money)).unwrap();
            prop_assert_eq!(report.total.listed_amount, Total::default().plus(taken).unwrap());
            for found in &report.matches {
                let both = (found.recorded.is_some(), found.listed.is_some());
                prop_assert_eq!(both, match found.class {
                    Class::Matched | Class::Different => (true, true),
                    Class::MissingInLog | Class::FailedTry => (false, true),
                    Class::MissingInList | Class::NothingMoved => (true, false),
                });
            }
        }
    }
}
