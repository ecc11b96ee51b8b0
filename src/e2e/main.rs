//! Whole-program tests: the built binary, real peers, and what is seen on the wire. One behaviour per test.

#[path = "../testing/mod.rs"]
mod testing;

mod access_log;
mod choosing;
mod commands;
mod consul;
mod headers;
mod limits;
mod parsing;
mod policy;
mod proxy;
mod reaching;
mod readme;
mod reports;
mod routing;
mod service;
mod shutdown;
mod targets;
mod tcp;
mod tries;
mod vocabulary;
