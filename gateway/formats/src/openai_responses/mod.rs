//! OpenAI's Responses.

mod input;
mod request_reader;
mod request_writer;
mod response_reader;
mod response_writer;
mod stream_reader;
mod stream_writer;

pub(crate) use request_reader::read_request;
pub(crate) use request_writer::write_request;
pub(crate) use response_reader::read_response;
pub(crate) use response_writer::write_response;
pub(crate) use stream_reader::stream_reader;
pub(crate) use stream_writer::stream_writer;

/// What `encrypted_content` begins with when another provider's reasoning can only be read by that provider.
const REDACTED: &str = "redacted.";
