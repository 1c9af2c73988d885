//! The statement of a wallet as a page to print: HTML that needs nothing else. It is written as the entries are read. The
//! templates escape every text; the page has no script, and its policy forbids one.

use std::io::{self, Write};

use askama::Template;
use farthing_core::entry::Funds;
use farthing_core::ids::WalletId;
use farthing_core::money::Total;
use farthing_core::statement::Period;
use farthing_log::audit::Findings;
use farthing_log::audit::statement::{Closing, Output, StatementLine};
use farthing_log::verify::Head;

use super::statement::{Document, amounts};
use crate::output::timestamp;

#[derive(Template)]
#[template(path = "statement/head.html")]
struct PageHead<'a> {
    owner: Option<&'a str>,
    wallet: WalletId,
    period: String,
}

#[derive(Template, Default)]
#[template(path = "statement/row.html")]
struct Row<'a> {
    is_sum: bool,
    time: String,
    kind: &'a str,
    reference: String,
    change: String,
    balance: String,
    plan_credit: String,
    bundle_credit: String,
    note: String,
}

#[derive(Template)]
#[template(path = "statement/foot.html")]
struct Foot<'a> {
    opening: String,
    added: String,
    taken: String,
    closing: String,
    count: u64,
    head: Option<&'a Head>,
    findings: &'a Findings,
}

/// Writes the page.
pub(super) struct Page<W> {
    out: W,
    owner: Option<String>,
    wallet: WalletId,
    period: Period,
    opening: Funds,
    added: Total,
    taken: Total,
}

impl<W: Write> Page<W> {
    /// Nothing is written before the opening funds are known.
    pub(super) fn new(out: W, owner: Option<String>, wallet: WalletId, period: Period) -> Self {
        let (opening, added, taken) = (Funds::default(), Total::default(), Total::default());
        Self { out, owner, wallet, period, opening, added, taken }
    }

    fn head(&mut self) -> io::Result<()> {
        let period = match (self.period.from, self.period.to) {
            (Some(from), Some(to)) => {
                format!("from {} up to {}, which is not part of it", timestamp(from), timestamp(to))
            }
            (Some(from), None) => format!("from {} until now", timestamp(from)),
            (None, Some(to)) => format!("up to {}, which is not part of it", timestamp(to)),
            (None, None) => "everything until now".to_owned(),
        };
        render(&mut self.out, &PageHead { owner: self.owner.as_deref(), wallet: self.wallet, period })
    }

    fn sum(&mut self, kind: &str, funds: Funds) -> io::Result<()> {
        let [balance, plan_credit, bundle_credit] = amounts(funds);
        let row = Row { is_sum: true, kind, balance, plan_credit, bundle_credit, ..Row::default() };
        render(&mut self.out, &row)
    }
}

fn render(out: &mut impl Write, template: &impl Template) -> io::Result<()> {
    out.write_all(template.render().map_err(io::Error::other)?.as_bytes())?;
    out.write_all(b"\n")
}

/// The sum of the three parts.
fn total(funds: Funds) -> io::Result<String> {
    funds.total().map(|total| total.to_string()).map_err(io::Error::other)
}

fn shown(total: Total) -> String {
    format!("{:.10}", total.decimal())
}

impl<W: Write> Output for Page<W> {
    fn open(&mut self, opening: Funds) -> io::Result<()> {
        self.opening = opening;
        self.head()?;
        self.sum("opening", opening)
    }

    fn line(&mut self, line: &StatementLine) -> io::Result<()> {
        let StatementLine { occurred_at, entry, after, .. } = line;
        for part in [entry.change.balance, entry.change.plan_credit, entry.change.bundle_credit] {
            let side = if part.is_negative() { &mut self.taken } else { &mut self.added };
            *side = side.plus(part).map_err(io::Error::other)?;
        }
        let [balance, plan_credit, bundle_credit] = amounts(*after);
        render(
            &mut self.out,
            &Row {
                is_sum: false,
                time: occurred_at.format("%Y-%m-%d %H:%M:%S").to_string(),
                kind: entry.cause.kind(),
                reference: entry.cause.reference(),
                change: total(entry.change)?,
                balance,
                plan_credit,
                bundle_credit,
                note: entry.cause.note(),
            },
        )
    }
}

impl<W: Write> Document for Page<W> {
    fn close(mut self, closing: &Closing) -> io::Result<()> {
        self.sum("closing", closing.closing)?;
        let foot = Foot {
            opening: total(self.opening)?,
            added: shown(self.added),
            taken: shown(self.taken),
            closing: total(closing.closing)?,
            count: closing.count,
            head: closing.head.as_ref(),
            findings: &closing.findings,
        };
        render(&mut self.out, &foot)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use farthing_core::entry::{Cause, Entry};
    use farthing_core::ids::CreditId;
    use farthing_core::partition::Partition;
    use farthing_log::audit::Place;

    use super::*;

    const HOSTILE: &str = r#"<script>alert("1")</script>&'</td><!--"#;

    #[test]
    fn every_text_is_escaped() {
        let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let wallet_id: WalletId = format!("wal_{ulid}").parse().unwrap();
        let credit_id: CreditId = format!("crd_{ulid}").parse().unwrap();
        let mut out = Vec::new();
        let mut page = Page::new(&mut out, Some(HOSTILE.to_owned()), wallet_id, Period::default());
        page.open(Funds::default()).unwrap();
        let change = Funds { balance: "2.5".parse().unwrap(), ..Funds::default() };
        page.line(&StatementLine {
            place: Place { partition: Partition::new(0), position: 1 },
            occurred_at: DateTime::<Utc>::UNIX_EPOCH,
            entry: Entry {
                wallet_id,
                customer_id: None,
                cause: Cause::Credit { credit_id, reason: HOSTILE.to_owned() },
                change,
                stated_balance: None,
            },
            after: change,
        })
        .unwrap();
        let findings = Findings { findings: vec![HOSTILE.to_owned()], findings_count: 1 };
        page.close(&Closing { ok: false, count: 1, closing: change, head: None, findings }).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("<script") && !text.contains("<!--"), "{text}");
        assert_eq!(text.matches("&#60;script&#62;").count(), 4, "title, heading, note, finding: {text}");
        assert!(text.contains("The log has errors: 1 finding<"), "{text}");
        assert_eq!(
            text.matches("2.5000000000").count(),
            5,
            "change, balance, closing row, added, closing: {text}"
        );
    }
}
