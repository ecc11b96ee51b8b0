//! What a target is told about the certificate of a client.
//!
//! Names and words are those that configurations of nginx and HAProxy commonly use, so that applications behind them need
//! no change. A client that sends such a header itself is never believed: every listener that is told to keep them apart
//! removes them, also in spellings that CGI-like servers take for the same name (`X_SSL_Client_Verify`).

use std::fmt::Write as _;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::net::{ClientCertificate, Peer};

/// What a listener does with these headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHeaders {
    /// They are headers like all others.
    #[default]
    Ordinary,
    /// Clients may not send them. So it is on all listeners once one of them sets them: a target does not know by which
    /// listener a request came.
    Removed,
    /// As above, and they are set by what the handshake has shown.
    Set,
}

impl ClientHeaders {
    pub(crate) fn apply(self, headers: &mut HeaderMap, peer: &Peer) {
        if self == ClientHeaders::Ordinary {
            return;
        }
        let sent: Vec<HeaderName> = headers.keys().filter(|name| is_own(name.as_str().as_bytes())).cloned().collect();
        for name in sent {
            headers.remove(name);
        }
        if self == ClientHeaders::Removed {
            return;
        }
        let client = peer.tls.as_ref().and_then(|tls| tls.client.as_deref());
        // A certificate that is not good ends the handshake, so there is no third word.
        headers.insert(VERIFY, HeaderValue::from_static(if client.is_some() { "SUCCESS" } else { "NONE" }));
        let Some(client) = client else { return };
        for (name, text) in [
            (SUBJECT, client.subject.as_str()),
            (ISSUER, &client.issuer),
            (SERIAL, &client.serial.replace(':', "")),
            (NAMES, &names(client)),
            (FINGERPRINT, &client.fingerprint),
        ] {
            // All of it is printable ASCII; whatever is not is left out rather than half told.
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        }
    }
}

/// Whether only we may set this header. Without regard to case, and to hyphens that are written as underscores.
pub(super) fn is_own(name: &[u8]) -> bool {
    name.len() >= PREFIX.len()
        && name.iter().zip(PREFIX).all(|(byte, own)| match byte {
            b'_' => *own == b'-',
            byte => byte.to_ascii_lowercase() == *own,
        })
}

/// `DNS:a.com,URI:spiffe://a/b`. A comma inside of a name, and what could not stand in a header, is escaped as in a
/// distinguished name (RFC 4514 section 2.4): `\2C`.
fn names(client: &ClientCertificate) -> String {
    let mut text = String::new();
    for (at, name) in client.alternative.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        for byte in name.bytes() {
            match byte {
                b',' | b'\\' | 0..=b' ' | 0x7f.. => {
                    let _ = write!(text, "\\{byte:02X}");
                }
                byte => text.push(char::from(byte)),
            }
        }
    }
    text
}

const PREFIX: &[u8] = b"x-ssl-client-";

/// `SUCCESS`, or `NONE` without a certificate.
const VERIFY: HeaderName = HeaderName::from_static("x-ssl-client-verify");
/// RFC 4514: `CN=a,O=b`.
const SUBJECT: HeaderName = HeaderName::from_static("x-ssl-client-s-dn");
const ISSUER: HeaderName = HeaderName::from_static("x-ssl-client-i-dn");
/// Hex without colons.
const SERIAL: HeaderName = HeaderName::from_static("x-ssl-client-serial");
/// Subject alternative names.
const NAMES: HeaderName = HeaderName::from_static("x-ssl-client-san");
/// SHA-256 of the certificate, hex without colons.
const FINGERPRINT: HeaderName = HeaderName::from_static("x-ssl-client-sha256");

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::net::TlsInfo;

    fn peer(client: Option<ClientCertificate>) -> Peer {
        let tls = TlsInfo { client: client.map(Arc::new), ..TlsInfo::default() };
        Peer { remote: ([127, 0, 0, 1], 1).into(), local: ([127, 0, 0, 1], 2).into(), tls: Some(Arc::new(tls)) }
    }

    fn sent() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in ["x-ssl-client-verify", "x_ssl_client_verify", "X-SSL-Client_S-DN", "x-ssl-client-cert", "x-ssl"] {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("forged"));
        }
        headers.append(VERIFY, HeaderValue::from_static("SUCCESS"));
        headers
    }

    #[test]
    fn what_a_client_says_itself_is_not_believed() {
        for (kind, client, verify, left) in [
            (ClientHeaders::Ordinary, None, Some("forged"), 6),
            (ClientHeaders::Removed, None, None, 1),
            (ClientHeaders::Removed, Some(ClientCertificate::default()), None, 1),
            (ClientHeaders::Set, None, Some("NONE"), 2),
            (ClientHeaders::Set, Some(ClientCertificate::default()), Some("SUCCESS"), 7),
        ] {
            let mut headers = sent();
            kind.apply(&mut headers, &peer(client));
            let got = headers.get(VERIFY).map(|value| value.to_str().unwrap());
            assert_eq!((got, headers.len()), (verify, left), "{kind:?}");
        }
    }

    #[test]
    fn names_cannot_be_mixed_up() {
        for (names_in, want) in [
            (&["DNS:a.com", "URI:spiffe://a/b"][..], "DNS:a.com,URI:spiffe://a/b"),
            (&["DNS:a.com,DNS:admin"], "DNS:a.com\\2CDNS:admin"),
            (&["URI:x\r\ny\\", "email:\u{e4}@b"], "URI:x\\0D\\0Ay\\5C,email:\\C3\\A4@b"),
            (&[], ""),
        ] {
            let alternative = names_in.iter().map(|name| (*name).to_owned()).collect();
            let client = ClientCertificate { alternative, ..ClientCertificate::default() };
            assert_eq!(names(&client), want);
        }
    }
}
