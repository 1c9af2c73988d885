//! Secrets of any instance, known by their shape in a text, and their masks in what is recorded. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::{KEY_CHARS, MAC_CHARS, SECRETS_BEGIN, WEBHOOK_SECRET};

/// What stands for all of a secret but its beginning.
const MASK: &str = "****";

/// The same in the name of a pair, which has letters, digits and underscores alone.
const MASK_IN_A_NAME: &str = "masked";

/// Whether `text` holds a whole secret of any instance, known by its shape. The beginning alone is none: identifiers of
/// other services may begin the same.
pub fn holds_a_secret(text: &[u8]) -> bool {
    next_secret(text, 0).is_some()
}

/// `text` with `****` for each whole secret in it, but for the secret's beginning: `aks_live_****`.
pub fn masked(text: &str) -> Cow<'_, str> {
    masked_with(text, MASK)
}

/// The pairs with all secrets masked, in their values and in their names. Of names that become the same, the later ones
/// get a number: no pair is lost.
pub fn masked_pairs(pairs: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let value = |text: &String| masked(text).into_owned();
    let (masked_names, others): (Vec<_>, Vec<_>) =
        pairs.iter().partition(|(name, _)| holds_a_secret(name.as_bytes()));
    let mut all: BTreeMap<_, _> =
        others.into_iter().map(|(name, text)| (name.clone(), value(text))).collect();
    for (name, text) in masked_names {
        let name = masked_with(name, MASK_IN_A_NAME).into_owned();
        let numbered = (2_u32..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !all.contains_key(name));
        all.insert(free.unwrap_or(name), value(text));
    }
    all
}

fn masked_with<'a>(text: &'a str, mask: &str) -> Cow<'a, str> {
    let mut masked = String::new();
    let mut shown = 0;
    // Beginnings and secrets are ASCII, so these are boundaries of characters.
    while let Some(hidden) = next_secret(text.as_bytes(), shown) {
        masked.push_str(&text[shown..hidden.start]);
        masked.push_str(mask);
        shown = hidden.end;
    }
    if shown == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(&text[shown..]);
    Cow::Owned(masked)
}

/// The first whole secret in `text` whose beginning ends behind `from`: the place of what follows its beginning.
fn next_secret(text: &[u8], from: usize) -> Option<Range<usize>> {
    let ends_a_beginning = text.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'_');
    ends_a_beginning.map(|(at, _)| at + 1).find_map(|at| {
        let (before, rest) = text.split_at(at);
        let begin = SECRETS_BEGIN.into_iter().find(|begin| before.ends_with(begin.as_bytes()))?;
        Some(at..at + length_of_a_secret(begin, rest)?)
    })
}

