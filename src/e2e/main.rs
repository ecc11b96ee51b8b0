//! Whole-program tests: the built binary, real peers, and what is seen on the wire. One behaviour per test.

#[path = "../testing/mod.rs"]
mod testing;

mod access_log;
mod acme;
mod admin;
mod bulk;
mod choosing;
mod client_certificates;
mod codec;
mod commands;
mod consul;
mod datacenters;
mod explain;
mod grpc;
mod h2_frames;
mod h2_interim;
mod h2_targets;
mod headers;
mod limits;
mod options;
mod packaging;
mod parsing;
mod policy;
mod proxy;
mod reaching;
mod readme;
mod reports;
mod routing;
mod series;
mod service;
mod shutdown;
mod smuggling;
mod streaming;
mod targets;
mod tcp;
mod tls;
mod traces;
mod tries;
mod upgrade;
mod upstream_tls;
mod vocabulary;
mod websocket;
mod without_consul;
