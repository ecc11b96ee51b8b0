//! Which target of a route gets a request. Pure: what is known about the targets, randomness and turns come in as
//! [`Circumstances`].
//!
//! Every strategy heeds the weights: each begins with, or compares by, shares of the group.

mod group;
mod rendezvous;
#[cfg(test)]
mod tests;

use http::HeaderName;

pub(super) use group::Group;
pub use rendezvous::stable_hash;

/// How a target is chosen (`proxy.strategy`, and `strategy=` of a target).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// `rnd`
    #[default]
    Random,
    /// `rr`
    RoundRobin,
    /// `p2c`: the better one of two drawn ones, by requests in flight and recent latency.
    TwoChoices,
    /// `least`: the fewest requests in flight.
    Least,
    /// `hash=...`: the same key, the same target, as long as that one is not overloaded.
    Hash(HashKey),
}

/// What of a request is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// `header:NAME`: its first value.
    Header(HeaderName),
    /// `cookie:NAME`
    Cookie(Box<str>),
    /// `ip`: the address of the client's connection.
    Address,
    /// `path`: as the client sent it, without the query.
    Path,
}

impl Strategy {
    /// `rnd`, `rr`, `p2c`, `least`, `hash=header:NAME`, `hash=cookie:NAME`, `hash=ip`, `hash=path`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "rnd" => Self::Random,
            "rr" => Self::RoundRobin,
            "p2c" => Self::TwoChoices,
            "least" => Self::Least,
            _ => Self::Hash(HashKey::parse(text.strip_prefix("hash=").or_else(|| text.strip_prefix("hash:"))?)?),
        })
    }

    /// Must somebody count the requests of each target, and time them?
    pub fn observes(&self) -> bool {
        matches!(self, Self::TwoChoices | Self::Least | Self::Hash(_))
    }
}

impl HashKey {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "ip" => Some(Self::Address),
            None if text == "path" => Some(Self::Path),
            Some(("header", name)) => HeaderName::try_from(name).ok().map(Self::Header),
            Some(("cookie", name)) if is_token(name) => Some(Self::Cookie(name.into())),
            _ => None,
        }
    }
}

/// A token as RFC 9110, section 5.6.2, has it: what cookies and headers are named by.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// What is known about the targets of a route at this moment. Targets are named by their index in the route.
pub trait Circumstances {
    /// May it be asked now?
    fn usable(&self, target: usize) -> bool;
    /// Requests that it has not answered yet.
    fn in_flight(&self, target: usize) -> u32;
    /// How long it takes to answer, lately, in any unit; 0: not known.
    fn latency(&self, target: usize) -> f64;
    /// A random number, evenly distributed over the whole range.
    fn random(&self) -> u64;
    /// Takes the next turn of this route.
    fn turn(&self) -> u64;
}
