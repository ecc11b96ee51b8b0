//! The values of all options with where they came from, and the mistakes found in them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::Level;
use super::options::{OPTIONS, Spec, Status, Values, find};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    /// The name of the flag as it was written.
    Flag(String),
    /// The name of the variable as it was written.
    Variable(String),
    File {
        name: Arc<str>,
        line: usize,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Flag(name) => write!(f, "flag -{name}"),
            Source::Variable(name) => write!(f, "environment variable {name}"),
            Source::File { name, line } => write!(f, "{name}:{line}"),
        }
    }
}

/// A text and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// All options.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) values: Values,
    /// What was given for a row of the table; the others have their default.
    given: HashMap<usize, Given>,
    pub(crate) report: Report,
}

impl Settings {
    /// Everything at its default.
    pub(crate) fn new() -> Self {
        let mut settings = Self::default();
        for spec in OPTIONS {
            if let Ok(value) = spec.kind.read(spec.key, spec.default) {
                (spec.set)(&mut settings.values, value);
            }
        }
        settings
    }

    /// Takes a text for a row, or says what is wrong with it.
    pub(crate) fn give(&mut self, row: usize, given: Given) {
        let spec = &OPTIONS[row];
        let read = spec.kind.read(spec.key, &given.text);
        self.given.insert(row, given);
        match read {
            Ok(value) => _ = (spec.set)(&mut self.values, value),
            Err(super::kind::Refusal::Syntax(reason) | super::kind::Refusal::Bounds(reason)) => {
                self.mistake(spec.key, &reason)
            }
        }
    }

    /// Given by anybody, even if empty.
    pub(crate) fn explicit(&self, key: &str) -> bool {
        find(key).is_some_and(|row| self.given.contains_key(&row))
    }

    /// What was given for `key`, as it stands there.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        Some(self.given.get(&find(key)?)?.text.as_str())
    }

    /// Something is wrong with the value of `key`. `reason`: what, and what to write instead.
    pub(crate) fn mistake(&mut self, key: &'static str, reason: &str) {
        let line = self.describe(key, reason);
        self.report.mistakes.push((key, line));
    }

    /// Whether something is wrong with the value of `key`.
    pub(crate) fn faulty(&self, key: &str) -> bool {
        self.report.mistakes.iter().any(|(k, _)| *k == key)
    }

    /// As [`mistake`](Self::mistake), but nothing stops for it.
    pub(crate) fn warn(&mut self, key: &str, reason: &str) {
        let line = self.describe(key, reason);
        self.report.say(Level::Warn, line);
    }

    /// `key = "value" (source): reason`
    pub(crate) fn describe(&self, key: &str, reason: &str) -> String {
        let Some(row) = find(key) else { return format!("{key}: {reason}") };
        let spec = &OPTIONS[row];
        let (text, source) = match self.given.get(&row) {
            Some(given) => (given.text.as_str(), &given.source),
            None => (spec.default, &Source::Default),
        };
        format!("{key} = {} ({source}): {}", show(spec, text), redact(reason))
    }

    /// The value of a row as it may be shown, and where it came from.
    pub(crate) fn shown(&self, row: usize) -> (String, &Source) {
        let spec = &OPTIONS[row];
        let (text, source) = match self.given.get(&row) {
            Some(given) => (given.text.as_str(), &given.source),
            None => (spec.default, &Source::Default),
        };
        let text = if spec.status == Status::Secret && !text.is_empty() { REDACTED.to_owned() } else { redact(text) };
        (text, source)
    }

    /// Rows with a value of their own, in the order of the table.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static Spec, &Given)> {
        OPTIONS.iter().enumerate().filter_map(|(row, spec)| Some((spec, self.given.get(&row)?)))
    }
}

/// What was found while reading.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Key and line.
    pub(crate) mistakes: Vec<(&'static str, String)>,
    pub(crate) notes: Vec<(Level, String)>,
}

