//! Values that are known and not built yet: they refuse to start rather than be ignored in silence. Whole options that wait
//! are marked so in the table of options. When one is built, its word is removed here.

/// `proto=` of listeners.
pub(crate) const PROTOS: &[&str] = &[];

/// `type=` of certificate sources.
pub(crate) const CERT_TYPES: &[&str] = &[];

/// Options of certificate sources.
pub(crate) const CERT_OPTIONS: &[&str] = &[];

/// `metrics.target`.
pub(crate) const METRICS_TARGETS: &[&str] = &[];
