//! Example commands to copy: one forwards a call, one reads it back. The data folder holds them as scripts, too.

use std::fmt::Write as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::data_folder::DataFolder;
use super::ready_file::Ready;
use crate::private_file;

const FORWARD: &str = "forward.sh";
const READ_BACK: &str = "read-back.sh";

/// Writes the scripts. They contain keys, so only their owner may read them.
pub(super) fn write(folder: &DataFolder, ready: &Ready) -> Result<()> {
    for (name, command) in [(FORWARD, forward(ready)), (READ_BACK, read_back(ready))] {
        private_file::write(&folder.path(name), format!("{command}\n").as_bytes())?;
    }
    Ok(())
}

/// The text printed once the instance is ready.
pub(super) fn announcement(folder: &DataFolder, ready: &Ready) -> String {
    format!(
        "\nFarthing is ready at {base} (data and logs: {folder}).\n\
         Checkout pages and the API reference are at {pages}, the latter at {pages}docs.\n\
         The provider at {openai} is a MOCK: no model answers there.\n\n\
         Forward a call for the demo customer:\n\n{forward}\n\n\
         Read it back:\n\n{read_back}\n\n\
         Ctrl-C stops everything. The next start continues with the same data.\n",
        base = ready.base_url,
        pages = ready.pages_url,
        folder = folder.root().display(),
        openai = ready.openai_url,
        forward = forward(ready),
        read_back = read_back(ready),
    )
}

fn forward(ready: &Ready) -> String {
    let demo = &ready.demo;
    let credential = json!({
        "secret_key": demo.secret_key, "customer_id": demo.reference_id, "meter_slug": demo.meter_slug,
    });
    format!(
        "curl -sS -i '{base}forward?u={target}' \\\n  \
         -H 'Authorization: Bearer {token}' \\\n  \
         -H 'Content-Type: application/json' \\\n  \
         -d '{{\"model\":\"mock-1\",\"messages\":[{{\"role\":\"user\",\"content\":\"Say hello\"}}]}}'",
        base = ready.base_url,
        target = percent_encoded(&format!("{}/v1/chat/completions", ready.openai_url)),
        token = STANDARD.encode(credential.to_string()),
    )
}

fn read_back(ready: &Ready) -> String {
    format!(
        "curl -sS '{base}requests?limit=1' \\\n  -H 'Authorization: Bearer {key}'",
        base = ready.base_url,
        key = ready.demo.secret_key,
    )
}

/// The text as the value of a query parameter.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_url_is_encoded_as_one_value() {
        assert_eq!(
            percent_encoded("http://127.0.0.1:9/v1/a?b=c d"),
            "http%3A%2F%2F127.0.0.1%3A9%2Fv1%2Fa%3Fb%3Dc%20d"
        );
    }
}
