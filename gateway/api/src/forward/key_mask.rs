//! Masks a managed provider key in a provider's error, which may repeat the key that it was sent. Every byte of it becomes
//! an asterisk, so the length of the error stays. A reason phrase or a header whose name has the key is left out. Nothing
//! else of the error changes. Pure.

use bytes::{Bytes, BytesMut};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use hyper::ext::ReasonPhrase;
use zeroize::Zeroizing;

use crate::providers::ProviderKey;

/// The shortest key that is masked, in bytes. A shorter one, such as `none`, is no secret and may be a word.
const MIN_SECRET: usize = 8;

const ASTERISK: u8 = b'*';

/// The mask of one response.
pub(super) struct KeyMask {
    /// The key, and each part of it that a call may send alone.
    secrets: Vec<Zeroizing<Vec<u8>>>,
    /// The end of what has come, with which a secret may begin.
    held: Zeroizing<Vec<u8>>,
}

impl KeyMask {
    /// A mask of `key`; `None` if it is too short to be a secret.
    pub(super) fn of(key: &ProviderKey) -> Option<Self> {
        let secrets: Vec<_> = key
            .secrets()
            .filter(|secret| secret.len() >= MIN_SECRET)
            .map(|secret| Zeroizing::new(secret.as_bytes().to_vec()))
            .collect();
        (!secrets.is_empty()).then(|| Self { secrets, held: Zeroizing::default() })
    }

    /// Leaves out a reason phrase that has the key. The caller then gets the usual one of the status.
    pub(super) fn mask_reason(&self, extensions: &mut Extensions) {
        if extensions.get::<ReasonPhrase>().is_some_and(|reason| self.is_within(reason.as_bytes())) {
            extensions.remove::<ReasonPhrase>();
        }
    }

    /// Masks the key in the values of headers or trailers, and leaves out those with the key in their name.
    pub(super) fn mask_headers(&self, headers: &mut HeaderMap) {
        let named: Vec<HeaderName> =
            headers.keys().filter(|name| self.is_within_name(name)).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            if self.is_within(value.as_bytes()) {
                let mut masked = value.as_bytes().to_vec();
                self.mask(&mut masked);
                *value = HeaderValue::from_bytes(&masked).expect("a value stays one with asterisks in it");
            }
        }
    }

    /// Masks the key in a whole body.
    pub(super) fn mask(&self, body: &mut [u8]) {
        for secret in &self.secrets {
            let mut from = 0;
            while let Some(at) = find(&body[from..], secret) {
                let end = from + at + secret.len();
                body[from + at..end].fill(ASTERISK);
                from = end;
            }
        }
    }

    /// What passes of the next bytes of a body. Bytes with which the key may begin are held back.
    pub(super) fn pass(&mut self, bytes: &Bytes) -> Bytes {
        if self.held.is_empty() && !self.is_within(bytes) && self.begun_in(bytes) == 0 {
            return bytes.clone();
        }
        let mut body = BytesMut::with_capacity(self.held.len() + bytes.len());
        body.extend_from_slice(&self.held);
        body.extend_from_slice(bytes);
        self.mask(&mut body);
        let held = body.split_off(body.len() - self.begun_in(&body));
        self.held = Zeroizing::new(held.to_vec());
        body.freeze()
    }

    /// What was held back of a body that is complete: the key did not go on.
    pub(super) fn end(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut *self.held))
    }

    fn is_within(&self, text: &[u8]) -> bool {
        self.secrets.iter().any(|secret| find(text, secret).is_some())
    }

    /// Whether a secret is in a header's name, which has lower-case letters whatever the provider wrote.
    fn is_within_name(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        self.secrets
            .iter()
            .any(|secret| name.windows(secret.len()).any(|window| window.eq_ignore_ascii_case(secret)))
    }

    /// How many of the last bytes of `text` are the beginning of a secret.
    fn begun_in(&self, text: &[u8]) -> usize {
        let begun = |secret: &Zeroizing<Vec<u8>>| {
            let longest = text.len().min(secret.len() - 1);
            (1..=longest).rev().find(|length| text.ends_with(&secret[..*length])).unwrap_or(0)
        };
        self.secrets.iter().map(begun).max().unwrap_or(0)
    }
}

