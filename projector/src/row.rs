//! Reads rows by the names of their columns. Every type of row is declared once, with [`row!`](crate::row::row).

use std::str::FromStr;

use farthing_core::money::{self, Amount};
use farthing_core::wide_sum::WideSum;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::column::{Exact, Jsonb, Wide};

/// A column holds a value that no projection writes.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The column is missing or has another SQL type.
    #[error(transparent)]
    Column(#[from] tokio_postgres::Error),
    /// The value is not of the domain's type.
    #[error("column {column}: {text:?} is not a value of this column")]
    Value {
        /// The column's name.
        column: &'static str,
        /// The column's value.
        text: String,
    },
}

/// A value that is made of one or more columns of a row.
pub(crate) trait FromRow: Sized {
    /// Reads the columns, by their names.
    fn from_row(row: &Row) -> Result<Self, Unreadable>;
}

/// Declares a type of row. Each field says how it is read from the column of its own name: by a method of
/// [`ReadColumn`].
macro_rules! row {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty = $method:ident,)+
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)+
        }

        impl $crate::row::FromRow for $name {
            fn from_row(row: &tokio_postgres::Row) -> Result<Self, $crate::row::Unreadable> {
                use $crate::row::ReadColumn as _;
                Ok(Self { $($field: row.$method(stringify!($field))?),+ })
            }
        }
    };
}

pub(crate) use row;

/// Reads one column of a row as a type of the domain.
pub(crate) trait ReadColumn {
    /// A value of the column's SQL type.
    fn plain<'a, T: FromSql<'a>>(&'a self, column: &'static str) -> Result<T, Unreadable>;

    /// The value that `read` parses from the column's text, or `None` if the column is null.
    fn text<T>(
        &self,
        column: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Unreadable> {
        let Some(text) = self.plain::<Option<&str>>(column)? else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| Unreadable::Value { column, text: text.to_owned() })
    }

    /// A value of several columns, which are named by its type.
    fn nested<T: FromRow>(&self, _: &'static str) -> Result<T, Unreadable>;

    /// An id.
    fn id<T: FromStr>(&self, column: &'static str) -> Result<T, Unreadable> {
        present(column, self.id_or_null(column)?)
    }

    /// An id, or none.
    fn id_or_null<T: FromStr>(&self, column: &'static str) -> Result<Option<T>, Unreadable> {
        self.text(column, |text| text.parse().ok())
    }

    /// A variant of an enum, by its name in the log.
    fn variant<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, Unreadable> {
        present(column, self.variant_or_null(column)?)
    }

    /// A variant of an enum, or none.
    fn variant_or_null<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, Unreadable> {
        self.text(column, |text| {
            let name: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
            T::deserialize(name).ok()
        })
    }

    /// A value from JSON text.
    fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, Unreadable> {
        present(column, self.json_or_null(column)?)
    }

    /// A value from JSON text, or none.
    fn json_or_null<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, Unreadable> {
        self.text(column, |text| serde_json::from_str(text).ok())
    }

    /// A value from JSON text; the default where the column is null.
    fn json_or_default<T: DeserializeOwned + Default>(&self, column: &'static str) -> Result<T, Unreadable> {
        Ok(self.json_or_null(column)?.unwrap_or_default())
    }

    /// A value from a `jsonb` column; the default where the column is null.
    fn jsonb_or_default<T>(&self, column: &'static str) -> Result<T, Unreadable>
    where
        T: for<'de> Deserialize<'de> + Default,
    {
        let Some(Jsonb(text)) = self.plain::<Option<Jsonb>>(column)? else { return Ok(T::default()) };
        serde_json::from_str(&text).map_err(|_| Unreadable::Value { column, text })
    }

    /// A number that is small; `T` is its type in the domain.
    fn integer<T: TryFrom<i32>>(&self, column: &'static str) -> Result<T, Unreadable> {
        present(column, self.integer_or_null(column)?)
    }

    /// A number that is small, or none.
    fn integer_or_null<T: TryFrom<i32>>(&self, column: &'static str) -> Result<Option<T>, Unreadable> {
        let Some(number) = self.plain::<Option<i32>>(column)? else { return Ok(None) };
        let unreadable = |_| Unreadable::Value { column, text: number.to_string() };
        T::try_from(number).map(Some).map_err(unreadable)
    }

    /// An exact decimal without trailing zeros, at any scale of the column.
    fn decimal(&self, column: &'static str) -> Result<Decimal, Unreadable> {
        Ok(self.plain::<Exact>(column)?.0.normalize())
    }

    /// An exact decimal; zero where the column is null.
    fn decimal_or_zero(&self, column: &'static str) -> Result<Decimal, Unreadable> {
        Ok(self.plain::<Option<Exact>>(column)?.map_or(Decimal::ZERO, |exact| exact.0.normalize()))
    }

    /// A sum of amounts.
    fn wide_sum(&self, column: &'static str) -> Result<WideSum, Unreadable> {
        Ok(self.plain::<Wide>(column)?.0)
    }

    /// An amount of money.
    fn amount(&self, column: &'static str) -> Result<Amount, Unreadable> {
        let decimal: Decimal = self.plain(column)?;
        let unreadable = |_: money::Error| Unreadable::Value { column, text: decimal.to_string() };
        money::round_line(decimal).map_err(unreadable)
    }

    /// An amount of money; zero where the column is null.
    fn amount_or_zero(&self, column: &'static str) -> Result<Amount, Unreadable> {
        match self.plain::<Option<Decimal>>(column)? {
            None => Ok(Amount::ZERO),
            Some(_) => self.amount(column),
        }
    }
}

impl ReadColumn for Row {
    fn plain<'a, T: FromSql<'a>>(&'a self, column: &'static str) -> Result<T, Unreadable> {
        Ok(self.try_get(column)?)
    }

    fn nested<T: FromRow>(&self, _: &'static str) -> Result<T, Unreadable> {
        T::from_row(self)
    }
}

fn present<T>(column: &'static str, value: Option<T>) -> Result<T, Unreadable> {
    value.ok_or_else(|| Unreadable::Value { column, text: "null".to_owned() })
}
