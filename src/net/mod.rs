//! Connections below HTTP: what a byte stream is made of, who is at its other end, how long it may pause, the PROXY
//! protocol, and the ClientHello of TLS.

pub mod client_hello;
mod datagrams;
mod deadline;
mod frames;
mod peer;
pub mod proxy_protocol;
mod relay;
pub mod rewind;
mod splice;
mod stream;
mod supplies;

pub use datagrams::{Datagrams, Here};
pub use deadline::Deadline;
pub use frames::Farewell;
pub use peer::{ClientCertificate, Peer, TlsInfo};
pub use relay::{Course, End, Limits, Side, relay, relay_until};
pub use rewind::Rewind;
pub use splice::{Filled, Splice};
pub use stream::Stream;
pub use supplies::Supplies;
