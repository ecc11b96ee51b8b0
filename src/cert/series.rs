//! Names of the series about certificates, recorded by the control plane through the `metrics` facade.

/// Gauge {source, name}: end of validity of a certificate, seconds since 1970. NaN: not served any more.
pub const NOT_AFTER: &str = "ferrio_cert_not_after_timestamp_seconds";
/// Gauge {source}: certificates that are served.
pub const CERTIFICATES: &str = "ferrio_cert_certificates";
/// Gauge {source}: served certificates that are expired or not yet valid.
pub const INVALID: &str = "ferrio_cert_invalid";
/// Gauge {source}: pairs that cannot be used.
pub const PROBLEMS: &str = "ferrio_cert_problems";
/// Gauge {source}: 1 while the last read succeeded.
pub const UP: &str = "ferrio_cert_source_up";
/// Gauge {source}: seconds since the source was read successfully.
pub const AGE: &str = "ferrio_cert_source_age_seconds";
/// Counter {source}: failed reads.
pub const ERRORS: &str = "ferrio_cert_source_errors_total";
