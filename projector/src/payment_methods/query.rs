//! Lists payment methods.

use chrono::{DateTime, Utc};
use farthing_core::event::Card;
use farthing_core::ids::{CustomerId, MerchantId, PaymentMethodId};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Parameter};

/// The most that are listed; the newest.
const MOST: i64 = 100;

/// A payment method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentMethodRow {
    /// Its id.
    pub payment_method_id: PaymentMethodId,
    /// What may be shown of it.
    pub card: Card,
    /// When it was added.
    pub created_at: DateTime<Utc>,
}

impl PaymentMethodRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        let payment_method_id = columns.id()?;
        let (brand, last4) = (columns.plain()?, columns.plain()?);
        let (exp_month, exp_year): (i16, i16) = (columns.plain()?, columns.plain()?);
        let card = Card {
            brand,
            last4,
            exp_month: u8::try_from(exp_month).unwrap_or(0),
            exp_year: u16::try_from(exp_year).unwrap_or(0),
        };
        Ok(Self { payment_method_id, card, created_at: columns.plain()? })
    }
}

/// The methods of a merchant's own wallet.
pub const LIST_OWN: &str = "SELECT payment_method_id, brand, last4, exp_month, exp_year, created_at \
     FROM payment_methods.payment_methods WHERE merchant_id = $1 AND customer_id IS NULL \
     ORDER BY created_at DESC, payment_method_id DESC LIMIT $2";

/// The methods of the wallet of a merchant's customer.
pub const LIST_OF_CUSTOMER: &str = "SELECT payment_method_id, brand, last4, exp_month, exp_year, created_at \
     FROM payment_methods.payment_methods WHERE merchant_id = $1 AND customer_id = $3 \
     ORDER BY created_at DESC, payment_method_id DESC LIMIT $2";

/// The methods of the merchant's own wallet, or of a customer's, newest first.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    customer_id: Option<CustomerId>,
) -> Result<Vec<PaymentMethodRow>, Error> {
    let (merchant, customer) = (merchant_id.to_string(), customer_id.map(|id| id.to_string()));
    let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&MOST, Type::INT8)];
    let sql = match &customer {
        None => LIST_OWN,
        Some(customer) => {
            parameters.push((customer, Type::TEXT));
            LIST_OF_CUSTOMER
        }
    };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> =
        rows.iter().map(|row| PaymentMethodRow::read(&mut Columns::of(row))).collect();
    Ok(rows?)
}
