//! Calls that another gateway has opened, and that are not known to be durable. If that gateway dies with the opening, the
//! call is opened again at the next leader: its provider has it already, and its caller waits.
//!
//! Invariant: the opening of a call is sent again only if nothing of it is in the log, and whoever has decided it before
//! can append it no more. So it is opened once, and cannot be charged twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farthing_core::command::{OpenAgain, OpenRequest, Opened, Refusal, RequestRefusal};
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_core::state::StateKey;
use tokio::time::Instant;

use super::settled::Sought;
use super::{ASK_PAUSE, Leader, Ledger, ROUTE_TIMEOUT};
use crate::appender::{Early, Error};

/// How long it is asked whether a call is open. Its provider has been paid for already: waiting costs less than giving up.
const ASKED_FOR: Duration = Duration::from_secs(20);

/// How long the leader that was sent a lost opening may leave open whether it has decided it. Then it is given up: what is
/// on its way for so long is refused as too late.
const IN_DOUBT: Duration = Duration::from_secs(15);

/// The calls that are not known to be durable.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(Mutex<HashMap<RequestId, Arc<tokio::sync::Mutex<Opening>>>>);

/// An opening that a leader has decided.
#[derive(Debug)]
struct Opening {
    command: OpenRequest,
    again: Again,
}

/// What became of an opening that was lost and sent again.
#[derive(Debug, PartialEq)]
enum Again {
    /// It is not known to be lost; nothing was sent.
    Unsent,
    /// It is in the log: it was never lost.
    InLog,
    /// It is certainly not in the log; nothing was sent.
    Absent,
    /// It was sent to the leader of this term, and may have been decided.
    InDoubt(Sent),
    /// It was decided again; this is durable.
    Opened,
    /// It is not opened, for this reason.
    GivenUp(Error),
}

/// What became of the opening of a call that its leader does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It was lost, and the call is open again.
    OpenAgain,
    /// It is in the log, so the call is open or has ended.
    InLog,
    /// It is not opened again: it may not be lost.
    InDoubt,
}

/// A lost opening on its way to the next leader.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sent {
    /// The term of that leader's lease.
    term: i64,
    at: Instant,
}

impl Unconfirmed {
    fn insert(&self, command: OpenRequest) {
        let request_id = command.request_id;
        let opening = Arc::new(tokio::sync::Mutex::new(Opening { command, again: Again::Unsent }));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(request_id, opening);
    }

    fn get(&self, request_id: RequestId) -> Option<Arc<tokio::sync::Mutex<Opening>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&request_id).cloned()
    }

    pub(super) fn contains(&self, request_id: RequestId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&request_id)
    }

    fn remove(&self, request_id: RequestId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&request_id);
    }
}

/// What became of a lost opening that was in doubt, now that a leader has said whether the call is open.
/// The leader that was sent it may still decide it; the one of another term never will.
fn after_doubt(is_open: bool, is_same_leader: bool, sent: Sent) -> Again {
    match (is_open, is_same_leader) {
        (true, _) => Again::Opened,
        (false, false) => Again::Unsent,
        (false, true) if sent.at.elapsed() < IN_DOUBT => Again::InDoubt(sent),
        (false, true) => Again::GivenUp(unanswered()),
    }
}

fn unanswered() -> Error {
    Error::Unknown("the leader has not answered the opening".to_owned())
}

/// Keeps a call among the unconfirmed ones.
struct Kept {
    unconfirmed: Arc<Unconfirmed>,
    request_id: RequestId,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.unconfirmed.remove(self.request_id);
    }
}

impl Ledger {
    /// The outcome of an opening that another gateway has decided.
    pub(super) fn decided_there(
        &self,
        partition: Partition,
        command: OpenRequest,
        opened: Opened,
    ) -> Early<Opened> {
        let (ledger, request_id) = (self.clone(), command.request_id);
        self.unconfirmed.insert(command);
        let kept = Kept { unconfirmed: Arc::clone(&self.unconfirmed), request_id };
        let ask = move || {
            let ledger = ledger.clone();
            async move { ledger.confirmed(partition, request_id).await }
        };
        Early::there(opened, ask, kept)
    }

