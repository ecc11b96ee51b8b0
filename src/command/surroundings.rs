//! What a configuration takes for granted about the machine: files, folders, users. Looked at, never changed.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use super::{Failure, wait_for};
use crate::config::Config;
use crate::registry::{self, Backend};
use crate::{access_log, auth, cert, consul, life};

/// Key and reason.
type Finding = (&'static str, String);

#[derive(Default)]
pub(super) struct Surroundings {
    /// A start would fail.
    pub(super) mistakes: Vec<Finding>,
    /// A start would go well, and something would be missing.
    pub(super) warnings: Vec<Finding>,
}

pub(super) fn look(config: &Config) -> Surroundings {
    let mut found = Surroundings::default();
    found.schemes(config);
    for source in &config.cert_sources {
        found.certificates(source);
    }
    if let Some(log) = &config.access_log {
        found.access_log(&log.target);
    }
    if let Some(traces) = &config.traces
        && let Err(error) = crate::traces::Traces::new(traces.clone())
    {
        found.mistake("tracing.otlp.tls.cafile", format!("{error}; a start needs it"));
    }
    found.user(&config.user);
    if let Some(state) = &config.registry.state {
        found.state(state);
    }
    found.backend(&config.registry.backend);
    for dir in config.registry.settings.known.sockets.iter() {
        if !Path::new(&**dir).is_dir() {
            found.warn("proxy.unixsockets", format!("{dir}: no such folder, so no socket in it is a target"));
        }
    }
    found
}

impl Surroundings {
    fn mistake(&mut self, key: &'static str, reason: String) {
        self.mistakes.push((key, reason));
    }

    fn warn(&mut self, key: &'static str, reason: String) {
        self.warnings.push((key, reason));
    }

    /// Each on its own, so that one bad file does not hide another.
    fn schemes(&mut self, config: &Config) {
        for scheme in &config.auth.schemes {
            let alone = auth::Config { schemes: vec![scheme.clone()] };
            if matches!(&scheme.kind, auth::Kind::Jwt(jwt) if matches!(jwt.keys, auth::KeySource::Url(_))) {
                continue;
            }
            let started = wait_for(async {
                let life = life::Life::new();
                auth::Auth::start(&alone, &life.watch()).map(drop).map_err(|error| Failure::Unknown(error.to_string()))
            });
            if let Err(Failure::Unknown(reason)) = started {
                let reason = reason.trim_start_matches("proxy.auth: ");
                self.mistake("proxy.auth", format!("scheme {}: {reason}; a start needs it", scheme.name));
            }
        }
    }

    /// Only those in files: others are not asked by somebody who only checks.
    fn certificates(&mut self, source: &cert::CertSource) {
        let name = &source.name;
        match &source.kind {
            cert::Kind::File { .. } => {}
            cert::Kind::Path { cert, .. } if cert.is_dir() => {}
            cert::Kind::Path { cert, .. } => {
                let line = format!("source {name}: {}: no such folder, so clients get no certificate", cert.display());
                return self.warn("proxy.cs", line);
            }
            _ => {
                if let Err(error) = cert::check(source, &cert::Env::process()) {
                    self.mistake("proxy.cs", format!("source {name}: {error}"));
                }
                return;
            }
        }
        let read = wait_for(async {
            let read = tokio::time::timeout(READ, cert::start(source, &cert::Env::process())).await;
            match read {
                Ok(Ok(source)) => Ok(Some(source.report())),
                Ok(Err(error)) => Err(Failure::Unknown(error.to_string())),
                Err(_) => Ok(None),
            }
        });
        match read {
            // `cert=`, `key=` and `clientca=` that cannot be opened are known already.
            Err(Failure::Unknown(reason)) => self.mistake("proxy.cs", format!("source {name}: {reason}")),
            Err(Failure::Usage(_)) | Ok(None) => {}
            Ok(Some(report)) => self.certificates_of(name, &report),
        }
    }

    fn certificates_of(&mut self, name: &str, report: &cert::Report) {
        for problem in &report.problems {
            self.warn("proxy.cs", format!("source {name}: {problem}"));
        }
        if let Some(error) = &report.error {
            self.warn("proxy.cs", format!("source {name}: {error}"));
        } else if report.certificates.is_empty() {
            self.warn("proxy.cs", format!("source {name}: there is no certificate at {}", report.place));
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        for entry in &report.certificates {
            let days = (entry.facts.not_after - now).div_euclid(DAY);
            let line = match days {
                ..0 => format!("expired {} days ago", -days),
                0..SOON => format!("expires in {days} days"),
                _ if entry.facts.not_before > now => "not valid yet".to_owned(),
                _ => continue,
            };
            self.warn("proxy.cs", format!("source {name}: {}: {line}", entry.name));
        }
    }

    fn access_log(&mut self, target: &access_log::Target) {
        let key = "log.access.target";
        let access_log::Target::File(path) = target else { return };
        let reason = match (path.exists(), folder_of(path)) {
            (true, _) => OpenOptions::new().append(true).open(path).err().map(|error| error.to_string()),
            (false, folder) if !folder.is_dir() => Some(format!("{}: no such folder", folder.display())),
            (false, folder) => (!writable(folder)).then(|| format!("nothing can be made in {}", folder.display())),
        };
        if let Some(reason) = reason {
            self.mistake(
                key,
                format!("{}: {}; write a file in a folder that is there", path.display(), short(&reason)),
            );
        }
    }

    fn user(&mut self, who: &str) {
        if who.is_empty() {
            return;
        }
        match life::user::find(who) {
            Err(error) => self.mistake("runtime.user", format!("{error:#}; write user or user:group of this machine")),
            Ok(identity) if !identity.is_ours() && !rustix::process::geteuid().is_root() => {
                self.warn(
                    "runtime.user",
                    "only root can become somebody else; start as root, or leave it out".to_owned(),
                );
            }
            Ok(_) => {}
        }
    }

    fn state(&mut self, state: &registry::StateConfig) {
        let dir = &state.dir;
        let there = dir.ancestors().find(|path| path.exists());
        let reason = match there {
            Some(there) if !there.is_dir() => format!("{} is no folder", there.display()),
            Some(there) if !writable(there) => format!("nothing can be made in {}", there.display()),
            _ => return,
        };
        self.warn("runtime.statedir", format!("{reason}, so the last known routes are not kept; write a folder"));
    }

    fn backend(&mut self, backend: &Backend) {
        match backend {
            Backend::File { page: Some(page), .. } => {
                if let Err(reason) = readable(page) {
                    self.mistake("registry.file.noroutehtmlpath", format!("{}: {reason}", page.display()));
                }
            }
            Backend::Consul(consul) => {
                if let consul::Token::File(path) = &consul.client.token
                    && let Err(reason) = readable(path)
                {
                    let line =
                        format!("{}: {reason}; Consul is asked without a token until it is there", path.display());
                    self.warn("registry.consul.tokenfile", line);
                }
                let tls = &consul.client.tls;
                let files = [
                    ("registry.consul.tls.cafile", &tls.ca_file),
                    ("registry.consul.tls.capath", &tls.ca_path),
                    ("registry.consul.tls.certfile", &tls.cert_file),
                    ("registry.consul.tls.keyfile", &tls.key_file),
                ];
                for (key, path) in files.into_iter().filter(|_| consul.client.scheme == "https") {
                    if let Some(path) = path
                        && let Err(reason) = File::open(path)
                    {
                        self.mistake(key, format!("{path}: {}", short(&reason.to_string())));
                    }
                }
            }
            Backend::File { .. } | Backend::Static { .. } | Backend::Custom(_) => {}
        }
    }
}

fn readable(path: &Path) -> Result<(), String> {
    std::fs::read(path).map(drop).map_err(|error| short(&error.to_string()))
}

fn writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Without the number that nobody looks up.
fn short(error: &str) -> String {
    error.split(" (os error").next().unwrap_or_default().to_owned()
}

/// For one source.
const READ: Duration = Duration::from_secs(5);

/// Seconds.
const DAY: i64 = 86_400;

/// Days.
const SOON: i64 = 14;
