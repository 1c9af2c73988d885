//! The state of an open request.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{Hold, Parties, RequestOpened};
use crate::ids::{GatewayId, MerchantId};

/// A call in flight, with everything that its settlement needs, as of its admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmittedRequest {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// When it was admitted.
    pub opened_at: DateTime<Utc>,
    /// The admitted call.
    pub opened: Box<RequestOpened>,
}

impl AdmittedRequest {
    /// The wallets involved.
    pub fn parties(&self) -> Parties {
        self.opened.parties
    }

    /// The hold.
    pub fn hold(&self) -> Hold {
        self.opened.hold
    }

    /// The gateway process that forwards it.
    pub fn gateway_id(&self) -> GatewayId {
        self.opened.gateway_id
    }
}
