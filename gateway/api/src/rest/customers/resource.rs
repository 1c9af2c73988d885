//! The Customer resource; a customer is also a connection and carries both names.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::{DateTime, Utc};
use farthing_core::command::{CreateCustomer, PersonalData};
use farthing_core::ids::{CustomerId, PlanId, SubscriptionId};
use farthing_core::metadata::{self, Metadata};
use farthing_projector::customers::query::{self, CustomerRow, Subscribed};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;
use crate::values;

/// A customer.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Customer {
    pub(super) customer_id: CustomerId,
    pub(super) connection_id: CustomerId,
    pub(super) reference_id: Option<String>,
    pub(super) contact: Contact,
    /// The active subscription, if there is one.
    pub(super) subscription: Option<SubscriptionOfCustomer>,
    #[schema(value_type = values::CustomerMetadata)]
    pub(super) metadata: Metadata,
    pub(super) created_at: Timestamp,
}

/// A customer's subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SubscriptionOfCustomer {
    subscription_id: SubscriptionId,
    active_subscription_id: SubscriptionId,
    plan_id: PlanId,
    subscription_config_id: PlanId,
    /// The plan's name at the start of the cycle.
    name: String,
}

impl From<Subscribed> for SubscriptionOfCustomer {
    fn from(subscribed: Subscribed) -> Self {
        let Subscribed { subscription_id, plan_id, name } = subscribed;
        Self {
            subscription_id,
            active_subscription_id: subscription_id,
            plan_id,
            subscription_config_id: plan_id,
            name,
        }
    }
}

/// A customer's contact data.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(in crate::rest) struct Contact {
    phone: Option<String>,
    email: Option<String>,
    first_name: Option<String>,
    last_name: Option<String>,
}

impl From<PersonalData> for Contact {
    fn from(personal: PersonalData) -> Self {
        let PersonalData { first_name, last_name, email, phone } = personal;
        Self { phone, email, first_name, last_name }
    }
}

impl From<query::Contact> for Contact {
    fn from(contact: query::Contact) -> Self {
        let query::Contact { first_name, last_name, email, phone } = contact;
        Self { phone, email, first_name, last_name }
    }
}

impl From<CustomerRow> for Customer {
    fn from(row: CustomerRow) -> Self {
        Self {
            customer_id: row.customer_id,
            connection_id: row.customer_id,
            reference_id: row.reference_id,
            contact: row.contact.into(),
            subscription: row.subscription.map(SubscriptionOfCustomer::from),
            metadata: row.metadata,
            created_at: Timestamp(row.created_at),
        }
    }
}

impl Customer {
    /// The customer that `command` created at the instant `at`.
    pub(super) fn made_by(command: CreateCustomer, at: DateTime<Utc>) -> Self {
        Self {
            customer_id: command.customer_id,
            connection_id: command.customer_id,
            reference_id: command.reference_id,
            contact: command.personal.into(),
            subscription: None,
            metadata: metadata::join(&command.metadata, &command.metadata_literals),
            created_at: Timestamp(at),
        }
    }
}
