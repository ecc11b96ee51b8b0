//! `log.*`: both logs.

use super::super::settings::Settings;
use super::super::{Level, Log};
use crate::access_log;

pub(super) fn log(settings: &mut Settings) -> Log {
    let level = settings.values.log_level.trim().parse().unwrap_or_else(|()| {
        let line = format!(
            "Cannot set log level to {}; there are TRACE, DEBUG, INFO, WARN, ERROR and FATAL",
            settings.values.log_level
        );
        settings.report.say(Level::Warn, line);
        Level::Info
    });
    Log { level }
}

/// `None` also if something is wrong with it. Without a target nobody looks at the rest, as in fabio.
pub(super) fn access_log(settings: &mut Settings) -> Option<access_log::Config> {
    let values = settings.values.clone();
    if values.log_access_target.is_empty() {
        return None;
    }
    let target = access_log::Target::parse(&values.log_access_target)
        .map_err(|error| settings.mistake("log.access.target", &error.to_string()));
    let format = access_log::Format::parse(&values.log_access_format)
        .map_err(|error| settings.mistake("log.access.format", &error.to_string()));
    let target = target.ok()?;
    if values.log_access_rotate > 0 && !matches!(target, access_log::Target::File(_)) {
        settings.warn("log.access.rotate", "only a file can be rotated; this changes nothing");
    }
    Some(access_log::Config {
        target,
        format: format.ok()?,
        all: values.log_access_all,
        sample: u64::try_from(values.log_access_sample).unwrap_or(1),
        only_errors: values.log_access_filter == "errors",
        mask: access_log::Mask::new(values.log_access_masquery.iter().map(String::as_str)),
        rotate: u64::try_from(values.log_access_rotate).unwrap_or(0),
        keep: usize::try_from(values.log_access_keep).unwrap_or(0),
    })
}
