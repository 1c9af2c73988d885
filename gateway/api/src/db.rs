//! Bounded reads for handlers, with errors as [`ApiError`].

use farthing_log::{reader, reads, states};
use farthing_projector::query;

use crate::error::{ApiError, GatewayLimit, InputError};

/// The outcome of `read`, or a 503 when it takes too long.
pub(crate) async fn within<T, E: Into<ApiError>>(
    read: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    reads::within(read).await?.map_err(Into::into)
}

impl From<reads::Error> for ApiError {
    fn from(error: reads::Error) -> Self {
        match error {
            reads::Error::Unavailable(why) => Self::ledger_unavailable(why),
            reads::Error::Overloaded => Self::overloaded(GatewayLimit::Queue),
            reads::Error::Internal(why) => Self::internal(why),
        }
    }
}

impl From<reader::Error> for ApiError {
    fn from(error: reader::Error) -> Self {
        if let reader::Error::Archived { .. } = error {
            return Self::ledger_unavailable(error.to_string());
        }
        reads::Error::from(error).into()
    }
}

impl From<tokio_postgres::Error> for ApiError {
    fn from(error: tokio_postgres::Error) -> Self {
        reads::Error::from(error).into()
    }
}

impl From<states::Error> for ApiError {
    fn from(error: states::Error) -> Self {
        reads::Error::from(error).into()
    }
}

impl From<query::Error> for ApiError {
    fn from(error: query::Error) -> Self {
        match error {
            query::Error::CursorInvalid => Self::Input(InputError::CursorInvalid),
            query::Error::Archived(_) => Self::ledger_unavailable(error.to_string()),
            query::Error::Database(error) => error.into(),
            query::Error::Row(_) => Self::internal(error.to_string()),
        }
    }
}
