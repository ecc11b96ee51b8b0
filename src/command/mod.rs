//! Commands: one answer each, for people as text and for programs with `--json`.
//!
//! They look at files, at the admin API of a running ferrio, or at Consul; only `upgrade` changes anything. Thin on purpose:
//! what they show is worked out by the parts that the proxy itself uses.

mod arguments;
mod check;
mod columns;
mod compare;
mod configuration;
mod consul;
mod explain;
mod manual;
mod rejects;
mod remote;
mod routes;
mod surroundings;
mod timeline;
mod top;
mod upgrade;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use self::arguments::Arguments;

/// A command, as the help, the manual page and the completions show it.
pub struct Command {
    pub name: &'static str,
    /// Behind the name.
    pub usage: &'static str,
    /// One sentence: the question that it answers.
    pub about: &'static str,
    /// Flag, name of its value (empty: it takes none), meaning.
    pub flags: &'static [(&'static str, &'static str, &'static str)],
    run: fn(&mut Arguments) -> Result<Answer, Failure>,
}

/// What a command has found out.
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// The question is answered with "yes": no mistake, no difference, a route.
    pub good: bool,
}

impl Answer {
    fn good(text: impl Into<String>) -> Self {
        Self { text: text.into(), good: true }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), good: false }
    }
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// Whoever knows did not answer.
    Unknown(String),
}

/// The command of this name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Runs a command with the words behind its name. 0: the answer is good; 1: it is not; 2: wrong words; 3: no answer.
pub fn main(command: &Command, words: impl Iterator<Item = OsString>) -> ExitCode {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let mut arguments = Arguments::new(words, command.flags);
    if arguments.help() {
        show(&manual::help(command));
        return ExitCode::SUCCESS;
    }
    match (command.run)(&mut arguments) {
        Ok(answer) => {
            show(&answer.text);
            ExitCode::from(u8::from(!answer.good))
        }
        Err(Failure::Usage(what)) => {
            eprintln!("ferrio {}: {what}\n\n{}", command.name, manual::help(command).trim_end());
            ExitCode::from(2)
        }
        Err(Failure::Unknown(what)) => {
            eprintln!("ferrio {}: {what}", command.name);
            ExitCode::from(3)
        }
    }
}

/// Whoever reads no further is no concern of ours (`ferrio routes | head`).
fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let _ = write!(out, "{text}{end}").and_then(|()| out.flush());
}

/// Waits for one thing on a runtime of its own.
fn wait_for<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Unknown(format!("cannot make a runtime: {error}")))?;
    let result = runtime.block_on(work);
    // A name that is still being looked up does not hold up the end.
    runtime.shutdown_background();
    result
}

const JSON: (&str, &str, &str) = ("json", "", "JSON instead of text");
const CFG: (&str, &str, &str) = ("cfg", "FILE", "properties file, or its URL, as for a start");
const ADMIN: (&str, &str, &str) =
    ("admin", "ADDR", "admin listener: host:port or URL; default: ui.addr of --cfg, FERRIO_ADMIN, else localhost:9998");
const INSECURE: (&str, &str, &str) = ("insecure", "", "do not verify the certificate of the admin listener");
const CONSUL: (&str, &str, &str) = ("consul", "ADDR", "ask Consul instead of a running ferrio");

/// All of them.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "check",
        usage: "[FLAG...] [FILE...]",
        about: "Is my properties file right? Says all that is wrong with it, with key, file and line.",
        flags: &[
            CFG,
            ("routes", "FILE", "also check a file in the route language; may be given several times"),
            ("text", "", "only what is written: look for no file, folder or user of this machine"),
            ("strict", "", "warnings count as mistakes"),
            JSON,
        ],
        run: check::run,
    },
    Command {
        name: "explain",
        usage: "URL | --service NAME",
        about: "Where does this URL go, and why? Why is my service not routed?",
        flags: &[
            ("service", "NAME", "tell about a service instead of a URL: instances, checks, tags, routes"),
            ("client", "ADDRESS", "who asks, for rules that look at addresses"),
            ("method", "METHOD", "instead of GET"),
            ("header", "NAME:VALUE", "of the request; may be given several times"),
            ADMIN,
            CONSUL,
            CFG,
            INSECURE,
            JSON,
        ],
        run: explain::run,
    },
    Command {
        name: "routes",
        usage: "",
        about: "Which routes are there?",
        flags: &[
            ("service", "NAME", "only routes to this service"),
            ("host", "HOST", "only routes of this host; empty for those of no host"),
            ("config", "", "in the route language"),
            ADMIN,
            CONSUL,
            CFG,
            INSECURE,
            JSON,
        ],
        run: routes::run,
    },
    Command {
        name: "rejects",
        usage: "",
        about: "Which tags and lines could not be used, why, and how are they written right?",
        flags: &[("service", "NAME", "only tags of this service"), ADMIN, CONSUL, CFG, INSECURE, JSON],
        run: rejects::run,
    },
    Command {
        name: "timeline",
        usage: "",
        about: "What changed in the routing table, when, and because of what?",
        flags: &[
            ("since", "TIME", "14:05 (today), 2026-12-01T14:05, or 10m for the last ten minutes"),
            ("until", "TIME", "the same"),
            ADMIN,
            CFG,
            INSECURE,
            JSON,
        ],
        run: timeline::run,
    },
    Command {
        name: "compare",
        usage: "ADDR",
        about: "Is our routing table the same as that of the fabio, or ferrio, at ADDR?",
        flags: &[ADMIN, CONSUL, CFG, INSECURE, JSON],
        run: compare::run,
    },
    Command {
        name: "top",
        usage: "",
        about: "What is going on right now? Quits with q.",
        flags: &[
            ("once", "", "one picture, over one interval, then end"),
            ("interval", "SECONDS", "between two pictures; default 2"),
            ADMIN,
            CFG,
            INSECURE,
            JSON,
        ],
        run: top::run,
    },
    Command {
        name: "upgrade",
        usage: "[FLAG...]",
        about: "Let the program that is there now take the place of the running one, without a failed request.",
        flags: &[
            (
                "pid",
                "PID|FILE",
                "the running one by its process id, or by a file with it, instead of its admin listener",
            ),
            ADMIN,
            CFG,
            INSECURE,
            JSON,
        ],
        run: upgrade::run,
    },
    Command {
        name: "config",
        usage: "[-- FLAG...]",
        about: "What is every option set to, and where does the value come from?",
        flags: &[
            CFG,
            ("all", "", "also options that have their default"),
            ("reference", "", "the reference page, as Markdown"),
            ("metrics", "", "the reference page of the metrics, as Markdown"),
            ("tags", "", "the table of all options of tags, as Markdown"),
            JSON,
        ],
        run: configuration::run,
    },
    Command {
        name: "completions",
        usage: "bash|zsh|fish",
        about: "Completions for a shell.",
        flags: &[],
        run: manual::completions,
    },
    Command { name: "man", usage: "", about: "The manual page, for man -l.", flags: &[], run: manual::page },
];

#[cfg(test)]
mod tests;
