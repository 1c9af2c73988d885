//! Finds secrets of this service in values that are about to be sent to a provider, whatever they are wrapped in:
//! percent-encoding, base64 of both alphabets at any alignment, JSON escapes, UTF-16, and these within each other. Pure.
//!
//! Most values hold no secret, so they are searched once, without an allocation, for four characters in a row that each
//! form of a secret has at its beginning ([`may_hold`]). What has them is unwrapped and searched for a whole secret.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use farthing_core::secret::{self, SECRETS_BEGIN};
use percent_encoding::percent_decode;

/// The most levels of base64 that are decoded. What is looked for at first shows through two.
const MAX_BASE64: u32 = 3;

/// The most bytes that are unwrapped of a value, in lengths of it. A value that needs more counts as one with a secret.
const MAX_UNWRAPPED: usize = 16;

/// The shortest base64 that is decoded: no secret is shorter.
const MIN_BASE64: usize = 48;

/// The members of a forward token that hold a key, whose own beginning may be escaped.
const KEY_MEMBERS: [&str; 2] = ["secret_key", "spend_key"];

/// Whether `value` holds a secret of this service.
pub(super) fn holds_a_secret(value: &[u8]) -> bool {
    let is_suspect = may_hold(value) || value.iter().any(|byte| matches!(byte, b'%' | b'\\'));
    is_suspect && Unwrapping { left: value.len() * MAX_UNWRAPPED }.finds_a_secret(value, MAX_BASE64)
}

/// The search of one value.
struct Unwrapping {
    /// The bytes that may still be searched.
    left: usize,
}

impl Unwrapping {
    fn finds_a_secret(&mut self, text: &[u8], levels: u32) -> bool {
        let Some(left) = self.left.checked_sub(text.len()) else { return true };
        self.left = left;
        if secret::holds_a_secret(text) {
            return true;
        }
        // No secret and no base64 has a percent sign, a backslash or a zero, so whatever `text` holds is also found
        // without them.
        if text.contains(&b'%') {
            let decoded: Vec<u8> = percent_decode(text).collect();
            if decoded.len() < text.len() {
                return self.finds_a_secret(&decoded, levels);
            }
        }
        if text.windows(2).any(|two| two == b"\\u") {
            return self.finds_a_secret(&without_escapes(text), levels);
        }
        if text.contains(&0) {
            let narrow: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
            if narrow.len() < text.len() / 3 * 2 {
                return self.finds_a_secret(&narrow, levels);
            }
        }
        let Some(levels) = levels.checked_sub(1) else { return false };
        let mut runs = text.split(|byte| sextet(*byte).is_none() && !byte.is_ascii_whitespace());
        may_hold(text)
            && runs.any(|run| {
                run.len() >= MIN_BASE64
                    && (0..4).any(|skipped| self.finds_a_secret(&from_base64(run, skipped), levels))
            })
    }
}

/// The bytes of the base64 `run` after its first `skipped` characters. Blanks do not count.
fn from_base64(run: &[u8], skipped: usize) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(run.len() / 4 * 3 + 3);
    let (mut bits, mut count) = (0_u32, 0);
    for sextet in run.iter().filter_map(|byte| sextet(*byte)).skip(skipped) {
        bits = bits << 6 | sextet;
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    decoded
}

/// The value of a character of either base64 alphabet.
fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// `text` without the escapes of JSON strings. Characters beyond ASCII become `?`.
fn without_escapes(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let escaped = rest.get(1..5).filter(|_| rest.first() == Some(&b'u'));
        let code = escaped.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let Some(code) = code {
            plain.push(u8::try_from(code).ok().filter(u8::is_ascii).unwrap_or(b'?'));
            rest = &rest[5..];
        } else if let Some((&literal, after)) = rest.split_first() {
            plain.push(literal);
            rest = after;
        }
    }
    plain
}

/// Whether `text` has four characters in a row that a secret has in one of its forms. Blanks do not count.
fn may_hold(text: &[u8]) -> bool {
    let traces = &*TRACES;
    let mut last_four = 0_u32;
    text.iter().filter(|byte| !byte.is_ascii_whitespace()).any(|byte| {
        last_four = last_four << 8 | u32::from(*byte);
        traces.contain(last_four)
    })
}

