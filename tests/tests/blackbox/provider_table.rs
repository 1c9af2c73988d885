//! Each built-in provider at each endpoint that it documents, whole and streamed, on the caller's own key and on a managed
//! key, against a stand-in that answers as the provider does. What passed is the tables of `docs/providers.md`, which are
//! compared; `WRITE_TABLE=1` writes them.

use std::path::{Path, PathBuf};

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::{Endpoint, Provider};
use farthing_tests::run;
use serde_json::json;

use super::provider_calls::{COLUMNS, Case, Column, Counted, PROVIDERS, case, price_list, streamed};
use super::providers::{Keys, gateway_with, tokens};
use Column::{Batches, Chat, Embeddings, Files, Images, Messages, Speech, Transcription};

/// Cells with a test of their own: its file, which must have it.
const OWN_TESTS: [(&str, Column, &str, &str); 17] = [
    (
        "openai",
        Chat,
        "managed_streams",
        "stream_usage_is_requested_on_the_callers_behalf_and_removed_from_the_response",
    ),
    ("openai", Speech, "provider_endpoints", "speech_is_billed_by_the_characters_of_its_input"),
    (
        "openai",
        Transcription,
        "provider_endpoints",
        "a_transcription_is_billed_by_the_seconds_that_its_answer_reports",
    ),
    (
        "openai",
        Speech,
        "sound_streams",
        "streamed_speech_is_billed_by_its_characters_and_shows_the_tokens_that_its_last_event_reports",
    ),
    (
        "openai",
        Transcription,
        "sound_streams",
        "a_streamed_transcription_is_billed_by_the_tokens_that_its_last_event_reports",
    ),
    (
        "openai",
        Images,
        "provider_endpoints",
        "files_images_and_batches_on_the_callers_own_key_pass_and_are_counted_as_calls",
    ),
    (
        "openai",
        Batches,
        "provider_endpoints",
        "files_images_and_batches_on_the_callers_own_key_pass_and_are_counted_as_calls",
    ),
    (
        "openai",
        Files,
        "provider_endpoints",
        "files_images_and_batches_on_the_callers_own_key_pass_and_are_counted_as_calls",
    ),
    ("groq", Chat, "providers", "groqs_stream_reports_its_usage_in_a_member_of_its_own"),
    ("cohere", Chat, "providers", "cohere_is_metered_by_the_units_that_it_bills"),
    ("cohere", Embeddings, "providers", "cohere_is_metered_by_the_units_that_it_bills"),
    ("cohere", Chat, "providers", "coheres_own_chat_and_embeddings_are_charged_on_a_managed_key"),
    ("cohere", Embeddings, "providers", "coheres_own_chat_and_embeddings_are_charged_on_a_managed_key"),
    (
        "openrouter",
        Chat,
        "providers",
        "openrouters_usage_counts_its_cache_and_a_managed_call_chooses_no_other_price",
    ),
    (
        "xai",
        Messages,
        "providers",
        "an_openai_compatible_provider_that_serves_messages_reports_as_anthropic_does",
    ),
    (
        "azure",
        Chat,
        "providers",
        "azure_bills_by_the_deployment_in_the_url_and_takes_a_managed_key_at_a_named_host_alone",
    ),
    (
        "bedrock",
        Chat,
        "provider_endpoints",
        "bedrock_is_metered_on_the_callers_own_key_or_signature_in_each_of_its_forms",
    ),
];

const SOURCES: [(&str, &str); 4] = [
    ("managed_streams", include_str!("managed_streams.rs")),
    ("provider_endpoints", include_str!("provider_endpoints.rs")),
    ("providers", include_str!("providers.rs")),
    ("sound_streams", include_str!("sound_streams.rs")),
];

/// A cell that passed.
struct Passed {
    provider: &'static str,
    column: Column,
    counted: Counted,
}

/// What a customer's call on its own key costs: the fee of the meter, and the service charge of 1.9 % on it.
const FEE_OF_A_CALL: &str = "0.5095000000";

/// The gateway of the test, its merchant and their credentials.
struct Callers {
    managed: Managed,
    merchant: Merchant,
    /// A customer's token with the caller's own key, billed half a dollar for each call.
    own: String,
}

impl Callers {
    async fn new(managed: Managed) -> Self {
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("1000").await;
        let meter = merchant.call_meter("0.5").await;
        let own = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        Self { managed, merchant, own }
    }

