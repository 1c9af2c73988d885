//! The name of a file in an error. A secret may have been given in place of the name of its file, and must not be shown.

use std::path::Path;

/// What stands in an error in place of a name that may be a secret.
const HIDDEN: &str = "the file that was named (a name that may be a key is not shown; an absolute path is)";

/// The name of `file` as an error may show it: if there is such a file, or if the name is a path from the root (`/`) or
/// from a folder (`./`, `../`), as no key, seed, URL or PEM text is.
pub fn shown(file: &Path) -> String {
    let name = file.to_string_lossy();
    let is_path = ["/", "./", "../"].iter().any(|start| name.starts_with(start)) && !name.contains('\n');
    if is_path || file.exists() { name.into_owned() } else { HIDDEN.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_unless_it_may_be_a_secret() {
        for path in ["/nowhere/at/all.pem", "./key", "../key", "Cargo.toml", "src"] {
            assert_eq!(shown(Path::new(path)), path);
        }
        let secrets = [
            "sk-proj-abc/def+ghi=",
            "postgres://farthing:pass@db/farthing",
            "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
            "",
        ];
        for secret in secrets {
            assert_eq!(shown(Path::new(secret)), HIDDEN);
        }
    }
}
