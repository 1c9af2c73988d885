//! The conversion of a streamed response: server-sent events in, server-sent events out.

use crate::error::ResponseError;

/// Converts a streamed response piece by piece. The pieces may be cut anywhere.
#[derive(Debug)]
pub struct StreamConverter;

impl StreamConverter {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Takes the next bytes of the provider and returns what the client gets now, which may be nothing.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ResponseError> {
        let _ = bytes;
        Err(ResponseError::Unsupported { field: "id".to_owned(), why: "not converted yet".to_owned() })
    }

    /// Takes the end of the provider's response. A stream that broke off is not completed.
    pub fn finish(self) -> Result<Vec<u8>, ResponseError> {
        Ok(Vec::new())
    }
}
