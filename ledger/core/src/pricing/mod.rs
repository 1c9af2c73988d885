//! Pricing: pure functions from usage, list prices and terms to costs, fees and bounds (completion.md sections 3 to
//! 5). Each line is rounded once; totals are sums of lines.

mod bound;
mod fee;
mod model_cost;

pub use self::bound::{Bound, max_fee, max_model_cost, max_model_cost_by_model};
pub use self::fee::{Fee, FeeLine, fee, graduated_fee, percentage_fee, service_charge};
pub use self::model_cost::{ModelCost, model_cost};
pub use crate::size_hint::{InputLimit, SizeHint};
