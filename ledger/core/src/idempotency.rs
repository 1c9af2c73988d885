//! Idempotency keys: claims on a key, and the sealing of the response stored for it (completion.md section 1).
//!
//! Invariant: neither a key nor a response can be read from the database: claim ids are keyed hashes, responses are
//! sealed under the server key.

use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use serde::{Deserialize, Serialize};

use crate::ids::{MerchantId, RequestId};
pub use crate::sealed_answer::SealedAnswer;
use crate::secret::{ServerKey, hex};
use crate::state::{Missing, StateCache};

/// Bytes of a nonce, which precedes the sealed bytes.
const NONCE_BYTES: usize = 12;

/// The scope of an idempotency key. The same key in two scopes counts as two keys.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The merchant that calls.
    pub merchant_id: MerchantId,
    /// The HTTP method.
    pub method: &'a str,
    /// The path of the request. Both paths of the forward endpoint count as one, with the id of the
    /// spend key as a part of it.
    pub path: &'a str,
}

/// The id of one use of an idempotency key: a keyed hash of its scope and the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId(String);

impl ClaimId {
    /// A claim id read from the database.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One use of an idempotency key, with the content of its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// A keyed hash of the request's content: 64 hexadecimal digits.
    pub fingerprint: String,
}

impl Claim {
    /// The claim of `key` in `scope` for a request with the content `parts`.
    pub fn new(server_key: &ServerKey, scope: Scope<'_>, key: &str, parts: &[&[u8]]) -> Self {
        let merchant_id = scope.merchant_id.to_string();
        let name = [merchant_id.as_bytes(), scope.method.as_bytes(), scope.path.as_bytes(), key.as_bytes()];
        let id = ClaimId(hex(&server_key.mac_of("idempotency key", &name)));
        Self { id, fingerprint: hex(&server_key.mac_of("idempotency content", parts)) }
    }
}

impl ServerKey {
    /// Seals the response to a claim: AES-256-GCM under a key derived for the claim, with the claim id as associated
    /// data.
    pub fn seal(&self, claim: &ClaimId, answer: &[u8]) -> SealedAnswer {
        let mut nonce = [0_u8; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the operating system has randomness");
        let payload = Payload { msg: answer, aad: claim.0.as_bytes() };
        let sealed = self.cipher(claim).encrypt(&Nonce::from(nonce), payload);
        let sealed = sealed.expect("a response is shorter than 64 GiB");
        [&nonce[..], &sealed].concat().into()
    }

    /// Opens a response that [`Self::seal`] sealed for the same claim; `None` for any other bytes.
    pub fn open(&self, claim: &ClaimId, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: claim.0.as_bytes() };
        self.cipher(claim).decrypt(&Nonce::from(*nonce), payload).ok()
    }

    fn cipher(&self, claim: &ClaimId) -> Aes256Gcm {
        let key = self.mac_of("idempotency answer", &[claim.0.as_bytes()]);
        Aes256Gcm::new(&Key::<Aes256Gcm>::from(key))
    }
}

/// The stored record of a claim, at one position of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredClaim {
    /// The fingerprint of the first request.
    pub fingerprint: String,
    /// The forwarded call that the first request started, if any.
    pub request_id: Option<RequestId>,
    /// The sealed response, if it was stored.
    pub answer: Option<SealedAnswer>,
}

/// The status of a key that was used before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStatus {
    /// The key was used for another request.
    Reused,
    /// The first request has this sealed response.
    Answered(SealedAnswer, Option<RequestId>),
    /// The first request is a forwarded call that is in flight.
    InFlight(RequestId),
    /// The first request is a forwarded call that has ended; its response was not stored.
    Ended(RequestId),
}

impl StoredClaim {
    /// The status that `claim`, which has the id of this record, gets; `None` if the first request left nothing. A
    /// forwarded call is in flight while its state exists, so its end also ends the claim.
    pub fn meets(&self, claim: &Claim, states: &StateCache) -> Result<Option<ClaimStatus>, Missing> {
        let known = self.answer_to(claim);
        let (None, Some(request_id)) = (&known, self.request_id) else { return Ok(known) };
        let is_in_flight = states.request(request_id)?.is_some();
        let ended = if is_in_flight { ClaimStatus::InFlight } else { ClaimStatus::Ended };
        Ok(Some(ended(request_id)))
    }

