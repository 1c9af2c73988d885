//! Customers, as `GET /customers/{id}` shows them.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::CustomerBatch;
