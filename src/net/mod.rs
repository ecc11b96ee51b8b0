//! What connections are made of below HTTP: the PROXY protocol, the ClientHello of TLS, and streams that give back what
//! was read from them.

pub mod client_hello;
pub mod proxy_protocol;
pub mod rewind;

pub use rewind::Rewind;
