//! Makes the rows of a partition from its events.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use farthing_core::entry::{Entry, Funds};
use farthing_core::event::{Event, Fact, MerchantEvent, RequestEvent};
use farthing_core::ids::{MerchantId, RequestId, WalletId};
use farthing_core::money;
use farthing_core::secret::hex;

use super::super::Error;
use super::super::findings::Findings;
use super::super::partition_reader::{Line, Visitor};
use super::focus::Seller;
use super::requests::{End, Opening};
use super::table::{Table, Value};
use super::{HashedPosition, Output, Selection, entries, events, focus, requests};
use crate::record::{self, Record};

/// The rows of a partition. What came before the exported range is folded, too: the funds of the wallets and the openings of
/// the calls come from it.
pub(super) struct Rows<'a, O> {
    selection: &'a Selection,
    after: &'a HashedPosition,
    output: &'a mut O,
    findings: &'a mut Findings,
    funds: HashMap<WalletId, Funds>,
    open: HashMap<RequestId, Opening>,
    names: HashMap<MerchantId, String>,
    has_events: bool,
}

impl<'a, O: Output> Rows<'a, O> {
    /// Nothing was read yet.
    pub(super) fn new(
        selection: &'a Selection,
        after: &'a HashedPosition,
        output: &'a mut O,
        findings: &'a mut Findings,
    ) -> Self {
        Self {
            selection,
            after,
            output,
            findings,
            funds: HashMap::new(),
            open: HashMap::new(),
            names: HashMap::new(),
            has_events: false,
        }
    }

    /// Whether an event of the merchant, or of any, was read. It need not be in the exported range.
    pub(super) const fn has_events(&self) -> bool {
        self.has_events
    }

    /// Whether rows of this event belong to the export.
    fn covers(&self, line: &Line<'_>, occurred_at: DateTime<Utc>) -> bool {
        line.place.position > self.after.position && self.selection.period.contains(occurred_at)
    }

    fn wants(&self, table: Table) -> bool {
        self.selection.tables.contains(&table)
    }

    fn give(&mut self, table: Table, row: &[Value]) -> Result<(), Error> {
        let columns = table.columns();
        assert_eq!(row.len(), columns.len(), "a row of {table:?} has a value for each column");
        for (column, value) in columns.iter().zip(row) {
            assert!(column.takes(value), "{table:?}: the column {} takes no {value:?}", column.name);
        }
        Ok(self.output.row(table, row)?)
    }

    /// The event that the previous export ended with must be the same one.
    fn compare(&mut self, line: &Line<'_>) {
        if line.place.position == self.after.position && hex(line.hash) != self.after.hash {
            let place = line.place;
            self.findings
                .find(|| format!("{place}: the event is not the one that the previous export ended with"));
        }
    }

