//! Why a request or a response is not converted.

use thiserror::Error;

/// A request that is not converted. Nothing was sent to the provider.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The body is no JSON document, or has a member twice, or is nested too deeply.
    #[error("The request's body is not valid JSON: {message}.")]
    NotJson {
        /// What is wrong, and where.
        message: String,
    },
    /// A field has a value that its own format does not allow.
    #[error("{field}: {message}.")]
    Invalid {
        /// The path of the field in the request, such as `messages[0].content`.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// A field cannot be carried over to the provider's format.
    #[error("{field} cannot be converted: {why}.")]
    Unsupported {
        /// The path of the field in the request, such as `logit_bias`.
        field: String,
        /// Why it cannot be carried over.
        why: String,
    },
}

/// A response that is not converted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// The body or an event is no JSON document, or has a member twice, or is nested too deeply.
    #[error("The provider's response is not valid JSON: {message}.")]
    NotJson {
        /// What is wrong, and where.
        message: String,
    },
    /// A field has a value that the provider's format does not allow.
    #[error("The provider's response is invalid: {field}: {message}.")]
    Invalid {
        /// The path of the field in the response.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// A field cannot be carried over to the client's format.
    #[error("The provider's response cannot be converted: {field}: {why}.")]
    Unsupported {
        /// The path of the field in the response.
        field: String,
        /// Why it cannot be carried over.
        why: String,
    },
    /// An event of a stream, or all that must be kept of a stream, is longer than the converter keeps.
    #[error("The provider's response is longer than {limit_bytes} bytes where it must be kept.")]
    TooLong {
        /// The limit, in bytes.
        limit_bytes: usize,
    },
}

impl From<RequestError> for ResponseError {
    /// The same, found in a response.
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotJson { message } => Self::NotJson { message },
            RequestError::Invalid { field, message } => Self::Invalid { field, message },
            RequestError::Unsupported { field, why } => Self::Unsupported { field, why },
        }
    }
}
