//! The background work of a gateway: payments and renewals, webhook deliveries, heartbeats and the sweeper.
//!
//! Every gateway runs all of it. Any number of them may: a payment has its effect once, a delivery is claimed, a request
//! ends once.

pub mod lease;
pub mod payments;
pub mod sweeper;
pub mod webhooks;