/// The first place of `part` in `text`.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-a-key-ab-sk-a";

    fn mask(key: &str) -> KeyMask {
        KeyMask::of(&ProviderKey::of_provider("openai", key).unwrap()).unwrap()
    }

    /// What passes of a body in these pieces, and at its end.
    fn passed<'a>(mask: &mut KeyMask, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut passed = Vec::new();
        for piece in pieces {
            passed.extend_from_slice(&mask.pass(&Bytes::copy_from_slice(piece)));
        }
        passed.extend_from_slice(&mask.end());
        passed
    }

    #[test]
    fn a_key_is_masked_wherever_a_body_is_split() {
        let body = format!("a key: {KEY}, {KEY}{KEY}. sk-a-key-ab-sk-");
        let expected = body.replace(KEY, &"*".repeat(KEY.len()));
        for first in 0..body.len() {
            for second in first..body.len() {
                let pieces = [&body[..first], &body[first..second], &body[second..]].map(str::as_bytes);
                assert_eq!(passed(&mut mask(KEY), pieces), expected.as_bytes(), "{first} {second}");
            }
        }
        assert_eq!(passed(&mut mask(KEY), body.as_bytes().chunks(1)), expected.as_bytes());
        let mut whole = body.into_bytes();
        mask(KEY).mask(&mut whole);
        assert_eq!(whole, expected.as_bytes());
    }

    #[test]
    fn what_no_key_can_begin_with_passes_at_once() {
        let mut mask = mask(KEY);
        let piece = Bytes::from_static(b"{\"error\":{\"message\":\"no\"}}");
        assert_eq!(mask.pass(&piece).as_ptr(), piece.as_ptr(), "it is not copied");
        assert_eq!(mask.pass(&Bytes::from_static(b"no s")), "no ");
        assert_eq!(mask.pass(&Bytes::from_static(b"uch key")), "such key");
        assert!(mask.end().is_empty());
    }

    #[test]
    fn a_key_is_masked_in_headers_and_others_stay() {
        let mut headers = HeaderMap::new();
        headers.insert("x-key", format!("Bearer {KEY}").parse().unwrap());
        headers.append("x-key", HeaderValue::from_bytes(b"\xe9 sk-a-key").unwrap());
        mask(KEY).mask_headers(&mut headers);
        let values: Vec<_> = headers.get_all("x-key").iter().map(HeaderValue::as_bytes).collect();
        let masked = format!("Bearer {}", "*".repeat(KEY.len()));
        assert_eq!(values, [masked.as_bytes(), b"\xe9 sk-a-key"]);
    }

    #[test]
    fn a_header_with_the_key_in_its_name_and_a_reason_with_the_key_are_left_out() {
        let key = "Sk-A-Key-Ab";
        let mut headers = HeaderMap::new();
        for name in ["x-sk-a-key-ab", "x-sk-a-key-ab-1", "x-sk-a-key-a", "x-other"] {
            headers.append(name, HeaderValue::from_static("1"));
            headers.append(name, HeaderValue::from_static("2"));
        }
        mask(key).mask_headers(&mut headers);
        assert_eq!(headers.keys_len(), 2);
        for name in ["x-sk-a-key-a", "x-other"] {
            assert_eq!(headers.get_all(name).iter().count(), 2, "{name}");
        }
        for (reason, stays) in [("Bad key Sk-A-Key-Ab", false), ("No Sk-A-Key", true)] {
            let mut extensions = Extensions::new();
            extensions.insert(ReasonPhrase::try_from(reason.to_owned()).unwrap());
            mask(key).mask_reason(&mut extensions);
            assert_eq!(extensions.get::<ReasonPhrase>().is_some(), stays, "{reason}");
        }
    }

    #[test]
    fn each_part_of_aws_credentials_is_masked() {
        let (id, secret, token) =
            ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "FwoG/x+y==");
        let key = ProviderKey::of_provider("bedrock", &format!("{id}:{secret}:{token}")).unwrap();
        let body = format!("Credential={id}/20260101, {secret}, x-amz-security-token:{token}");
        let shown = passed(&mut KeyMask::of(&key).unwrap(), [body.as_bytes()]);
        let shown = String::from_utf8(shown).unwrap();
        let stars = |text: &str| "*".repeat(text.len());
        let expected = format!(
            "Credential={}/20260101, {}, x-amz-security-token:{}",
            stars(id),
            stars(secret),
            stars(token)
        );
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_key_that_is_no_secret_is_not_masked() {
        for key in ["x", "none", "secret7"] {
            assert!(KeyMask::of(&ProviderKey::of_provider("openai", key).unwrap()).is_none(), "{key}");
        }
    }

    proptest! {
        /// A body of few different bytes, in which beginnings of the key overlap.
        #[test]
        fn pieces_pass_like_the_whole(
            body in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b')], 0..200),
            cuts in proptest::collection::vec(0_usize..200, 0..9),
        ) {
            let key = "aabaabaaab";
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|ends| &body[ends[0]..ends[1]]);
            let shown = passed(&mut mask(key), pieces);
            let mut whole = body.clone();
            mask(key).mask(&mut whole);
            prop_assert_eq!(&shown, &whole);
            prop_assert!(find(&shown, key.as_bytes()).is_none());
        }
    }
}
