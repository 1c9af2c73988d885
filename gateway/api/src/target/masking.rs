//! Masks keys in the URLs that are kept: in the log, read models, webhooks and the feed. A key is known by the name of its
//! parameter, or by its shape, wherever it stands and however it is percent-encoded. Pure.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// What stands for a key.
const MASK: &str = "****";

/// Words in the name of a parameter whose value is a key.
const KEY_WORDS: [&str; 19] = [
    "auth",
    "authorization",
    "bearer",
    "code",
    "cookie",
    "credentials",
    "hmac",
    "jwt",
    "login",
    "otp",
    "pass",
    "passphrase",
    "passwd",
    "pwd",
    "sas",
    "session",
    "sid",
    "sig",
    "sign",
];

/// Ends of such words.
const KEY_ENDS: [&str; 7] =
    ["key", "token", "secret", "password", "signature", "credential", "authorization"];

/// How the keys of well-known services begin.
const KEY_BEGINS: [&str; 22] = [
    "aks_",
    "spk_",
    "cons_",
    "prds_",
    "css_",
    "whsec_",
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "xai-",
    "gsk_",
    "hf_",
    "r8_",
    "aiza",
    "ya29.",
    "akia",
    "asia",
    "ghp_",
    "github_pat_",
    "glpat-",
    "eyj",
];

/// The shortest key with a well-known beginning, in characters.
const MIN_KNOWN: usize = 12;

/// The shortest run of letters and digits that counts as a key by its shape alone. Those of a UUID are shorter.
const MIN_RUN: usize = 20;

/// How the ids of well-known services begin. A path names the object of a call with them, and they allow nothing.
const ID_BEGINS: [&str; 26] = [
    "asst_",
    "batch_",
    "chatcmpl-",
    "conv_",
    "evalrun_",
    "eval_",
    "file-",
    "file_",
    "ftckpt_",
    "ftevent-",
    "ftjob-",
    "fc_",
    "gen-",
    "item_",
    "modr-",
    "msg_",
    "msgbatch_",
    "req_",
    "resp_",
    "rs_",
    "run_",
    "step_",
    "thread_",
    "upload_",
    "video_",
    "vs_",
];

/// The most letters and digits of such an id.
const MAX_ID: usize = 80;

/// The most levels of percent-encoding that are undone.
const MAX_DECODED: usize = 3;

/// The URL `text` with its keys masked.
pub(crate) fn without_keys(text: &str) -> String {
    let (before, query) = text.split_once('?').map_or((text, None), |(before, query)| (before, Some(query)));
    let path_at = before.find("://").map_or(0, |at| at + 3);
    let path_at = before[path_at..].find('/').map_or(before.len(), |at| path_at + at);
    let (origin, path) = before.split_at(path_at);
    let mut masked = String::with_capacity(text.len());
    masked.push_str(origin);
    for (number, segment) in path.split('/').enumerate() {
        if number > 0 {
            masked.push('/');
        }
        masked.push_str(if !is_an_id(segment) && holds_a_key(segment) { MASK } else { segment });
    }
    let Some(query) = query else { return masked };
    masked.push('?');
    for pair in query.split_inclusive(['&', ';']) {
        let end = pair.len() - usize::from(pair.ends_with(['&', ';']));
        let (pair, separator) = pair.split_at(end);
        match pair.split_once('=') {
            Some((name, value))
                if !value.is_empty() && (names_a_key(&decoded(name)) || holds_a_key(value)) =>
            {
                masked.push_str(if holds_a_key(name) { MASK } else { name });
                masked.push('=');
                masked.push_str(MASK);
            }
            Some(_) | None if holds_a_key(pair) => masked.push_str(MASK),
            Some(_) | None => masked.push_str(pair),
        }
        masked.push_str(separator);
    }
    masked
}

/// `text` without percent-encoding, however often it was applied, within limits.
fn decoded(text: &str) -> Cow<'_, str> {
    let mut decoded = Cow::Borrowed(text);
    for _ in 0..MAX_DECODED {
        if !decoded.contains('%') {
            break;
        }
        decoded = Cow::Owned(percent_decode_str(&decoded).decode_utf8_lossy().into_owned());
    }
    decoded
}

/// Whether a parameter of this name has a key as its value, by the words in it: `subscription-key`, `idToken`.
fn names_a_key(name: &str) -> bool {
    let is_key = |word: &str| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
        // Several of them: `keys`, `api_secrets`. A number of `tokens` is none.
        let one = word.strip_suffix('s').filter(|one| !one.ends_with("token")).unwrap_or(&word);
        [word.as_str(), one]
            .iter()
            .any(|word| KEY_WORDS.contains(word) || KEY_ENDS.iter().any(|end| word.ends_with(end)))
    };
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.any(|word| is_key(word) || humps(word).any(is_key))
}

/// The parts of a word in camel case.
fn humps(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let after = rest.char_indices().skip(1).find(|(_, c)| c.is_ascii_uppercase()).map(|(at, _)| at);
        let (hump, others) = rest.split_at(after.unwrap_or(rest.len()));
        rest = others;
        (!hump.is_empty()).then_some(hump)
    })
}