    /// As [`Self::meets`], if that is clear without any state.
    pub fn answer_to(&self, claim: &Claim) -> Option<ClaimStatus> {
        if self.fingerprint != claim.fingerprint {
            return Some(ClaimStatus::Reused);
        }
        let answer = self.answer.clone()?;
        Some(ClaimStatus::Answered(answer, self.request_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateKey;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(ulid::Ulid::from_parts(1, number))
    }

    fn claim(server_key: &ServerKey, merchant_id: MerchantId, path: &str, key: &str, body: &[u8]) -> Claim {
        Claim::new(server_key, Scope { merchant_id, method: "POST", path }, key, &[body])
    }

    #[test]
    fn a_claim_is_identified_by_scope_and_key_and_fingerprinted_by_content() {
        let server_key = ServerKey::random();
        let first = claim(&server_key, merchant(1), "/v1/a", "k", b"x");
        assert_eq!(claim(&server_key, merchant(1), "/v1/a", "k", b"x"), first);
        let changed = claim(&server_key, merchant(1), "/v1/a", "k", b"y");
        assert_eq!(changed.id, first.id);
        assert_ne!(changed.fingerprint, first.fingerprint);
        for other in [
            claim(&server_key, merchant(2), "/v1/a", "k", b"x"),
            claim(&server_key, merchant(1), "/v1/b", "k", b"x"),
            claim(&server_key, merchant(1), "/v1/a", "l", b"x"),
            // The boundary between two parts matters.
            claim(&server_key, merchant(1), "/v1/", "ak", b"x"),
            claim(&ServerKey::random(), merchant(1), "/v1/a", "k", b"x"),
        ] {
            assert_ne!(other.id, first.id);
        }
    }

    #[test]
    fn a_sealed_response_opens_only_for_its_claim_and_only_unchanged() {
        let server_key = ServerKey::random();
        let first = claim(&server_key, merchant(1), "/v1/a", "k", b"x").id;
        let other = claim(&server_key, merchant(1), "/v1/a", "l", b"x").id;
        let sealed = server_key.seal(&first, b"a raw key");
        assert!(!sealed.windows(5).any(|window| window == b"a raw"));
        assert_eq!(server_key.open(&first, &sealed).as_deref(), Some(&b"a raw key"[..]));
        assert_ne!(server_key.seal(&first, b"a raw key"), sealed, "a nonce is used once");
        assert_eq!(server_key.open(&other, &sealed), None);
        assert_eq!(ServerKey::random().open(&first, &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert_eq!(server_key.open(&first, &changed), None, "byte {at}");
            assert_eq!(server_key.open(&first, &sealed[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_repeated_claim_gets_the_status_of_the_first() {
        let server_key = ServerKey::random();
        let claim = claim(&server_key, merchant(1), "/v1/a", "k", b"x");
        let request_id = RequestId::new(ulid::Ulid::from_parts(1, 1));
        let record = |answer: Option<&[u8]>, request_id| StoredClaim {
            fingerprint: claim.fingerprint.clone(),
            request_id,
            answer: answer.map(|answer| answer.to_vec().into()),
        };
        let mut states = StateCache::default();
        let answered = record(Some(b"a"), None);
        let repeated = Some(ClaimStatus::Answered(b"a".to_vec().into(), None));
        assert_eq!(answered.meets(&claim, &states), Ok(repeated.clone()));
        assert_eq!(answered.answer_to(&claim), repeated);
        let call = record(None, Some(request_id));
        assert_eq!(call.answer_to(&claim), None);
        let key = StateKey::Request(request_id);
        assert_eq!(call.meets(&claim, &states), Err(Missing(vec![key.clone()])));
        states.load(key, None);
        assert_eq!(call.meets(&claim, &states), Ok(Some(ClaimStatus::Ended(request_id))));
        let other = Claim { fingerprint: "0".to_owned(), ..claim.clone() };
        assert_eq!(answered.meets(&other, &states), Ok(Some(ClaimStatus::Reused)));
    }
}
