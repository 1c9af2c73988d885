//! The operator's key that signs proofs of the log.

use std::fmt;
use std::sync::Arc;

use farthing_log::verify::published_heads::Signer;

/// A key that signs proofs. Its private part is never shown.
#[derive(Clone)]
pub struct ProofKey(Arc<dyn Signer + Send + Sync>);

impl ProofKey {
    /// Signs with `signer`.
    pub fn new(signer: impl Signer + Send + Sync + 'static) -> Self {
        Self(Arc::new(signer))
    }

    /// The public key and the signature of `message`, in hexadecimal.
    pub(crate) fn sign(&self, message: &[u8]) -> (String, String) {
        self.0.sign(message)
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey")
    }
}
