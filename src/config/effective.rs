//! Every option with its value and where that comes from.

use super::options::OPTIONS;
use super::settings::{Settings, Source};

/// An option as it is in force.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Effective {
    pub key: &'static str,
    /// As it was written, or the default; secrets masked.
    pub value: String,
    /// `default`, `flag -x`, `environment variable X` or `FILE:LINE`.
    pub source: String,
    pub default: bool,
    pub help: &'static str,
    /// The first fabio release that knows the key, or `ferrio`.
    pub since: &'static str,
}

/// In the order of the table.
pub(super) fn effective(settings: &Settings) -> Vec<Effective> {
    let rows = OPTIONS.iter().enumerate();
    let effective = |(row, spec): (usize, &'static super::options::Spec)| {
        let (value, source) = settings.shown(row);
        let (key, help, since) = (spec.key, spec.help, spec.since);
        Effective { key, value, source: source.to_string(), default: *source == Source::Default, help, since }
    };
    rows.map(effective).collect()
}
