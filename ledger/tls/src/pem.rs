//! Certificates and keys in PEM files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};

use crate::Error;

/// The size of the largest file that is read. The authorities of a machine have less than 1 MB.
const MOST_BYTES: u64 = 16 * 1_024 * 1_024;

/// The certificates of a PEM file; an error if there are none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = |bytes: Vec<u8>| CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match contents(file).and_then(read) {
        Ok(found) if found.is_empty() => Err(PemError::NoItemsFound),
        read => read,
    }
    .map_err(|error| Error::File(file.to_owned(), error))
}

/// The first private key of a PEM file. It must not be encrypted.
pub fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let key = contents(file).and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes));
    key.map_err(|error| Error::File(file.to_owned(), error))
}

/// The first public key of a PEM file, in DER.
pub fn public_key(file: &Path) -> Result<Vec<u8>, Error> {
    let key = contents(file).and_then(|bytes| SubjectPublicKeyInfoDer::from_pem_slice(&bytes));
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

/// The bytes of a file. A device may have no end.
fn contents(file: &Path) -> Result<Vec<u8>, PemError> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(PemError::Io)?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size <= MOST_BYTES) {
        return Ok(bytes);
    }
    let why = format!("it has more than {MOST_BYTES} bytes");
    Err(PemError::Io(io::Error::new(io::ErrorKind::FileTooLarge, why)))
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
        let endless = private_key(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("more than"), "{endless}");
    }
}
