//! Providers: recognises the provider of a call by its destination, and chooses its key and list price. Pure.

pub mod catalogue;
mod usage_limit;

use std::collections::BTreeMap;
use std::fmt;

use farthing_core::event::ProviderKeyType;
use farthing_core::model_price::ListPrice;
use http::{HeaderName, HeaderValue, Method, Uri};
use zeroize::Zeroize as _;

pub(crate) use self::usage_limit::UsageLimit;
use crate::providers::catalogue::Catalogue;
use crate::target;

/// The name of a provider that is not built in.
const OTHER: &str = "other";

/// The built-in providers and the hosts of their public interfaces. A call over https to such a host is a call to the
/// provider.
pub const BUILT_IN: [(&str, &str); 7] = [
    ("openai", "api.openai.com"),
    ("anthropic", "api.anthropic.com"),
    ("google", "generativelanguage.googleapis.com"),
    ("deepseek", "api.deepseek.com"),
    ("mistral", "api.mistral.ai"),
    ("xai", "api.x.ai"),
    ("groq", "api.groq.com"),
];

/// The longest provider key, in bytes.
const MAX_KEY: usize = 4096;

/// A host, configured by the operator, that has the interface of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderHost {
    /// The provider's name, for example `openai`.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A managed provider key. Invariant: `Debug` does not reveal it. Its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderKey(String);

impl ProviderKey {
    /// The key, if `text` consists of 1 to 4096 visible ASCII characters.
    pub fn new(text: &str) -> Option<Self> {
        let is_key =
            !text.is_empty() && text.len() <= MAX_KEY && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_key.then(|| Self(text.to_owned()))
    }

    /// The key itself, to pass it to another process of the same instance.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn header(&self, name: HeaderName, prefix: &str) -> (HeaderName, HeaderValue) {
        let mut value = HeaderValue::try_from(format!("{prefix}{}", self.0)).expect("a key is visible ASCII");
        value.set_sensitive(true);
        (name, value)
    }
}

impl Drop for ProviderKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderKey(****)")
    }
}

/// The providers that this instance knows.
#[derive(Debug)]
pub(crate) struct Providers {
    hosts: Vec<ProviderHost>,
    keys: BTreeMap<String, ProviderKey>,
    catalogue: Catalogue,
}

/// The kind of a call's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// The provider's own public interface, over https.
    Public,
    /// The host of a public interface, without TLS or at another port. No managed key is sent there.
    Unprotected,
    /// A host that the operator configured.
    Named,
    /// Any other host.
    Elsewhere,
}

/// A recognised provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recognised<'a> {
    /// The provider's name.
    pub(crate) name: &'a str,
    destination: Destination,
}

/// The key that a call carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// The caller's own key, or none.
    Callers,
    /// A managed provider key.
    Managed(&'a ProviderKey),
}

impl Key<'_> {
    /// The key type that the request records.
    pub(crate) fn key_type(self) -> ProviderKeyType {
        match self {
            Self::Callers => ProviderKeyType::Unmanaged,
            Self::Managed(_) => ProviderKeyType::Managed,
        }
    }
}

/// The provider requires a key, and none is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyMissing;

/// Whether the call carries the caller's own provider key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallersKey {
    Present,
    Absent,
}

impl Providers {
    pub(crate) fn new(
        hosts: Vec<ProviderHost>,
        keys: BTreeMap<String, ProviderKey>,
        catalogue: Catalogue,
    ) -> Self {
        Self { hosts, keys, catalogue }
    }

