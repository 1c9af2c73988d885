//! libpq's file of passwords: a line `HOST:PORT:DATABASE:USER:PASSWORD` for each login. A field may be `*`, and a backslash
//! keeps the next character as it is. The first line that fits counts.

use std::io;
use std::path::Path;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The port of a database whose settings name none.
const DEFAULT_PORT: u16 = 5432;

/// The password of `config`'s login at its first host, if the file has it.
pub(super) fn password(file: &Path, config: &Config) -> io::Result<Option<String>> {
    let text = std::fs::read_to_string(file)?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        // libpq takes the default folder of its sockets for the local host too; the folder itself fits here.
        Some(Host::Unix(folder)) => folder.to_string_lossy().into_owned(),
        None => config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    };
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT).to_string();
    let user = config.get_user().unwrap_or_default();
    let login = [&host, &port, config.get_dbname().unwrap_or(user), user];
    Ok(text.lines().filter(|line| !line.starts_with('#')).find_map(|line| fits(line, login)))
}

/// The password of the line, if it is of this login.
fn fits(line: &str, login: [&str; 4]) -> Option<String> {
    let mut fields = vec![(String::new(), false)];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let password = fields.len() > login.len();
        let (field, is_escaped) = fields.last_mut()?;
        match character {
            ':' if !password => fields.push((String::new(), false)),
            '\\' => {
                *is_escaped = true;
                field.extend(characters.next());
            }
            other => field.push(other),
        }
    }
    let (password, _) = fields.get(login.len())?;
    let all = fields.iter().zip(login);
    let mut wrong = all.filter(|((field, is_escaped), own)| field != own && (*is_escaped || field != "*"));
    wrong.next().is_none().then(|| password.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let login = ["db.example", "5432", "ledger", "farthing"];
        for (line, password) in [
            ("db.example:5432:ledger:farthing:secret", Some("secret")),
            ("*:*:*:farthing:a\\:b\\\\c:d", Some("a:b\\c:d")),
            ("db.example:5433:ledger:farthing:secret", None),
            ("\\*:*:*:*:secret", None),
            ("db.example:5432:ledger:farthing", None),
            ("", None),
        ] {
            assert_eq!(fits(line, login).as_deref(), password, "{line}");
        }
    }
}
