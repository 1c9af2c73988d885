//! The list of a payment processor, read by a mapping of its columns.

use std::collections::BTreeMap;

use anyhow::Result;
use farthing_core::money::Amount;
use farthing_core::reconcile::payments::{ListedPayment, ListedStatus};
use rust_decimal::Decimal;
use serde::Deserialize;

use super::csv_file::{Column, CsvFile, CsvRow};

/// The columns of a processor's list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaymentMapping {
    /// The id: the processor's, or ours.
    id: String,
    /// Our id (`pay_…`), if the list has it apart.
    payment_id: Option<String>,
    /// The amount.
    amount: String,
    /// Whether the amount is in cents.
    #[serde(default)]
    in_cents: bool,
    /// The currency, which must be USD in every row.
    currency: Option<String>,
    /// The status.
    status: String,
    /// What the statuses of the list mean.
    statuses: BTreeMap<String, ListedStatus>,
    /// The time, which is shown alone.
    time: Option<String>,
    /// The delimiter; a comma if absent.
    pub(super) delimiter: Option<char>,
}

impl PaymentMapping {
    /// The mapping of a list with columns named as here. Currency, time and `payment_id` may be absent.
    pub(super) fn plain(file: &CsvFile) -> Self {
        let if_there = |name: &str| file.has(name).then(|| name.to_owned());
        let statuses =
            [ListedStatus::Succeeded, ListedStatus::Failed, ListedStatus::Refunded, ListedStatus::Pending];
        Self {
            id: "id".to_owned(),
            payment_id: if_there("payment_id"),
            amount: "amount".to_owned(),
            in_cents: false,
            currency: if_there("currency"),
            status: "status".to_owned(),
            statuses: statuses.into_iter().map(|status| (status.name().to_owned(), status)).collect(),
            time: if_there("time"),
            delimiter: None,
        }
    }

    /// The rows of a list.
    pub(super) fn rows(&self, file: &CsvFile) -> Result<Vec<ListedPayment>> {
        let optional = |name: &Option<String>| name.as_ref().map(|name| file.column(name)).transpose();
        let columns = Columns {
            id: file.column(&self.id)?,
            payment_id: optional(&self.payment_id)?,
            amount: file.column(&self.amount)?,
            currency: optional(&self.currency)?,
            status: file.column(&self.status)?,
            time: optional(&self.time)?,
        };
        file.rows().iter().map(|row| self.row(row, &columns)).collect()
    }

    fn row(&self, row: &CsvRow, columns: &Columns) -> Result<ListedPayment> {
        if let Some(currency) = &columns.currency {
            in_dollars(row, currency)?;
        }
        let status = self.statuses.get(row.required(&columns.status)?).ok_or_else(|| {
            let known: Vec<_> = self.statuses.keys().map(String::as_str).collect();
            row.error(
                &columns.status,
                &format!("is no known status: map it in `statuses` ({})", known.join(", ")),
            )
        })?;
        row.required(&columns.amount)?;
        let number = row.number(&columns.amount)?;
        if self.in_cents && !number.fract().is_zero() {
            return Err(row.error(&columns.amount, "is not a whole number of cents"));
        }
        let number = if self.in_cents { number / Decimal::ONE_HUNDRED } else { number };
        let amount: Amount = number
            .to_string()
            .parse()
            .map_err(|error: farthing_core::money::Error| row.error(&columns.amount, &error.to_string()))?;
        if amount.is_negative() {
            return Err(row.error(&columns.amount, "is negative: leave refunds out, or list them by status"));
        }
        let text = |column: &Option<Column>| {
            let text = column.as_ref().map(|column| row.text(column).to_owned());
            text.filter(|text| !text.is_empty())
        };
        Ok(ListedPayment {
            line: row.line,
            id: row.required(&columns.id)?.to_owned(),
            payment_id: text(&columns.payment_id),
            amount,
            status: *status,
            time: text(&columns.time),
        })
    }
}

struct Columns {
    id: Column,
    payment_id: Option<Column>,
    amount: Column,
    currency: Option<Column>,
    status: Column,
    time: Option<Column>,
}

