//! What a failed request about a stream means. An answer of JetStream is about that stream alone, and says nothing against the
//! streams of other partitions; without an answer, NATS itself has failed.

use std::error::Error as _;

use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::stream::{InfoError, RawMessageError, RawMessageErrorKind};
use async_nats::jetstream::{self, ErrorCode};

use super::{Error, nats};

const DELETED: Error = Error::Changed("the stream was deleted");

impl From<CreateStreamError> for Error {
    fn from(error: CreateStreamError) -> Self {
        match error.kind() {
            CreateStreamErrorKind::JetStream(said) => answered(&said),
            CreateStreamErrorKind::NotFound => DELETED,
            _ => nats(error),
        }
    }
}

/// The error of a deletion, too.
impl From<GetStreamError> for Error {
    fn from(error: GetStreamError) -> Self {
        match error.kind() {
            GetStreamErrorKind::JetStream(said) => answered(&said),
            _ => nats(error),
        }
    }
}

impl From<RawMessageError> for Error {
    fn from(error: RawMessageError) -> Self {
        match error.kind() {
            RawMessageErrorKind::JetStream(said) => answered(&said),
            _ => nats(error),
        }
    }
}

impl From<InfoError> for Error {
    fn from(error: InfoError) -> Self {
        // Its kind does not tell an answer from other failures.
        let said = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
        said.map_or_else(|| nats(&error), answered)
    }
}

fn answered(said: &jetstream::Error) -> Error {
    match said.error_code() {
        ErrorCode::STREAM_NOT_FOUND => DELETED,
        // No stream can be published.
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => nats(said),
        _ => Error::RefusedStream(said.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::context::RequestErrorKind;

    use super::*;

    /// An answer of JetStream.
    fn said(error_code: ErrorCode) -> jetstream::Error {
        let answer = serde_json::json!({"code": 400, "err_code": error_code.0, "description": "no"});
        serde_json::from_value(answer).unwrap()
    }

    /// What `error_code` means as the answer to each request.
    fn meanings(error_code: ErrorCode) -> [Error; 4] {
        let said = said(error_code);
        [
            CreateStreamError::from(said.clone()).into(),
            GetStreamError::new(GetStreamErrorKind::JetStream(said.clone())).into(),
            RawMessageError::new(RawMessageErrorKind::JetStream(said.clone())).into(),
            InfoError::from(said).into(),
        ]
    }

    #[test]
    fn a_refusal_of_a_stream_is_no_failure_of_nats() {
        for code in [
            ErrorCode::CLUSTER_NO_PEERS,
            ErrorCode::MAXIMUM_STREAMS_LIMIT,
            ErrorCode::STREAM_SUBJECT_OVERLAP,
            ErrorCode::STORAGE_RESOURCES_EXCEEDED,
            // A stream whose servers have chosen no leader.
            ErrorCode::CLUSTER_NOT_AVAILABLE,
        ] {
            for error in meanings(code) {
                assert!(matches!(error, Error::RefusedStream(_)), "{error:?}");
                let says = format!("JetStream refuses the stream: no (code 400, error code {})", code.0);
                assert_eq!(error.to_string(), says);
            }
        }
    }

    #[test]
    fn a_stream_that_is_not_found_was_deleted() {
        for error in meanings(ErrorCode::STREAM_NOT_FOUND) {
            assert!(matches!(error, Error::Changed(_)), "{error:?}");
        }
    }

    #[test]
    fn without_an_answer_or_jetstream_nats_has_failed() {
        for code in [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT] {
            for error in meanings(code) {
                assert!(matches!(error, Error::Nats(_)), "{error:?}");
            }
        }
        let garbage = std::io::Error::other("no JSON");
        let failures: [Error; 7] = [
            CreateStreamError::new(CreateStreamErrorKind::TimedOut).into(),
            CreateStreamError::new(CreateStreamErrorKind::JetStreamUnavailable).into(),
            GetStreamError::new(GetStreamErrorKind::Request).into(),
            RawMessageError::new(RawMessageErrorKind::Other).into(),
            InfoError::new(RequestErrorKind::TimedOut).into(),
            InfoError::new(RequestErrorKind::NoResponders).into(),
            InfoError::with_source(RequestErrorKind::Other, garbage).into(),
        ];
        for error in failures {
            assert!(matches!(error, Error::Nats(_)), "{error:?}");
        }
    }
}
