//! Reading a ClientHello without being a party to the handshake.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;

use crate::net::client_hello::{ClientHello, Error, Reader};

/// What a client sent first.
pub struct Hello {
    /// Everything that was read, to be passed on.
    pub read: Bytes,
    pub hello: Result<ClientHello, Error>,
}

/// `None`: not within `limit`.
pub async fn read_hello(stream: &mut (impl AsyncRead + Unpin), limit: Duration) -> Option<Hello> {
    let mut reader = Reader::default();
    let hello = tokio::time::timeout(limit, reader.read(stream)).await.ok()?;
    Some(Hello { read: reader.into_read(), hello })
}

impl Hello {
    /// The name that routes can be looked up by. Keys of ports have a colon, and no name has.
    pub fn server_name(&self) -> Option<&str> {
        let name = self.hello.as_ref().ok()?.server_name.as_deref()?;
        let name = name.strip_suffix('.').unwrap_or(name);
        (!name.is_empty() && !name.contains([':', '/'])).then_some(name)
    }
}
