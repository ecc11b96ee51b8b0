//! A distinguished name as text.

use std::fmt::Write as _;

use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::X509Name;

/// As in RFC 4514, the most specific part first: `CN=a,O=b`. What would read like another part is escaped, because people
/// and applications decide by this text who somebody is.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let sets: Vec<_> = name.iter_rdn().collect();
    for (at, set) in sets.iter().rev().enumerate() {
        if at > 0 {
            text.push(',');
        }
        for (at, attribute) in set.iter().enumerate() {
            if at > 0 {
                text.push('+');
            }
            match oid2abbrev(attribute.attr_type(), oid_registry()) {
                Ok(short) => text.push_str(short),
                Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
            }
            text.push('=');
            match attribute.as_str() {
                Ok(value) => escape(&mut text, value),
                // The form for types that have no string (RFC 4514 section 2.4).
                Err(_) => {
                    text.push('#');
                    attribute.as_slice().iter().for_each(|byte| {
                        let _ = write!(text, "{byte:02X}");
                    });
                }
            }
        }
    }
    text
}

fn escape(text: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let edge = (at == 0 && matches!(byte, b'#' | b' ')) || (at == last && byte == b' ');
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' | b'=' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            _ if edge => {
                text.push('\\');
                text.push(char::from(byte));
            }
            0..b' ' | 0x7f.. => {
                let _ = write!(text, "\\{byte:02X}");
            }
            byte => text.push(char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use x509_parser::prelude::{FromDer, X509Certificate};

    use rcgen::{CertificateParams, DnType, KeyPair};

    #[test]
    fn one_name_cannot_look_like_another() {
        for (parts, want) in [
            (&[(DnType::CommonName, "a")][..], "CN=a"),
            (&[(DnType::OrganizationName, "Firm"), (DnType::CommonName, "a b")], "CN=a b,O=Firm"),
            (&[(DnType::OrganizationName, "x,CN=admin"), (DnType::CommonName, "a")], "CN=a,O=x\\,CN\\=admin"),
            (&[(DnType::CommonName, " #\u{e4}\r\n ")], "CN=\\ #\\C3\\A4\\0D\\0A\\ "),
            (&[(DnType::CommonName, "#1+\"2\"<3>;\\")], "CN=\\#1\\+\\\"2\\\"\\<3\\>\\;\\\\"),
            (&[(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99]), "v")], "1.3.6.1.4.1.99=v"),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, value) in parts {
                params.distinguished_name.push(kind.clone(), *value);
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let (_, parsed) = X509Certificate::from_der(certificate.der()).unwrap();
            assert_eq!(super::text(parsed.subject()), want);
        }
    }
}
