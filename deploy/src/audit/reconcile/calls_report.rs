//! The calls that somebody must look at, printed as they are found, and the sums of all classes.

use std::io::{self, BufWriter, StdoutLock, Write};

use farthing_core::reconcile::calls::{CallClass, CallTotals};
use farthing_log::audit::reconcile::calls::{CallItem, CallReport, Output};

use super::table::{self, ColumnOf, number, text};
use crate::audit::figures_end;
use crate::audit::flags::Format;
use crate::csv_text::{self, no_formula};
use crate::output::{self, Shown, timestamp};

const HEADER: [&str; 14] = [
    "class",
    "request_id",
    "partition",
    "position",
    "occurred_at",
    "merchant_id",
    "customer_id",
    "provider",
    "model",
    "gateway_id",
    "age_seconds",
    "hold",
    "charged",
    "overrun",
];

const TOTALS: [ColumnOf; 5] =
    [text("class"), number("calls"), number("hold"), number("charged"), number("overrun")];

type Stdout = BufWriter<StdoutLock<'static>>;

/// Prints the calls.
pub(super) struct CallsReport {
    writer: Writer,
    has_calls: bool,
}

enum Writer {
    Text(Stdout),
    Csv(Box<csv::Writer<Stdout>>),
    Json(Stdout),
}

impl CallsReport {
    pub(super) fn new(format: Format) -> Self {
        let out = table::stdout();
        let writer = match format {
            Format::Text => Writer::Text(out),
            Format::Csv => Writer::Csv(Box::new(csv_text::writer(out))),
            Format::Json => Writer::Json(out),
        };
        Self { writer, has_calls: false }
    }

    fn begin(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Writer::Text(_) => Ok(()),
            Writer::Csv(csv) => Ok(csv.write_record(HEADER)?),
            Writer::Json(out) => out.write_all(br#"{"calls":["#),
        }
    }

    /// Prints the sums.
    pub(super) fn close(mut self, report: &CallReport) -> io::Result<()> {
        if !self.has_calls {
            self.begin()?;
        }
        match self.writer {
            Writer::Text(mut out) => {
                if self.has_calls {
                    writeln!(out)?;
                }
                let classes = report.sums.classes.iter();
                let row = |name: &str, sums: &CallTotals| {
                    let money = [sums.hold, sums.charged, sums.overrun];
                    let money = money.map(|sum| format!("{:.10}", sum.decimal()));
                    [name.to_owned(), sums.count.to_string()].into_iter().chain(money).collect::<Vec<_>>()
                };
                let mut rows: Vec<_> = classes.map(|(class, sums)| row(class.name(), sums)).collect();
                rows.push(row("total", &report.sums.total));
                table::write_text(&mut out, &TOTALS, &rows)?;
                figures_end::write(&mut out, &report.heads, &report.findings)?;
                out.flush()
            }
            Writer::Csv(mut csv) => csv.flush(),
            Writer::Json(mut out) => {
                let members = output::json(report)?;
                writeln!(out, "],{}", members.strip_prefix('{').unwrap_or(&members))?;
                out.flush()
            }
        }
    }
}

impl Output for CallsReport {
    fn call(&mut self, item: &CallItem) -> io::Result<()> {
        if !self.has_calls {
            self.begin()?;
        }
        let is_first = !self.has_calls;
        self.has_calls = true;
        match &mut self.writer {
            Writer::Text(out) => write_line(out, item),
            Writer::Csv(csv) => Ok(csv.write_record(fields(item))?),
            Writer::Json(out) => {
                let comma = if is_first { "" } else { "," };
                write!(out, "{comma}{}", output::json(item)?)
            }
        }
    }
}

fn fields(item: &CallItem) -> [String; 14] {
    let some = |text: Option<String>| text.unwrap_or_default();
    [
        item.class.name().to_owned(),
        item.request_id.to_string(),
        item.place.partition.to_string(),
        item.place.position.to_string(),
        timestamp(item.occurred_at),
        item.merchant_id.to_string(),
        some(item.customer_id.map(|id| id.to_string())),
        no_formula(item.provider.as_deref().unwrap_or_default()).into_owned(),
        no_formula(item.model.as_deref().unwrap_or_default()).into_owned(),
        some(item.gateway_id.map(|id| id.to_string())),
        some(item.age_seconds.map(|age| age.to_string())),
        item.money.hold.to_string(),
        item.money.charged.to_string(),
        item.money.overrun.to_string(),
    ]
}

/// A call with the money that its class is about.
fn write_line(out: &mut impl Write, item: &CallItem) -> io::Result<()> {
    let class = item.class.name();
    let (at, request) = (timestamp(item.occurred_at), item.request_id);
    // Both are texts of callers.
    let [provider, model] = [&item.provider, &item.model].map(|text| Shown(text.as_deref().unwrap_or("-")));
    let money = item.money;
    let about = match item.class {
        CallClass::OpenAtDeadGateway | CallClass::InFlight => {
            let gateway = item.gateway_id.map(|id| id.to_string()).unwrap_or_default();
            let age = item.age_seconds.unwrap_or_default();
            format!("open for {age} s at {gateway}, hold {}", money.hold)
        }
        CallClass::Abandoned
        | CallClass::Unsettleable
        | CallClass::EndedWithoutUsage
        | CallClass::NotCharged => format!("not charged, hold {}", money.hold),
        CallClass::UsageInvalid if money.charged.is_zero() => format!("not charged, hold {}", money.hold),
        CallClass::UsageInvalid
        | CallClass::HoldCharged
        | CallClass::Partial
        | CallClass::UsageMissing
        | CallClass::Overrun
        | CallClass::Metered => {
            let overrun = money.overrun;
            let overrun = if overrun.is_zero() { String::new() } else { format!(", overrun {overrun}") };
            format!("charged {}{overrun}", money.charged)
        }
    };
    writeln!(out, "{class:<20}  {at}  {request}  {provider}  {model}  {about}")
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use farthing_core::partition::Partition;
    use farthing_core::reconcile::calls::CallMoney;
    use farthing_log::audit::Place;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_in_a_callers_text_is_shown_as_an_escape() {
        let item = CallItem {
            class: CallClass::UsageMissing,
            request_id: "req_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
            place: Place { partition: Partition::new(0), position: 1 },
            occurred_at: DateTime::UNIX_EPOCH,
            merchant_id: "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
            customer_id: None,
            provider: Some("a\u{1b}[2J\nusage_missing".to_owned()),
            model: Some("b\u{9b}2J\u{202e}\"c\"".to_owned()),
            gateway_id: None,
            age_seconds: None,
            money: CallMoney::default(),
        };
        let mut out = Vec::new();
        write_line(&mut out, &item).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "usage_missing         1970-01-01T00:00:00.000Z  req_01ARZ3NDEKTSV4RRFFQ69G5FAV  \
             a\\u{1b}[2J\\nusage_missing  b\\u{9b}2J\\u{202e}\"c\"  charged 0.0000000000\n"
        );
        let item = CallItem { provider: None, model: None, ..item };
        let mut out = Vec::new();
        write_line(&mut out, &item).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert!(line.contains("FAV  -  -  charged"), "{line}");
    }
}
