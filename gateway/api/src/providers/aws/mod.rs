//! Signatures of AWS (Signature Version 4), by which Amazon Bedrock authenticates calls besides its own API keys. Pure.

mod credentials;
mod signature;

pub(crate) use self::credentials::AwsCredentials;
pub use self::credentials::InvalidCredentials;
pub(crate) use self::signature::{Error as SignatureError, SigningScope, sign};