/// Whether a segment of a path is an id of a well-known form.
fn is_an_id(segment: &str) -> bool {
    ID_BEGINS.iter().any(|begin| {
        segment.strip_prefix(begin).is_some_and(|id| {
            (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    })
}

/// Whether a part of a URL holds something of a key's shape, or a parameter with a key's name.
fn holds_a_key(part: &str) -> bool {
    let text = decoded(part);
    let is_known = |word: &str| {
        word.len() >= MIN_KNOWN
            && KEY_BEGINS
                .iter()
                .any(|begin| word.get(..begin.len()).is_some_and(|given| given.eq_ignore_ascii_case(begin)))
            && word.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
    };
    let is_random = |run: &str| {
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        run.len() >= MIN_RUN && digits >= 2 && run.len() - digits >= 2
    };
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
    if words.any(is_known) || text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_random) {
        return true;
    }
    // A URL or a form within a value.
    let mut pairs = text.split(['?', '&', ';', ',']).filter_map(|pair| pair.split_once('='));
    pairs.any(|(name, value)| !value.is_empty() && names_a_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_masked_by_the_names_of_their_parameters() {
        for name in [
            "key",
            "api_key",
            "apikey",
            "api-key",
            "access_token",
            "token",
            "sig",
            "signature",
            "%6bey",
            "api%5Fkey",
            "%256bey",
            "subscription-key",
            "Ocp-Apim-Subscription-Key",
            "code",
            "auth",
            "secret",
            "client_secret",
            "password",
            "pwd",
            "X-Amz-Signature",
            "X-Amz-Credential",
            "X-Amz-Security-Token",
            "x-goog-signature",
            "jwt",
            "id_token",
            "auth_token",
            "authToken",
            "idToken",
            "APIKey",
            "KEY",
            "x-api-key",
            "session",
            "sid",
            "sas",
            "bearer",
            "refresh_token",
            "private_key",
            "accesskey",
            "AWSAccessKeyId",
            "hmac",
            "assertion_token",
            "authorization",
            "passphrase",
            "credential",
            "cookie",
            "key1",
            "api_key2",
            "accessToken2",
            "keys",
            "secrets",
            "pass2",
        ] {
            let shown = without_keys(&format!("https://a.example/v1?x=1&{name}=se-cret&y=2"));
            assert_eq!(shown, format!("https://a.example/v1?x=1&{name}=****&y=2"));
            let shown = without_keys(&format!("https://a.example/?a;{name}=se-cret;b=2"));
            assert_eq!(shown, format!("https://a.example/?a;{name}=****;b=2"));
            let nested = format!("https%3A%2F%2Fb.example%2F%3F{name}%3Dse-cret");
            assert_eq!(
                without_keys(&format!("https://a.example/?to={nested}")),
                "https://a.example/?to=****"
            );
        }
    }

    #[test]
    fn keys_are_masked_by_their_shape_wherever_they_stand() {
        for key in [
            "sk-proj-Abc123Def456",
            "sk-ant-api03-abcdef123456",
            "AIzaSyA1234567890abcdefghijklmnopqrstuv",
            "aks_live_0123456789abcdef",
            "spk_0123456789abcdef",
            "gsk_abcDEF1234567890",
            "xai-Abcdefgh12345678",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "0123456789abcdef0123456789abcdef",
            "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
            "%73k-proj-Abc123Def456",
            "sk%2Dproj%2DAbc123Def456",
            "sk%252Dproj%252DAbc123Def456",
        ] {
            assert_eq!(
                without_keys(&format!("https://a.example/v1/{key}/x")),
                "https://a.example/v1/****/x",
                "{key}"
            );
            assert_eq!(
                without_keys(&format!("https://a.example/?z={key}&y=2")),
                "https://a.example/?z=****&y=2"
            );
            assert_eq!(
                without_keys(&format!("https://a.example/?{key}")),
                "https://a.example/?****",
                "{key}"
            );
            assert_eq!(
                without_keys(&format!("https://a.example/a;v={key}")),
                "https://a.example/****",
                "{key}"
            );
        }
        let in_a_word = "https://a.example/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe";
        assert_eq!(without_keys(in_a_word), "https://a.example/****/getMe");
    }

    #[test]
    fn a_key_is_masked_although_it_looks_like_an_id_in_part() {
        for segment in [
            "resp_",
            "x-resp_67ccd2bed1ec8190b14f964abc0542670",
            "resp_67ccd2bed1ec8190b14f964abc0542670-sk-proj-Abc123Def456",
            "resp_aks_live_0123456789abcdef0123456789abcdef0123",
            "file-67ccd2bed1ec8190b14f964abc0542670:0123456789abcdef0123456789abcdef",
            "file-%36%37ccd2bed1ec8190b14f964abc0542670",
        ] {
            let shown = without_keys(&format!("https://a.example/{segment}/x"));
            let expected = if segment == "resp_" { segment } else { MASK };
            assert_eq!(shown, format!("https://a.example/{expected}/x"), "{segment}");
        }
        let query = without_keys("https://a.example/?x=resp_67ccd2bed1ec8190b14f964abc0542670");
        assert_eq!(query, "https://a.example/?x=****");
    }

    #[test]
    fn what_is_no_key_stays_readable() {
        for url in [
            "https://api.openai.com/v1/chat/completions",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            "https://a.example/v1/models/meta-llama-3.1-405b-instruct-turbo",
            "https://a.example/v1/items/123e4567-e89b-12d3-a456-426614174000",
            "https://api.openai.com/v1/responses/resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b/cancel",
            "https://api.openai.com/v1/files/file-abc123ABC456def789GHI012/content",
            "https://api.anthropic.com/v1/messages/batches/msgbatch_013Zva2CMHLNnXjNJJKqJ2EF/results",
            "https://a.example/?max_tokens=5&keyword=x&author=y&design=1&monitor=2&limit=20260101120000123456789",
            "https://a.example/sk-learn/pk_docs?key=&token",
            "https://a.example:8443",
            "https://a.example?x=1",
            "https://a.example/a%20b?q=hello+world&&b=%E2%82%AC;",
        ] {
            assert_eq!(without_keys(url), url);
        }
    }
}
