//! Payments: charges what the ledger requests at the payment processor, and appends the outcome.
//!
//! Invariant: a payment is charged under its own id as the processor's idempotency key, and ends in the log once. So any
//! number of processes may carry out the same payment. If one dies midway, the next one sends the same request to the
//! processor and gets the same response.

mod error;
mod execution;
mod metrics;
mod outcome;
mod processor;
mod retry_backoff;
mod runner;
mod schedule;
mod test_processor;

pub use self::error::{Error, NoProcessor};
pub use self::execution::Payments;
pub use self::metrics::PaymentMetrics;
pub use self::outcome::balance_after;
pub use self::processor::{CardInput, CardRefused, Charge, Processor, StoredCard, Unavailable};
pub use self::runner::run;
pub use self::test_processor::TestProcessor;
