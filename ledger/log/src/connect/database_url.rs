//! The settings in a database URL, or in a connection string of `name=value` pairs, with libpq's names and meanings. Those
//! of TLS and of the password are read here, all others by tokio-postgres.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use farthing_tls::ClientCertificate;
use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::postgres_tls::{Authorities, Check, PostgresTls};
use super::{passfile, redacted};

/// The value of `sslrootcert` that names the authorities of the machine.
const SYSTEM: &str = "system";

/// The variables of libpq that are read: a password, and the file of passwords.
const PASSWORD: &str = "PGPASSWORD";
const PASSFILE: &str = "PGPASSFILE";

/// Why a database URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such mode.
    #[error("sslmode must be disable, prefer, require, verify-ca or verify-full, not {0:?}")]
    Mode(String),
    /// The authorities of the machine say nothing without the name.
    #[error(
        "sslrootcert=system needs sslmode=verify-full: anyone can have a certificate of these authorities"
    )]
    SystemWithoutName,
    /// The authorities of the machine say nothing without the name.
    #[error(
        "sslmode=verify-ca needs sslrootcert: anyone can have a certificate of the machine's authorities"
    )]
    NoAuthority,
    /// A Unix socket and an address.
    #[error("host: a Unix socket cannot stand beside hostaddr, nor beside other hosts if TLS is demanded")]
    MixedHosts,
    /// A connection string is malformed.
    #[error("a connection string must be name=value pairs, with spaces between them")]
    Malformed,
    /// A certificate without its key, or the reverse.
    #[error("{0} needs {1}")]
    Incomplete(&'static str, &'static str),
    /// A file cannot be used.
    #[error("{0}: {1}")]
    File(&'static str, farthing_tls::Error),
    /// The file of passwords cannot be read.
    #[error("{0}: {path}: {1}", path = farthing_tls::shown(.2))]
    Passfile(&'static str, std::io::Error, PathBuf),
    /// The certificate and the key do not go together.
    #[error("sslcert and sslkey: {0}")]
    Certificate(farthing_tls::Error),
    /// A value is not UTF-8.
    #[error("{0} is not UTF-8")]
    Encoding(&'static str),
    /// tokio-postgres does not understand the rest.
    #[error("{}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
}

/// The settings of a connection.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) tls: PostgresTls,
}

/// The parameters that tokio-postgres does not know, or not with all values.
#[derive(Debug, Default, PartialEq, Eq)]
struct Own {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    passfile: Option<String>,
}

impl Own {
    /// The place of a parameter's value, if it is one of these.
    fn place(&mut self, name: &str) -> Option<(&'static str, &mut Option<String>)> {
        match name {
            "sslmode" => Some(("sslmode", &mut self.mode)),
            "sslrootcert" => Some(("sslrootcert", &mut self.root)),
            "sslcert" => Some(("sslcert", &mut self.certificate)),
            "sslkey" => Some(("sslkey", &mut self.key)),
            "passfile" => Some(("passfile", &mut self.passfile)),
            _ => None,
        }
    }
}

/// Reads the settings of `database_url`. Of the files that it names, only that of passwords is read.
pub(super) fn settings(database_url: &str) -> Result<Settings, Error> {
    settings_with(database_url, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn settings_with(
    database_url: &str,
    variable: impl Fn(&'static str) -> Option<String>,
) -> Result<Settings, Error> {
    let (rest, own) = split(database_url)?;
    let mut config = Config::from_str(&rest)?;
    let (mode, tls) = tls(&own)?;
    // A Unix socket has no TLS. libpq ignores its settings there too.
    let is_local = |host: &Host| matches!(host, Host::Unix(_));
    let locals = config.get_hosts().iter().filter(|host| is_local(host)).count();
    let only_local = locals > 0 && locals == config.get_hosts().len();
    let demands_tls = matches!(mode, SslMode::Require);
    if locals > 0 && (!config.get_hostaddrs().is_empty() || (demands_tls && !only_local)) {
        return Err(Error::MixedHosts);
    }
    config.ssl_mode(if only_local { SslMode::Disable } else { mode });
    if config.get_password().is_none() {
        let from_file = || {
            let named = own.passfile.map(|file| ("passfile", file));
            named.or_else(|| Some((PASSFILE, variable(PASSFILE)?)))
        };
        if let Some(password) = variable(PASSWORD) {
            config.password(password);
        } else if let Some((parameter, file)) = from_file() {
            let found = passfile::password(Path::new(&file), &config);
            let found = found.map_err(|error| Error::Passfile(parameter, error, file.into()))?;
            if let Some(password) = found {
                config.password(password);
            }
        }
    }
    Ok(Settings { config, tls })
}

/// The mode for tokio-postgres, and what is checked.
fn tls(own: &Own) -> Result<(SslMode, PostgresTls), Error> {
    let authorities = match own.root.as_deref() {
        Some(SYSTEM) => Some(Authorities::System),
        Some(file) => Some(Authorities::File(file.into())),
        None => None,
    };
    let certificate = match (&own.certificate, &own.key) {
        (Some(certificate), Some(key)) => {
            Some(ClientCertificate { certificate: certificate.into(), key: key.into() })
        }
        (Some(_), None) => return Err(Error::Incomplete("sslcert", "sslkey")),
        (None, Some(_)) => return Err(Error::Incomplete("sslkey", "sslcert")),
        (None, None) => None,
    };
    let default = if authorities == Some(Authorities::System) { "verify-full" } else { "prefer" };
    let name = own.mode.as_deref().unwrap_or(default);
    let (mode, check) = match (name, authorities) {
        ("disable", _) => (SslMode::Disable, Check::Nothing),
        ("prefer" | "require" | "verify-ca", Some(Authorities::System)) => {
            return Err(Error::SystemWithoutName);
        }
        ("prefer", None) => (SslMode::Prefer, Check::Nothing),
        ("prefer", Some(file)) => (SslMode::Prefer, Check::Authority(file)),
        ("require", None) => (SslMode::Require, Check::Nothing),
        ("require" | "verify-ca", Some(file)) => (SslMode::Require, Check::Authority(file)),
        ("verify-ca", None) => return Err(Error::NoAuthority),
        ("verify-full", from) => {
            (SslMode::Require, Check::AuthorityAndName(from.unwrap_or(Authorities::System)))
        }
        (other, _) => return Err(Error::Mode(other.to_owned())),
    };
    Ok((mode, PostgresTls::new(check, certificate)))
}

/// Takes our own parameters out of a URL or a connection string.
fn split(database_url: &str) -> Result<(Cow<'_, str>, Own), Error> {
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| database_url.starts_with(scheme));
    if is_url { split_url(database_url) } else { split_pairs(database_url) }
}

fn split_url(url: &str) -> Result<(Cow<'_, str>, Own), Error> {
    let mut own = Own::default();
    // As tokio-postgres reads it: the login ends at the first `@`, and may hold a `?`.
    let after_login = url.find('@').map_or(0, |at| at + 1);
    let Some(query) = url[after_login..].find('?').map(|at| after_login + at) else {
        return Ok((Cow::Borrowed(url), own));
    };
    let (before, query) = (&url[..query], &url[query + 1..]);
    let mut rest = Vec::new();
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match own.place(&percent_decode_str(name).decode_utf8_lossy()) {
            Some((name, place)) => {
                let value = percent_decode_str(value).decode_utf8().map_err(|_| Error::Encoding(name))?;
                *place = Some(value.into_owned());
            }
            None => rest.push(parameter),
        }
    }
    let rest = if rest.is_empty() { before.to_owned() } else { format!("{before}?{}", rest.join("&")) };
    Ok((Cow::Owned(rest), own))
}

fn split_pairs(text: &str) -> Result<(Cow<'_, str>, Own), Error> {
    let mut own = Own::default();
    let mut rest = String::new();
    for (name, value) in pairs(text).ok_or(Error::Malformed)? {
        if let Some((_, place)) = own.place(name) {
            *place = Some(value);
        } else {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            rest.extend([name, "='", &value, "' "]);
        }
    }
    Ok((Cow::Owned(rest), own))
}

/// The pairs of a connection string: `name = value`, where a value may be quoted, and a backslash keeps the next
/// character as it is. `None` if it is malformed.
fn pairs(text: &str) -> Option<Vec<(&str, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=')?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        let value = value.trim_start();
        let (quoted, value) = value.strip_prefix('\'').map_or((false, value), |value| (true, value));
        let mut characters = value.char_indices();
        let mut read = String::new();
        let end = loop {
            match characters.next() {
                Some((_, '\\')) => read.extend(characters.next().map(|(_, kept)| kept)),
                Some((at, '\'')) if quoted => break at + 1,
                Some((at, space)) if !quoted && space.is_whitespace() => break at,
                Some((_, other)) => read.push(other),
                None if quoted => return None,
                None => break value.len(),
            }
        };
        if !quoted && read.is_empty() {
            return None;
        }
        pairs.push((name, read));
        rest = value[end..].trim_start();
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Settings, String> {
        settings_with(url, |_| None).map_err(|error| error.to_string())
    }

    fn check(url: &str) -> (SslMode, Check) {
        let read = parse(url).unwrap();
        (read.config.get_ssl_mode(), read.tls.check().clone())
    }

    #[test]
    fn each_mode_has_the_meaning_that_libpq_gives_it() {
        let file = || Authorities::File("/ca.pem".into());
        let (nothing, root) = ("postgres://u@h/d?", "postgres://u@h/d?sslrootcert=%2Fca.pem&");
        for (url, expected) in [
            ("postgres://u@h/d".to_owned(), (SslMode::Prefer, Check::Nothing)),
            (format!("{nothing}sslmode=disable"), (SslMode::Disable, Check::Nothing)),
            (format!("{root}sslmode=disable"), (SslMode::Disable, Check::Nothing)),
            (format!("{nothing}sslmode=prefer"), (SslMode::Prefer, Check::Nothing)),
            (format!("{root}sslmode=prefer"), (SslMode::Prefer, Check::Authority(file()))),
            (format!("{nothing}sslmode=require"), (SslMode::Require, Check::Nothing)),
            (format!("{root}sslmode=require"), (SslMode::Require, Check::Authority(file()))),
            (format!("{root}sslmode=verify-ca"), (SslMode::Require, Check::Authority(file()))),
            (
                format!("{nothing}sslmode=verify-full"),
                (SslMode::Require, Check::AuthorityAndName(Authorities::System)),
            ),
            (format!("{root}sslmode=verify-full"), (SslMode::Require, Check::AuthorityAndName(file()))),
            (
                format!("{nothing}sslrootcert=system"),
                (SslMode::Require, Check::AuthorityAndName(Authorities::System)),
            ),
            (
                "host=h user=u sslmode = verify-full sslrootcert='/ca.pem'".to_owned(),
                (SslMode::Require, Check::AuthorityAndName(file())),
            ),
        ] {
            assert_eq!(check(&url), expected, "{url}");
        }
    }

    #[test]
    fn a_unix_socket_has_no_tls() {
        for url in ["postgres://u@%2Frun%2Fpg/d?sslmode=verify-full", "host=/run/pg user=u sslmode=require"] {
            assert_eq!(check(url).0, SslMode::Disable, "{url}");
        }
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        for (url, said) in [
            ("postgres://u@h/d?sslmode=full", "sslmode must be"),
            ("postgres://u@h/d?sslmode=allow", "sslmode must be"),
            ("postgres://u@h/d?sslmode=", "sslmode must be"),
            ("postgres://u@h/d?sslcert=/c.pem", "sslcert needs sslkey"),
            ("host=h user=u sslkey=/c.pem", "sslkey needs sslcert"),
            ("postgres://u@h/d?sslrootcert=system&sslmode=require", "sslrootcert=system needs"),
            ("postgres://u@h/d?sslmode=verify-ca", "verify-ca needs sslrootcert"),
            ("host=h user=u sslmode=require = x", "name=value pairs"),
            ("host=/run/pg hostaddr=10.0.0.5 user=u sslmode=verify-full", "a Unix socket cannot"),
            ("host=/run/pg,db user=u sslmode=require", "a Unix socket cannot"),
            ("postgres://u@h/d?sslrootcert=%FF", "sslrootcert is not UTF-8"),
            ("postgres://u@h/d?sslcrl=/x", "sslcrl"),
            ("postgres://u@h/d?passfile=/nowhere/at/all", "passfile: /nowhere/at/all: "),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(said), "{url}: {error}");
        }
    }

    #[test]
    fn all_other_settings_are_kept_as_they_are() {
        let read = parse("postgres://u:p%3F?@h:1/d?sslmode=require&options=-c%20a%3Db&sslcert=/c&sslkey=/k")
            .unwrap();
        let config = read.config;
        assert_eq!(config.get_password(), Some(b"p??".as_slice()));
        assert_eq!(config.get_options(), Some("-c a=b"));
        assert_eq!((config.get_dbname(), config.get_ports()), (Some("d"), [1].as_slice()));
        let read = parse(r"host=h user='a \'b\\' password=c\ d sslmode=disable options=''").unwrap();
        assert_eq!(read.config.get_user(), Some(r"a 'b\"));
        assert_eq!(read.config.get_password(), Some(b"c d".as_slice()));
        assert_eq!(read.config.get_ssl_mode(), SslMode::Disable);
        assert!(parse("host=h user='a").is_err());
        assert!(parse("host").is_err());
    }

    #[test]
    fn a_password_comes_from_the_url_or_else_from_the_variable() {
        let variable = |name: &'static str| (name == PASSWORD).then(|| "v".to_owned());
        for (url, password) in [("postgres://u:p@h/d", "p"), ("postgres://u@h/d", "v")] {
            let config = settings_with(url, variable).unwrap().config;
            assert_eq!(config.get_password(), Some(password.as_bytes()), "{url}");
        }
    }
}
