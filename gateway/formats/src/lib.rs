//! Conversion between the formats of AI providers (completion.md section 12): requests, responses, errors and streams.
//!
//! Each format reads into neutral types (`conversation`, `answer`, `delta`, `provider_error`) and writes from them. So a
//! format has one reader and one writer of each kind, and knows no other format. What a request has and the provider's
//! format cannot carry is refused, naming the field. `docs/conversion.md` lists every field.
//!
//! **Architecture Invariant:** this crate is pure: no I/O, no clock, no async, no HTTP.

mod answer;
mod anthropic;
mod conversation;
mod conversion;
mod delta;
mod error;
mod fields;
#[cfg(test)]
mod fuzz;
mod google;
mod ignored;
mod image_url;
mod json;
mod openai_chat;
mod openai_responses;
mod path;
mod provider_error;
#[cfg(test)]
mod round_trip;
mod server_sent_events;
mod stream_converter;
mod whole_as_stream;

pub use conversion::{AnswerOptions, ChatLimitMember, Conversion, ConvertedRequest, Format, RequestFacts};
pub use error::{RequestError, ResponseError};
pub use stream_converter::StreamConverter;