impl Report {
    pub(crate) fn say(&mut self, level: Level, text: impl Into<String>) {
        let note = (level, text.into());
        // An option of several listeners must not say the same thing several times.
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Stands for a secret wherever a value is shown.
pub(crate) const REDACTED: &str = "<redacted>";

/// A value for a message: quoted, without secrets, not longer than a line or two.
fn show(spec: &Spec, text: &str) -> String {
    if spec.status == Status::Secret && !text.is_empty() {
        return REDACTED.to_owned();
    }
    let text = redact(text);
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Replaces what looks like a secret inside a text: passwords and tokens in option lists, URLs and headers.
pub(crate) fn redact(text: &str) -> String {
    static USER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"://[^/@\s,;"]+@"#).expect("a fixed expression"));
    static PAIR: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"(?i)((?:token|password|secret|apikey|api_key|access_key|signature|credential|\bsig)=)("(?:[^"\\]|\\.)*"|[^;,&\s"]+)"#)
            .expect("a fixed expression")
    });
    static HEADER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?i)(hdr="?[^:;,"]*:\s*)[^;,"]+"#).expect("a fixed expression"));
    let text = USER.replace_all(text, format!("://{REDACTED}@"));
    let text = PAIR.replace_all(&text, format!("${{1}}{REDACTED}"));
    HEADER.replace_all(&text, format!("${{1}}{REDACTED}")).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_wherever_they_stand() {
        for (text, want) in [
            (
                "cs=a;type=consul;cert=http://h/v1/kv/ssl?token=abc;refresh=3s",
                "cs=a;type=consul;cert=http://h/v1/kv/ssl?token=<redacted>;refresh=3s",
            ),
            (
                "cert=https://u:p@h/l;hdr=Authorization: Bearer 1,cs=b",
                "cert=https://<redacted>@h/l;hdr=Authorization: <redacted>,cs=b",
            ),
            ("address=1.2.3.4;password=\"a;b\";asn=1", "address=1.2.3.4;password=<redacted>;asn=1"),
            ("http://h/?x=1&token=abc&y=2", "http://h/?x=1&token=<redacted>&y=2"),
            (
                "https://h/list?sig=abc%3D&X-Amz-Credential=k/1&X-Amz-Signature=f0",
                "https://h/list?sig=<redacted>&X-Amz-Credential=<redacted>&X-Amz-Signature=<redacted>",
            ),
            ("vaultfetchtoken=file:/x", "vaultfetchtoken=<redacted>"),
            ("nothing secret", "nothing secret"),
        ] {
            assert_eq!(redact(text), want);
        }
    }

    #[test]
    fn a_mistake_names_key_value_and_source() {
        let mut settings = Settings::new();
        let row = |key| find(key).unwrap();
        settings.give(
            row("proxy.maxconn"),
            Given { text: "many".to_owned(), source: Source::Flag("proxy.maxconn".to_owned()) },
        );
        settings
            .give(row("ui.title"), Given { text: "x".repeat(1000), source: Source::Variable("UI_TITLE".to_owned()) });
        settings.give(
            row("registry.consul.token"),
            Given { text: "s3cret".to_owned(), source: Source::File { name: "/a".into(), line: 3 } },
        );
        for key in ["ui.title", "registry.consul.token", "ui.color"] {
            settings.mistake(key, "no");
        }
        let got: Vec<&String> = settings.report.mistakes.iter().map(|(_, line)| line).collect();
        assert!(got[0].starts_with("proxy.maxconn = \"many\" (flag -proxy.maxconn): not a number"), "{}", got[0]);
        assert!(got[1].starts_with("ui.title = \"xxx") && got[1].ends_with("... (environment variable UI_TITLE): no"));
        assert!(got[1].len() < 300);
        assert_eq!(got[2], "registry.consul.token = <redacted> (/a:3): no");
        assert_eq!(got[3], "ui.color = \"light-green\" (default): no");
    }
}
