//! Finds and lists plans with what belongs to them, and lists credit bundles.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MerchantId, MeterId, PlanId};
use farthing_core::plan::PlanTerms;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter};

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRow {
    /// The plan, in the older words the subscription config.
    pub plan_id: PlanId,
    /// What it takes and gives.
    pub terms: PlanTerms,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Its bundles, in the order of their creation.
    pub bundles: Vec<BundleRow>,
    /// The slugs of those of its meters that are there.
    pub slugs: BTreeMap<MeterId, String>,
}

/// A credit bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleRow {
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// What it costs and brings.
    pub offer: BundleOffer,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

impl PlanRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            plan_id: columns.id()?,
            terms: columns.json()?,
            created_at: columns.plain()?,
            bundles: Vec::new(),
            slugs: BTreeMap::new(),
        })
    }
}

impl BundleRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            credit_bundle_id: columns.id()?,
            plan_id: columns.id()?,
            offer: columns.json()?,
            created_at: columns.plain()?,
        })
    }
}

macro_rules! select_plans {
    ($rest:literal) => {
        concat!(
            "SELECT plan_id, terms, created_at FROM plans.plans ",
            "WHERE merchant_id = $1 AND deleted_at IS NULL ",
            $rest
        )
    };
}

/// A merchant's plan by id.
pub const FIND: &str = select_plans!("AND plan_id = $2");

/// A merchant's plans, newest first.
pub const LIST: &str = select_plans!("ORDER BY created_at DESC, plan_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_AFTER: &str =
    select_plans!("AND (created_at, plan_id) < ($3, $4) ORDER BY created_at DESC, plan_id DESC LIMIT $2");

/// When the plan of a cursor was created; one deleted in the meantime still has its place in the list.
pub const CURSOR: &str = "SELECT created_at FROM plans.plans WHERE merchant_id = $1 AND plan_id = $2";

macro_rules! select_bundles {
    ($rest:literal) => {
        concat!(
            "SELECT credit_bundle_id, plan_id, offer, created_at FROM plans.credit_bundles ",
            "WHERE merchant_id = $1 AND deleted_at IS NULL ",
            $rest
        )
    };
}

/// The bundles of some plans, in the order of their creation.
pub const BUNDLES_OF: &str =
    select_bundles!("AND plan_id = ANY ($2::text[] COLLATE \"C\") ORDER BY created_at, credit_bundle_id");

/// A merchant's bundles, newest first.
pub const LIST_BUNDLES: &str = select_bundles!("ORDER BY created_at DESC, credit_bundle_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_BUNDLES_AFTER: &str = select_bundles!(
    "AND (created_at, credit_bundle_id) < ($3, $4) ORDER BY created_at DESC, credit_bundle_id DESC LIMIT $2"
);

/// A plan's bundles, newest first.
pub const LIST_BUNDLES_OF: &str =
    select_bundles!("AND plan_id = $3 ORDER BY created_at DESC, credit_bundle_id DESC LIMIT $2");

/// The same, after a cursor.
pub const LIST_BUNDLES_OF_AFTER: &str = select_bundles!(
    "AND plan_id = $3 AND (created_at, credit_bundle_id) < ($4, $5) \
     ORDER BY created_at DESC, credit_bundle_id DESC LIMIT $2"
);

/// When the bundle of a cursor was created; one deleted in the meantime still has its place in the list.
pub const BUNDLE_CURSOR: &str =
    "SELECT created_at FROM plans.credit_bundles WHERE merchant_id = $1 AND credit_bundle_id = $2";

/// The slugs of some meters.
pub const SLUGS: &str =
    "SELECT meter_id, meter_slug FROM plans.meter_slugs WHERE meter_id = ANY ($1::text[] COLLATE \"C\")";

/// The merchant's plan `id`.
pub async fn find(db: &Client, merchant_id: MerchantId, id: PlanId) -> Result<Option<PlanRow>, Error> {
    let merchant = merchant_id.to_string();
    let rows = db.query_typed(FIND, &[(&merchant, Type::TEXT), (&id.to_string(), Type::TEXT)]).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| PlanRow::read(&mut Columns::of(row))).collect();
    Ok(complete(db, &merchant, rows?).await?.pop())
}

