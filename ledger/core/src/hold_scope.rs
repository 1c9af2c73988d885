//! The part of a wallet that a call may draw on. The call's hold counts against the same part.

use serde::{Deserialize, Serialize};

/// The part of a wallet that a call may draw on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreditScope {
    /// All of it.
    All,
    /// All but the plan's credit, which covers calls on other meters only.
    BesidePlan,
}

/// The credit scope of a hold, with the plan revision it was decided under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldScope {
    /// The part of the wallet.
    pub credit: CreditScope,
    /// The wallet's count of plan changes when the hold was decided.
    pub plan_changes: u32,
}

impl HoldScope {
    /// All of a wallet that has no plan.
    pub const ALL: Self = Self { credit: CreditScope::All, plan_changes: 0 };
}
