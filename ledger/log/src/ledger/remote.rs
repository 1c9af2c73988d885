//! Commands to the gateway that leads a partition, and reads of its states.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farthing_core::command::wire::{self, WireCommand};
use farthing_core::command::{OpenRequest, Opened, SettleRequest};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::{Claim, ClaimId};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};
use serde_json::value::RawValue;

use super::Ledger;
use super::peer::{Failed, NoReply, Reply, Request, Work};
use crate::appender::{ClaimEnd, Error, IdempotentOutcome};
use crate::leases::Elsewhere;

/// How long the answer of an earlier leader may take on its way, if the command can be sent to the new one as well.
const GRACE: Duration = Duration::from_millis(50);

/// The same, if the command is sent once: without the answer its outcome is unknown, and a leader that hands over still
/// answers what it has taken.
pub(super) const GRACE_ONCE: Duration = Duration::from_secs(7);

impl Ledger {
    /// Asks a leader. If the partition has got another one and there is no answer `grace` later, none is waited for.
    async fn ask(
        &self,
        leader: Elsewhere,
        partition: Partition,
        work: Work,
        grace: Duration,
    ) -> Result<Reply, NoReply> {
        let request = Request::new(partition, leader.term, self.clock.now(), work);
        let has_moved = async {
            self.moved_from(partition, &leader).await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            reply = self.peers.send(leader.address.clone(), request) => reply,
            () = has_moved => Err(NoReply::moved()),
        }
    }

    /// Submits a command that is decided again if it is sent again: it is sent once.
    pub(super) async fn submit_there<C: WireCommand>(
        &self,
        leader: Elsewhere,
        partition: Partition,
        command: C,
    ) -> Result<C::Outcome, Error> {
        match self.ask(leader, partition, Work::Command(command.into()), GRACE_ONCE).await {
            Ok(reply) => decided::<C>(reply),
            Err(NoReply::NotSent(_)) => Err(Error::Moved),
            Err(error @ NoReply::Unknown(_)) => Err(Error::Unknown(error.to_string())),
        }
    }

