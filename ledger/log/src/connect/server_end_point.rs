//! The channel binding `tls-server-end-point` (RFC 5929 section 4): a hash of the server's certificate, with the hash
//! function of its signature.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// Signatures and their hash functions. SHA-256 stands in for MD5 and SHA-1.
const SIGNATURES: [(&[u8], Hash); 9] = [
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", Hash::Sha256), // MD5 with RSA
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", Hash::Sha256), // SHA-1 with RSA
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", Hash::Sha256), // SHA-256 with RSA
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", Hash::Sha384), // SHA-384 with RSA
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", Hash::Sha512), // SHA-512 with RSA
    (b"\x2a\x86\x48\xce\x3d\x04\x01", Hash::Sha256),         // ECDSA with SHA-1
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", Hash::Sha256),     // ECDSA with SHA-256
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", Hash::Sha384),     // ECDSA with SHA-384
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", Hash::Sha512),     // ECDSA with SHA-512
];

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

#[derive(Debug, Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The binding of a certificate in DER; `None` if its signature has no one hash function, as Ed25519.
pub(super) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, after_content) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(after_content, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (_, hash) = SIGNATURES.into_iter().find(|(known, _)| *known == identifier)?;
    Some(match hash {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

/// The content of the DER element with this tag at the start of `bytes`, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outline of a certificate: a content of 200 bytes, the identifier of its signature, and a signature.
    fn outline(identifier: &[u8]) -> Vec<u8> {
        let content = [&[SEQUENCE, 0x81, 200][..], &[0; 200]].concat();
        let algorithm =
            [&[OBJECT_IDENTIFIER, u8::try_from(identifier.len()).unwrap()][..], identifier].concat();
        let algorithm = [&[SEQUENCE, u8::try_from(algorithm.len()).unwrap()][..], &algorithm].concat();
        let whole = [&content[..], &algorithm, &[3, 1, 0]].concat();
        [&[SEQUENCE, 0x81, u8::try_from(whole.len()).unwrap()][..], &whole].concat()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (identifier, length) in [(SIGNATURES[0].0, 32), (SIGNATURES[7].0, 48), (SIGNATURES[4].0, 64)] {
            assert_eq!(server_end_point(&outline(identifier)).unwrap().len(), length);
        }
        assert_eq!(server_end_point(&outline(b"\x2b\x65\x70")), None, "Ed25519");
        let whole = outline(SIGNATURES[0].0);
        for end in 0..whole.len() - 3 {
            assert_eq!(server_end_point(&whole[..end]), None, "{end}");
        }
    }
}
