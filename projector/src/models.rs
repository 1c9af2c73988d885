//! The projection of each read model.

/// Evaluates an expression in which a name is the projection type of a read model:
/// `with_projection!(model, P => build::<P>())`.
macro_rules! with_projection {
    ($model:expr, $projection:ident => $body:expr) => {{
        use farthing_schema::read_model::ReadModel;
        match $model {
            ReadModel::Customers => $crate::models::with!($projection = customers::CustomerBatch, $body),
            ReadModel::Connections => {
                $crate::models::with!($projection = connections::ConnectionBatch, $body)
            }
            ReadModel::Meters => $crate::models::with!($projection = meters::MeterBatch, $body),
            ReadModel::SpendKeys => $crate::models::with!($projection = spend_keys::SpendKeyBatch, $body),
            ReadModel::CheckoutSessions => {
                $crate::models::with!($projection = checkout_sessions::CheckoutSessionBatch, $body)
            }
            ReadModel::SecretKeys => $crate::models::with!($projection = secret_keys::SecretKeyBatch, $body),
            ReadModel::Requests => $crate::models::with!($projection = requests::RequestBatch, $body),
            ReadModel::Usage => $crate::models::with!($projection = usage::UsageBatch, $body),
            ReadModel::PaymentMethods => {
                $crate::models::with!($projection = payment_methods::PaymentMethodBatch, $body)
            }
            ReadModel::Plans => $crate::models::with!($projection = plans::PlanBatch, $body),
            ReadModel::Subscriptions => {
                $crate::models::with!($projection = subscriptions::SubscriptionBatch, $body)
            }
            ReadModel::Entries => $crate::models::with!($projection = entries::EntryBatch, $body),
            ReadModel::Journal => $crate::models::with!($projection = journal::JournalBatch, $body),
        }
    }};
}

/// One arm of [`with_projection!`](with_projection).
macro_rules! with {
    ($projection:ident = $module:ident::$batch:ident, $body:expr) => {{
        type $projection = $crate::$module::$batch;
        $body
    }};
}

pub(crate) use {with, with_projection};