    /// Makes the call of a case on the caller's own key, and on the managed key where it is sold.
    async fn whole(&self, name: &str, column: Column, case: &Case) {
        let is_sold = column.is_sold_at(name);
        let credentials = [(&self.own, "unmanaged")].into_iter();
        let credentials = credentials.chain(is_sold.then_some((&self.merchant.secret_key, "managed")));
        let called = &case.endpoint.path;
        for (credential, key_type) in credentials {
            let response = self.managed.send(credential, case.request()).await;
            assert_eq!(response.status, 200, "{name}{called}: {}", response.text());
            let metered = self.merchant.charged(&response).await;
            let (unit, count) = case.counted.in_usage();
            assert_eq!(metered["usage"][unit], count, "{name}{called}: {metered}");
            let marks = if case.counted == Counted::Nothing { json!(["usage_missing"]) } else { json!([]) };
            assert_eq!(metered["marks"], marks, "{name}{called}: {metered}");
            if case.counted != Counted::Nothing {
                assert_eq!(metered["model_cost"]["total"], case.cost, "{name}{called}");
            }
            let charged = if key_type == "managed" { case.cost } else { FEE_OF_A_CALL };
            assert_eq!(metered["total_request_cost"], charged, "{name}{called}, {key_type}");
            let shown = self.merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(
                (&shown["provider"], &shown["provider_key_type"]),
                (&json!(name), &json!(key_type)),
                "{shown}"
            );
        }
        assert_eq!(case.endpoint.calls().len(), if is_sold { 2 } else { 1 });
    }

    /// Makes the call at the provider's public host on the managed key, where it is not sold.
    async fn refused(&self, name: &str, path: &str, case: &Case) {
        let url = format!("https://{}{path}", public_host(name));
        let response = self.managed.send(&self.merchant.secret_key, case.request_to(&url)).await;
        let refused = response.refused(400, "model_not_priced");
        let why = refused["message"].as_str().unwrap();
        assert!(why.contains("does not answer at once with its usage"), "{url}: {refused}");
    }

    /// Makes the call as a stream on one of the two keys.
    async fn streamed(&self, name: &str, (request, endpoint): (Request, Endpoint), is_managed: bool) {
        let credential = if is_managed { &self.merchant.secret_key } else { &self.own };
        let called = &endpoint.path;
        let response = self.managed.send(credential, request).await;
        if (name, is_managed) == ("cohere", true) {
            // Whether it would report its usage is not known.
            response.refused(400, "validation_error");
            assert!(endpoint.calls().is_empty(), "{name}{called}");
            return;
        }
        assert_eq!(response.status, 200, "{name}{called}: {}", response.text());
        let metered = self.merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], tokens(1000, 50), "{name}{called}: {metered}");
        let charged = if is_managed { "0.0022000000" } else { FEE_OF_A_CALL };
        assert_eq!(metered["total_request_cost"], charged, "{name}{called}");
        assert_eq!(metered["marks"], json!([]), "{name}{called}: {metered}");
        let shown = self.merchant.shown(&response.request_id(), "completed").await;
        let key_type = if is_managed { "managed" } else { "unmanaged" };
        assert_eq!(shown["provider_key_type"], key_type, "{name}{called}");
        assert_eq!(endpoint.calls().len(), 1);
    }
}

#[test]
fn each_provider_is_metered_at_each_endpoint_of_the_table_in_the_documents() {
    run(async {
        // The fixture has these at hosts of its own.
        let fixed = ["openai", "anthropic", "google", "mistral"];
        let names = PROVIDERS.iter().map(|(name, _)| *name);
        let others: Vec<&str> = names.filter(|name| !fixed.contains(name)).collect();
        let mistrals_key = Instance::shared().await.provider_key("mistral", "sk-managed-mistral");
        // A resource of Azure's gets a managed key only if it is named.
        let resource = format!("--provider-host=azure={}:443", public_host("azure"));
        let more = [price_list(), mistrals_key, resource];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let (managed, providers) = gateway_with(&others, Keys::Managed, &more).await;
        let callers = Callers::new(managed).await;
        let mut passed = Vec::new();
        for (name, endpoints) in PROVIDERS {
            let provider = provider_called(name, &callers.managed, &others, &providers);
            for &(column, path) in endpoints {
                let case = case((name, provider), column, path);
                callers.whole(name, column, &case).await;
                if !column.is_sold_at(name) {
                    callers.refused(name, path, &case).await;
                }
                for is_managed in [false, true] {
                    if let Some(call) = streamed((name, provider), column, path, !is_managed) {
                        callers.streamed(name, call, is_managed).await;
                    }
                }
                passed.push(Passed { provider: name, column, counted: case.counted });
            }
        }
        callers.merchant.nothing_is_held().await;
        compare("endpoints", &table(&passed));
        compare("units", &units(&passed));
    });
}

/// The stand-in for the provider `name`: one of the fixture's, or one of `providers`, which stand for the `others`.
pub(super) fn provider_called<'a>(
    name: &str,
    managed: &'a Managed,
    others: &[&str],
    providers: &'a [Provider],
) -> &'a Provider {
    match name {
        "openai" => &managed.openai,
        "anthropic" => &managed.anthropic,
        "google" => &managed.google,
        "mistral" => &managed.mistral,
        name => &providers[others.iter().position(|other| *other == name).unwrap()],
    }
}

