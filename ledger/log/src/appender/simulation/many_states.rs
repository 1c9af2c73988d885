//! Commands that need many states, at a leader that knows none of them.

use farthing_core::command::{
    BundleEdit, Command, CreatePlan, DecideError, Decision, NewBundle, PlanEdits, UpdatePlan,
};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, PlanId, WalletId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_core::state::StateCache;
use futures_util::future::join_all;
use ulid::Ulid;

use super::merchant::{NOW, merchant_id};
use super::single_gateway::{held, queued, with_leader};
use crate::appender::term::MAX_LOADS;
use crate::appender::{Error, Lease, QueueLimits};

/// The plans that are changed in one batch, and the bundles of each.
const PLANS: u64 = 10;
const BUNDLES: u128 = 100;

fn plan_id(plan: u64) -> PlanId {
    PlanId::new(Ulid::from_parts(plan, 0))
}

fn bundle_ids(plan: u64) -> impl Iterator<Item = CreditBundleId> {
    (0..BUNDLES).map(move |number| CreditBundleId::new(Ulid::from_parts(plan, number)))
}

fn create(plan: u64) -> CreatePlan {
    let terms = PlanTerms {
        name: "a plan".to_owned(),
        period_amount: Amount::ZERO,
        included_credit: Amount::ZERO,
        billing_interval: BillingInterval::Month,
        rollover_type: Rollover::None,
        bundle_rollover_type: Rollover::None,
        meter_ids: Vec::new(),
        default_auto_top_up_bundle_id: None,
    };
    let offer = BundleOffer { name: "more".to_owned(), cost: Amount::ZERO, credit_amount: Amount::ZERO };
    let bundle = |credit_bundle_id| NewBundle { credit_bundle_id, offer: offer.clone() };
    let bundles = bundle_ids(plan).map(bundle).collect();
    CreatePlan { merchant_id: merchant_id(), plan_id: plan_id(plan), terms, bundles, now: NOW }
}

/// Changes all bundles of a plan.
fn change(plan: u64) -> UpdatePlan {
    let name = Some("less".to_owned());
    let edit = |id| BundleEdit::Update { id, name: name.clone(), cost: None, credit_amount: None };
    let edits = PlanEdits { bundles: bundle_ids(plan).map(edit).collect(), ..PlanEdits::default() };
    UpdatePlan { merchant_id: merchant_id(), plan_id: plan_id(plan), edits, now: NOW }
}

#[test]
fn changes_of_plans_with_many_bundles_need_few_loads() {
    with_leader(QueueLimits::default(), async |database, appender, lease| {
        for plan in 0..PLANS {
            assert_eq!(appender.submit(None, create(plan)).await, Ok(NOW));
        }
        lease.send_replace(Lease::None);
        queued().await;
        lease.send_replace(held());
        queued().await;
        let terms = database.disk().leads.len();
        let changed = join_all((0..PLANS).map(|plan| appender.submit(None, change(plan)))).await;
        assert!(changed.iter().all(Result::is_ok), "{changed:?}");
        assert_eq!(database.disk().leads.len(), terms, "no term failed");
    });
}

/// Reads the states of wallets one after the other, and asks for each alone.
struct Reads(Vec<WalletId>);

impl Command for Reads {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        for id in &self.0 {
            states.wallet(*id)?;
        }
        Ok(Decision { facts: Vec::new(), personal: None, outcome: () })
    }
}

/// Reads so many wallets that no other number reads.
fn reads(number: u64, count: usize) -> Reads {
    Reads((0..count).map(|at| WalletId::new(Ulid::from_parts(number, at as u128))).collect())
}

#[test]
fn commands_beyond_the_loads_of_a_batch_come_in_the_next_ones() {
    with_leader(QueueLimits::default(), async |database, appender, _| {
        let terms = database.disk().leads.len();
        // What is loaded for them together is more than the leader keeps in memory, so each loads its own.
        let count = MAX_LOADS * 2 / 3;
        let answers = join_all((1..5).map(|number| appender.submit(None, reads(number, count)))).await;
        assert_eq!(answers, [Ok(()), Ok(()), Ok(()), Ok(())]);
        assert_eq!(database.disk().leads.len(), terms, "no term failed");
    });
}

#[test]
fn a_command_that_needs_too_many_loads_fails_alone() {
    with_leader(QueueLimits::default(), async |_, appender, _| {
        let counts = [1, 3 * MAX_LOADS, 1];
        let commands = (1..).zip(counts).map(|(number, count)| appender.submit(None, reads(number, count)));
        let answers = join_all(commands).await;
        assert!(matches!(answers[..], [Ok(()), Err(Error::Internal(_)), Ok(())]), "{answers:?}");
        assert_eq!(appender.submit(None, reads(4, 1)).await, Ok(()), "the appender goes on");
    });
}
