//! The URLs of Amazon Bedrock: the region of a host, and the endpoints whose usage is read. Pure.

use percent_encoding::percent_decode_str;

/// The labels before the region in a host: the usual one, and the one of validated cryptography.
const BEFORE_REGION: [&str; 2] = ["bedrock-runtime", "bedrock-runtime-fips"];

/// The domains of AWS.
const DOMAINS: [&str; 2] = [".amazonaws.com", ".amazonaws.com.cn"];

/// The region in a host of Bedrock's, also in that of a private endpoint
/// (`vpce-….bedrock-runtime.{region}.vpce.amazonaws.com`).
pub(super) fn region_of(host: &str) -> Option<&str> {
    let within = DOMAINS.iter().find_map(|domain| host.strip_suffix(domain))?;
    let mut labels = within.split('.').skip_while(|label| !BEFORE_REGION.contains(label)).skip(1);
    let is_region = |label: &&str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    labels.next().filter(is_region)
}

/// What a call asks of Bedrock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Bedrock's own form: `converse`, `converse-stream`.
    Converse,
    /// The form of the model: `invoke`, `invoke-with-response-stream`.
    Invoke,
}

/// The operation of a path that is exactly `/model/{model}/{operation}`, with a model whose characters are those of models'
/// names. Each such path can be read in one way only, and its answer reports usage.
pub(crate) fn operation_of(path: &str) -> Option<Operation> {
    let (model, operation) = path.strip_prefix("/model/")?.split_once('/')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/".contains(&byte);
    let name: Vec<u8> = percent_decode_str(model).collect();
    let has_name = name.first().is_some_and(u8::is_ascii_alphanumeric) && name.iter().copied().all(is_plain);
    match operation {
        _ if !has_name => None,
        "converse" | "converse-stream" => Some(Operation::Converse),
        "invoke" | "invoke-with-response-stream" => Some(Operation::Invoke),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_stands_in_the_host() {
        for (host, region) in [
            ("bedrock-runtime.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("vpce-0a1b-c.bedrock-runtime.ap-south-1.vpce.amazonaws.com", Some("ap-south-1")),
            ("bedrock-runtime.eu-west-1.example.com", None),
            ("bedrock-runtime.amazonaws.com", None),
            ("bedrock.eu-west-1.amazonaws.com", None),
            ("xbedrock-runtime.eu-west-1.amazonaws.com", None),
            ("127.0.0.1", None),
            ("localhost", None),
        ] {
            assert_eq!(region_of(host), region, "{host}");
        }
    }

    #[test]
    fn four_endpoints_report_their_usage() {
        use Operation::{Converse, Invoke};

        for (path, operation) in [
            ("/model/amazon.nova-lite-v1:0/converse", Some(Converse)),
            ("/model/amazon.nova-lite-v1%3A0/converse-stream", Some(Converse)),
            ("/model/m/invoke", Some(Invoke)),
            ("/model/m/invoke-with-response-stream", Some(Invoke)),
            ("/model/arn%3aaws%3abedrock%3aus-east-1%3a%3afoundation-model%2fm/invoke", Some(Invoke)),
            ("/model/m/count-tokens", None),
            ("/model/m/invoke/", None),
            ("/model/m/async-invoke", None),
            ("/async-invoke", None),
            ("/model/m/x/converse", None),
            ("/model//converse", None),
            ("/model/../converse", None),
            ("/model/%2e%2e/converse", None),
            ("/model/m%20/converse", None),
            ("/model/m%253A0/converse", None),
            ("/model/m/%63onverse", None),
            ("/Model/m/converse", None),
            ("//model/m/converse", None),
            ("/x/model/m/converse", None),
            ("/openai/v1/chat/completions", None),
            ("/guardrail/g/version/1/apply", None),
        ] {
            assert_eq!(operation_of(path), operation, "{path}");
        }
    }
}