    /// The price catalogue.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The provider at `target`. Hosts that the operator configured come first.
    pub(crate) fn at(&self, target: &Uri) -> Recognised<'_> {
        let (host, port) = target::destination(target);
        let named = |known: &&ProviderHost| known.port == port && target::plain_host(&known.host) == host;
        if let Some(known) = self.hosts.iter().find(named) {
            return Recognised { name: &known.name, destination: Destination::Named };
        }
        match BUILT_IN.iter().find(|(_, public)| *public == host) {
            Some((name, _)) if target.scheme_str() == Some("https") && port == 443 => {
                Recognised { name, destination: Destination::Public }
            }
            Some((name, _)) => Recognised { name, destination: Destination::Unprotected },
            None => Recognised { name: OTHER, destination: Destination::Elsewhere },
        }
    }

    /// The key for a call: the caller's own if present, else a managed one. A provider's public interface requires a
    /// key; a host that the operator configured may not.
    pub(crate) fn key(&self, provider: Recognised<'_>, callers: CallersKey) -> Result<Key<'_>, KeyMissing> {
        if callers == CallersKey::Present {
            return Ok(Key::Callers);
        }
        let ours = self.keys.get(provider.name).map(Key::Managed);
        match provider.destination {
            Destination::Public => ours.ok_or(KeyMissing),
            Destination::Unprotected => Err(KeyMissing),
            Destination::Named => Ok(ours.unwrap_or(Key::Callers)),
            Destination::Elsewhere => Ok(Key::Callers),
        }
    }

    /// The list price of `model` at the provider `name`.
    pub(crate) fn listed(&self, name: &str, model: Option<&str>) -> ListPrice {
        if name == OTHER {
            return ListPrice::Nothing;
        }
        let listed = model.and_then(|model| self.catalogue.find(name, model));
        listed.map_or(ListPrice::Unlisted, |listed| ListPrice::Listed(listed.price.clone()))
    }

    /// The usage that a call for `model` may report, if it asks for at most so many answers.
    pub(crate) fn usage_limit(
        &self,
        provider: Recognised<'_>,
        model: Option<&str>,
        answers: u64,
    ) -> UsageLimit {
        let listed = model.and_then(|model| self.catalogue.find(provider.name, model));
        listed.map_or_else(UsageLimit::default, |listed| UsageLimit::new(listed.max_tokens, answers))
    }

    /// The list price of a call of `method` to `target` for `model`.
    ///
    /// A GET, HEAD or DELETE without a model is free. With a managed key, only the list of models is free, and at
    /// public interfaces only endpoints that answer at once have a price. Everything else that the key gives access to
    /// (files, batches, answers to other callers) is unlisted.
    pub(crate) fn list_price(
        &self,
        provider: Recognised<'_>,
        key: Key<'_>,
        method: &Method,
        target: &Uri,
        model: Option<&str>,
    ) -> ListPrice {
        if provider.name == OTHER {
            return ListPrice::Nothing;
        }
        if model.is_some() {
            let for_sale = match key {
                // Nothing is restricted at hosts that the operator configured.
                Key::Managed(_) if provider.destination == Destination::Named => true,
                Key::Managed(_) => *method == Method::POST && is_answered_at_once(target),
                Key::Callers => true,
            };
            return if for_sale { self.listed(provider.name, model) } else { ListPrice::Unlisted };
        }
        let asks_nothing = match key {
            Key::Managed(_) => matches!(*method, Method::GET | Method::HEAD) && is_model_list(target),
            Key::Callers => matches!(*method, Method::GET | Method::HEAD | Method::DELETE),
        };
        if asks_nothing { ListPrice::Nothing } else { ListPrice::Unlisted }
    }
}

/// Whether the provider answers at once with its output and usage. Managed keys are used for these endpoints only.
fn is_answered_at_once(target: &Uri) -> bool {
    const ENDS: [&str; 7] = [
        "/chat/completions",
        "/completions",
        "/responses",
        "/embeddings",
        "/messages",
        "/generateContent",
        "/streamGenerateContent",
    ];
    let path = target.path();
    let plain = !path.contains(['%', '\\']) && !path.split('/').any(|segment| matches!(segment, "." | ".."));
    let spelled = path.replace(':', "/");
    plain && ENDS.iter().any(|end| spelled.ends_with(end))
}

/// Whether a stream reports its usage only if the request asks for it. Mistral always reports it and refuses the
/// option.
pub(crate) fn reports_usage_on_request(provider: Recognised<'_>, target: &Uri) -> bool {
    target.path().ends_with("/completions") && provider.name != "mistral"
}

/// Whether the path is `…/models` or `…/models/{model}`.
fn is_model_list(target: &Uri) -> bool {
    let mut segments = target.path().trim_end_matches('/').rsplit('/');
    let (last, before) = (segments.next(), segments.next());
    let is_plain =
        |segment: &str| segment.starts_with(|c: char| c.is_ascii_alphanumeric()) && !segment.contains('%');
    last == Some("models") || (before == Some("models") && last.is_some_and(is_plain))
}

