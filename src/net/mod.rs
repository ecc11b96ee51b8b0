//! Connections below HTTP: what a byte stream is made of, who is at its other end, how long it may pause, the PROXY
//! protocol, and the ClientHello of TLS.

pub mod client_hello;
mod deadline;
mod peer;
pub mod proxy_protocol;
mod relay;
pub mod rewind;
mod splice;
mod stream;
mod supplies;
mod tunnel;

pub use deadline::Deadline;
pub use peer::{ClientCertificate, Peer, TlsInfo};
pub use relay::{End, Limits, Side, relay};
pub use rewind::Rewind;
pub use stream::Stream;
pub use supplies::Supplies;
pub use tunnel::tunnel;
