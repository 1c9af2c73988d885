//! The calls of a period by class, with those that somebody must look at. Memory is bounded by the calls that are open at
//! once: each call that is listed is given away as its end is read.

use std::collections::{BTreeSet, HashMap};
use std::io;

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, Fact, Hold, RequestEvent, RequestFailed, RequestMetered, RequestOpened};
use farthing_core::ids::{CustomerId, GatewayId, MerchantId, RequestId};
use farthing_core::reconcile::calls::{CallClass, CallMoney, CallSums};
use farthing_core::statement::Period;
use serde::Serialize;

use crate::audit::Error;
use crate::audit::findings::{Findings, Place};
use crate::audit::partition_reader::{Ends, Line};
use crate::audit::reconcile::find_unopened;
use crate::audit::whole_log::{self, Reader};
use crate::connect::{self, Role};
use crate::record;
use crate::verify::{Head, Progress};

/// The gateways that are alive, and the time by Postgres's clock.
const ALIVE: &str = "\
SELECT clock_timestamp() AS now,
    ARRAY(SELECT gateway FROM ledger.gateways WHERE expires_at > clock_timestamp()) AS gateways";

/// A call that is listed.
#[derive(Debug, Serialize)]
pub struct CallItem {
    /// Its class.
    pub class: CallClass,
    /// The call.
    pub request_id: RequestId,
    /// The place of its end; of its opening, if it is open.
    #[serde(flatten)]
    pub place: Place,
    /// When it ended; when it was opened, if it is open.
    pub occurred_at: DateTime<Utc>,
    /// Its merchant.
    pub merchant_id: MerchantId,
    /// Its customer.
    pub customer_id: Option<CustomerId>,
    /// Its provider.
    pub provider: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// The gateway that carried it.
    pub gateway_id: Option<GatewayId>,
    /// The seconds since it was appended, if it is open.
    pub age_seconds: Option<i64>,
    /// Its money.
    #[serde(flatten)]
    pub money: CallMoney,
}

/// Is given the calls that are listed, in the order of the log; open ones last.
pub trait Output {
    /// The next call.
    fn call(&mut self, item: &CallItem) -> io::Result<()>;
}

/// The end of a reconciliation of calls.
#[derive(Debug, Serialize)]
pub struct CallReport {
    /// Nothing must be looked at, and nothing is wrong with the log.
    pub ok: bool,
    /// The period: calls that ended in it, and open ones that were opened in it.
    pub period: Period,
    /// The sums by class.
    #[serde(flatten)]
    pub sums: CallSums,
    /// The last event of each partition.
    pub heads: Vec<Head>,
    /// What is wrong with the log.
    #[serde(flatten)]
    pub findings: Findings,
}

/// Lists the calls of a period that somebody must look at, and counts all. Gateways may write meanwhile.
pub async fn calls(
    database_url: &str,
    period: Period,
    progress: &Progress,
    output: &mut impl Output,
) -> Result<CallReport, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let mut reading = Reading {
        period,
        output,
        open: HashMap::new(),
        sums: CallSums::default(),
        findings: Findings::default(),
    };
    let heads = whole_log::read(&client, &ends, progress, &mut reading).await?;
    let row = client.query_one(ALIVE, &[]).await?;
    let (now, alive): (DateTime<Utc>, Vec<String>) = (row.try_get("now")?, row.try_get("gateways")?);
    reading.list_open(now, &alive.into_iter().collect())?;
    let Reading { sums, findings, .. } = reading;
    sums.assert_sums()?;
    let ok = findings.is_empty() && !sums.needs_attention();
    Ok(CallReport { ok, period, sums, heads, findings })
}

/// The opening of a call that has not ended.
struct Opened {
    place: Place,
    merchant_id: MerchantId,
    occurred_at: DateTime<Utc>,
    recorded_at: DateTime<Utc>,
    terms: Box<RequestOpened>,
}

struct Reading<'a, O> {
    period: Period,
    output: &'a mut O,
    open: HashMap<RequestId, Opened>,
    sums: CallSums,
    findings: Findings,
}

