//! Another process of ours takes our place, without a connection being refused or cut: the new one is started with our
//! arguments and environment, is given the listening sockets, and says when it serves.
//!
//! Until then nothing changes here; whatever goes wrong with the new one leaves us serving. Connections that wait to be
//! accepted are lost on neither side, because both have the same sockets.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::life::Line;
use crate::listen::Inherited;

/// What a successor will get, and how upgrades have gone.
#[derive(Default)]
pub(super) struct Succession {
    /// With the listener that each belongs to.
    sockets: Mutex<Vec<(String, Arc<OwnedFd>)>>,
    /// For whoever has asked; empty: nobody has.
    state: Mutex<String>,
}

impl Succession {
    /// Sockets of a listener, which are kept open from now on.
    pub(super) fn add(&self, listener: &str, sockets: impl IntoIterator<Item = OwnedFd>) {
        let sockets = sockets.into_iter().map(|socket| (listener.to_owned(), Arc::new(socket)));
        lock(&self.sockets).extend(sockets);
    }

    /// A listener is closed, while others go on.
    pub(super) fn remove(&self, listener: &str) {
        lock(&self.sockets).retain(|(of, _)| of != listener);
    }

    /// Somebody else has them all now, or we end.
    pub(super) fn clear(&self) {
        lock(&self.sockets).clear();
    }

    pub(super) fn state(&self) -> String {
        lock(&self.state).clone()
    }

    /// Somebody else serves in our place.
    pub(super) fn is_replaced(&self) -> bool {
        lock(&self.state).starts_with(REPLACED)
    }

    pub(super) fn set_state(&self, state: impl Into<String>) {
        *lock(&self.state) = state.into();
    }
}

/// Nothing is done under the lock that could leave something half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that is ready to serve in our place, and does so already, as we do.
pub(super) struct Successor {
    line: Line,
    pub(super) pid: u32,
    newborn: Newborn,
}

impl Successor {
    /// From now on it is the only one.
    pub(super) fn go(mut self) {
        // If it does not hear it, it has ended, and somebody else has to start another one.
        let _ = self.line.send(GO, None);
        if let Some(mut child) = self.newborn.0.take() {
            // Should it end before us.
            tokio::spawn(async move { child.wait().await });
        }
    }
}

/// A process that is not to outlive a failure.
struct Newborn(Option<Child>);

impl Drop for Newborn {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.start_kill();
            // So that nothing is left of it.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { child.wait().await });
            }
        }
    }
}

/// Starts a successor, and waits until it serves. Dropping the future ends it.
pub(super) async fn start(succession: &Succession) -> anyhow::Result<Successor> {
    let program = program()?;
    let (line, theirs) = Line::pair().context("cannot make a line to the new process")?;
    let mut words = std::env::args_os();
    let mut command = std::process::Command::new(&program);
    command.arg0(words.next().unwrap_or_else(|| program.clone().into_os_string())).args(words);
    command.stdin(Stdio::from(theirs)).env(FROM, std::process::id().to_string());
    // They are about us alone.
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    let child = Command::from(command).spawn();
    let mut newborn = Newborn(Some(child.with_context(|| format!("cannot start {}", program.display()))?));
    let child = newborn.0.as_mut().context("it was started")?;
    let pid = child.id().context("it has ended at once")?;
    tracing::info!("Started {} as process {pid}, which is to take over", program.display());
    let sockets = lock(&succession.sockets).clone();
    let talk = tokio::task::spawn_blocking(move || hand_over(line, &sockets));
    let line = tokio::select! {
        talked = tokio::time::timeout(READY, talk) => match talked {
            Err(_) => bail!("process {pid} did not get ready within {READY:?}"),
            Ok(talked) => match talked.context("the hand-over was broken off")? {
                Ok(line) => line,
                Err(error) => match tokio::time::timeout(LAST_WORDS, child.wait()).await {
                    Ok(Ok(status)) => bail!("process {pid} ended with {status} before it was ready"),
                    _ => return Err(error.context(format!("process {pid} does not take over"))),
                },
            },
        },
        status = child.wait() => bail!("process {pid} ended with {} before it was ready", status?),
    };
    Ok(Successor { line, pid, newborn })
}

fn hand_over(line: Line, sockets: &[(String, Arc<OwnedFd>)]) -> anyhow::Result<Line> {
    line.patient(Some(READY))?;
    line.send(HELLO, None)?;
    for (_, socket) in sockets {
        line.send(SOCKET, Some(socket.as_fd()))?;
    }
    line.send(END, None)?;
    match line.receive()? {
        Some((text, _)) if text == READY_NOW => Ok(line),
        Some((text, _)) => bail!("it says {text:?}"),
        None => bail!("it has nothing to say"),
    }
}

/// As we were started, so that what is there now is taken: the file that we run from may have been replaced.
fn program() -> anyhow::Result<PathBuf> {
    let name = std::env::args_os().next().unwrap_or_default();
    if Path::new(&name).components().count() > 1 {
        return Ok(name.into());
    }
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|file| file.is_file());
    found.or_else(|| std::env::current_exe().ok()).context("where this program is cannot be found out")
}

/// The process whose place we take.
pub(super) struct Predecessor(Line);

impl Predecessor {
    /// `None`: we take nobody's place.
    pub(super) fn from_env() -> anyhow::Result<Option<Self>> {
        let from = std::env::var(FROM).ok().and_then(|text| text.parse::<i32>().ok());
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        if from.is_none() || from != parent {
            return Ok(None);
        }
        let line = Line::of_stdin().context("cannot use the line to the process before us")?;
        line.patient(Some(READY))?;
        Ok(Some(Self(line)))
    }

    /// Takes over its sockets.
    pub(super) fn give(&self, inherited: &mut Inherited) -> anyhow::Result<()> {
        let next = || self.0.receive().context("the process before us does not hand over its sockets");
        match next()? {
            Some((text, _)) if text == HELLO => {}
            other => bail!("the process before us hands over in another way: {:?}", other.map(|(text, _)| text)),
        }
        let mut count = 0;
        loop {
            match next()? {
                Some((text, Some(socket))) if text == SOCKET => {
                    inherited.add(socket)?;
                    count += 1;
                }
                Some((text, _)) if text == END => break,
                other => bail!("the process before us broke off: {:?}", other.map(|(text, _)| text)),
            }
        }
        tracing::info!("Taking over {count} sockets of process {}", std::env::var(FROM).unwrap_or_default());
        Ok(())
    }

    /// Says that we serve, and waits for our being the only one who does. That it is gone means the same.
    pub(super) fn ready(self) {
        let _ = self.0.send(READY_NOW, None);
        let _ = self.0.receive();
    }
}

/// Process that hands over.
const FROM: &str = "FERRIO_UPGRADE_FROM";
/// How the state begins once it is so.
pub(super) const REPLACED: &str = "replaced by";
const HELLO: &str = "ferrio upgrade 1";
const SOCKET: &str = "socket";
const END: &str = "end";
const READY_NOW: &str = "ready";
const GO: &str = "go";
/// For everything between the start and the first table: Consul may be slow.
const READY: Duration = Duration::from_secs(60);
const LAST_WORDS: Duration = Duration::from_millis(500);
