//! The forward endpoint: sends a call to the provider and its answer back unchanged, meters it and charges it exactly
//! once.
//!
//! Invariant: no byte of the provider's answer reaches the caller before the call's `RequestOpened` is durable, and the
//! last byte does not before its settlement is.

mod call;
mod call_times;
mod call_trace;
mod called_endpoint;
mod caller_pauses;
mod conversion_memory;
mod conversion_turns;
mod credential;
mod drain;
mod drain_slots;
mod ending;
mod endpoint;
mod forwarder;
mod headers;
mod idempotent_call;
mod key_mask;
mod managed_body;
mod metadata;
mod metered_body;
mod pieces;
mod prepare;
mod provider_response;
mod read_call;
mod request_body;
mod response_change;
mod response_recorder;
mod settlement;
mod signature;
mod size;
mod stored_rate;
mod turns;
mod usage;
mod whole_body;

pub(crate) use self::called_endpoint::CalledEndpoint;
pub(crate) use self::credential::{caller_of, has_credential};
pub(crate) use self::endpoint::{answer, routes, served};
pub(crate) use self::forwarder::Forwarder;
pub use self::headers::ResponseHeaders;
pub use self::usage::DecoderMemory;
pub(crate) use self::usage::{Decoders, LimitMember, Shape, has_known_form};
