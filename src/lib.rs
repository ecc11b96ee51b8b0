//! ferrio: a load balancer for services that register in Consul.
//!
//! A value travels one way and never back:
//!
//! ```text
//! properties, flags, env --> config --> one Config per part
//! Consul / file / static / custom --> registry --> commands --> route::Table --> LiveTable
//! client --> listen --> Conn --> proxy --> lookup in the LiveTable --> upstream --> target
//! ```
//!
//! The control plane (a small multi-thread runtime: watches, registration, admin, metrics) may wait and retry. The data
//! plane (one thread per core, each with its own current-thread runtime, listeners and pools) takes no lock that the
//! control plane can hold. They meet in immutable snapshots behind `ArcSwap` and in per-target state with atomics.
//!
//! # Who may import whom
//!
//! `scripts/check` reads this table and fails on an import that is not in it.
//!
//! | folder | may import |
//! | --- | --- |
//! | `net` | |
//! | `life` | |
//! | `http1` | net |
//! | `route` | |
//! | `limit` | |
//! | `access_log` | |
//! | `fetch` | net |
//! | `metrics` | life, net |
//! | `consul` | fetch, life |
//! | `auth` | upstream, fetch, life, net |
//! | `upstream` | route, http1, net, life, metrics |
//! | `registry` | route, consul, fetch, life, metrics |
//! | `cert` | consul, fetch, life, metrics |
//! | `traces` | access_log, fetch, life, metrics |
//! | `proxy` | route, upstream, auth, limit, access_log, traces, http1, net, life, metrics |
//! | `listen` | route, cert, net, life, metrics |
//! | `admin` | route, registry, listen, life, metrics |
//! | `config` | route, registry, consul, upstream, proxy, listen, admin, metrics, cert, auth, access_log, traces, limit, life, net, fetch |
//! | `command` | config, route, registry, consul, auth, cert, access_log, traces, proxy, metrics, fetch, life |
//! | `app` | everything |

pub mod access_log;
pub mod admin;
pub mod app;
pub mod auth;
pub mod cert;
pub mod command;
pub mod config;
pub mod consul;
pub mod fetch;
pub mod http1;
pub mod life;
pub mod limit;
pub mod listen;
pub mod metrics;
pub mod net;
pub mod proxy;
pub mod registry;
pub mod route;
#[cfg(test)]
mod testing;
pub mod traces;
pub mod upstream;
