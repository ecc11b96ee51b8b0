//! What a target is told about a client before anything else: the PROXY header of `pxyproto`.

use crate::net::Peer;
use crate::net::client_hello::ClientHello;
use crate::net::proxy_protocol::{Facts, v1_line, v2_header};
use crate::route::ProxyVersion;

/// Empty if the target did not ask for it. `hello` is set when the target ends the client's TLS.
pub(crate) fn preamble(version: Option<ProxyVersion>, peer: &Peer, hello: Option<&ClientHello>) -> Vec<u8> {
    match version {
        None => Vec::new(),
        Some(ProxyVersion::V1) => v1_line(peer.remote, peer.local).into_bytes(),
        Some(ProxyVersion::V2) => {
            let asked = hello.and_then(|hello| hello.server_name.as_deref());
            let settled = peer.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            // What the server will choose from several is not known yet.
            let alpn = hello.and_then(|hello| match &hello.alpn[..] {
                [only] => Some(&only[..]),
                _ => None,
            });
            v2_header(peer.remote, peer.local, Facts { server_name: asked.or(settled), alpn })
        }
    }
}