/// Refuses a row in another currency.
pub(super) fn in_dollars(row: &CsvRow, currency: &Column) -> Result<()> {
    if row.required(currency)?.eq_ignore_ascii_case("usd") {
        return Ok(());
    }
    Err(row.error(currency, "is not USD, in which the log counts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> CsvFile {
        CsvFile::parse(text.as_bytes(), b',').unwrap()
    }

    fn plain(text: &str) -> Result<Vec<ListedPayment>> {
        let file = file(text);
        PaymentMapping::plain(&file).rows(&file)
    }

    #[test]
    fn a_list_with_our_own_names_needs_no_mapping() {
        let rows = plain("id,amount,status,other\nch_1,12.50,succeeded,x\nch_2,3,failed,x\n").unwrap();
        assert_eq!(
            (rows[0].line, rows[0].id.as_str(), rows[0].amount.to_string().as_str()),
            (2, "ch_1", "12.5000000000")
        );
        assert_eq!((rows[1].status, &rows[1].time), (ListedStatus::Failed, &None));
    }

    #[test]
    fn a_mapping_names_the_columns_and_the_statuses() {
        let mapping = r#"{"id": "id", "payment_id": "payment_id (metadata)", "amount": "Amount", "currency": "Currency",
            "status": "Status", "statuses": {"Paid": "succeeded", "Failed": "failed", "Refunded": "refunded"},
            "time": "Created date (UTC)"}"#;
        let mapping: PaymentMapping = serde_json::from_str(mapping).unwrap();
        let text = "id,Created date (UTC),Amount,Amount Refunded,Currency,Status,payment_id (metadata)\n\
            ch_1,2026-11-05 20:38:34,31.25,0.00,usd,Paid,pay_1\nch_2,2026-11-05 20:39:00,5.00,5.00,USD,Refunded,\n";
        let rows = mapping.rows(&file(text)).unwrap();
        assert_eq!(
            (rows[0].payment_id.as_deref(), rows[0].time.as_deref()),
            (Some("pay_1"), Some("2026-11-05 20:38:34"))
        );
        assert_eq!((rows[1].payment_id.as_deref(), rows[1].status), (None, ListedStatus::Refunded));
        let unknown = serde_json::from_str::<PaymentMapping>(r#"{"id": "id", "amounts": "x"}"#).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `amounts`"), "{unknown}");
    }

    #[test]
    fn whole_cents_are_divided_exactly() {
        let mapping = r#"{"id": "id", "amount": "a", "in_cents": true, "status": "s", "statuses": {"ok": "succeeded"}}"#;
        let mapping: PaymentMapping = serde_json::from_str(mapping).unwrap();
        let rows = mapping.rows(&file("id,a,s\nx,1999,ok\n")).unwrap();
        assert_eq!(rows[0].amount.to_string(), "19.9900000000");
        let rows = mapping.rows(&file("id,a,s\nx,1999.00,ok\n")).unwrap();
        assert_eq!(rows[0].amount.to_string(), "19.9900000000");
        for text in ["19.99", "1999.5", "0.001"] {
            let error = mapping.rows(&file(&format!("id,a,s\nx,{text},ok\n"))).unwrap_err().to_string();
            assert_eq!(error, format!("line 2, column \"a\": \"{text}\" is not a whole number of cents"));
        }
    }

    #[test]
    fn bad_values_are_refused_with_line_and_column() {
        for (text, why) in [
            ("id,amount,status\na,1,odd\n", "line 2, column \"status\": \"odd\" is no known status"),
            ("id,amount,status\na,,succeeded\n", "line 2, column \"amount\": the value is missing"),
            ("id,amount,status\n,1,succeeded\n", "line 2, column \"id\": the value is missing"),
            ("id,amount,status\na,\"1,000.00\",succeeded\n", "thousands separators"),
            ("id,amount,status\na,-1,succeeded\n", "\"-1\" is negative"),
            ("id,amount,status\na,0.00000000001,succeeded\n", "at most ten fractional digits"),
            (
                "id,amount,status,currency\na,1,succeeded,eur\n",
                "line 2, column \"currency\": \"eur\" is not USD",
            ),
            (
                "id,sum,status\na,1,succeeded\n",
                "the file has no column \"amount\": its columns are id, sum, status",
            ),
        ] {
            let error = format!("{:#}", plain(text).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }
}
