//! The program under test as a process, configured by a properties file as an installation would be.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::process::{Process, Signal};

/// What to start; [`Setup::start`] does it.
pub(crate) struct Setup {
    program: PathBuf,
    properties: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    files: Vec<(String, String)>,
    /// Taken from `proxy.addr` and `ui.addr`: all of them must accept before it counts as started.
    listeners: Vec<SocketAddr>,
}

impl Setup {
    /// `program` is `env!("CARGO_BIN_EXE_ferrio")`, which only a whole-program test can name.
    pub(crate) fn new(program: impl Into<PathBuf>) -> Setup {
        Setup {
            program: program.into(),
            properties: String::new(),
            args: vec![],
            env: vec![],
            files: vec![],
            listeners: vec![],
        }
    }

    /// One line of the properties file.
    pub(crate) fn property(mut self, key: &str, value: impl ToString) -> Setup {
        let value = value.to_string();
        if key == "proxy.addr" || key == "ui.addr" {
            // Dynamic ones are no listeners by themselves.
            let fixed = value.split(',').filter(|entry| !entry.contains("tcp-dynamic"));
            self.listeners.extend(fixed.filter_map(|e| e.split(';').next().and_then(|a| a.parse::<SocketAddr>().ok())));
        }
        self.properties += &format!("{key} = {value}\n");
        self
    }

    /// An argument of the command line, after `-cfg`.
    pub(crate) fn arg(mut self, arg: &str) -> Setup {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file in its working directory.
    pub(crate) fn file(mut self, name: &str, text: &str) -> Setup {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Starts it without waiting for anything.
    pub(crate) fn spawn(self) -> Ferrio {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("fabio.properties");
        std::fs::write(&file, &self.properties).expect("a file in an own directory");
        for (name, text) in &self.files {
            std::fs::write(dir.path().join(name), text).expect("a file in an own directory");
        }
        let mut args = vec!["-cfg".to_owned(), file.to_string_lossy().into_owned()];
        args.extend(self.args);
        let env: Vec<(&str, &str)> = self.env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let process = Process::start(&self.program, &args, dir.path(), &env);
        Ferrio { process, dir, listeners: self.listeners }
    }

    /// Starts it and waits until every listener accepts.
    pub(crate) async fn start(self) -> Ferrio {
        let mut ferrio = self.spawn();
        ferrio.listening().await;
        ferrio
    }
}

/// A running one; killed when dropped.
pub(crate) struct Ferrio {
    process: Process,
    dir: tempfile::TempDir,
    listeners: Vec<SocketAddr>,
}

impl Ferrio {
    /// Waits until every listener accepts; panics with its output when it ends before.
    pub(crate) async fn listening(&mut self) {
        if let Err(ended) = self.try_listening().await {
            panic!("{ended}");
        }
    }

    /// As `listening`, but gives its output when it ends before.
    pub(crate) async fn try_listening(&mut self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        for addr in self.listeners.clone() {
            while tokio::net::TcpStream::connect(addr).await.is_err() {
                if let Some(status) = self.process.exited() {
                    let said = self.process.said();
                    return Err(format!("ended with {status} instead of listening on {addr}:\n{said}"));
                }
                assert!(Instant::now() < end, "does not listen on {addr}:\n{}", self.process.said());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }

    /// Its working directory, the properties file among what is there.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGTERM, and the exit code; `None` if a signal ended it.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.process.wait(PATIENCE).await.code()
    }

    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }
}
