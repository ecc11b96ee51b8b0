//! A process with everything that it says, which does not outlive the test.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::until;

pub(crate) use rustix::process::Signal;

pub(crate) struct Process {
    name: String,
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    /// In `dir`, without standard input, and with an environment of PATH and `env` alone.
    pub(crate) fn start<A: AsRef<OsStr>>(program: &Path, args: &[A], dir: &Path, env: &[(&str, &str)]) -> Process {
        let mut command = Command::new(program);
        command.args(args).current_dir(dir).env_clear().envs(env.iter().copied());
        // Options can come from the environment; the test's own must not.
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        Process { name, child, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("a process that was not waited for")
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw).expect("an id of a process");
        rustix::process::kill_process(id, signal).unwrap_or_else(|e| panic!("signal {}: {e}", self.name));
    }

    /// `None` while it runs.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    /// Waits for its end, and for the end of its output.
    pub(crate) async fn wait(&mut self, within: Duration) -> ExitStatus {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => {
                // A reader holds one reference, until it has read all.
                until(within, "the end of the output", async || {
                    (Arc::strong_count(&self.stdout) == 1 && Arc::strong_count(&self.stderr) == 1).then_some(())
                })
                .await;
                status.expect("our own child")
            }
            Err(_) => panic!("{} still runs after {within:?}; it said:\n{}", self.name, self.said()),
        }
    }

    /// Waits until a line of standard error contains `text`.
    pub(crate) async fn says(&mut self, within: Duration, text: &str) {
        let end = std::time::Instant::now() + within;
        while !self.stderr().contains(text) {
            if let Some(status) = self.exited() {
                assert!(
                    self.stderr().contains(text),
                    "{} ended ({status}) and never said {text:?}:\n{}",
                    self.name,
                    self.said()
                );
                return;
            }
            assert!(std::time::Instant::now() < end, "{} does not say {text:?}:\n{}", self.name, self.said());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Both outputs, for the report of a failed test.
    pub(crate) fn said(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.stdout(), self.stderr())
    }
}

fn collect(mut output: impl AsyncRead + Unpin + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = text.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0; 8192];
        while let Ok(n @ 1..) = output.read(&mut buffer).await {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
    });
    text
}
