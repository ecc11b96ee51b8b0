//! Whole-program tests: the built binary, real peers, and what is seen on the wire. One behaviour per test.

#[path = "../testing/mod.rs"]
mod testing;

mod access_log;
mod headers;
mod parsing;
mod proxy;
mod routing;
mod targets;
mod vocabulary;
