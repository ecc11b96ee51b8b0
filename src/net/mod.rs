//! Connections: what a byte stream is made of, who is at its other end, and how long it may pause.

mod peer;
mod stream;
mod timed;
mod tunnel;

pub use peer::{ClientCertificate, Peer, TlsInfo};
pub use stream::Stream;
pub use timed::{Clock, Timed};
pub use tunnel::tunnel;