impl<O: Output> Reading<'_, O> {
    fn metered(&mut self, line: &Line<'_>, fact: &Fact, metered: &RequestMetered) -> Result<(), Error> {
        let (class, money) = (CallClass::of_metered(metered), CallMoney::charged(metered));
        let model = metered.model.clone();
        self.ended(line.place, fact, (metered.request_id, metered.parties.customer_id), model, class, money)
    }

    fn failed(&mut self, line: &Line<'_>, fact: &Fact, failed: &RequestFailed) -> Result<(), Error> {
        let money = self.held(line.place, failed.request_id, failed.hold);
        let class = CallClass::of_failed(failed);
        let model = failed.model.clone();
        self.ended(line.place, fact, (failed.request_id, failed.parties.customer_id), model, class, money)
    }

    /// The money of a call with this hold. One that does not add up is found, and counts as zero.
    fn held(&mut self, place: Place, request_id: RequestId, hold: Hold) -> CallMoney {
        CallMoney::held(hold).unwrap_or_else(|error| {
            let Hold { wallet, merchant, .. } = hold;
            self.findings.find(|| {
                format!(
                    "{place}: the hold of {request_id} is not counted: {wallet} on the customer's wallet and {merchant} on \
                     the merchant's: their sum {error}"
                )
            });
            CallMoney::default()
        })
    }

    fn ended(
        &mut self,
        place: Place,
        fact: &Fact,
        (request_id, customer_id): (RequestId, Option<CustomerId>),
        model: Option<String>,
        class: CallClass,
        money: CallMoney,
    ) -> Result<(), Error> {
        let opened = self.open.remove(&request_id).map(|open| open.terms);
        if opened.is_none() {
            find_unopened(&mut self.findings, place, request_id, "its provider is not known");
        }
        if !self.period.contains(fact.occurred_at) {
            return Ok(());
        }
        self.sums.add(class, money)?;
        if !class.is_listed() {
            return Ok(());
        }
        let model = model.or_else(|| opened.as_ref()?.model.clone());
        self.output.call(&CallItem {
            class,
            request_id,
            place,
            occurred_at: fact.occurred_at,
            merchant_id: fact.merchant_id,
            customer_id,
            provider: opened.as_ref().map(|opened| opened.provider.clone()),
            model,
            gateway_id: opened.as_ref().map(|opened| opened.gateway_id),
            age_seconds: None,
            money,
        })?;
        Ok(())
    }

    /// Lists what is open at the end of the log, oldest first.
    fn list_open(&mut self, now: DateTime<Utc>, alive: &BTreeSet<String>) -> Result<(), Error> {
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by_key(|(request_id, open)| (open.recorded_at, *request_id));
        for (request_id, Opened { place, merchant_id, occurred_at, recorded_at, terms: opened }) in open {
            if !self.period.contains(occurred_at) {
                continue;
            }
            let is_alive = alive.contains(&opened.gateway_id.to_string());
            let class = if is_alive { CallClass::InFlight } else { CallClass::OpenAtDeadGateway };
            let money = self.held(place, request_id, opened.hold);
            self.sums.add(class, money)?;
            self.output.call(&CallItem {
                class,
                request_id,
                place,
                occurred_at,
                merchant_id,
                customer_id: opened.parties.customer_id,
                provider: Some(opened.provider),
                model: opened.model,
                gateway_id: Some(opened.gateway_id),
                age_seconds: Some((now - recorded_at).num_seconds()),
                money,
            })?;
        }
        Ok(())
    }
}

impl<O: Output> Reader for Reading<'_, O> {
    fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    fn wants(&mut self, line: &Line<'_>) -> bool {
        record::kind(line.text).starts_with("request.")
    }

    fn read(&mut self, line: &Line<'_>, fact: Fact) -> Result<(), Error> {
        if let Event::Request(RequestEvent::Metered(metered)) = &fact.event {
            self.metered(line, &fact, metered)
        } else if let Event::Request(RequestEvent::Failed(failed)) = &fact.event {
            self.failed(line, &fact, failed)
        } else if let Event::Request(RequestEvent::Opened(opened)) = fact.event {
            let Fact { merchant_id, occurred_at, .. } = fact;
            let (place, recorded_at) = (line.place, line.recorded_at);
            self.open.insert(
                opened.request_id,
                Opened { place, merchant_id, occurred_at, recorded_at, terms: opened },
            );
            Ok(())
        } else {
            Ok(())
        }
    }
}
