//! The payments of the log against the payment processor's list. Memory is bounded by the list, the payments that are open at
//! once, and the payments of the period.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{DeclineReason, Event, Fact, PaymentEvent, PaymentRequested};
use farthing_core::ids::{MerchantId, PaymentId};
use farthing_core::reconcile::payments::{PaymentMatching, PaymentReport, RecordedPayment, RecordedStatus};
use farthing_core::statement::Period;
use serde::Serialize;

use crate::audit::Error;
use crate::audit::findings::{Findings, Place};
use crate::audit::partition_reader::{Ends, Line};
use crate::audit::whole_log::{self, Reader};
use crate::connect::{self, Role};
use crate::record;
use crate::verify::{Head, Progress};

/// The result.
#[derive(Debug, Serialize)]
pub struct PaymentReconciliation {
    /// There is no difference, and nothing is wrong with the log.
    pub ok: bool,
    /// The period: payments of the log that ended in it must be in the list.
    pub period: Period,
    /// The matches.
    #[serde(flatten)]
    pub report: PaymentReport,
    /// The last event of each partition.
    pub heads: Vec<Head>,
    /// What is wrong with the log.
    #[serde(flatten)]
    pub findings: Findings,
}

/// Matches the payments of the log with a list. Gateways may write meanwhile.
pub async fn payments(
    database_url: &str,
    period: Period,
    matching: PaymentMatching,
    progress: &Progress,
) -> Result<PaymentReconciliation, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let mut reading = Reading { period, matching, open: HashMap::new(), findings: Findings::default() };
    let heads = whole_log::read(&client, &ends, progress, &mut reading).await?;
    let Reading { open, mut matching, findings, .. } = reading;
    for (requested, merchant_id, requested_at) in open.into_values() {
        let recorded = recorded(&requested, merchant_id, RecordedStatus::Open, None, requested_at);
        matching.add(recorded, period.contains(requested_at))?;
    }
    let report = matching.conclude()?;
    let ok = findings.is_empty() && !report.has_differences();
    Ok(PaymentReconciliation { ok, period, report, heads, findings })
}

fn recorded(
    requested: &PaymentRequested,
    merchant_id: MerchantId,
    status: RecordedStatus,
    reference: Option<String>,
    occurred_at: DateTime<Utc>,
) -> RecordedPayment {
    RecordedPayment {
        payment_id: requested.payment_id,
        merchant_id,
        customer_id: requested.customer_id,
        reference,
        amount: requested.amount,
        status,
        occurred_at,
    }
}

struct Reading {
    period: Period,
    matching: PaymentMatching,
    open: HashMap<PaymentId, (Box<PaymentRequested>, MerchantId, DateTime<Utc>)>,
    findings: Findings,
}

impl Reading {
    fn ended(
        &mut self,
        place: Place,
        fact: &Fact,
        payment_id: PaymentId,
        (status, reference): (RecordedStatus, Option<String>),
    ) -> Result<(), Error> {
        let Some((requested, ..)) = self.open.remove(&payment_id) else {
            self.findings.find(|| format!("{place}: {payment_id} ends, and was not requested"));
            return Ok(());
        };
        let recorded = recorded(&requested, fact.merchant_id, status, reference, fact.occurred_at);
        Ok(self.matching.add(recorded, self.period.contains(fact.occurred_at))?)
    }
}

impl Reader for Reading {
    fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    fn wants(&mut self, line: &Line<'_>) -> bool {
        record::kind(line.text).starts_with("payment.")
    }

    fn read(&mut self, line: &Line<'_>, fact: Fact) -> Result<(), Error> {
        let Event::Payment(event) = &fact.event else { return Ok(()) };
        let (payment_id, end) = match event {
            PaymentEvent::MethodAdded(_) => return Ok(()),
            PaymentEvent::Requested(requested) => {
                let open = (requested.clone(), fact.merchant_id, fact.occurred_at);
                self.open.insert(requested.payment_id, open);
                return Ok(());
            }
            PaymentEvent::Succeeded(event) => {
                (event.payment_id, (RecordedStatus::Succeeded, Some(event.reference.clone())))
            }
            PaymentEvent::Declined(event) => {
                let status = match event.reason {
                    DeclineReason::MethodRemoved => RecordedStatus::NotCharged,
                    DeclineReason::CardDeclined
                    | DeclineReason::InsufficientFunds
                    | DeclineReason::ExpiredCard => RecordedStatus::Declined,
                };
                (event.payment_id, (status, None))
            }
            PaymentEvent::Voided(event) => {
                let status = if event.refund.is_some() {
                    RecordedStatus::Refunded
                } else {
                    RecordedStatus::NotCharged
                };
                (event.payment_id, (status, event.refund.clone()))
            }
        };
        self.ended(line.place, &fact, payment_id, end)
    }
}
