//! A small in-memory agent that speaks the part of Consul's HTTP API that ferrio and its tests use.
