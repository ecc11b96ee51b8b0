//! What a service manager wants to hear (sd_notify(3)): when we are ready, that we reload, leave, and are still alive.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent. A message that cannot be sent is no reason to fail.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where a service manager listens.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    socket: Option<OsString>,
    watchdog: Option<Duration>,
    /// Somebody else speaks to the manager now.
    silent: Arc<AtomicBool>,
}

impl Notify {
    /// As the environment of this process says.
    pub fn from_env() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Duration::from_micros);
        Self {
            socket: std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()),
            watchdog,
            silent: Arc::default(),
        }
    }

    /// Everything that was started is up.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=serving");
    }

    /// Settings are read again; to be followed by [`Notify::ready`]. The time lets the manager tell this reload from others.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000) + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// From now on that process is to be supervised, and speaks for itself; nothing is sent any more.
    pub fn main_pid(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
        self.silent.store(true, Ordering::Relaxed);
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing what is under way");
    }

    /// A line for `systemctl status`.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    /// How long the manager waits for a sign of life; `None`: it does not.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some())
    }

    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        if let Some(path) = &self.socket
            && !self.silent.load(Ordering::Relaxed)
            && let Err(error) = send(path, message)
        {
            tracing::debug!("cannot tell the service manager: {error}");
        }
    }
}

fn send(path: &OsString, message: &str) -> io::Result<()> {
    let bytes = path.as_bytes();
    // A name that begins with @ is in the abstract namespace.
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_by_path_and_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("ferrio-notify-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, place) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())] {
            let notify = Notify { socket: Some(place), watchdog: Some(Duration::from_secs(1)), ..Notify::default() };
            notify.ready();
            notify.reloading();
            notify.status("a\nb");
            let mut heard = Vec::new();
            for _ in 0..3 {
                let mut buffer = [0; 200];
                let n = socket.recv(&mut buffer).unwrap();
                heard.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
            }
            assert_eq!((heard[0].as_str(), heard[2].as_str()), ("READY=1\nSTATUS=serving", "STATUS=a b"));
            assert!(heard[1].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{heard:?}");
            assert_eq!(notify.watchdog(), Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn nobody_who_listens_is_no_fault() {
        Notify::default().ready();
        Notify { socket: Some("/nowhere/at/all".into()), watchdog: None, ..Notify::default() }.stopping();
        let lonely = Notify { watchdog: Some(Duration::from_secs(1)), ..Notify::default() };
        assert_eq!(lonely.watchdog(), None);
    }
}
