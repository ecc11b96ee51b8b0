//! The agent over its HTTP API, side by side with a real Consul wherever Consul has an opinion.
#![allow(clippy::unwrap_used)]

mod blocking;
mod checks;
mod conversation;
mod faults;
mod indexes;
mod samples;
mod side_by_side;
mod wire;
