//! The metered usage of the log against a provider's export. Memory is bounded by the export, the days and models of the
//! period, and the calls that are open at once.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use farthing_core::event::{Event, Fact, ProviderKeyType, RequestEvent, RequestMetered};
use farthing_core::ids::RequestId;
use farthing_core::reconcile::usage::{Figures, Measure, RecordedUsage, UsageKey, UsageReport, UsageRow};
use farthing_core::statement::Period;
use rust_decimal::Decimal;
use serde::Serialize;

use crate::audit::Error;
use crate::audit::findings::Findings;
use crate::audit::partition_reader::{Ends, Line};
use crate::audit::reconcile::find_unopened;
use crate::audit::whole_log::{self, Reader, checked};
use crate::connect::{self, Role};
use crate::record;
use crate::verify::{Head, Progress};

/// What is compared.
#[derive(Debug)]
pub struct UsagePlan {
    /// The provider's name in the log.
    pub provider: String,
    /// Calls on keys of this owner count; both, if absent.
    pub keys: Option<ProviderKeyType>,
    /// The first day, in UTC.
    pub from: NaiveDate,
    /// The first day after the last one.
    pub to: NaiveDate,
    /// The rows of the export.
    pub rows: Vec<UsageRow>,
    /// The figures that the export has.
    pub measures: BTreeSet<Measure>,
    /// The largest difference of a cost that is none.
    pub tolerance: Decimal,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct UsageReconciliation {
    /// There is no difference, and nothing is wrong with the log.
    pub ok: bool,
    /// The provider.
    pub provider: String,
    /// The first day, in UTC.
    pub from: NaiveDate,
    /// The first day after the last one.
    pub to: NaiveDate,
    /// The matches.
    #[serde(flatten)]
    pub report: UsageReport,
    /// The last event of each partition.
    pub heads: Vec<Head>,
    /// What is wrong with the log.
    #[serde(flatten)]
    pub findings: Findings,
}

/// Compares the usage of the log with an export. Gateways may write meanwhile.
pub async fn usage(
    database_url: &str,
    plan: UsagePlan,
    progress: &Progress,
) -> Result<UsageReconciliation, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let midnight = |day: NaiveDate| Some(day.and_time(NaiveTime::MIN).and_utc());
    let period = Period { from: midnight(plan.from), to: midnight(plan.to) };
    let mut reading = Reading {
        period,
        plan,
        open: HashMap::new(),
        usage: RecordedUsage::default(),
        findings: Findings::default(),
    };
    let heads = whole_log::read(&client, &ends, progress, &mut reading).await?;
    let Reading { plan, usage, findings, .. } = reading;
    let UsagePlan { provider, from, to, rows, measures, tolerance, .. } = plan;
    let report = usage.compare(rows, measures, tolerance)?;
    let ok = findings.is_empty() && !report.has_differences();
    Ok(UsageReconciliation { ok, provider, from, to, report, heads, findings })
}

/// The day after.
pub fn next_day(day: NaiveDate) -> NaiveDate {
    day.checked_add_days(Days::new(1)).unwrap_or(NaiveDate::MAX)
}

/// The opening of a call that counts.
struct Opened {
    model: Option<String>,
    opened_at: DateTime<Utc>,
}

struct Reading {
    period: Period,
    plan: UsagePlan,
    /// The open calls; `None` for one that does not count.
    open: HashMap<RequestId, Option<Opened>>,
    usage: RecordedUsage,
    findings: Findings,
}

impl Reading {
    /// Adds a call, on the day of its admission, under the model of its response.
    fn metered(&mut self, line: &Line<'_>, metered: &RequestMetered) {
        let Some(opened) = self.open.remove(&metered.request_id) else {
            let (usage, model) = (&metered.usage.tokens, metered.model.as_deref().unwrap_or_default());
            let (input, output, cost) = (usage.input, usage.output, metered.model_cost.total);
            let so = format_args!(
                "not compared: model {model:?}, {input} input tokens, {output} output tokens, provider's cost {cost}"
            );
            find_unopened(&mut self.findings, line.place, metered.request_id, so);
            return;
        };
        let Some(Opened { model, opened_at }) = opened else { return };
        if !self.period.contains(opened_at) {
            return;
        }
        let model = metered.model.clone().or(model).unwrap_or_default();
        let key = UsageKey { day: opened_at.date_naive(), model };
        let added = self.usage.add(key, &Figures::of(metered));
        checked(&mut self.findings, line.place, added);
    }
}

impl Reader for Reading {
    fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    fn wants(&mut self, line: &Line<'_>) -> bool {
        record::kind(line.text).starts_with("request.")
    }

    fn read(&mut self, line: &Line<'_>, fact: Fact) -> Result<(), Error> {
        let Event::Request(event) = fact.event else { return Ok(()) };
        match event {
            RequestEvent::Opened(opened) => {
                let counts = self.plan.keys.is_none_or(|keys| keys == opened.provider_key_type)
                    && opened.provider == self.plan.provider;
                let open = Opened { model: opened.model, opened_at: fact.occurred_at };
                self.open.insert(opened.request_id, counts.then_some(open));
            }
            RequestEvent::Metered(metered) => self.metered(line, &metered),
            RequestEvent::Failed(failed) => {
                if self.open.remove(&failed.request_id).is_none() {
                    find_unopened(&mut self.findings, line.place, failed.request_id, "it has no usage");
                }
            }
        }
        Ok(())
    }
}
