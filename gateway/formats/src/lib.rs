//! Conversion between the formats of AI providers (completion.md section 12): requests, responses, errors and streams.
//!
//! Each format reads into the neutral types of `conversation` and writes from them. So a format has one reader and
//! one writer of each kind, and knows no other format. What cannot be carried over is refused, naming the field.
//!
//! **Architecture Invariant:** this crate is pure: no I/O, no clock, no async, no HTTP.

mod conversion;
mod error;
mod stream_converter;

pub use conversion::{AnswerOptions, Conversion, ConvertedRequest, Format, RequestFacts};
pub use error::{RequestError, ResponseError};
pub use stream_converter::StreamConverter;
