//! The background work of a gateway: payments and renewals, webhook deliveries, heartbeats and the sweeper.
//!
//! Each gateway does the work of the partitions that it leads. Two gateways may do the same while a partition moves: a
//! payment has its effect once, a delivery is claimed, a request ends once.

pub mod lease;
pub mod payments;
pub mod sweeper;
pub mod webhooks;
