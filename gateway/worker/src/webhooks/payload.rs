//! The source of delivery bodies. The gateway's API implements it, since a body shows resources as the API does.

use std::pin::Pin;

use farthing_core::event::Recorded;
use farthing_core::ids::WebhookEventId;
use farthing_projector::query::PartitionClient;

/// The future of a body; `None` for an event that no webhook receives.
pub type PayloadFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, String>> + Send + 'a>>;

/// Builds the body of a delivery.
pub trait PayloadSource: Send + Sync {
    /// The body of the delivery of `recorded` under `event_id`. The read models must have reached the event's position.
    fn payload<'a>(
        &'a self,
        db: PartitionClient<'a>,
        recorded: &'a Recorded,
        event_id: WebhookEventId,
    ) -> PayloadFuture<'a>;
}
