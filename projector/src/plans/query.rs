//! Finds and lists plans with their bundles and meters, and lists credit bundles.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MerchantId, MeterId, PlanId};
use farthing_core::plan::PlanTerms;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::query::{self, Error, FirstRows, Listed, Page, Parameter, PartitionClient, text};
use crate::row::{FromRow, ReadColumn as _, Unreadable, row};

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRow {
    /// The plan; the older name is subscription config.
    pub plan_id: PlanId,
    /// Its price, its credit and its rules.
    pub terms: PlanTerms,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Its bundles, oldest first.
    pub bundles: Vec<BundleRow>,
    /// The slugs of its meters that are not deleted.
    pub slugs: BTreeMap<MeterId, String>,
}

impl FromRow for PlanRow {
    /// Reads a plan without its bundles and slugs; [`complete`] adds them.
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        Ok(Self {
            plan_id: row.id("plan_id")?,
            terms: row.json("terms")?,
            created_at: row.plain("created_at")?,
            bundles: Vec::new(),
            slugs: BTreeMap::new(),
        })
    }
}

row! {
    /// A credit bundle.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BundleRow {
        /// The bundle.
        pub credit_bundle_id: CreditBundleId = id,
        /// The plan whose subscribers may buy it.
        pub plan_id: PlanId = id,
        /// Its name, its cost and its credit.
        pub offer: BundleOffer = json,
        /// When it was created.
        pub created_at: DateTime<Utc> = plain,
    }
}

row! {
    /// The slug of a meter.
    struct SlugRow {
        meter_id: MeterId = id,
        meter_slug: String = plain,
    }
}

macro_rules! select_plans {
    ($rest:literal) => {
        concat!(
            "SELECT plan_id, terms, created_at FROM {plans}.plans ",
            "WHERE partition = $1 AND merchant_id = $2 AND deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's plan by id.
pub const FIND: &str = select_plans!("AND plan_id = $3");

/// A merchant's plans, newest first.
pub const LIST: &str = select_plans!(
    "AND (created_at, plan_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY created_at DESC, plan_id DESC LIMIT $5"
);

/// The plan of a cursor. A deleted one keeps its place in the list.
pub const CURSOR: &str =
    "SELECT created_at AS at FROM {plans}.plans WHERE partition = $1 AND merchant_id = $2 AND plan_id = $3";

macro_rules! select_bundles {
    ($rest:literal) => {
        concat!(
            "SELECT credit_bundle_id, plan_id, offer, created_at FROM {plans}.credit_bundles ",
            "WHERE partition = $1 AND merchant_id = $2 AND deleted_at IS NULL ",
            $rest
        )
    };
}

/// The bundles of some plans, oldest first.
pub const BUNDLES_OF: &str = select_bundles!(
    "AND plan_id = ANY ($3::text[] COLLATE \"C\") \
     ORDER BY array_position($3::text[] COLLATE \"C\", plan_id), created_at, credit_bundle_id"
);

/// A merchant's bundles, newest first.
pub const LIST_BUNDLES: &str = select_bundles!(
    "AND (created_at, credit_bundle_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY created_at DESC, credit_bundle_id DESC LIMIT $5"
);

/// A merchant's bundle by id.
pub const FIND_BUNDLE: &str = select_bundles!("AND credit_bundle_id = $3");

/// A plan's bundles, newest first.
pub const LIST_BUNDLES_OF: &str = select_bundles!(
    "AND plan_id = $3 AND (created_at, credit_bundle_id) < (COALESCE($4::timestamptz, 'infinity'), $5) \
     ORDER BY created_at DESC, credit_bundle_id DESC LIMIT $6"
);

/// The bundle of a cursor. A deleted one keeps its place in the list.
pub const BUNDLE_CURSOR: &str = "SELECT created_at AS at FROM {plans}.credit_bundles WHERE partition = $1 AND merchant_id = $2 AND credit_bundle_id = $3";

/// The slugs of some meters.
pub const SLUGS: &str = "SELECT meter_id, meter_slug FROM {plans}.meter_slugs WHERE partition = $1 AND meter_id = ANY ($2::text[] COLLATE \"C\")";

/// The merchant's plan `id`.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: PlanId,
) -> Result<Option<PlanRow>, Error> {
    let merchant = merchant_id.to_string();
    let plans = query::all(db, FIND, &[text(&merchant), text(&id.to_string())]).await?;
    Ok(complete(db, &merchant, plans, usize::MAX).await?.pop())
}

/// The merchant's plans, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<Listed<PlanRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<PlanId>(db, CURSOR, &merchant).await?;
    let Listed { items, has_more } = query::list(db, LIST, &[text(&merchant)], &start, page).await?;
    let wanted = items.len();
    let items = complete(db, &merchant, items, page.max_bytes).await?;
    Ok(Listed { has_more: has_more || items.len() < wanted, items })
}

/// The merchant's credit bundles, newest first; only the plan's when one is given.
pub async fn list_bundles(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    plan_id: Option<PlanId>,
) -> Result<Listed<BundleRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<CreditBundleId>(db, BUNDLE_CURSOR, &merchant).await?;
    match plan_id.map(|id| id.to_string()) {
        None => query::list(db, LIST_BUNDLES, &[text(&merchant)], &start, page).await,
        Some(plan) => query::list(db, LIST_BUNDLES_OF, &[text(&merchant), text(&plan)], &start, page).await,
    }
}