/// How far `rest` goes on as a secret that begins with `begin`; `None` if it is not long enough for one.
fn length_of_a_secret(begin: &str, rest: &[u8]) -> Option<usize> {
    let count = |text: &[u8], is_one: fn(&u8) -> bool| text.iter().take_while(|byte| is_one(byte)).count();
    match begin {
        "cons_" | "prds_" | "css_" => {
            let id = count(rest, u8::is_ascii_alphanumeric);
            let mac = rest.get(id..)?.strip_prefix(b".")?;
            let is_of_a_mac = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let mac = count(mac, is_of_a_mac);
            (id > ulid::ULID_LEN && mac >= MAC_CHARS).then_some(id + 1 + mac)
        }
        WEBHOOK_SECRET => {
            let mac = count(rest, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
            (mac >= MAC_CHARS).then_some(mac)
        }
        _ => {
            let key = count(rest, u8::is_ascii_alphanumeric);
            (key >= KEY_CHARS).then_some(key)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{CheckoutSessionId, CustomerId, MeterId, WebhookId};
    use crate::secret::{Mode, ServerKey, new_secret_key, new_spend_key};

    fn secrets() -> Vec<String> {
        let key = ServerKey::random();
        let ulid = ulid::Ulid::from_parts(7, 9);
        vec![
            new_secret_key(Mode::Live).reveal().to_owned(),
            new_secret_key(Mode::Test).reveal().to_owned(),
            new_spend_key().reveal().to_owned(),
            key.connection_secret(CustomerId::new(ulid), 1),
            key.product_secret(MeterId::new(ulid), 300),
            key.checkout_secret(CheckoutSessionId::new(ulid)),
            key.webhook_secret(WebhookId::new(ulid)),
        ]
    }

    #[test]
    fn every_secret_is_known_by_its_shape_and_nothing_shorter() {
        for secret in secrets() {
            assert!(SECRETS_BEGIN.iter().any(|begin| secret.starts_with(begin)), "{secret}");
            for text in
                [secret.clone(), format!("_x_{secret}"), format!("{secret}x"), format!("\"{secret}\"")]
            {
                assert!(holds_a_secret(text.as_bytes()), "{text}");
            }
            assert!(!holds_a_secret(&secret.as_bytes()[..secret.len() - 1]), "{secret}");
            assert!(!holds_a_secret(&secret.as_bytes()[1..]), "{secret}");
        }
        for text in [
            "",
            "_",
            "spk_",
            "breaks_after_the_third_attempt_of_the_second_caller_today",
            "spk_01KAM5F7Z8Q9X0Y1V2W3E4R5T6",
            "css_modules_and_other_things_that_are_not_secrets.but_are_long_enough_to_be_one",
            "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789",
        ] {
            assert!(!holds_a_secret(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_secret_is_masked_but_for_its_beginning_and_nothing_beside_it_is() {
        for secret in secrets() {
            let begin = SECRETS_BEGIN.into_iter().find(|begin| secret.starts_with(begin)).unwrap();
            for (text, expected) in [
                (secret.clone(), format!("{begin}****")),
                (format!("é {secret}, gpt-4o_"), format!("é {begin}****, gpt-4o_")),
                (format!("{secret} {secret}"), format!("{begin}**** {begin}****")),
                (format!("x/_{secret}?"), format!("x/_{begin}****?")),
            ] {
                assert_eq!(masked(&text), expected, "{text}");
                assert_eq!(masked(&masked(&text)), expected, "{text}");
            }
        }
        for text in ["", "gpt-4o", "spk_", "spk_01KAM5F7Z8Q9X0Y1V2W3E4R5T6", "claude_spk_x é"] {
            assert!(matches!(masked(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn pairs_are_masked_in_names_and_values_and_none_is_lost() {
        let keys: Vec<_> = (0..3).map(|_| new_spend_key().reveal().to_owned()).collect();
        let of = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let given = of(&[
            (&keys[0], "1"),
            (&keys[1], &keys[2]),
            (&format!("a_{}", keys[2]), "3"),
            ("spk_masked", "4"),
            ("plain", &format!("key {}", keys[0])),
        ]);
        let mut shown = masked_pairs(&given);
        assert_eq!(shown.len(), 5);
        let mut numbered = [shown.remove("spk_masked_2").unwrap(), shown.remove("spk_masked_3").unwrap()];
        numbered.sort();
        assert_eq!(numbered, ["1", "spk_****"]);
        assert_eq!(shown, of(&[("a_spk_masked", "3"), ("plain", "key spk_****"), ("spk_masked", "4")]));
    }

    proptest! {
        #[test]
        fn no_masked_text_holds_a_secret(
            which in 0_usize..7, other in 0_usize..7, before in ".{0,9}", between in ".{0,3}", after in ".{0,9}",
        ) {
            let (one, two) = (secrets().swap_remove(which), secrets().swap_remove(other));
            let shown = masked(&format!("{before}{one}{between}{two}{after}")).into_owned();
            prop_assert!(!holds_a_secret(shown.as_bytes()), "{shown}");
            prop_assert!(shown.starts_with(&before), "{shown}");
        }
    }
}
