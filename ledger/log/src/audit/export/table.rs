//! The tables of an export: their columns, and the values of a row.
//!
//! Invariant: a row has a value for each column of its table, of the column's kind; see [`Column::takes`].

use std::fmt::Display;

use chrono::{DateTime, Utc};
use farthing_core::money::Amount;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::{entries, events, focus, requests};

/// A table of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// A row for each ended request.
    Requests,
    /// A row for each entry of a wallet.
    Entries,
    /// A row for each event of the log.
    Events,
    /// A row for each charged or counted call, with the columns of the FOCUS specification.
    Focus,
}

impl Table {
    /// The name of its file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Entries => "entries",
            Self::Events => "events",
            Self::Focus => "focus",
        }
    }

    /// Its columns, in their order.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Requests => requests::COLUMNS,
            Self::Entries => entries::COLUMNS,
            Self::Events => events::COLUMNS,
            Self::Focus => focus::COLUMNS,
        }
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text that Farthing wrote: ids, names of kinds, hashes.
    Name,
    /// Text that a caller, a merchant or a provider chose.
    Text,
    /// One JSON object or list.
    Json,
    /// A whole number.
    Integer,
    /// US dollars, with at most ten fractional digits.
    Amount,
    /// A count that may be fractional, with at most ten fractional digits.
    Quantity,
    /// A time, to the microsecond.
    Time,
    /// A time, to the second.
    Second,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row may have no value.
    pub is_nullable: bool,
}

impl Column {
    /// A column with a value in each row.
    pub(super) const fn required(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, is_nullable: false }
    }

    /// A column without a value in some rows.
    pub(super) const fn optional(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, is_nullable: true }
    }

    /// Whether the value may stand in the column.
    pub fn takes(&self, value: &Value) -> bool {
        match value {
            Value::Null => self.is_nullable,
            Value::Text(_) => matches!(self.kind, Kind::Name | Kind::Text | Kind::Json),
            Value::Integer(_) => self.kind == Kind::Integer,
            Value::Amount(_) => self.kind == Kind::Amount,
            Value::Quantity(_) => self.kind == Kind::Quantity,
            Value::Time(_) => matches!(self.kind, Kind::Time | Kind::Second),
        }
    }
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Null,
    /// Text, or JSON.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// US dollars.
    Amount(Amount),
    /// A count.
    Quantity(Decimal),
    /// A time.
    Time(DateTime<Utc>),
}

impl Value {
    /// The text of an id or of a name.
    pub(super) fn name(name: impl Display) -> Self {
        Self::Text(name.to_string())
    }

    /// The text of an id, or nothing.
    pub(super) fn name_or_null(name: Option<impl Display>) -> Self {
        name.map_or(Self::Null, Self::name)
    }

    /// Text that was chosen elsewhere, or nothing.
    pub(super) fn text_or_null(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.to_owned()))
    }

    /// A count of at most 10^12.
    pub(super) fn count(count: u64) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// A time, or nothing.
    pub(super) fn time_or_null(at: Option<DateTime<Utc>>) -> Self {
        at.map_or(Self::Null, Self::Time)
    }

    /// The name of a variant in the log.
    pub(super) fn variant(variant: &impl Serialize) -> Self {
        Self::Text(variant_name(variant))
    }

    /// JSON.
    pub(super) fn json(value: &impl Serialize) -> Self {
        serde_json::to_string(value).map_or(Self::Null, Self::Text)
    }
}

/// The name of a variant in the log.
pub(super) fn variant_name(variant: &impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
