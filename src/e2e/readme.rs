//! Every command of the README and of the pages in docs/ is run as it stands there.
//!
//! Of the README all blocks of `sh`, of the pages those marked `sh run`, in their order, line by line. A line that starts a
//! server is left running until the end and must say that it is ready; every other line must end with 0. Relative paths are
//! relative to the project. Ports that somebody else has are replaced by those that the servers have taken instead.
//!
//! The README builds its binary. Which profile stands for `release` says FERRIO_README_PROFILE: `scripts/check` uses `dev`,
//! which the other tests have built already; without it a release is built, which takes minutes. So this test is asked for
//! by name, with `cargo nextest run --run-ignored only readme`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::testing::process::Process;
use crate::testing::{free_addrs, until};

#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Must end with 0.
    Command(String),
    /// Goes on; ready when it says this.
    Server(String, &'static str),
    /// Run by something else.
    Left(String),
}

#[tokio::test]
#[ignore = "builds a binary; scripts/check has a step for it"]
async fn every_command_of_the_readme_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("a README");
    let lines = commands(&readme, "```sh");
    assert!(lines.len() >= 8, "the README has too few commands: {lines:?}");
    Run::new(root).all(lines).await;
}

#[tokio::test]
async fn every_command_of_the_pages_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut lines = Vec::new();
    // Starts the servers that the other pages speak about.
    let pages = [
        "quickstart.md",
        "replacing-fabio.md",
        "commands.md",
        "routes.md",
        "tags.md",
        "access.md",
        "access-log.md",
        "tracing.md",
        "packages.md",
    ];
    for page in pages {
        let text = std::fs::read_to_string(root.join("docs").join(page)).expect("a page");
        let found = commands(&text, "```sh run");
        assert!(!found.is_empty(), "{page} has no commands");
        lines.extend(found);
    }
    assert!(lines.len() >= 20, "{lines:?}");
    Run::new(root).all(lines).await;
}

#[test]
fn the_pages_are_all_in_the_book_and_their_links_lead_somewhere() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).expect("a page");
    let summary = read("SUMMARY.md");
    let mut pages = 0;
    for entry in std::fs::read_dir(&docs).expect("docs/") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if !name.ends_with(".md") || name == "SUMMARY.md" {
            continue;
        }
        pages += 1;
        assert!(summary.contains(&format!("({name})")), "{name} is not in docs/SUMMARY.md");
        for link in links(&read(&name)) {
            assert!(docs.join(&link).exists(), "{name} links to {link}");
        }
    }
    assert!(pages >= 12, "{pages}");
    for link in links(&summary) {
        assert!(docs.join(&link).exists(), "docs/SUMMARY.md links to {link}");
    }
}

/// Targets of relative links, without their fragments.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = ends.filter(|link| !link.contains("://") && !link.starts_with('#'));
    relative.map(|link| link.split('#').next().unwrap_or_default().to_owned()).collect()
}

/// The world in which the lines are run.
struct Run {
    root: PathBuf,
    /// First in PATH: the binary under test, as `ferrio`.
    bin: tempfile::TempDir,
    env: Vec<(String, String)>,
    /// What is replaced in every line.
    replaced: Vec<(String, String)>,
    /// Dropped at the end, which ends them.
    servers: Vec<Process>,
}

impl Run {
    fn new(root: &Path) -> Self {
        let bin = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferrio"), bin.path().join("ferrio")).expect("an own directory");
        let env = std::env::vars().filter(|(name, _)| KEPT.contains(&name.as_str())).collect();
        let [proxy, admin] = free_addrs().map(|addr| addr.port());
        let mut replaced = vec![(":19999".to_owned(), format!(":{proxy}")), (":19998".to_owned(), format!(":{admin}"))];
        if let Ok(profile) = std::env::var("FERRIO_README_PROFILE")
            && profile != "release"
        {
            let folder = if profile == "dev" { "debug" } else { &profile };
            replaced.push(("--release".to_owned(), format!("--profile {profile}")));
            replaced.push(("target/release/".to_owned(), format!("target/{folder}/")));
        }
        if let Ok(target) = std::env::var("CARGO_TARGET_DIR") {
            replaced.push(("target/".to_owned(), format!("{target}/")));
        }
        Self { root: root.to_owned(), bin, env, replaced, servers: Vec::new() }
    }

    async fn all(mut self, lines: Vec<Line>) {
        for line in lines {
            match line {
                Line::Left(_) => {}
                Line::Server(command, ready) => self.serve(&command, ready).await,
                Line::Command(command) => {
                    let mut process = self.shell(&command);
                    let status = process.wait(BUILD).await;
                    assert!(status.success(), "{command:?} ended with {status}:\n{}", process.said());
                }
            }
        }
    }

