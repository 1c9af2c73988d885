//! The merchant's own wallet, and the parts shared with customers' wallets (completion.md section 7).

mod find;
mod fund;
mod resource;
mod update;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(in crate::rest) use self::resource::Wallet;
pub(in crate::rest) use self::update::{WalletChangesBody, update_customer_wallet};
use crate::app::App;

/// The routes of the wallet.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::default().routes(routes!(find::find, update::update)).routes(routes!(fund::fund))
}
