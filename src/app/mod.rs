//! app

pub mod log;
