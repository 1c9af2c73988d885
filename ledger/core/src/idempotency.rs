//! Idempotency keys: what a key claims, and how the answer kept for it is sealed (completion.md section 1).
//!
//! Invariant: neither a key nor an answer can be read from what is stored: names are keyed hashes, answers are
//! sealed under the server key.

use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes256Gcm, Key, Nonce};

use crate::ids::{MerchantId, RequestId};
use crate::secret::{ServerKey, hex};

/// Bytes of a nonce, which stands in front of what it sealed.
const NONCE_BYTES: usize = 12;

/// Where an idempotency key holds: the same key in another scope is another key.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Whose call.
    pub merchant_id: MerchantId,
    /// The method.
    pub method: &'a str,
    /// The path as it was called; of a forwarded call the endpoint's, whichever spelling was used.
    pub path: &'a str,
}

/// Names one use of an idempotency key: a keyed hash of its scope and the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(String);

impl ClaimId {
    /// The name as it is stored.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One use of an idempotency key, with what it was used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub id: ClaimId,
    /// A keyed hash of what was asked: 64 hexadecimal digits.
    pub fingerprint: String,
}

impl Claim {
    /// The claim that `key` makes in `scope` with a request whose content is `parts`.
    pub fn new(server_key: &ServerKey, scope: Scope<'_>, key: &str, parts: &[&[u8]]) -> Self {
        let merchant_id = scope.merchant_id.to_string();
        let name = [merchant_id.as_bytes(), scope.method.as_bytes(), scope.path.as_bytes(), key.as_bytes()];
        let id = ClaimId(hex(&server_key.mac_of("idempotency key", &name)));
        Self { id, fingerprint: hex(&server_key.mac_of("idempotency content", parts)) }
    }
}

impl ServerKey {
    /// Seals an answer for its claim alone: AES-256-GCM under a key of the claim's own, the claim's name being the
    /// associated data.
    pub fn seal(&self, claim: &ClaimId, answer: &[u8]) -> Vec<u8> {
        let mut nonce = [0_u8; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the operating system has randomness");
        let payload = Payload { msg: answer, aad: claim.0.as_bytes() };
        let sealed = self.cipher(claim).encrypt(&Nonce::from(nonce), payload);
        let sealed = sealed.expect("an answer is shorter than 64 GiB");
        [&nonce[..], &sealed].concat()
    }

    /// Opens what [`Self::seal`] sealed for the same claim; none where it is anything else.
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

/// What is on record of a claim, at one position of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The fingerprint of the request that came first.
    pub fingerprint: String,
    /// The forwarded call that it began, if it is one.
    pub request_id: Option<RequestId>,
    /// Is that call in flight?
    pub in_flight: bool,
    /// The answer, sealed, if it was kept.
    pub answer: Option<Vec<u8>>,
}

/// What a repeated claim meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The first request was another one.
    Reused,
    /// The first request has this sealed answer.
    Answered(Vec<u8>, Option<RequestId>),
    /// The first request is a forwarded call that is in flight.
    InFlight(RequestId),
    /// The first request is a forwarded call that has ended, and its answer was not kept.
    Ended(RequestId),
}

impl Recorded {
    /// What `claim`, which has the name of what is on record, meets; none where there is nothing to meet.
    pub fn meets(&self, claim: &Claim) -> Option<Standing> {
        if self.fingerprint != claim.fingerprint {
            return Some(Standing::Reused);
        }
        match (&self.answer, self.request_id) {
            (Some(answer), request_id) => Some(Standing::Answered(answer.clone(), request_id)),
            (None, Some(request_id)) if self.in_flight => Some(Standing::InFlight(request_id)),
            (None, Some(request_id)) => Some(Standing::Ended(request_id)),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(ulid::Ulid::from_parts(1, number))
    }

    fn claim(server_key: &ServerKey, merchant_id: MerchantId, path: &str, key: &str, body: &[u8]) -> Claim {
        Claim::new(server_key, Scope { merchant_id, method: "POST", path }, key, &[body])
    }

    #[test]
    fn a_claim_is_named_by_its_scope_and_key_and_told_apart_by_its_content() {
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
            // What ends one part cannot begin the next.
            claim(&server_key, merchant(1), "/v1/", "ak", b"x"),
            claim(&ServerKey::random(), merchant(1), "/v1/a", "k", b"x"),
        ] {
            assert_ne!(other.id, first.id);
        }
    }

    #[test]
    fn a_sealed_answer_opens_for_its_claim_alone_and_only_unchanged() {
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
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(server_key.open(&first, &changed), None, "byte {at}");
            assert_eq!(server_key.open(&first, &sealed[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_repeated_claim_meets_what_is_on_record() {
        let server_key = ServerKey::random();
        let claim = claim(&server_key, merchant(1), "/v1/a", "k", b"x");
        let request_id = RequestId::new(ulid::Ulid::from_parts(1, 1));
        let record = |answer: Option<&[u8]>, request_id, in_flight| Recorded {
            fingerprint: claim.fingerprint.clone(),
            request_id,
            in_flight,
            answer: answer.map(<[u8]>::to_vec),
        };
        let answered = record(Some(b"a"), None, false);
        assert_eq!(answered.meets(&claim), Some(Standing::Answered(b"a".to_vec(), None)));
        let running = record(None, Some(request_id), true);
        assert_eq!(running.meets(&claim), Some(Standing::InFlight(request_id)));
        let ended = record(None, Some(request_id), false);
        assert_eq!(ended.meets(&claim), Some(Standing::Ended(request_id)));
        let other = Claim { fingerprint: "0".to_owned(), ..claim.clone() };
        assert_eq!(answered.meets(&other), Some(Standing::Reused));
    }
}
