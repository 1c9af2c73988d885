//! The bodies of webhook deliveries (completion.md section 9). A body is made when it is sent, from the event and the
//! present state of its resources, so that the data of a deleted customer are not delivered.

use std::pin::Pin;

use farthing_core::event::{
    CustomerEvent, Event, Fact, Recorded, RequestEvent, SpendKeyEvent, SubscriptionEvent, Topic, WalletEvent,
};
use farthing_core::ids::{CustomerId, MerchantId, PlanId, SubscriptionId, WalletId, WebhookEventId};
use farthing_core::money::Amount;
use farthing_projector::query::PartitionClient;
use farthing_projector::{customers, requests, spend_keys};
use farthing_worker::webhooks::PayloadSource;
use serde::Serialize;

use crate::error::{ApiError, ServerError};
use crate::rest::body::Timestamp;
use crate::rest::customers::resource::Customer;
use crate::rest::requests::Request;
use crate::rest::spend_keys::SpendKey;

#[derive(Serialize)]
struct Message {
    event: Topic,
    data: News,
    webhook_event_id: WebhookEventId,
    created_at: Timestamp,
}

#[derive(Default, Serialize)]
struct News {
    customer: Option<Customer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wallet: Option<WalletPayload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Request>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spend_key: Option<SpendKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<SubscriptionPayload>,
}

/// A wallet after the event.
#[derive(Serialize)]
struct WalletPayload {
    wallet_id: WalletId,
    balance: Amount,
}

#[derive(Serialize)]
struct SubscriptionPayload {
    subscription_id: SubscriptionId,
    plan_id: PlanId,
    status: &'static str,
}

/// Builds the bodies of deliveries from the representations that `GET` shows.
pub(crate) struct Payloads;

impl PayloadSource for Payloads {
    fn payload<'a>(
        &'a self,
        db: PartitionClient<'a>,
        recorded: &'a Recorded,
        event_id: WebhookEventId,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, String>> + Send + 'a>> {
        Box::pin(async move {
            payload(db, recorded, event_id).await.map_err(|error| match error {
                ApiError::Server(ServerError::Internal(why) | ServerError::LedgerUnavailable(why)) => why,
                other => other.code().to_owned(),
            })
        })
    }
}

/// The body of the delivery of `recorded` with the id `event_id`, or `None` if it is not delivered. The read models must
/// have reached the event.
async fn payload(
    db: PartitionClient<'_>,
    recorded: &Recorded,
    event_id: WebhookEventId,
) -> Result<Option<Vec<u8>>, ApiError> {
    let fact = &recorded.fact;
    let Some(notice) = fact.event.webhook_notice() else { return Ok(None) };
    let mut data = about(db, fact).await?;
    if let Some(id) = notice.customer_id {
        data.customer = customer(db, fact.merchant_id, id, &fact.event).await?;
    }
    let created_at = Timestamp(fact.occurred_at);
    let message = Message { event: notice.topic, data, webhook_event_id: event_id, created_at };
    let body = serde_json::to_vec(&message);
    body.map(Some)
        .map_err(|error| ApiError::internal(format!("a webhook body cannot be serialized: {error}")))
}

async fn customer(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: CustomerId,
    event: &Event,
) -> Result<Option<Customer>, ApiError> {
    let row = customers::query::find_even_deleted(db, merchant_id, id).await?;
    Ok(row.map(|mut row| {
        if let Event::Customer(CustomerEvent::Deleted(deleted)) = event {
            // The merchant's own id.
            row.reference_id.clone_from(&deleted.reference_id);
        }
        Customer::from(row)
    }))
}

/// The resource of the event, apart from the customer.
async fn about(db: PartitionClient<'_>, fact: &Fact) -> Result<News, ApiError> {
    let (mut data, merchant_id) = (News::default(), fact.merchant_id);
    match &fact.event {
        Event::Wallet(WalletEvent::Credited(event)) => {
            data.wallet = Some(WalletPayload { wallet_id: event.wallet_id, balance: event.balance_after });
        }
        Event::Wallet(WalletEvent::Debited(event)) => {
            data.wallet = Some(WalletPayload { wallet_id: event.wallet_id, balance: event.balance_after });
        }
        Event::Request(RequestEvent::Metered(event)) => {
            let id = event.request_id.to_string();
            data.request = requests::query::find(db, merchant_id, &id).await?.map(Request::from);
        }
        Event::SpendKey(SpendKeyEvent::Rotated(event)) => {
            let (id, at) = (event.spend_key_id, fact.occurred_at);
            let row = spend_keys::query::find_even_deleted(db, merchant_id, id, at).await?;
            data.spend_key = row.map(SpendKey::from);
        }
        Event::Subscription(SubscriptionEvent::Started(event)) => {
            let (subscription_id, plan_id) = (event.subscriber.subscription_id, event.plan_id);
            data.subscription = Some(SubscriptionPayload { subscription_id, plan_id, status: "active" });
        }
        Event::Subscription(SubscriptionEvent::Cancelled(event)) => {
            let (subscription_id, plan_id) = (event.subscriber.subscription_id, event.plan_id);
            data.subscription = Some(SubscriptionPayload { subscription_id, plan_id, status: "cancelled" });
        }
        Event::Merchant(_)
        | Event::SecretKey(_)
        | Event::Customer(_)
        | Event::Meter(_)
        | Event::SpendKey(
            SpendKeyEvent::Created(_) | SpendKeyEvent::Updated(_) | SpendKeyEvent::Deleted(_),
        )
        | Event::Wallet(WalletEvent::AutopayChanged(_))
        | Event::Request(RequestEvent::Opened(_) | RequestEvent::Failed(_))
        | Event::Plan(_)
        | Event::Subscription(
            SubscriptionEvent::Updated(_)
            | SubscriptionEvent::CycleEnded(_)
            | SubscriptionEvent::Renewed(_)
            | SubscriptionEvent::RenewalFailed(_)
            | SubscriptionEvent::Upgraded(_)
            | SubscriptionEvent::BundlePurchased(_),
        )
        | Event::Payment(_)
        | Event::Checkout(_)
        | Event::Webhook(_) => {}
    }
    Ok(data)
}