/// The first public host of the provider `name`, by the document; at Azure, that of a resource.
fn public_host(name: &str) -> String {
    let row = format!("\n| `{name}` | `");
    let page = std::fs::read_to_string(page()).unwrap();
    let (_, rest) = page.split_once(&row).unwrap_or_else(|| panic!("the document has no host of {name}"));
    rest.split('`').next().unwrap().replace("{resource}", "ours")
}

/// The table of the endpoints: 1 is this test, the other numbers are [`OWN_TESTS`].
fn table(passed: &[Passed]) -> String {
    let mut tests = vec![("provider_table", this_test())];
    for (_, _, file, test) in OWN_TESTS {
        let (_, source) = SOURCES.iter().find(|(name, _)| *name == file).unwrap();
        assert!(source.contains(&format!("#[test]\nfn {test}()")), "{file}.rs has no test {test}");
        if !tests.contains(&(file, test)) {
            tests.push((file, test));
        }
    }
    let number = |test: &str| tests.iter().position(|(_, name)| *name == test).unwrap() + 1;
    let mut lines = vec![
        format!("| provider | {} |", COLUMNS.map(|(_, title)| title).join(" | ")),
        format!("|---{}|", "|---".repeat(COLUMNS.len())),
    ];
    for name in PROVIDERS.iter().map(|(name, _)| *name).chain(["bedrock"]) {
        let cells = COLUMNS.map(|(column, _)| {
            let mut numbers = Vec::new();
            if passed.iter().any(|cell| (cell.provider, cell.column) == (name, column)) {
                numbers.push(1);
            }
            let of_cell = OWN_TESTS.iter().filter(|(provider, of, ..)| (*provider, *of) == (name, column));
            numbers.extend(of_cell.map(|(_, _, _, test)| number(test)));
            numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
        });
        lines.push(format!("| `{name}` | {} |", cells.join(" | ")));
    }
    lines.push(String::new());
    for (at, (file, test)) in tests.iter().enumerate() {
        lines.push(format!("{}. `{file}::{test}`", at + 1));
    }
    lines.join("\n")
}

/// The table of what the endpoints of each provider are metered by, and of those that are not sold on a managed key.
fn units(passed: &[Passed]) -> String {
    let mut lines = vec![
        "| provider | tokens | characters | seconds | not metered: counted as calls | 400 on a managed key |"
            .to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    let title = |of: Column| COLUMNS.iter().find(|(column, _)| *column == of).map(|(_, title)| *title);
    for (name, _) in PROVIDERS {
        let those = |fits: &dyn Fn(&Passed) -> bool| {
            let cells = passed.iter().filter(|cell| cell.provider == name && fits(cell));
            cells.filter_map(|cell| title(cell.column)).collect::<Vec<_>>().join(", ")
        };
        let cells = [
            those(&|cell| matches!(cell.counted, Counted::Tokens { .. })),
            those(&|cell| matches!(cell.counted, Counted::Characters(_))),
            those(&|cell| matches!(cell.counted, Counted::Seconds(_))),
            those(&|cell| cell.counted == Counted::Nothing),
            those(&|cell| !cell.column.is_sold_at(name)),
        ];
        lines.push(format!("| `{name}` | {} |", cells.join(" | ")));
    }
    lines.join("\n")
}

fn this_test() -> &'static str {
    "each_provider_is_metered_at_each_endpoint_of_the_table_in_the_documents"
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/providers.md")
}

const END: &str = "\n<!-- end -->";

/// Compares a table with the one of this name in the document, or writes it there.
fn compare(name: &str, table: &str) {
    let beginning = format!("<!-- table: provider_table.rs, {name} -->\n");
    let page_text = std::fs::read_to_string(page()).unwrap();
    let (before, rest) =
        page_text.split_once(&beginning).expect("docs/providers.md has the mark of the table");
    let (written, after) = rest.split_once(END).expect("docs/providers.md has the end of the table");
    if std::env::var_os("WRITE_TABLE").is_some() {
        std::fs::write(page(), format!("{before}{beginning}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(written, table, "WRITE_TABLE=1 writes what passed into docs/providers.md");
    }
}

/// A name of a test is in backticks, and longer than any other name of the page.
const LEAST_WORDS_OF_A_TEST: usize = 5;

#[test]
fn every_test_that_the_page_of_providers_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for folder in [
        "tests/blackbox",
        "tests/attacks",
        "../gateway/api/src/providers",
        "../gateway/api/src/forward",
        "../gateway/api/src/forward/usage/shape",
    ] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let page = std::fs::read_to_string(root.join("../docs/providers.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap());
    let is_test = |name: &&str| {
        name.split('_').count() >= LEAST_WORDS_OF_A_TEST
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let named: Vec<&str> = quoted.filter(is_test).collect();
    assert!(named.len() > 10, "the page names its tests: {named:?}");
    for name in named {
        assert!(sources.contains(&format!("#[test]\nfn {name}()")), "there is no test {name}");
    }
}