    fn enter(&mut self, line: &Line<'_>, fact: &Fact) -> Result<(), Error> {
        let entry = match Entry::of(&fact.event) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.find_amount(line, error);
                return Ok(());
            }
        };
        let funds = self.funds.entry(entry.wallet_id).or_default();
        let after = match funds.plus(entry.change) {
            Ok(after) => after,
            Err(error) => {
                self.find_amount(line, error);
                return Ok(());
            }
        };
        *funds = after;
        if let Some(stated) = entry.stated_balance
            && stated != after.balance
        {
            let (place, balance) = (line.place, after.balance);
            self.findings.find(|| {
                format!("{place}: the balance after it is {stated} by the event, {balance} by the entries")
            });
        }
        if self.wants(Table::Entries) && self.covers(line, fact.occurred_at) {
            match entries::row(line, fact, &entry, after) {
                Ok(row) => self.give(Table::Entries, &row)?,
                Err(error) => self.find_amount(line, error),
            }
        }
        Ok(())
    }

    fn find_amount(&mut self, line: &Line<'_>, error: money::Error) {
        let place = line.place;
        self.findings.find(|| format!("{place}: an amount {error}"));
    }

    fn end(
        &mut self,
        line: &Line<'_>,
        fact: &Fact,
        request_id: RequestId,
        end: End<'_>,
    ) -> Result<(), Error> {
        let Some(opening) = self.open.remove(&request_id) else {
            let place = line.place;
            self.findings.find(|| format!("{place}: the request has an end, but no opening"));
            return Ok(());
        };
        if !self.covers(line, fact.occurred_at) {
            return Ok(());
        }
        if self.wants(Table::Requests) {
            self.give(Table::Requests, &requests::row(line, fact, &opening, end))?;
        }
        if let End::Metered(metered) = end
            && self.wants(Table::Focus)
        {
            let merchant = self.names.get(&fact.merchant_id).filter(|name| !name.is_empty());
            let seller = Seller { issuer: &self.selection.issuer, merchant: merchant.map(String::as_str) };
            let row = focus::row(line, fact, &opening, metered, seller);
            self.give(Table::Focus, &row)?;
        }
        Ok(())
    }

    fn take(&mut self, line: &Line<'_>, fact: Fact) -> Result<(), Error> {
        self.enter(line, &fact)?;
        match &fact.event {
            Event::Request(RequestEvent::Metered(event)) => {
                self.end(line, &fact, event.request_id, End::Metered(event))
            }
            Event::Request(RequestEvent::Failed(event)) => {
                self.end(line, &fact, event.request_id, End::Failed(event))
            }
            Event::Merchant(MerchantEvent::Registered(event)) => {
                self.names.insert(event.merchant_id, event.name.clone());
                Ok(())
            }
            Event::Request(RequestEvent::Opened(_)) => {
                let Event::Request(RequestEvent::Opened(event)) = fact.event else { return Ok(()) };
                self.open.insert(event.request_id, Opening { event, at: fact.occurred_at });
                Ok(())
            }
            Event::Merchant(MerchantEvent::ClockAdvanced(_))
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => Ok(()),
        }
    }
}

