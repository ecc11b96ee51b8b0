//! A small in-memory agent that speaks the part of Consul's HTTP API that ferrio and its tests use: agent, catalog,
//! health, KV, sessions and status, with checks that run and blocking queries. It behaves like Consul 1.8.7, which
//! `tests/agent` compares it with, but has no cluster, no persistence and no ACLs: it is for development and tests.
//!
//! Beside what Consul does, it can be told to fail ([`Faults`]), and it brings sample services with origins behind them
//! ([`Definition::samples`], [`serve_samples`]).
//!
//! ```text
//! api        connections, routes, endpoints      -> agent::Shared
//! agent      configuration, life, shared state   -> local, store, checks
//! local      this agent's services and checks    -> store
//! checks     runs them                           -> agent::Shared
//! store      catalog, keys, sessions, indexes: pure
//! definition, decode, records, go_text           text and values
//! ```

mod agent;
mod api;
mod checks;
mod decode;
mod definition;
mod faults;
mod go_text;
mod local;
mod random;
mod records;
mod samples;
mod store;

pub use agent::{Agent, Config};
pub use definition::{Definition, DefinitionError};
pub use faults::{Fault, Faults, Rule, Seen};
pub use samples::{Samples, serve_samples};
