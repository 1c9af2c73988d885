//! Webhook delivery (completion.md section 9). The projector fills an outbox; every gateway delivers from it, because a
//! gateway has the outbound connector and the signing key.
//!
//! The deliveries of one webhook about one customer form a queue. Invariant: a queue is delivered in order and one
//! delivery at a time, by the gateway that holds the claim on it. The claim of a gateway that died lapses.

mod delivery;
mod dispatcher;
mod metrics;
mod payload;
pub mod queue;
mod queue_tasks;
mod timing;

pub use self::delivery::LOOP_HEADER;
pub use self::dispatcher::Dispatcher;
pub use self::metrics::WebhookMetrics;
pub use self::payload::{PayloadFuture, PayloadSource};
pub use self::timing::WebhookTiming;
