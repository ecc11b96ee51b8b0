//! `registry.*`: where routes come from.

use std::path::PathBuf;

use super::super::environment::Environment;
use super::super::listeners::Listener;
use super::super::settings::Settings;
use super::super::suggest::near;
use super::super::{Level, agent, duration, kind};
use super::Machine;
use crate::{registry, route};

pub(super) fn registry(
    settings: &mut Settings,
    environment: &Environment,
    machine: &Machine,
    admin: Option<&Listener>,
) -> Option<registry::Config> {
    let values = settings.values.clone();
    let backend = match values.registry_backend.as_str() {
        "consul" => registry::Backend::Consul(Box::new(agent::backend(settings, environment, machine, admin)?)),
        "static" => registry::Backend::Static {
            routes: values.registry_static_routes,
            page: values.registry_static_noroutehtml,
        },
        "file" => {
            if values.registry_file_path.is_empty() {
                settings.mistake("registry.file.path", "registry.backend=file needs a file with route commands");
            }
            let page = PathBuf::from(values.registry_file_noroutehtmlpath);
            registry::Backend::File {
                path: values.registry_file_path.into(),
                page: (!page.as_os_str().is_empty()).then_some(page),
            }
        }
        "custom" => {
            if values.registry_custom_host.is_empty() {
                settings.mistake("registry.custom.host", "registry.backend=custom needs a host:port to ask");
            }
            if !matches!(values.registry_custom_scheme.as_str(), "http" | "https") {
                settings.warn("registry.custom.scheme", "neither http nor https; nothing can be asked that way");
            }
            registry::Backend::Custom(registry::CustomConfig {
                host: values.registry_custom_host,
                scheme: values.registry_custom_scheme,
                path: values.registry_custom_path,
                query: values.registry_custom_queryparams,
                skip_verify: values.registry_custom_check_tls_skip_verify,
                timeout: duration::positive(values.registry_custom_timeout),
                poll_interval: duration::positive(values.registry_custom_pollinterval),
                page: values.registry_custom_noroutehtml,
            })
        }
        other => {
            let hint = near(other, BACKENDS.iter().copied()).map(|b| format!(" Did you mean {b}?")).unwrap_or_default();
            settings.mistake(
                "registry.backend",
                &format!("Unknown registry backend {other}; write {}.{hint}", kind::or(BACKENDS)),
            );
            return None;
        }
    };
    Some(registry::Config {
        backend,
        timeout: duration::positive(values.registry_timeout),
        retry: duration::positive(values.registry_retry),
        settings: route::Settings {
            matcher: match values.proxy_matcher.as_str() {
                "glob" => route::Matcher::Glob,
                "iprefix" => route::Matcher::IPrefix,
                _ => route::Matcher::Prefix,
            },
            globs: !values.glob_matching_disabled,
            known: route::Known::default(),
        },
        log: routes_log(settings),
        state: state(settings, environment),
    })
}

/// Where the last known routes are kept. What is set to nothing is nowhere, whatever the service manager has made.
fn state(settings: &Settings, environment: &Environment) -> Option<registry::StateConfig> {
    let given = settings.values.runtime_statedir.as_str();
    let dir = if settings.explicit("runtime.statedir") {
        Some(given)
    } else {
        // Several folders are possible; the first is the main one.
        environment.filled("STATE_DIRECTORY").and_then(|all| all.split(':').next())
    };
    let max_age = duration::positive(settings.values.registry_statemaxage);
    dir.filter(|dir| !dir.is_empty()).map(|dir| registry::StateConfig { dir: dir.into(), max_age })
}

/// What `log.routes.format` says, which the older key overrides.
pub(crate) fn routes_format(settings: &Settings) -> &str {
    let values = &settings.values;
    if values.proxy_log_routes.is_empty() { &values.log_routes_format } else { &values.proxy_log_routes }
}

fn routes_log(settings: &mut Settings) -> registry::RoutesLog {
    let format = routes_format(settings).to_owned();
    match format.as_str() {
        "delta" => registry::RoutesLog::Delta,
        "all" => registry::RoutesLog::All,
        "detail" => registry::RoutesLog::Detail,
        "none" => registry::RoutesLog::Off,
        other => {
            let line = format!(
                "Invalid route format {other:?}. Defaulting to \"delta\"; there are delta, all, detail and none"
            );
            settings.report.say(Level::Warn, line);
            registry::RoutesLog::Delta
        }
    }
}

const BACKENDS: &[&str] = &["consul", "static", "file", "custom"];
