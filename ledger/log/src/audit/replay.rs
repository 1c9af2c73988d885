//! The states as of a moment, folded from the log. The log is verified while it is read. Memory is bounded by the states that
//! are shown, of one partition at a time.

use std::collections::BTreeMap;
use std::io;

use farthing_core::event::Fact;
use farthing_core::money::Total;
use farthing_core::partition::Partition;
use farthing_core::state::{Replay, Selection, State, StateKey, Subject};
use serde::Serialize;

use super::Error;
use super::findings::{Findings, Place};
use super::partition_reader::{Ends, Line};
use super::search_order::partitions_to_search;
use super::trial_balance::Moment;
use super::whole_log::{self, Reader};
use crate::connect::{self, Role};
use crate::record;
use crate::verify::{Head, Progress};

/// Is given the states, partition by partition.
pub trait Output {
    /// The next state.
    fn state(&mut self, partition: Partition, key: &StateKey, state: &State) -> io::Result<()>;
}

/// What was replayed.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Nothing is wrong with the log.
    pub ok: bool,
    /// The moment.
    pub at: Moment,
    /// The number of events that were folded.
    pub events: u64,
    /// The number of states of each kind.
    pub states: BTreeMap<&'static str, u64>,
    /// The money in the wallets among them.
    pub wallets: WalletSums,
    /// The last event of each partition that was read.
    pub heads: Vec<Head>,
    /// What is wrong.
    #[serde(flatten)]
    pub findings: Findings,
}

/// The sums of wallets.
#[derive(Debug, Default, Serialize)]
pub struct WalletSums {
    /// The sum of their balances.
    pub balances: Total,
    /// The sum of their remaining credit.
    pub credits: Total,
    /// The sum of their holds.
    pub holds: Total,
}

/// Gives the states of a subject, or all states, as of a moment to `output`. Gateways may write meanwhile.
pub async fn replay(
    database_url: &str,
    at: Moment,
    subject: Option<Subject>,
    progress: &Progress,
    output: &mut impl Output,
) -> Result<Summary, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let (partitions, until) = match (at, subject) {
        (Moment::Position(Place { partition, position }), _) => (vec![partition], Some(position)),
        (Moment::Now | Moment::Time(_), None) => (ends.partitions().collect(), None),
        (Moment::Now | Moment::Time(_), Some(subject)) => {
            let (kind, id) = subject.key().stored();
            (partitions_to_search(&client, &ends, kind, &id).await?, None)
        }
    };
    let events_of = |partition| until.unwrap_or_else(|| ends.last(partition));
    // A search ends with the partition that has the subject.
    let is_search = subject.is_some();
    if !is_search {
        progress.expect(partitions.iter().copied().map(events_of).sum());
    }
    let before = match at {
        Moment::Time(before) => Some(before),
        Moment::Now | Moment::Position(_) => None,
    };
    let mut summary = Summary {
        ok: false,
        at,
        events: 0,
        states: BTreeMap::new(),
        wallets: WalletSums::default(),
        heads: Vec::new(),
        findings: Findings::default(),
    };
    let mut is_named = false;
    for partition in partitions {
        let replay = Replay::new(before, subject.map(Selection::of));
        let mut folding = Folding { replay, summary: &mut summary, is_named: false, is_here: false };
        let span = (partition, until);
        if is_search {
            progress.expect(events_of(partition));
        }
        let head = whole_log::read_partition(&client, &ends, span, progress, &mut folding).await?;
        let Folding { replay, is_named: is_named_here, is_here, .. } = folding;
        summary.heads.push(head);
        for (key, state) in replay.states() {
            summary.count(key, state)?;
            output.state(partition, key, state)?;
        }
        is_named |= is_named_here;
        // A text of another merchant may have the id, too: an effect decides.
        if is_here && subject.is_some() {
            break;
        }
    }
    if let Some(subject) = subject
        && !is_named
    {
        return Err(Error::UnknownSubject(subject).after(summary.findings));
    }
    summary.ok = summary.findings.is_empty();
    Ok(summary)
}

impl Summary {
    fn count(&mut self, key: &StateKey, state: &State) -> Result<(), Error> {
        *self.states.entry(key.stored().0).or_default() += 1;
        if let State::Wallet(wallet) = state {
            let sums = &mut self.wallets;
            sums.balances = sums.balances.plus(wallet.balance)?;
            sums.credits = sums.credits.plus(wallet.plan_credit())?.plus(wallet.bundle_credit()?)?;
            sums.holds = sums.holds.plus(wallet.held)?;
        }
        Ok(())
    }
}

/// Folds the events of a partition.
struct Folding<'a> {
    replay: Replay,
    summary: &'a mut Summary,
    /// A line names the subject.
    is_named: bool,
    /// An event has an effect on it.
    is_here: bool,
}

impl Reader for Folding<'_> {
    fn findings(&mut self) -> &mut Findings {
        &mut self.summary.findings
    }

    fn wants(&mut self, line: &Line<'_>) -> bool {
        let may_change = self.replay.may_change(line.text);
        self.is_named |= may_change;
        // At an instant every event of a merchant counts: the first one at or after it ends the merchant's replay.
        if self.replay.ends_at_an_instant()
            && let Some((merchant_id, occurred_at)) = record::merchant_and_time(line.text)
        {
            return self.replay.takes(merchant_id, occurred_at) && may_change;
        }
        may_change
    }

    fn read(&mut self, line: &Line<'_>, fact: Fact) -> Result<(), Error> {
        let Fact { merchant_id, occurred_at, .. } = fact;
        if !self.replay.takes(merchant_id, occurred_at) {
            return Ok(());
        }
        self.summary.events += 1;
        match self.replay.fold(&fact) {
            Ok(has_effect) => self.is_here |= has_effect,
            Err(error) => {
                self.is_here = true;
                let place = line.place;
                self.summary.findings.find(|| format!("{place}: {error}"));
            }
        }
        Ok(())
    }
}
