//! Every command of the README is run as it stands there.
//!
//! Blocks of `sh` are taken in their order, line by line. A line that starts a server is left running until the end and
//! must say that it is ready; every other line must end with 0. Relative paths are relative to the project.
//!
//! It builds the release binary, so it takes minutes on a new clone, and ports must be free: it is asked for by name, with
//! `cargo nextest run --run-ignored only readme`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::testing::process::Process;
use crate::testing::until;

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
#[ignore = "builds the release binary and takes fixed ports"]
async fn every_command_of_the_readme_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("a README");
    let lines = commands(&readme);
    assert!(lines.len() >= 2, "the README has no commands: {lines:?}");
    let env: Vec<(String, String)> = std::env::vars().filter(|(name, _)| KEPT.contains(&name.as_str())).collect();
    let env: Vec<(&str, &str)> = env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    // Dropped at the end, which ends them.
    let mut servers: Vec<Process> = Vec::new();
    for line in lines {
        match line {
            Line::Left(_) => {}
            Line::Server(command, ready) => {
                // The shell makes room for the program, so that the id is the program's own.
                let mut server = shell(root, &format!("exec {command}"), &env);
                until(BUILD, &format!("{command:?} to be ready"), async || {
                    let said = server.said();
                    let ended = server.exited();
                    assert!(ended.is_none(), "{command:?} ended with {ended:?}:\n{said}");
                    said.contains(ready).then_some(())
                })
                .await;
                servers.push(server);
            }
            Line::Command(command) => {
                let mut process = shell(root, &command, &env);
                let status = process.wait(BUILD).await;
                assert!(status.success(), "{command:?} ended with {status}:\n{}", process.said());
            }
        }
    }
}

fn shell(root: &Path, command: &str, env: &[(&str, &str)]) -> Process {
    Process::start(&PathBuf::from("/bin/bash"), &["-euo", "pipefail", "-c", command], root, env)
}

/// The lines of all blocks of `sh`, however far they are indented; continued ones joined, prompts and comments left out.
fn commands(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let (mut inside, mut begun) = (false, String::new());
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            inside = !inside && line == "```sh";
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
    let ends = ["-check", "-h", "--help", "-v", "--version", "-print"].iter().any(|flag| words.contains(flag));
    if words.iter().any(|word| word.ends_with("scripts/test")) {
        return Line::Left(text);
    }
    let is_ours = program.ends_with("/ferrio") || program == "ferrio" || command.starts_with("cargo run");
    if is_ours && !ends {
        return Line::Server(text, "proxy listening on");
    }
    if program == "consul" && words.get(1) == Some(&"agent") {
        return Line::Server(text, "New leader elected");
    }
    Line::Command(text)
}

/// Where programs and their caches are; everything else could change what a command means.
const KEPT: &[&str] =
    &["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "TMPDIR"];
/// A release build on a slow machine.
const BUILD: Duration = Duration::from_secs(1200);

#[test]
fn commands_are_found_and_told_from_servers() {
    let text = "# Title\n\n```sh\ncargo run --release -- dev\n```\n\n```json\n{\"sh\": 1}\n```\n\n1. One\n\n   ```sh\n   # why\n   \
                $ target/release/ferrio -cfg a \\\n     -check\n   target/release/ferrio -cfg a\n   ```\n```sh\ncurl -i x\n\
                scripts/test\nconsul agent -dev\n```\n```\nno command\n```\n";
    let server = |text: &str, ready| Line::Server(text.to_owned(), ready);
    assert_eq!(
        commands(text),
        [
            server("cargo run --release -- dev", "proxy listening on"),
            Line::Command("target/release/ferrio -cfg a -check".to_owned()),
            server("target/release/ferrio -cfg a", "proxy listening on"),
            Line::Command("curl -i x".to_owned()),
            Line::Left("scripts/test".to_owned()),
            server("consul agent -dev", "New leader elected"),
        ]
    );
}