impl<O: Output> Visitor for Rows<'_, O> {
    fn findings(&mut self) -> &mut Findings {
        self.findings
    }

    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error> {
        self.compare(line);
        let fact = match record::decode(line.text) {
            Ok(fact) => fact,
            Err(error) => {
                let place = line.place;
                self.findings.find(|| format!("{place}: {error}"));
                return Ok(());
            }
        };
        if self.selection.merchant_id.is_some_and(|merchant_id| merchant_id != fact.merchant_id) {
            return Ok(());
        }
        self.has_events = true;
        if self.wants(Table::Events) && self.covers(line, fact.occurred_at) {
            match Record::parse(line.text) {
                Ok(record) => self.give(Table::Events, &events::row(line, &record))?,
                Err(error) => {
                    let place = line.place;
                    self.findings.find(|| format!("{place}: {error}"));
                }
            }
        }
        self.take(line, fact)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use farthing_core::event::codec;
    use farthing_core::partition::Partition;
    use farthing_core::statement::Period;

    use super::super::super::findings::Place;
    use super::*;

    const MERCHANT: &str = "mer_01M3250V0128T5CY4TQKFF0493";

    /// The names and values of the rows.
    #[derive(Default)]
    struct Collected(Vec<(Table, HashMap<&'static str, Value>)>);

    impl Output for Collected {
        fn row(&mut self, table: Table, row: &[Value]) -> io::Result<()> {
            let names = table.columns().iter().map(|column| column.name);
            self.0.push((table, names.zip(row.iter().cloned()).collect()));
            Ok(())
        }
    }

    /// The written form of an event, from its golden file.
    fn written(file: &str, occurred_at: DateTime<Utc>) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/golden");
        let body = std::fs::read_to_string(format!("{folder}/{file}.json")).unwrap();
        let (kind, _) = file.split_once(".v1").unwrap();
        let event = codec::decode(kind, 1, body.trim_end()).unwrap();
        let mut line = String::new();
        record::write(&Fact { merchant_id: MERCHANT.parse().unwrap(), occurred_at, event }, &mut line);
        line
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    /// The rows of events that occurred a second apart, from the second 1 on, and the findings.
    fn rows(files: &[&str], after: (i64, [u8; 32]), period: Period) -> (Collected, Findings) {
        let selection = Selection {
            tables: vec![Table::Requests, Table::Entries, Table::Events, Table::Focus],
            period,
            merchant_id: None,
            partition: None,
            since: None,
            issuer: "Operator".to_owned(),
        };
        let after = HashedPosition { position: after.0, hash: hex(&after.1) };
        let (mut collected, mut findings) = (Collected::default(), Findings::default());
        let mut rows = Rows::new(&selection, &after, &mut collected, &mut findings);
        for (file, position) in files.iter().zip(1..) {
            let text = written(file, at(position));
            let place = Place { partition: Partition::new(3), position };
            let recorded_at = at(position);
            rows.visit(&Line { place, text: &text, recorded_at, writer: "w", hash: &HASH }).unwrap();
        }
        (collected, findings)
    }

    const HASH: [u8; 32] = [7; 32];

    const CALL: [&str; 3] = ["merchant.registered.v1", "request.opened.v1.priced", "request.metered.v1"];

    #[test]
    fn a_call_that_ends_after_the_previous_export_has_what_its_opening_said() {
        let (collected, findings) = rows(&CALL, (2, HASH), Period::default());
        assert!(findings.is_empty(), "{findings:?}");
        let tables: Vec<_> = collected.0.iter().map(|(table, _)| *table).collect();
        assert_eq!(tables, [Table::Events, Table::Requests, Table::Focus]);
        let text = |text: &str| Value::Text(text.to_owned());
        let request = &collected.0[1].1;
        for (name, value) in [
            ("position", Value::Integer(3)),
            ("opened_at", Value::Time(at(2))),
            ("ended_at", Value::Time(at(3))),
            ("provider_key_type", text("managed")),
            ("requested_model", text("gpt-4o")),
            ("model", text("gpt-4o-2024-08-06")),
            ("marks", text("usage_missing partial overrun")),
            ("overrun", Value::Amount("0.3".parse().unwrap())),
            ("input_seconds", Value::Quantity("1.25".parse().unwrap())),
        ] {
            assert_eq!(request[name], value, "{name}");
        }
        let focus = &collected.0[2].1;
        for (name, value) in [
            ("BillingAccountName", text("Müller & Söhne")),
            ("InvoiceIssuerName", text("Operator")),
            ("SkuId", text("openai/gpt-4o-2024-08-06")),
            ("ConsumedQuantity", Value::Quantity(201_200.into())),
            ("PricingQuantity", Value::Quantity(200_000.into())),
            ("BilledCost", Value::Amount("0.8152".parse().unwrap())),
            ("ChargeClass", Value::Null),
        ] {
            assert_eq!(focus[name], value, "{name}");
        }
    }

    #[test]
    fn the_end_of_a_call_alone_decides_its_period() {
        let ends_in = |from, to| {
            let (collected, _) = rows(&CALL, (0, HASH), Period { from: Some(at(from)), to: Some(at(to)) });
            collected.0.iter().filter(|(table, _)| *table == Table::Requests).count()
        };
        assert_eq!([ends_in(3, 4), ends_in(1, 3), ends_in(4, 9)], [1, 0, 0]);
    }

    #[test]
    fn the_funds_after_an_entry_include_what_came_before_the_export() {
        let files = ["wallet.credited.v1"; 2];
        let (whole, _) = rows(&files, (0, HASH), Period::default());
        let (part, _) = rows(&files, (1, HASH), Period::default());
        let entries = |collected: &Collected| -> Vec<_> {
            collected
                .0
                .iter()
                .filter(|(table, _)| *table == Table::Entries)
                .map(|(_, row)| row.clone())
                .collect()
        };
        assert_eq!((entries(&whole).len(), entries(&part)), (2, entries(&whole)[1..].to_vec()));
    }

    #[test]
    fn another_event_than_the_one_that_the_previous_export_ended_with_is_found() {
        let found = |hash| {
            let (collected, findings) = rows(&CALL[..1], (1, hash), Period::default());
            assert!(collected.0.is_empty());
            findings.findings
        };
        assert_eq!(found(HASH), [""; 0]);
        let expected =
            "partition 3, position 1: the event is not the one that the previous export ended with";
        assert_eq!(found([8; 32]), [expected]);
    }
}
