//! The commands to copy: one forwards a call, one reads it back. They also stand in the data folder as scripts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::folder::Folder;
use super::ready::Ready;
use crate::failure::{Failure, IntoFailure as _};
use crate::private_file;

const FORWARD: &str = "forward.sh";
const READ_BACK: &str = "read-back.sh";

/// Writes the commands as scripts that only their owner may read, for they hold keys.
pub(super) fn write(folder: &Folder, ready: &Ready) -> Result<(), Failure> {
    for (name, command) in [(FORWARD, forward(ready)), (READ_BACK, read_back(ready))] {
        let path = folder.at(name);
        private_file::replace(&path, format!("{command}\n").as_bytes())
            .or_fail(format_args!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What is said once all is up.
pub(super) fn announcement(folder: &Folder, ready: &Ready) -> String {
    format!(
        "\nFarthing is up at {base}  (data and logs: {folder})\n\
         The provider at {openai} is a MOCK: no model answers there.\n\n\
         Forward a call for the demo customer:\n\n{forward}\n\n\
         Read it back:\n\n{read_back}\n\n\
         Ctrl-C stops everything; the next start goes on with the same data.\n",
        base = ready.base_url,
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
        target = escaped(&format!("{}/v1/chat/completions", ready.openai_url)),
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

/// As a query parameter's value.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_escaped_whole() {
        assert_eq!(
            escaped("http://127.0.0.1:9/v1/a?b=c d"),
            "http%3A%2F%2F127.0.0.1%3A9%2Fv1%2Fa%3Fb%3Dc%20d"
        );
    }
}