    async fn serve(&mut self, command: &str, ready: &str) {
        // The shell makes room for the program, so that the id is the program's own.
        let mut server = self.shell(&format!("exec {command}"));
        until(BUILD, &format!("{command:?} to be ready"), async || {
            let said = server.said();
            let ended = server.exited();
            assert!(ended.is_none(), "{command:?} ended with {ended:?}:\n{said}");
            said.contains(ready).then_some(())
        })
        .await;
        if ready == DEV_READY {
            self.take_over(&server.stdout());
        }
        self.servers.push(server);
    }

    /// The ports that `ferrio dev` has taken, as it says itself.
    fn take_over(&mut self, said: &str) {
        let port = |before: &str, behind: &str| {
            let found = said.split(before).nth(1).and_then(|rest| rest.split(behind).next());
            found.unwrap_or_else(|| panic!("no {before:?} in {said}")).to_owned()
        };
        let proxy = port("curl -i localhost:", "/");
        let admin = port("http://localhost:", "/");
        let consul = port("Consul's API:        http://localhost:", "/");
        self.env.push(("FERRIO_ADMIN".to_owned(), format!("localhost:{admin}")));
        self.env.push(("FABIO_REGISTRY_CONSUL_ADDR".to_owned(), format!("localhost:{consul}")));
        for (usual, taken) in [("9999", proxy), ("9998", admin), ("8500", consul)] {
            for host in ["localhost", "127.0.0.1"] {
                self.replaced.push((format!("{host}:{usual}"), format!("{host}:{taken}")));
            }
            self.replaced.push((format!("\"Port\": {usual}"), format!("\"Port\": {taken}")));
        }
    }

    fn shell(&self, command: &str) -> Process {
        let command = self.replaced.iter().fold(command.to_owned(), |text, (from, to)| text.replace(from, to));
        let command = format!("PATH={}:$PATH; {command}", self.bin.path().display());
        let env: Vec<(&str, &str)> = self.env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        Process::start(&PathBuf::from("/bin/bash"), &["-euo", "pipefail", "-c", &command], &self.root, &env)
    }
}

/// The lines of all blocks that begin so, however far they are indented; continued ones joined, prompts and comments left
/// out.
fn commands(text: &str, fence: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let (mut inside, mut begun) = (false, String::new());
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            inside = !inside && line == fence;
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(first) = line.strip_suffix('\\') {
            begun.push_str(first);
            continue;
        }
        let command = std::mem::take(&mut begun) + line;
        let command = command.strip_prefix("$ ").unwrap_or(&command).trim();
        if !command.is_empty() && !command.starts_with('#') {
            lines.push(kind(command));
        }
    }
    lines
}

fn kind(command: &str) -> Line {
    let text = command.to_owned();
    let words: Vec<&str> = command.split_whitespace().collect();
    let program = words.first().copied().unwrap_or_default();
    if words.iter().any(|word| word.ends_with("scripts/test")) {
        return Line::Left(text);
    }
    if words.contains(&"dev") {
        return Line::Server(text, DEV_READY);
    }
    let is_ours = program.ends_with("/ferrio") || program == "ferrio" || command.starts_with("cargo run");
    let ends = ["-h", "--help", "-v", "--version"].iter().any(|flag| words.contains(flag));
    // A command of ours begins with a word; what begins with a flag, or has none, is the proxy.
    let is_proxy = words.get(1).is_none_or(|word| word.starts_with('-') || command.starts_with("cargo run"));
    if is_ours && is_proxy && !ends {
        return Line::Server(text, "proxy listening on");
    }
    if program == "consul" && words.get(1) == Some(&"agent") {
        return Line::Server(text, "New leader elected");
    }
    Line::Command(text)
}

/// What `ferrio dev` says.
const DEV_READY: &str = "Ctrl-C ends everything.";
/// Where programs and their caches are; everything else could change what a command means.
const KEPT: &[&str] =
    &["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "TMPDIR"];
/// A release build on a slow machine.
const BUILD: Duration = Duration::from_secs(1200);

#[test]
fn commands_are_found_and_told_from_servers() {
    let text = "# Title\n\n```sh\ncargo run --release -- dev\n```\n\n```json\n{\"sh\": 1}\n```\n\n1. One\n\n   ```sh\n   # why\n   \
                $ target/release/ferrio -cfg a \\\n     -h\n   target/release/ferrio -cfg a\n   target/release/ferrio check a\n   ```\n```sh\ncurl -i x\n\
                scripts/test\nconsul agent -dev\n```\n```\nno command\n```\n";
    let server = |text: &str, ready| Line::Server(text.to_owned(), ready);
    assert_eq!(
        commands(text, "```sh"),
        [
            server("cargo run --release -- dev", DEV_READY),
            Line::Command("target/release/ferrio -cfg a -h".to_owned()),
            server("target/release/ferrio -cfg a", "proxy listening on"),
            Line::Command("target/release/ferrio check a".to_owned()),
            Line::Command("curl -i x".to_owned()),
            Line::Left("scripts/test".to_owned()),
            server("consul agent -dev", "New leader elected"),
        ]
    );
}