/// Four characters of each form of a secret's beginning: as it is, and once or twice in base64.
static TRACES: LazyLock<Traces> = LazyLock::new(|| {
    let mut traces = Traces { filter: [0; 256], all: Vec::new() };
    for text in SECRETS_BEGIN {
        traces.add(text.as_bytes());
    }
    for text in SECRETS_BEGIN.into_iter().chain(KEY_MEMBERS) {
        let wide = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<_>>();
        for form in [text.as_bytes().to_vec(), wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
            for once in in_base64(&form) {
                traces.add(&once);
                for twice in in_base64(&once) {
                    traces.add(&twice);
                }
            }
        }
    }
    traces.all.sort_unstable();
    traces.all.dedup();
    traces
});

struct Traces {
    /// A bit for the hash of each, so that hardly any other text is looked up.
    filter: [u64; 256],
    /// The characters of each, in order.
    all: Vec<u32>,
}

impl Traces {
    /// Adds the last four characters, which are the most telling ones.
    fn add(&mut self, form: &[u8]) {
        let last = form.last_chunk().expect("a secret's beginning has four characters in every form");
        let trace = u32::from_be_bytes(*last);
        let (word, bit) = Self::place(trace);
        self.filter[word] |= 1 << bit;
        self.all.push(trace);
    }

    fn contain(&self, four: u32) -> bool {
        let (word, bit) = Self::place(four);
        self.filter[word] >> bit & 1 == 1 && self.all.binary_search(&four).is_ok()
    }

    const fn place(four: u32) -> (usize, u32) {
        let hash = four.wrapping_mul(0x9e37_79b1) >> 18;
        ((hash >> 6) as usize, hash & 63)
    }
}

