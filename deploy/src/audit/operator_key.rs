//! The operator's Ed25519 key, in PEM as `openssl genpkey -algorithm ed25519` writes it: it signs published heads, checkpoints
//! and proofs.

use std::path::Path;

use anyhow::{Context as _, Result};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use farthing_core::secret::hex;
use farthing_log::verify::published_heads::{SignatureCheck, Signer};

/// What precedes the 32 bytes of a public key in its DER form (RFC 8410).
const PUBLIC_KEY_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const PUBLIC_KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;

/// A private key.
pub(crate) struct OperatorKey(Ed25519KeyPair);

impl OperatorKey {
    /// Reads the PEM file (PKCS#8, unencrypted) that `flag` names.
    pub(crate) fn read(flag: &'static str, file: &Path) -> Result<Self> {
        let key = farthing_tls::private_key(file).context(flag)?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_der());
        let shown = || format!("{flag}: {} holds no Ed25519 key in PKCS#8", farthing_tls::shown(file));
        pair.map(Self).ok().with_context(shown)
    }
}

impl Signer for OperatorKey {
    fn sign(&self, message: &[u8]) -> (String, String) {
        (hex(self.0.public_key().as_ref()), hex(self.0.sign(message).as_ref()))
    }
}

/// The key that signatures must be of.
#[derive(PartialEq, Eq)]
pub(super) enum TrustedKey {
    /// Any key: a signature then proves only that its line was not changed by accident.
    Any,
    /// The operator's.
    Of([u8; PUBLIC_KEY_BYTES]),
}

impl TrustedKey {
    /// The public half of `key`.
    pub(super) fn of(key: &OperatorKey) -> Self {
        Self::Of(key.0.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Reads a PEM file, as `openssl pkey -pubout` writes it.
    pub(super) fn read(file: Option<&Path>) -> Result<Self> {
        let Some(file) = file else { return Ok(Self::Any) };
        let der = farthing_tls::public_key(file).context("--public-key-file")?;
        let key = der.strip_prefix(&PUBLIC_KEY_PREFIX).and_then(|key| key.try_into().ok());
        let shown = || format!("--public-key-file: {} holds no Ed25519 key", farthing_tls::shown(file));
        key.map(Self::Of).with_context(shown)
    }
}

impl SignatureCheck for TrustedKey {
    fn verify(
        &self,
        public_key: Option<&str>,
        signature: Option<&str>,
        message: &[u8],
    ) -> Result<(), String> {
        let (public_key, signature) = match (self, public_key, signature) {
            (Self::Any, None, None) => return Ok(()),
            (_, Some(key), Some(signature)) => (key, signature),
            (_, None, _) | (_, _, None) => return Err("it is not signed".to_owned()),
        };
        let key: [u8; PUBLIC_KEY_BYTES] = from_hex(public_key).ok_or("the public key is malformed")?;
        let signature: [u8; SIGNATURE_BYTES] = from_hex(signature).ok_or("the signature is malformed")?;
        if matches!(self, Self::Of(trusted) if *trusted != key) {
            return Err("it is signed with another key than the one given".to_owned());
        }
        let verified = UnparsedPublicKey::new(&ED25519, key).verify(message, &signature);
        verified.map_err(|_| "the signature is not that of the line".to_owned())
    }
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> OperatorKey {
        OperatorKey(Ed25519KeyPair::generate().unwrap())
    }

    #[test]
    fn a_signature_holds_for_its_message_and_its_key_alone() {
        let (own, other) = (key(), key());
        let (public, signature) = own.sign(b"a head");
        let check = |check: &TrustedKey, public: &str, signature: &str, message: &[u8]| {
            check.verify(Some(public), Some(signature), message)
        };
        for any in [&TrustedKey::of(&own), &TrustedKey::Any] {
            assert_eq!(check(any, &public, &signature, b"a head"), Ok(()));
            assert!(check(any, &public, &signature, b"a hear").is_err());
            assert!(check(any, &public, &signature.replace(&signature[..1], "g"), b"a head").is_err());
            assert!(check(any, &public[1..], &signature, b"a head").is_err());
            assert!(any.verify(Some(&public), None, b"a head").is_err());
            assert!(any.verify(None, Some(&signature), b"a head").is_err());
        }
        let (public, signature) = other.sign(b"a head");
        assert_eq!(check(&TrustedKey::Any, &public, &signature, b"a head"), Ok(()));
        let refused = check(&TrustedKey::of(&own), &public, &signature, b"a head").unwrap_err();
        assert!(refused.contains("another key"), "{refused}");
        assert!(TrustedKey::of(&own).verify(None, None, b"a head").is_err());
        assert_eq!(TrustedKey::Any.verify(None, None, b"a head"), Ok(()));
    }
}
