//! The state of an open request.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{Hold, Parties, RequestOpened};
use crate::ids::{GatewayId, MerchantId};

/// A call in flight: everything its settlement needs, as it was at admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// Whose call.
    pub merchant_id: MerchantId,
    /// When it was admitted.
    pub opened_at: DateTime<Utc>,
    /// What was admitted.
    pub opened: Box<RequestOpened>,
}

impl OpenRequest {
    /// The wallets concerned.
    pub fn parties(&self) -> Parties {
        self.opened.parties
    }

    /// What is set aside.
    pub fn hold(&self) -> Hold {
        self.opened.hold
    }

    /// The process that carries it.
    pub fn gateway_id(&self) -> GatewayId {
        self.opened.gateway_id
    }
}
