//! Lists payment methods.

use chrono::{DateTime, Utc};
use farthing_core::event::Card;
use farthing_core::ids::{CustomerId, MerchantId, PaymentMethodId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::query::{self, Error, PartitionClient, text};
use crate::row::{FromRow, ReadColumn as _, Unreadable, row};

/// The largest number of methods that are listed; the newest ones.
const MAX_LISTED: i64 = 100;

row! {
    /// A payment method.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PaymentMethodRow {
        /// The payment method.
        pub payment_method_id: PaymentMethodId = id,
        /// What may be shown of it.
        pub card: Card = nested,
        /// When it was added.
        pub created_at: DateTime<Utc> = plain,
    }
}

impl FromRow for Card {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        Ok(Self {
            brand: row.plain("brand")?,
            last4: row.plain("last4")?,
            exp_month: u8::try_from(row.plain::<i16>("exp_month")?).unwrap_or(0),
            exp_year: u16::try_from(row.plain::<i16>("exp_year")?).unwrap_or(0),
        })
    }
}

macro_rules! select_methods {
    ($rest:literal) => {
        concat!(
            "SELECT payment_method_id, brand, last4, exp_month, exp_year, created_at ",
            "FROM {payment_methods}.payment_methods WHERE partition = $1 AND merchant_id = $2 ",
            $rest,
            " ORDER BY created_at DESC, payment_method_id DESC LIMIT $3"
        )
    };
}

/// The methods of a merchant's own wallet.
pub const LIST_OWN: &str = select_methods!("AND customer_id IS NULL");

/// The methods of the wallet of a merchant's customer.
pub const LIST_OF_CUSTOMER: &str = select_methods!("AND customer_id = $4");

/// The methods of the merchant's own wallet, or of a customer's, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    customer_id: Option<CustomerId>,
) -> Result<Vec<PaymentMethodRow>, Error> {
    let merchant = merchant_id.to_string();
    let (owner, limit) = (text(&merchant), (&MAX_LISTED as _, Type::INT8));
    match customer_id.map(|id| id.to_string()) {
        None => query::all(db, LIST_OWN, &[owner, limit]).await,
        Some(customer) => query::all(db, LIST_OF_CUSTOMER, &[owner, limit, text(&customer)]).await,
    }
}
