//! OpenAI's Chat Completions.

mod message;
mod request_reader;
mod request_writer;
mod response_reader;
mod response_writer;
mod schema_strictness;
mod stream_reader;
mod stream_writer;

pub(crate) use request_reader::{effort, read_request, verbatim_effort};
pub(crate) use request_writer::write_request;
pub(crate) use response_reader::read_response;
pub(crate) use response_writer::{write_error, write_response};
pub(crate) use schema_strictness::schema_strictness;
pub(crate) use stream_reader::stream_reader;
pub(crate) use stream_writer::stream_writer;
