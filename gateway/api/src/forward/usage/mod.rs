//! Reads the usage that a provider reports while its answer passes. Invariant: reading does not change or store the
//! answer (only `chunk.rs` removes a chunk that the caller did not request), each part of it passes before it is read,
//! and no usage is estimated.

mod any_case;
mod bedrock_forms;
mod bedrock_request;
#[cfg(test)]
mod bombs;
mod chunk;
mod content;
mod decoder_threads;
mod decoders;
mod decoding;
mod document;
mod event_stream;
mod findings;
mod form;
mod framing;
mod further_models;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod hold_property;
mod members;
mod output_limit;
mod provider_text;
mod request;
mod scanner;
mod shape;
mod streamed_text;
mod unpriced;

pub(crate) use self::bedrock_forms::has_known_form;
pub(crate) use self::bedrock_request::{read_bedrock_options, unpriced_at_bedrock};
pub(crate) use self::chunk::ChunkFilter;
pub(crate) use self::content::{Content, content};
pub use self::decoders::DecoderMemory;
pub(crate) use self::decoders::Decoders;
pub(crate) use self::decoding::is_uncompressed;
pub(crate) use self::findings::UsageReport;
pub(crate) use self::form::{FormExtent, FormOptions, read_form};
pub(crate) use self::further_models::{are_further_models_among, may_name_further_models};
pub(crate) use self::members::MAX_MEMBERS;
pub(crate) use self::output_limit::{BedrockLimit, LimitMember};
pub(crate) use self::request::{
    RequestedOptions, RequestedStream, naming_model, read_request, requesting_usage, without_member,
};
pub(crate) use self::scanner::{Reading, Scanner};
pub(crate) use self::shape::{ReportedUsage, Shape};
pub(crate) use self::unpriced::{Unpriced, unpriced_member};
