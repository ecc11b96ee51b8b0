//! Whole-program tests: the built binary, real peers, and what is seen on the wire. One behaviour per test.

#[path = "../testing/mod.rs"]
mod testing;

mod access_log;
mod codec;
mod commands;
mod consul;
mod headers;
mod options;
mod parsing;
mod policy;
mod proxy;
mod readme;
mod reports;
mod routing;
mod service;
mod shutdown;
mod smuggling;
mod targets;
mod tcp;
mod vocabulary;
mod websocket;
