//! Certificates and keys in PEM files.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};

use crate::Error;

/// The certificates of a PEM file; an error if there are none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    match read() {
        Ok(found) if found.is_empty() => Err(PemError::NoItemsFound),
        read => read,
    }
    .map_err(|error| Error::File(file.to_owned(), error))
}

/// The first private key of a PEM file. It must not be encrypted.
pub fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| Error::File(file.to_owned(), error))
}

/// The first public key of a PEM file, in DER.
pub fn public_key(file: &Path) -> Result<Vec<u8>, Error> {
    let key = SubjectPublicKeyInfoDer::from_pem_file(file);
    key.map(|key| key.to_vec()).map_err(|error| Error::File(file.to_owned(), error))
}

/// Trusts the authorities of a PEM file; an error if there are none.
pub fn add_authorities(roots: &mut RootCertStore, file: &Path) -> Result<(), Error> {
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| Error::Certificate(file.to_owned(), error))?;
    }
    Ok(())
}

/// The authorities of a PEM file; an error if there are none.
pub fn authorities(file: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    add_authorities(&mut roots, file)?;
    Ok(roots)
}

/// What is wrong with a file, without its content: it may be a key.
pub(crate) fn cause(error: &PemError) -> String {
    match error {
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => {
            "it does not hold the certificate or unencrypted key wanted, in PEM".to_owned()
        }
        _ => "it is not well-formed PEM".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_file_without_a_certificate_or_key_is_an_error_that_names_it() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        for file in [PathBuf::from("/nowhere/at/all.pem"), folder.join("Cargo.toml"), folder] {
            let name = file.display().to_string();
            assert!(authorities(&file).unwrap_err().to_string().starts_with(&name), "{name}");
            assert!(private_key(&file).unwrap_err().to_string().starts_with(&name), "{name}");
        }
        let given = "-----BEGIN PRIVATE KEY-----\nMIIE";
        let error = private_key(Path::new(given)).unwrap_err().to_string();
        assert!(error.starts_with("the file that was named") && !error.contains("MIIE"), "{error}");
    }
}
