//! Commands and look-ups of authoritative states for handlers, in the partition of their merchant.

use chrono::{DateTime, Utc};
use farthing_core::command::wire::WireCommand;
use farthing_core::ids::{CustomerId, MerchantId, MeterId, PlanId};
use farthing_core::partition::Partition;
use farthing_core::secret::Mode;
use farthing_core::state::{Meter, Plan, State, StateKey};
use farthing_log::appender;

use crate::app::App;
use crate::error::ApiError;
use crate::read_connection::ReadConnection;
use crate::read_turns::Reader;

impl App {
    /// A connection for a short read, with a turn of the reader. Who has it waits for nothing else.
    pub(crate) async fn short_read(&self, reader: Reader) -> Result<ReadConnection, ApiError> {
        ReadConnection::open(&self.reads, self.read_turns.take_short(reader).await?).await
    }

    /// The same for a call of the merchant that has written: it is not refused for want of a turn.
    pub(crate) async fn read_after_write(&self, merchant_id: MerchantId) -> Result<ReadConnection, ApiError> {
        ReadConnection::open(&self.reads, self.read_turns.take_after_write(merchant_id).await).await
    }

    /// The partition of a merchant.
    pub(crate) fn partition(&self, merchant_id: MerchantId) -> Partition {
        self.ledger.partition_of(merchant_id)
    }

    /// Submits a command of the merchant; returns when its facts are durable.
    pub(crate) async fn submit<C>(
        &self,
        merchant_id: MerchantId,
        command: C,
    ) -> Result<C::Outcome, appender::Error>
    where
        C: WireCommand + Clone,
    {
        self.ledger.submit(self.partition(merchant_id), command).await
    }

    /// The authoritative state of the merchant's `key`.
    pub(crate) async fn state(
        &self,
        merchant_id: MerchantId,
        key: StateKey,
    ) -> Result<Option<State>, ApiError> {
        Ok(self.ledger.state(self.partition(merchant_id), Some(merchant_id), key).await?)
    }

    /// The current time by the merchant's clock, which decisions also use. In test mode it may be advanced.
    pub(crate) async fn merchants_now(&self, merchant_id: MerchantId) -> Result<DateTime<Utc>, ApiError> {
        match self.mode {
            Mode::Live => Ok(self.now()),
            Mode::Test => match self.state(merchant_id, StateKey::Merchant(merchant_id)).await? {
                Some(State::Merchant(merchant)) => Ok(merchant.now(self.now())),
                Some(_) | None => Err(ApiError::internal(format!("{merchant_id} has no state"))),
            },
        }
    }

    /// The id of the merchant's customer with the id or reference id `name`, from the authoritative state.
    pub(crate) async fn customer_id(
        &self,
        merchant_id: MerchantId,
        name: &str,
    ) -> Result<Option<CustomerId>, ApiError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let id = match name.parse() {
            Ok(id) => id,
            Err(_) => match self.state(merchant_id, StateKey::Reference(merchant_id, name.to_owned())).await?
            {
                Some(State::Reference(id)) => id,
                Some(_) | None => return Ok(None),
            },
        };
        match self.state(merchant_id, StateKey::Customer(id)).await? {
            Some(State::Customer(customer)) if customer.merchant_id == merchant_id => Ok(Some(id)),
            Some(_) | None => Ok(None),
        }
    }

    /// The merchant's plan, from the authoritative state.
    pub(crate) async fn plan(
        &self,
        merchant_id: MerchantId,
        plan_id: PlanId,
    ) -> Result<Option<Box<Plan>>, ApiError> {
        match self.state(merchant_id, StateKey::Plan(plan_id)).await? {
            Some(State::Plan(plan)) if plan.merchant_id == merchant_id => Ok(Some(plan)),
            Some(_) | None => Ok(None),
        }
    }

    /// The merchant's meter with the id or slug `name`, from the authoritative state.
    pub(crate) async fn meter(
        &self,
        merchant_id: MerchantId,
        name: &str,
    ) -> Result<Option<(MeterId, Box<Meter>)>, ApiError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let id = match name.parse() {
            Ok(id) => id,
            Err(_) => match self.state(merchant_id, StateKey::MeterSlug(merchant_id, name.to_owned())).await?
            {
                Some(State::MeterSlug(id)) => id,
                Some(_) | None => return Ok(None),
            },
        };
        match self.state(merchant_id, StateKey::Meter(id)).await? {
            Some(State::Meter(meter)) if meter.merchant_id == merchant_id => Ok(Some((id, meter))),
            Some(_) | None => Ok(None),
        }
    }
}
