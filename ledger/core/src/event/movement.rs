//! The changes of the sum of all money by events.
//! Invariant: credited + granted - expired - debited = balances + credits.

use crate::money::Amount;

/// A change of the sum of all money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movement {
    /// Money came into a balance.
    Credited(Amount),
    /// A plan or a bundle granted credit.
    Granted(Amount),
    /// Credit expired.
    Expired(Amount),
    /// A call drew money or credit.
    Debited(Amount),
}
