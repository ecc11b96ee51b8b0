//! Where lines go: standard output, standard error, a file, or a syslog server.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::Config;
use super::append::Append;
use super::syslog::{Address, Syslog};

/// `log.access.target`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stdout,
    Stderr,
    /// Appended to.
    File(PathBuf),
    Syslog(Address),
}

/// Why a text is no target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);

impl std::fmt::Display for TargetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TargetError {}

impl Target {
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Target::Stdout),
            None if text == "stderr" => Ok(Target::Stderr),
            Some(("file", path)) if !path.is_empty() => Ok(Target::File(path.into())),
            Some(("syslog", address)) => Address::parse(address).map(Target::Syslog).map_err(TargetError),
            _ => Err(TargetError(format!(
                "invalid access log target {text:?}; write stdout, stderr, file:PATH or syslog:ADDRESS"
            ))),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Stdout => f.write_str("stdout"),
            Target::Stderr => f.write_str("stderr"),
            Target::File(path) => write!(f, "{}", path.display()),
            Target::Syslog(address) => write!(f, "syslog at {address}"),
        }
    }
}

/// An open target.
pub(super) struct Sink {
    kind: Kind,
    /// The last write failed, which was said.
    failing: bool,
}

enum Kind {
    Stream(Append<File>),
    File(LogFile),
    Syslog(Syslog),
}

impl Sink {
    pub(super) fn open(config: &Config) -> io::Result<Self> {
        let kind = match &config.target {
            // Not through the buffer of the library, which does not tell what it has written.
            Target::Stdout => Kind::Stream(Append::new(io::stdout().as_fd().try_clone_to_owned()?.into())),
            Target::Stderr => Kind::Stream(Append::new(io::stderr().as_fd().try_clone_to_owned()?.into())),
            Target::File(path) => Kind::File(LogFile::open(path, config.rotate, config.keep)?),
            Target::Syslog(address) => Kind::Syslog(Syslog::new(address.clone())),
        };
        Ok(Self { kind, failing: false })
    }

    /// Writes lines of which the ends are given; gives how many were lost.
    pub(super) fn write(&mut self, bytes: &[u8], ends: &[usize]) -> u64 {
        let (lost, error) = match &mut self.kind {
            Kind::Stream(log) => log.write(bytes, ends),
            Kind::File(file) => file.write(bytes, ends),
            Kind::Syslog(syslog) => syslog.write(bytes, ends),
        };
        match (error, self.failing) {
            (Some(error), false) => tracing::warn!("access log: {error}; lines are lost"),
            (None, true) => tracing::info!("access log: lines are written again"),
            _ => {}
        }
        self.failing = lost > 0;
        lost
    }

    pub(super) fn reopen(&mut self) {
        if let Kind::File(file) = &mut self.kind
            && let Err(error) = file.reopen()
        {
            tracing::warn!("access log: {}: {error}; going on with the file that was open", file.path.display());
        }
    }
}

/// A file that may be moved away by somebody else, or put aside by ourselves when it has grown.
struct LogFile {
    path: PathBuf,
    log: Append<File>,
    size: u64,
    /// 0: never.
    rotate: u64,
    keep: usize,
}

impl LogFile {
    fn open(path: &Path, rotate: u64, keep: usize) -> io::Result<Self> {
        let (log, size) = append(path)?;
        Ok(Self { path: path.into(), log, size, rotate, keep })
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.log, self.size) = append(&self.path)?;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], ends: &[usize]) -> (u64, Option<io::Error>) {
        if self.rotate > 0 && self.size > 0 && self.size + bytes.len() as u64 > self.rotate {
            // Whatever goes wrong here, the lines go into the file that is open.
            if let Err(error) = self.put_aside() {
                tracing::warn!("access log: {} cannot be rotated: {error}", self.path.display());
                // Not again with every line.
                self.size = 0;
            }
        }
        self.size += bytes.len() as u64;
        self.log.write(bytes, ends)
    }

    /// `log.2` becomes `log.3`, `log.1` `log.2`, `log` `log.1`, and what is older than the oldest is gone.
    fn put_aside(&mut self) -> io::Result<()> {
        let numbered = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.keep == 0 {
            std::fs::remove_file(&self.path)?;
        } else {
            for number in (1..self.keep).rev() {
                match std::fs::rename(numbered(number), numbered(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            std::fs::rename(&self.path, numbered(1))?;
        }
        self.reopen()
    }
}

fn append(path: &Path) -> io::Result<(Append<File>, u64)> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((Append::new(file), size))
}