/// The merchant's credit bundle `id`.
pub async fn find_bundle(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    id: CreditBundleId,
) -> Result<Option<BundleRow>, Error> {
    query::first(db, FIND_BUNDLE, &[text(&merchant_id.to_string()), text(&id.to_string())]).await
}

/// The plans with their bundles and the slugs of their meters: the first ones, up to the one with which their bundles have
/// `max_bytes`.
async fn complete(
    db: PartitionClient<'_>,
    merchant: &str,
    mut plans: Vec<PlanRow>,
    max_bytes: usize,
) -> Result<Vec<PlanRow>, Error> {
    if plans.is_empty() {
        return Ok(plans);
    }
    let ids: Vec<String> = plans.iter().map(|plan| plan.plan_id.to_string()).collect();
    let of = async |ids: &[String], max_bytes| -> Result<(Vec<BundleRow>, bool), Error> {
        let parameters: [Parameter<'_>; 2] = [text(&merchant), (&ids, Type::TEXT_ARRAY)];
        let FirstRows { rows, is_cut } = db.query_up_to(max_bytes, BUNDLES_OF, &parameters).await?;
        Ok((query::read(&rows)?, is_cut))
    };
    let (mut rows, is_cut) = of(&ids, max_bytes).await?;
    if is_cut && let Some(last) = rows.last().map(|bundle| bundle.plan_id) {
        // The last plan that was read lacks bundles.
        let whole = plans.iter().position(|plan| plan.plan_id == last).unwrap_or(0);
        plans.truncate(whole.max(1));
        if whole == 0 {
            (rows, _) = of(&ids[..1], usize::MAX).await?;
        }
    }
    let mut bundles: BTreeMap<PlanId, Vec<BundleRow>> = BTreeMap::new();
    for bundle in rows {
        bundles.entry(bundle.plan_id).or_default().push(bundle);
    }
    let meters: Vec<String> =
        plans.iter().flat_map(|plan| &plan.terms.meter_ids).map(ToString::to_string).collect();
    let mut slugs = BTreeMap::new();
    if !meters.is_empty() {
        let rows: Vec<SlugRow> = query::all(db, SLUGS, &[(&meters, Type::TEXT_ARRAY)]).await?;
        slugs.extend(rows.into_iter().map(|row| (row.meter_id, row.meter_slug)));
    }
    for plan in &mut plans {
        plan.bundles = bundles.remove(&plan.plan_id).unwrap_or_default();
        let known = plan.terms.meter_ids.iter().filter_map(|id| Some((*id, slugs.get(id)?.clone())));
        plan.slugs = known.collect();
    }
    Ok(plans)
}