/// The characters that `text` alone decides wherever it stands within base64, in both alphabets.
fn in_base64(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let at = |before: usize| {
        let whole = [&[0; 2][..before], text].concat();
        // The first character that holds no bit of what is before, and the end of those without a bit of what follows.
        let decided = (before * 8).div_ceil(6)..whole.len() * 8 / 6;
        [STANDARD.encode(&whole), URL_SAFE.encode(&whole)]
            .map(|text| text.as_bytes()[decided.clone()].to_vec())
    };
    (0..3).flat_map(at)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use farthing_core::ids::{CheckoutSessionId, CustomerId, MeterId, WebhookId};
    use farthing_core::secret::{Mode, ServerKey, new_secret_key, new_spend_key};
    use proptest::prelude::*;

    use super::*;

    fn secrets() -> Vec<String> {
        let key = ServerKey::random();
        let ulid = ulid::Ulid::from_parts(7, 9);
        vec![
            new_secret_key(Mode::Live).reveal().to_owned(),
            new_secret_key(Mode::Test).reveal().to_owned(),
            new_spend_key().reveal().to_owned(),
            key.connection_secret(CustomerId::new(ulid), 1),
            key.product_secret(MeterId::new(ulid), 1),
            key.checkout_secret(CheckoutSessionId::new(ulid)),
            key.webhook_secret(WebhookId::new(ulid)),
        ]
    }

    fn percent_encoded(text: &[u8]) -> Vec<u8> {
        let mut encoded = String::new();
        for byte in text {
            write!(encoded, "%{byte:02x}").unwrap();
        }
        encoded.into_bytes()
    }

    /// One wrapping of `text`, of the kind `kind`.
    fn wrapped(text: &[u8], kind: u8) -> Vec<u8> {
        let escaped = || {
            let mut escaped = String::new();
            for byte in text {
                write!(escaped, "\\u{byte:04X}").unwrap();
            }
            escaped
        };
        match kind {
            0 => percent_encoded(text),
            1 => STANDARD.encode(text).into_bytes(),
            2 => URL_SAFE.encode(text).trim_end_matches('=').as_bytes().to_vec(),
            3 => [b"{\"secret_key\":\"", text, b"\"}"].concat(),
            4 => format!("{{\"secret_key\":\"{}\"}}", escaped()).into_bytes(),
            5 => [b"Bearer ", text].concat(),
            6 => [b"a=b; key=\"", text, b"\""].concat(),
            _ => [b"\xff\xfe", text, b"\xff"].concat(),
        }
    }

    #[test]
    fn a_secret_is_found_in_every_presentation() {
        for secret in secrets() {
            let bytes = secret.as_bytes();
            for before in ["", "x:", "xy:", "xyz:", "{\"a\":1,\"secret_key\":\""] {
                for after in ["", ":", "\"}", "\u{e9}"] {
                    let text = [before.as_bytes(), bytes, after.as_bytes()].concat();
                    let once = [STANDARD.encode(&text), URL_SAFE.encode(&text)];
                    assert!(holds_a_secret(&text), "{text:?}");
                    assert!(holds_a_secret(&percent_encoded(&text)), "{text:?}");
                    assert!(holds_a_secret(&percent_encoded(&percent_encoded(&text))), "{text:?}");
                    for once in once {
                        assert!(holds_a_secret(once.as_bytes()), "{once}");
                        assert!(
                            holds_a_secret(format!("Basic {}", once.trim_end_matches('=')).as_bytes()),
                            "{once}"
                        );
                        let folded: Vec<_> =
                            once.as_bytes().chunks(7).map(|line| [line, b"\r\n"].concat()).collect();
                        assert!(holds_a_secret(&folded.concat()), "{once}");
                        let twice = STANDARD.encode(format!("user:{once}"));
                        assert!(holds_a_secret(format!("Basic {twice}").as_bytes()), "{twice}");
                    }
                }
            }
            for order in [u16::to_le_bytes, u16::to_be_bytes] {
                let wide: Vec<u8> = format!("x:{secret}").encode_utf16().flat_map(order).collect();
                assert!(holds_a_secret(STANDARD.encode(wide).as_bytes()), "{secret}");
            }
        }
    }

    #[test]
    fn what_holds_no_secret_passes() {
        for text in [
            "",
            "OpenAI/Python 1.99.0",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
            "application/json, text/event-stream;q=0.9, */*;q=0.1",
            "Bearer sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-0123456789abcdefghij",
            "{\"access_key\":\"AKIAIOSFODNN7EXAMPLE\",\"secret_key\":\"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\"}",
            "https://a.example/breaks_after?latest_request_id=%E2%82%AC&css_class=x%25y%2",
            "aks_live_ spk_ cons_ prds_ css_ whsec_",
            "\\u12 \\ \\\\u0061ks_live_",
            "%",
        ] {
            assert!(!holds_a_secret(text.as_bytes()), "{text}");
            for encoded in [STANDARD.encode(text), STANDARD.encode(STANDARD.encode(text))] {
                assert!(!holds_a_secret(encoded.as_bytes()), "{text}: {encoded}");
            }
        }
    }

    #[test]
    fn a_long_value_of_random_bytes_that_looks_suspect_passes() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3_000).collect();
        for text in [STANDARD.encode(&bytes), URL_SAFE.encode(STANDARD.encode(&bytes))] {
            for text in [format!("x_live_={text}"), format!("\\%25{text}c3BrX{text}")] {
                assert!(!holds_a_secret(text.as_bytes()), "{text}");
            }
        }
    }

    #[test]
    fn a_value_is_searched_within_bounds() {
        // Each level of this matches, and none holds a secret.
        let mut text = "aks_live_".repeat(100).into_bytes();
        for _ in 0..4 {
            text = STANDARD.encode([&text[..], b"%61ks_live_\\u0061"].concat()).into_bytes();
        }
        let mut search = Unwrapping { left: text.len() * MAX_UNWRAPPED };
        search.finds_a_secret(&text, MAX_BASE64);
        assert!(search.left < text.len() * MAX_UNWRAPPED);
    }

    proptest! {
        #[test]
        fn a_secret_in_up_to_two_random_wrappings_is_found(
            which in 0_usize..7, kinds in proptest::collection::vec(0_u8..8, 0..=2),
            before in proptest::collection::vec(any::<u8>(), 0..9), after in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let secret = secrets().swap_remove(which);
            // What stands beside it must not make a longer word of a secret's beginning.
            let mut text = [&before[..], b" ", secret.as_bytes(), b" ", &after[..]].concat();
            for kind in &kinds {
                text = wrapped(&text, *kind);
            }
            // Percent-encoding within base64 is not looked for.
            prop_assume!(!matches!(kinds[..], [0, 1 | 2]));
            prop_assert!(holds_a_secret(&text), "{kinds:?}");
        }

        #[test]
        fn random_text_holds_no_secret(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(!holds_a_secret(&text));
            prop_assert!(!holds_a_secret(STANDARD.encode(&text).as_bytes()));
            prop_assert!(!holds_a_secret(&percent_encoded(&text)));
        }

        #[test]
        fn escapes_are_undone_and_nothing_panics(text in "[\\\\u0-9a-f\"x]{0,40}") {
            without_escapes(text.as_bytes());
            holds_a_secret(text.as_bytes());
        }
    }
}