/// The model in the path of a URL of Google's form: `…/models/{model}:{method}`.
pub(crate) fn model_within(target: &Uri) -> Option<&str> {
    let (path, last) = target.path().rsplit_once('/')?;
    let (model, method) = last.split_once(':')?;
    let is_plain = !model.is_empty() && !method.is_empty() && !last.contains('%');
    (is_plain && path.ends_with("/models")).then_some(model)
}

/// The header that carries a managed key to the provider. Google's OpenAI-compatible paths use OpenAI's header.
pub(crate) fn key_header(
    provider: Recognised<'_>,
    target: &Uri,
    key: &ProviderKey,
) -> (HeaderName, HeaderValue) {
    match provider.name {
        "anthropic" => key.header(HeaderName::from_static("x-api-key"), ""),
        "google" if !target.path().contains("/openai/") => {
            key.header(HeaderName::from_static("x-goog-api-key"), "")
        }
        _ => key.header(http::header::AUTHORIZATION, "Bearer "),
    }
}

/// A query parameter by which a caller could shape the response, so that it lacks its usage. Google selects the parts of
/// a response by `fields` and its format by `alt` and `callback`, each in several spellings.
pub(crate) fn parameter_of_the_response(provider: Recognised<'_>, target: &Uri) -> Option<String> {
    if provider.name != "google" {
        return None;
    }
    let mut format: Option<String> = None;
    let unknown = target::parameters(target).find(|(name, value)| match name.as_str() {
        "alt" => {
            // A client may name the format that its path names already.
            let differs = format.replace(value.clone()).is_some_and(|before| before != *value);
            differs || !matches!(value.as_str(), "json" | "sse")
        }
        "prettyPrint" => false,
        _ => true,
    });
    unknown.map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOGUE: &str = r#"{"source":"s","licence":"l","taken":"2026-11-20","models":[
        {"provider":"openai","model":"m","input_per_1m":"1"}]}"#;

    fn providers() -> Providers {
        let hosts = vec![
            ProviderHost { name: "openai".to_owned(), host: "127.0.0.1".to_owned(), port: 9 },
            ProviderHost { name: "mistral".to_owned(), host: "127.0.0.1".to_owned(), port: 10 },
        ];
        let keys = [("openai".to_owned(), ProviderKey::new("sk-ours").unwrap())];
        Providers::new(hosts, keys.into(), Catalogue::read(CATALOGUE).unwrap())
    }

    fn uri(url: &str) -> Uri {
        url.parse().unwrap()
    }

    #[test]
    fn providers_are_recognised_by_destination() {
        let providers = providers();
        for (url, name, destination) in [
            ("https://api.openai.com/v1", "openai", Destination::Public),
            ("https://API.OPENAI.COM.:443/v1", "openai", Destination::Public),
            ("http://api.openai.com/v1", "openai", Destination::Unprotected),
            ("http://api.openai.com:443/v1", "openai", Destination::Unprotected),
            ("https://api.openai.com:8443/v1", "openai", Destination::Unprotected),
            ("http://127.0.0.1:9/v1", "openai", Destination::Named),
            ("http://127.0.0.1:10/v1", "mistral", Destination::Named),
            ("http://127.0.0.1:11/v1", "other", Destination::Elsewhere),
            ("https://api.openai.com.example.org/", "other", Destination::Elsewhere),
            ("https://generativelanguage.googleapis.com/v1beta/models", "google", Destination::Public),
        ] {
            assert_eq!(providers.at(&uri(url)), Recognised { name, destination }, "{url}");
        }
    }

    #[test]
    fn a_key_of_ours_goes_only_where_it_belongs_and_only_in_want_of_the_callers() {
        let providers = providers();
        let ours = ProviderKey::new("sk-ours").unwrap();
        let key = |url: &str, callers| providers.key(providers.at(&uri(url)), callers);
        for (url, expected) in [
            ("https://api.openai.com/v1", Ok(Key::Managed(&ours))),
            ("http://127.0.0.1:9/v1", Ok(Key::Managed(&ours))),
            ("http://api.openai.com/v1", Err(KeyMissing)),
            ("http://api.openai.com:443/v1", Err(KeyMissing)),
            ("https://api.anthropic.com/v1", Err(KeyMissing)),
            ("http://127.0.0.1:10/v1", Ok(Key::Callers)),
            ("https://example.org/v1", Ok(Key::Callers)),
        ] {
            assert_eq!(key(url, CallersKey::Absent), expected, "{url}");
            assert_eq!(key(url, CallersKey::Present), Ok(Key::Callers), "{url}");
        }
    }

    #[test]
    fn what_is_asked_is_priced_or_free_or_neither() {
        let providers = providers();
        let ours = ProviderKey::new("sk-ours").unwrap();
        let price = |url: &str, key, method, model| {
            let target = uri(url);
            providers.list_price(providers.at(&target), key, &method, &target, model)
        };
        let managed = Key::Managed(&ours);
        let openai = "https://api.openai.com/v1";
        let chat = "https://api.openai.com/v1/chat/completions";
        assert!(matches!(price(chat, managed, Method::POST, Some("m")), ListPrice::Listed(_)));
        assert_eq!(price(chat, managed, Method::POST, Some("m-2")), ListPrice::Unlisted);
        for (path, method) in [
            ("/responses/resp_1", Method::GET),
            ("/files/f/content", Method::GET),
            ("/files/f", Method::DELETE),
            ("/fine_tuning/jobs", Method::POST),
            ("/threads/runs", Method::POST),
            ("/files/../chat/completions", Method::POST),
            ("/files%2f/completions", Method::POST),
        ] {
            let url = format!("{openai}{path}");
            assert_eq!(price(&url, managed, method, Some("m")), ListPrice::Unlisted, "{path}");
        }
        assert_eq!(price(openai, managed, Method::POST, None), ListPrice::Unlisted);
        assert_eq!(price("https://api.mistral.ai/v1", managed, Method::POST, Some("m")), ListPrice::Unlisted);
        assert_eq!(
            price("https://example.org/v1", Key::Callers, Method::POST, Some("m")),
            ListPrice::Nothing
        );
        for (path, expected) in [
            ("/models", ListPrice::Nothing),
            ("/models/", ListPrice::Nothing),
            ("/models/gpt-4.1", ListPrice::Nothing),
            ("/models/..", ListPrice::Unlisted),
            ("/models/%2e%2e", ListPrice::Unlisted),
            ("/models/m%2f..%2f..%2ffiles", ListPrice::Unlisted),
            ("/files", ListPrice::Unlisted),
            ("/models/x/files", ListPrice::Unlisted),
        ] {
            let url = format!("{openai}{path}");
            assert_eq!(price(&url, managed, Method::GET, None), expected, "{path}");
            assert_eq!(price(&url, Key::Callers, Method::GET, None), ListPrice::Nothing, "{path}");
            assert_eq!(price(&url, managed, Method::DELETE, None), ListPrice::Unlisted, "{path}");
        }
    }

    #[test]
    fn a_url_may_name_the_model() {
        let model = |path: &str| model_within(&uri(&format!("https://h{path}"))).map(str::to_owned);
        assert_eq!(model("/v1beta/models/gemini-2.5-pro:generateContent").as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(model("/v1/models/a:b?c=/models/d:e").as_deref(), Some("a"));
        for path in ["/v1beta/models", "/v1/models/m", "/v1/other/m:x", "/v1/models/:x", "/v1/models/m%3ax:y"]
        {
            assert_eq!(model(path), None, "{path}");
        }
    }

    #[test]
    fn each_provider_gets_its_key_in_its_own_header() {
        let key = ProviderKey::new("sk-1").unwrap();
        for (provider, path, name, text) in [
            ("openai", "/v1", "authorization", "Bearer sk-1"),
            ("anthropic", "/v1", "x-api-key", "sk-1"),
            ("google", "/v1beta/models/m:x", "x-goog-api-key", "sk-1"),
            ("google", "/v1beta/openai/chat/completions", "authorization", "Bearer sk-1"),
        ] {
            let recognised = Recognised { name: provider, destination: Destination::Public };
            let (header, value) = key_header(recognised, &uri(&format!("https://h{path}")), &key);
            assert_eq!((header.as_str(), value.to_str().unwrap()), (name, text));
            assert!(value.is_sensitive());
        }
        assert_eq!(format!("{key:?}"), "ProviderKey(****)");
        for text in ["", "a b", "a\nb", "é"] {
            assert_eq!(ProviderKey::new(text), None, "{text:?}");
        }
    }
}