/// The merchant's plans, newest first.
pub async fn list(db: &Client, merchant_id: MerchantId, page: Page<'_>) -> Result<Listed<PlanRow>, Error> {
    let merchant = merchant_id.to_string();
    let after = match page.cursor {
        Some(cursor) => {
            let id: PlanId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
            Some(position(db, CURSOR, &merchant, id.to_string()).await?)
        }
        None => None,
    };
    let limit = page.rows_to_ask();
    let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&limit, Type::INT8)];
    if let Some((created_at, id)) = &after {
        parameters.extend([(created_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
    }
    let sql = if after.is_some() { LIST_AFTER } else { LIST };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| PlanRow::read(&mut Columns::of(row))).collect();
    let Listed { items, has_more } = Listed::cut(rows?, page);
    Ok(Listed { items: complete(db, &merchant, items).await?, has_more })
}

/// All of the merchant's plans, newest first.
pub async fn all(db: &Client, merchant_id: MerchantId) -> Result<Vec<PlanRow>, Error> {
    let mut plans: Vec<PlanRow> = Vec::new();
    loop {
        let cursor = plans.last().map(|plan| plan.plan_id.to_string());
        let page = Page { cursor: cursor.as_deref(), limit: 1_000 };
        let listed = list(db, merchant_id, page).await?;
        plans.extend(listed.items);
        if !listed.has_more {
            return Ok(plans);
        }
    }
}

/// The merchant's credit bundles, newest first; only the plan's when one is given.
pub async fn list_bundles(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    plan_id: Option<PlanId>,
) -> Result<Listed<BundleRow>, Error> {
    let merchant = merchant_id.to_string();
    let after = match page.cursor {
        Some(cursor) => {
            let id: CreditBundleId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
            Some(position(db, BUNDLE_CURSOR, &merchant, id.to_string()).await?)
        }
        None => None,
    };
    let (limit, plan) = (page.rows_to_ask(), plan_id.map(|id| id.to_string()));
    let mut parameters: Vec<Parameter<'_>> = vec![(&merchant, Type::TEXT), (&limit, Type::INT8)];
    if let Some(plan) = &plan {
        parameters.push((plan, Type::TEXT));
    }
    if let Some((created_at, id)) = &after {
        parameters.extend([(created_at as _, Type::TIMESTAMPTZ), (id as _, Type::TEXT)]);
    }
    let sql = match (&plan, &after) {
        (None, None) => LIST_BUNDLES,
        (None, Some(_)) => LIST_BUNDLES_AFTER,
        (Some(_), None) => LIST_BUNDLES_OF,
        (Some(_), Some(_)) => LIST_BUNDLES_OF_AFTER,
    };
    let rows = db.query_typed(sql, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| BundleRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

/// The plans with their bundles and the slugs of their meters.
async fn complete(db: &Client, merchant: &str, mut plans: Vec<PlanRow>) -> Result<Vec<PlanRow>, Error> {
    if plans.is_empty() {
        return Ok(plans);
    }
    let ids: Vec<String> = plans.iter().map(|plan| plan.plan_id.to_string()).collect();
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&ids, Type::TEXT_ARRAY)];
    let mut bundles: BTreeMap<PlanId, Vec<BundleRow>> = BTreeMap::new();
    for row in db.query_typed(BUNDLES_OF, &parameters).await? {
        let bundle = BundleRow::read(&mut Columns::of(&row))?;
        bundles.entry(bundle.plan_id).or_default().push(bundle);
    }
    let meters: Vec<String> =
        plans.iter().flat_map(|plan| &plan.terms.meter_ids).map(ToString::to_string).collect();
    let mut slugs = BTreeMap::new();
    if !meters.is_empty() {
        for row in db.query_typed(SLUGS, &[(&meters, Type::TEXT_ARRAY)]).await? {
            let mut columns = Columns::of(&row);
            let (id, slug): (MeterId, String) = (columns.id()?, columns.plain()?);
            slugs.insert(id, slug);
        }
    }
    for plan in &mut plans {
        plan.bundles = bundles.remove(&plan.plan_id).unwrap_or_default();
        let known = plan.terms.meter_ids.iter().filter_map(|id| Some((*id, slugs.get(id)?.clone())));
        plan.slugs = known.collect();
    }
    Ok(plans)
}

async fn position(
    db: &Client,
    sql: &str,
    merchant: &str,
    id: String,
) -> Result<(DateTime<Utc>, String), Error> {
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(sql, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}