    /// Opens a call; the answer comes before this is durable. If the answer is lost, the call `may_be_open`, and the
    /// leader is asked again.
    pub(super) async fn open_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        command: OpenRequest,
        may_be_open: &AtomicBool,
    ) -> Result<Opened, Error> {
        let reply = self.ask(leader, partition, Work::OpenEarly(command.into()), GRACE).await;
        decided::<OpenRequest>(moved_unless_answered(reply, may_be_open)?)
    }

    /// Opens a call that may be open already; the answer comes when this is durable.
    pub(super) async fn open_again_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        command: OpenRequest,
    ) -> Result<Opened, Error> {
        let reply = self.ask(leader, partition, Work::OpenAgain(command.into()), GRACE).await;
        decided::<OpenRequest>(moved_unless_answered(reply, &AtomicBool::new(true))?)
    }

    /// Opens a call whose opening is lost; the answer comes when this is durable.
    pub(super) async fn open_lost_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        command: OpenRequest,
    ) -> Result<Opened, Error> {
        match self.ask(leader, partition, Work::OpenLost(command.into()), GRACE).await {
            Ok(reply) => decided::<OpenRequest>(reply),
            Err(NoReply::NotSent(_)) => Err(Error::Moved),
            Err(error @ NoReply::Unknown(_)) => Err(Error::Unknown(error.to_string())),
        }
    }

    /// As [`Self::open_there`], under `claim`. A second attempt finds the claim in use by this very call.
    pub(super) async fn open_under_claim_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        command: OpenRequest,
        claim: Claim,
        may_be_open: &AtomicBool,
    ) -> Result<IdempotentOutcome<Opened>, Error> {
        let work = Work::Open { command: command.into(), claim };
        let reply = self.ask(leader, partition, work, GRACE).await;
        match moved_unless_answered(reply, may_be_open)? {
            Reply::Repeated(status) => Ok(IdempotentOutcome::Repeated(status)),
            reply => match decided::<OpenRequest>(reply) {
                Ok(opened) => Ok(IdempotentOutcome::Decided(Ok(opened), None)),
                Err(Error::Refused(refusal)) => Ok(IdempotentOutcome::Decided(Err(refusal), None)),
                Err(error) => Err(error),
            },
        }
    }

    /// Ends a call.
    pub(super) async fn settle_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        command: SettleRequest,
        closing: Option<(ClaimId, ClaimEnd)>,
        may_have_ended: &AtomicBool,
    ) -> Result<Option<FailureReason>, Error> {
        let request_id = command.request_id;
        let work = match closing {
            None => Work::Settle(command.into()),
            Some((claim_id, end)) => Work::Close { command: command.into(), claim_id, request_id, end },
        };
        match self.ask(leader, partition, work, GRACE).await {
            Ok(Reply::Failed(Failed::Unknown(_))) | Err(NoReply::Unknown(_)) => {
                may_have_ended.store(true, Ordering::Relaxed);
                Err(Error::Moved)
            }
            Err(NoReply::NotSent(_)) => Err(Error::Moved),
            Ok(reply) => decided::<SettleRequest>(reply),
        }
    }

    /// Reads states.
    pub(super) async fn states_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        owner: Option<MerchantId>,
        keys: &[StateKey],
    ) -> Result<Vec<Option<State>>, Error> {
        let (shape, states) = self.written_states_there(leader, partition, owner, keys.to_vec()).await?;
        let read = |(key, json): (&StateKey, Option<Box<RawValue>>)| {
            let state = json.map(|json| State::from_json(key, shape, json.get())).transpose();
            // A gateway of another release may keep other states than this one can read.
            state.map_err(|error| Error::Unavailable(format!("a state of shape {shape}: {error}")))
        };
        keys.iter().zip(states).map(read).collect()
    }

    /// Whether there is a state of `key`, of whatever shape.
    pub(super) async fn has_state_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        key: StateKey,
    ) -> Result<bool, Error> {
        let (_, states) = self.written_states_there(leader, partition, None, vec![key]).await?;
        Ok(states.iter().all(Option::is_some))
    }

    /// Reads states as the leader writes them, with their shape.
    async fn written_states_there(
        &self,
        leader: Elsewhere,
        partition: Partition,
        owner: Option<MerchantId>,
        keys: Vec<StateKey>,
    ) -> Result<(i16, Vec<Option<Box<RawValue>>>), Error> {
        let count = keys.len();
        match self.ask(leader, partition, Work::States { keys, merchant_id: owner }, GRACE).await {
            Ok(Reply::States { shape, states }) if states.len() == count => Ok((shape, states)),
            Ok(Reply::Failed(failed)) => Err(failed.into()),
            Ok(_) => Err(unexpected()),
            Err(NoReply::NotSent(_) | NoReply::Unknown(_)) => Err(Error::Moved),
        }
    }
}

/// The reply to an opening. Without one, the leader is asked again; if the opening was sent, the call `may_be_open`. A
/// leader that stops while its commit is in doubt does not know either.
fn moved_unless_answered(reply: Result<Reply, NoReply>, may_be_open: &AtomicBool) -> Result<Reply, Error> {
    match reply {
        Err(NoReply::Unknown(_)) | Ok(Reply::Failed(Failed::Unknown(_))) => {
            may_be_open.store(true, Ordering::Relaxed);
            Err(Error::Moved)
        }
        Err(NoReply::NotSent(_)) => Err(Error::Moved),
        Ok(reply) => Ok(reply),
    }
}

fn decided<C: WireCommand>(reply: Reply) -> Result<C::Outcome, Error> {
    match reply {
        Reply::Decided(answer) => match wire::decode_answer::<C>(answer.get()) {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(refusal)) => Err(Error::Refused(refusal)),
            // The command was decided, and its outcome cannot be read.
            Err(error) => Err(Error::Unknown(error.to_string())),
        },
        Reply::Failed(failed) => Err(failed.into()),
        Reply::Repeated(_) | Reply::States { .. } => Err(unexpected()),
    }
}

fn unexpected() -> Error {
    Error::Unknown("a gateway gave an unexpected answer".to_owned())
}