    /// Returns when a call is open for good. A call that is not open has ended meanwhile, or its opening is lost. It is
    /// not broken off because its leader takes no other call, or because another one takes over.
    async fn confirmed(&self, partition: Partition, request_id: RequestId) -> Result<(), Error> {
        let deadline = Instant::now() + ASKED_FOR;
        loop {
            let is_open = async {
                Ok(self.is_open(partition, request_id).await?
                    || match self.open_lost(partition, request_id).await? {
                        Unknown::OpenAgain => true,
                        // It may have come after the leader was asked.
                        Unknown::InLog => self.is_open(partition, request_id).await?,
                        Unknown::InDoubt => false,
                    })
            };
            match is_open.await {
                Ok(true) => {
                    self.unconfirmed.remove(request_id);
                    return Ok(());
                }
                Ok(false) => {
                    return Err(Error::Unknown(
                        "the leader of the partition does not know the call".to_owned(),
                    ));
                }
                Err(error @ Error::Refused(_)) => return Err(error),
                Err(Error::Overloaded | Error::Unavailable(_) | Error::Unknown(_) | Error::Moved)
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(ASK_PAUSE).await;
                }
                Err(error) => return Err(Error::Unknown(error.to_string())),
            }
        }
    }

    /// Whether the leader knows that the call is open; then it is durable.
    async fn is_open(&self, partition: Partition, request_id: RequestId) -> Result<bool, Error> {
        let key = StateKey::Request(request_id);
        self.at_leader(partition, |leader| async {
            match leader {
                Leader::Here(appender) => Ok(appender.states(None, vec![key.clone()]).await?[0].is_some()),
                Leader::There(leader) => self.has_state_there(leader, partition, key.clone()).await,
            }
        })
        .await
    }

    /// Opens a call again that its leader does not know, if its opening is lost and it was not opened again before.
    ///
    /// The leader that does not know it leads in a later term than the one that had decided the opening, or has failed to
    /// append it. So what is not in the log now never will be.
    pub(super) async fn open_lost(
        &self,
        partition: Partition,
        request_id: RequestId,
    ) -> Result<Unknown, Error> {
        let Some(opening) = self.unconfirmed.get(request_id) else { return Ok(Unknown::InDoubt) };
        let mut opening = opening.lock().await;
        if let Again::InDoubt(sent) = opening.again {
            let asked = self.routes.borrow().of(partition).term();
            let is_open = self.is_open(partition, request_id).await?;
            opening.again = after_doubt(is_open, asked.is_none_or(|asked| asked == sent.term), sent);
        }
        match &opening.again {
            Again::Opened => Ok(Unknown::OpenAgain),
            Again::InLog => Ok(Unknown::InLog),
            Again::Unsent | Again::Absent => self.send_lost(partition, &mut opening).await,
            Again::InDoubt(_) => Err(unanswered()),
            Again::GivenUp(Error::Refused(refusal)) => Err(Error::Refused(refusal.clone())),
            Again::GivenUp(_) => Ok(Unknown::InDoubt),
        }
    }

    /// Sends a lost opening to the leader.
    async fn send_lost(&self, partition: Partition, opening: &mut Opening) -> Result<Unknown, Error> {
        let request_id = opening.command.request_id;
        let decided_at = opening.command.now;
        if opening.again != Again::Absent {
            match self.log.opening_of(partition, request_id, decided_at).await? {
                Sought::Found => {
                    opening.again = Again::InLog;
                    return Ok(Unknown::InLog);
                }
                Sought::Unproven => return Ok(Unknown::InDoubt),
                Sought::Absent => {}
            }
        }
        opening.again = Again::Absent;
        let leader = self.leader(partition, Instant::now() + ROUTE_TIMEOUT).await?;
        let term = match &leader {
            Leader::Here(_) => self.routes.borrow().of(partition).term().ok_or(Error::Moved)?,
            Leader::There(leader) => leader.term,
        };
        // In doubt even if nobody waits for the answer any more.
        opening.again = Again::InDoubt(Sent { term, at: Instant::now() });
        let command = opening.command.clone();
        let owner = Some(command.merchant_id);
        let opened = match leader {
            Leader::Here(appender) => appender.submit(owner, OpenAgain(command)).await,
            Leader::There(leader) => self.open_lost_there(leader, partition, command).await,
        };
        match opened {
            Ok(_) => {
                opening.again = Again::Opened;
                tracing::info!(
                    event = "opening.sent_again",
                    %request_id,
                    "the opening of a call was lost with its leader, and was sent to the next one"
                );
                Ok(Unknown::OpenAgain)
            }
            // Nothing was appended.
            Err(error @ (Error::Overloaded | Error::Unavailable(_) | Error::Moved)) => {
                opening.again = Again::Absent;
                Err(error)
            }
            Err(error @ (Error::Refused(_) | Error::Internal(_))) => {
                opening.again = Again::GivenUp(error.clone());
                Err(error)
            }
            Err(error @ Error::Unknown(_)) => Err(error),
        }
    }

    /// Whether a settlement that found no open call should be submitted again. The call was among the unconfirmed ones
    /// when the settlement was submitted.
    pub(super) async fn is_opened_again(
        &self,
        partition: Partition,
        request_id: RequestId,
        refusal: &Refusal,
    ) -> Result<bool, Error> {
        if *refusal != Refusal::Request(RequestRefusal::NotOpen) {
            return Ok(false);
        }
        if !self.unconfirmed.contains(request_id) {
            // Confirmed since, perhaps opened again after the settlement was refused.
            return Ok(true);
        }
        match self.open_lost(partition, request_id).await {
            // Whoever waits for the opening finds out.
            Err(Error::Refused(_)) => Ok(false),
            // An opening that is in the log may have come after the settlement. With an unknown outcome the settlement is tried
            // again, too: the call may be open.
            answer => answer.map(|opening| opening != Unknown::InDoubt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_opening_is_sent_again_only_after_its_leader() {
        let sent = Sent { term: 1, at: Instant::now() };
        for is_same_leader in [true, false] {
            assert_eq!(after_doubt(true, is_same_leader, sent), Again::Opened);
        }
        assert_eq!(after_doubt(false, true, sent), Again::InDoubt(sent));
        assert_eq!(after_doubt(false, false, sent), Again::Unsent);
        tokio::time::advance(IN_DOUBT).await;
        assert_eq!(after_doubt(false, true, sent), Again::GivenUp(unanswered()));
    }
}
