use std::collections::BTreeSet;

use super::*;

fn run(name: &str, words: &[&str]) -> Result<Answer, Failure> {
    let command = find(name).expect("a command");
    (command.run)(&mut Arguments::new(words.iter().map(|word| (*word).to_owned()), command.flags))
}

fn text(name: &str, words: &[&str]) -> String {
    match run(name, words) {
        Ok(answer) => answer.text,
        Err(failure) => panic!("{name} {words:?}: {failure:?}"),
    }
}

#[test]
fn every_command_is_told_about() {
    let names: BTreeSet<&str> = COMMANDS.iter().map(|command| command.name).collect();
    assert_eq!(names.len(), COMMANDS.len(), "a name is there twice");
    let page = text("man", &[]);
    for command in COMMANDS {
        let help = manual::help(command);
        assert!(command.about.ends_with(['.', '?']), "{}: {}", command.name, command.about);
        assert!(page.contains(&format!(".SS \"ferrio {}", command.name)), "{}", command.name);
        for (flag, _, meaning) in command.flags {
            assert!(!meaning.is_empty() && help.contains(&format!("--{flag}")), "{} --{flag}", command.name);
        }
        for shell in ["bash", "zsh", "fish"] {
            let script = text("completions", &[shell]);
            assert!(script.contains(command.name), "{shell}: {}", command.name);
        }
    }
    // What stands at the beginning of a line of roff is a request.
    let bad: Vec<&str> = page.lines().filter(|line| line.starts_with('\'')).collect();
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn completions_are_read_by_their_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let Ok(mut child) = std::process::Command::new(shell)
            .arg("-n")
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
        else {
            // Not on this machine.
            assert_ne!(shell, "bash");
            continue;
        };
        let mut input = child.stdin.take().expect("piped");
        input.write_all(text("completions", &[shell]).as_bytes()).expect("a shell that reads");
        drop(input);
        let output = child.wait_with_output().expect("our own child");
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn check_says_all_that_is_wrong_with_routes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("routes");
    let path = file.to_str().expect("an ASCII path");
    std::fs::write(&file, "# fine\nroute add a /a http://127.0.0.1:1/\n\nroute ad b\nroute add c /c http://127.0.0.1:1/ opts \"redirect=abc,http://x\"\n")
        .expect("an own directory");
    let answer = run("check", &["--routes", path, "--json"]).expect("an answer");
    assert!(!answer.good);
    let all: serde_json::Value = serde_json::from_str(&answer.text).expect("JSON");
    let lines: Vec<_> = all["mistakes"].as_array().expect("a list").iter().map(|m| m["line"].as_u64()).collect();
    assert_eq!(lines, [Some(4), Some(5)], "{all:#}");
    assert_eq!(all["mistakes"][0]["file"], path);

    std::fs::write(&file, "route add a /a http://127.0.0.1:1/\n").expect("an own directory");
    assert!(run("check", &["--routes", path]).expect("an answer").good);
    let gone = dir.path().join("gone");
    assert!(!run("check", &["--routes", gone.to_str().expect("ASCII")]).expect("an answer").good);
}

#[test]
fn wrong_words_are_refused() {
    for (name, words) in [
        ("explain", &[][..]),
        ("explain", &["a", "--service", "b"]),
        ("compare", &[]),
        ("compare", &["nowhere"]),
        ("completions", &["tcsh"]),
        ("routes", &["a"]),
        ("rejects", &["--nonsense"]),
        ("timeline", &["--since", "later"]),
    ] {
        assert!(matches!(run(name, words), Err(Failure::Usage(_))), "{name} {words:?}");
    }
}

#[test]
fn nobody_there_is_no_answer() {
    // A port that nobody can listen on.
    for (name, words) in [
        ("routes", &["--admin", "127.0.0.1:1"][..]),
        ("rejects", &["--admin", "127.0.0.1:1"]),
        ("explain", &["h/p", "--admin", "127.0.0.1:1"]),
        ("compare", &["127.0.0.1:1"]),
        ("timeline", &["--admin", "127.0.0.1:1"]),
    ] {
        match run(name, words) {
            Err(Failure::Unknown(why)) => assert!(why.contains("127.0.0.1:1"), "{name}: {why}"),
            other => panic!("{name}: {:?}", other.map(|answer| answer.text)),
        }
    }
}

#[test]
fn the_reference_pages_are_up_to_date() {
    for (flag, file) in [("--reference", "docs/reference.md"), ("--metrics", "docs/metrics.md")] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let want = text("config", &[flag]);
        let have = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(have == want, "{file} is out of date: cargo run -- config {flag} > {file}");
    }
}
