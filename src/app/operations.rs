//! What the admin API can change while we run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::log;
use super::upgrade::Succession;
use crate::admin::{BoxError, BoxFuture, Operations};
use crate::config::Level;
use crate::registry::{Control, Disabled};

/// Set while we ask those who check us to send their clients elsewhere.
#[derive(Clone, Default)]
pub(super) struct Draining(Arc<AtomicBool>);

impl Draining {
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct Switchboard {
    pub(super) draining: Draining,
    /// `None`: somebody else has the log.
    pub(super) log: Option<log::Handle>,
    pub(super) control: Control,
    pub(super) succession: Arc<Succession>,
}

impl Operations for Switchboard {
    fn is_draining(&self) -> bool {
        self.draining.is_on()
    }

    fn drain(&self, on: bool) {
        if self.draining.0.swap(on, Ordering::Relaxed) != on {
            tracing::info!("{}", if on { "Draining: /health says so from now on" } else { "No longer draining" });
        }
    }

    fn log_level(&self) -> String {
        self.log.as_ref().map(|log| log.level().to_string()).unwrap_or_default()
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        let parsed: Level = level
            .parse()
            .map_err(|()| format!("{level:?} is no level; write TRACE, DEBUG, INFO, WARN, ERROR or FATAL"))?;
        let Some(log) = &self.log else { return Err("the log is not ours".to_owned()) };
        log.set_level(parsed);
        tracing::info!("Setting log level to {parsed}");
        Ok(())
    }

    fn reload(&self) -> Result<(), String> {
        // The same way for everybody who asks for it.
        let (own, signal) = (rustix::process::getpid(), rustix::process::Signal::HUP);
        rustix::process::kill_process(own, signal).map_err(|error| error.to_string())
    }

    fn upgrade(&self) -> String {
        self.succession.state()
    }

    fn is_shared(&self) -> bool {
        self.control.is_shared()
    }

    fn disabled(&self) -> Vec<Disabled> {
        self.control.disabled()
    }

    fn disable(&self, entry: Disabled) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async move {
            tracing::info!("Disabling {}{}", entry.service, of(entry.instance.as_deref()));
            Ok(self.control.disable(entry).await?)
        })
    }

    fn enable<'a>(&'a self, service: &'a str, instance: Option<&'a str>) -> BoxFuture<'a, Result<bool, BoxError>> {
        Box::pin(async move {
            tracing::info!("Enabling {service}{}", of(instance));
            Ok(self.control.enable(service, instance).await?)
        })
    }
}

fn of(instance: Option<&str>) -> String {
    instance.map(|instance| format!(", instance {instance}")).unwrap_or_default()
}
