//! From arguments, variables and a file to a configuration, or to everything that is wrong with them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use super::environment::Environment;
use super::flags::{self, Fault, Flags, Parsed};
use super::kind::Kind;
use super::options::{DUMMIES, GONE, OPTIONS, Spec, Status};
use super::parts::{self, Machine};
use super::properties::{self, Property};
use super::settings::{Given, Settings, Source};
use super::suggest::{near, nearest};
use super::{Failure, Level, Outcome, document, reference};

/// Reads the whole configuration. `arguments` begin with the name of the program, as `std::env::args_os` gives them;
/// `subcommands` are those that the caller knows and has not found in first place. A file behind `-cfg` may be a URL.
pub fn load(
    arguments: impl Iterator<Item = OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
    subcommands: &[&str],
) -> Result<Outcome, Failure> {
    load_on(&Machine::this(), arguments, environment, subcommands)
}

/// As [`load`], on a machine that need not be this one.
pub(crate) fn load_on(
    machine: &Machine,
    arguments: impl Iterator<Item = OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
    subcommands: &[&str],
) -> Result<Outcome, Failure> {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let program = arguments.next().unwrap_or_else(|| PROGRAM.to_owned());
    let arguments: Vec<String> = arguments.collect();
    let environment = Environment::new(environment);

    if let Some(word) = arguments.first().filter(|word| !word.starts_with('-')) {
        return Err(unknown_subcommand(word, subcommands));
    }
    let flags = match flags::parse(&arguments) {
        Ok(Parsed::Version) => return Ok(Outcome::Print { text: version(), stdout: true, code: 0 }),
        Ok(Parsed::Help) => return Ok(Outcome::Print { text: reference::usage(&program), stdout: false, code: 0 }),
        Ok(Parsed::Run(flags)) => flags,
        Err(Fault::Cfg) => {
            return Err(fatal(&["invalid or missing path to config file; write -cfg file or -cfg URL".to_owned()]));
        }
        Err(Fault::Syntax(faults)) => {
            let message = format!("{}\n{}", faults.join("\n"), reference::usage(&program).trim_end());
            return Err(Failure { code: 2, message });
        }
    };
    run(flags, &environment, machine)
}

fn run(flags: Flags, environment: &Environment, machine: &Machine) -> Result<Outcome, Failure> {
    let (settings, config) = read(&flags, environment, machine);
    match config {
        Some(config) if settings.report.mistakes.is_empty() => {
            Ok(Outcome::Run { config: Box::new(config), warnings: settings.report.notes })
        }
        _ => Err(fatal(&settings.report.mistakes.into_iter().map(|(_, line)| line).collect::<Vec<_>>())),
    }
}

/// Reads everything, whatever is wrong with it.
pub(super) fn read(flags: &Flags, environment: &Environment, machine: &Machine) -> (Settings, Option<super::Config>) {
    let mut settings = Settings::new();
    if !flags.ignored.is_empty() {
        let words = flags.ignored.join(" ");
        settings
            .report
            .say(Level::Warn, format!("ignored, since it stands behind the first argument that is no flag: {words}"));
    }
    let (name, properties) = match flags.cfg.as_deref().map(|cfg| file(cfg, environment)) {
        None => (Arc::from(""), Vec::new()),
        Some(Ok((name, properties))) => (Arc::from(name), properties),
        Some(Err(mistakes)) => {
            // The rest would be judged without what the file says.
            for mistake in mistakes {
                settings.report.mistakes.push((CFG, mistake));
            }
            (Arc::from(""), Vec::new())
        }
    };
    fill(&mut settings, flags, environment, &properties, &name);
    unknown(&mut settings, environment, &properties, &name);
    let broken = settings.report.mistakes.iter().any(|(key, _)| *key == CFG);
    let config = if broken { None } else { parts::build(&mut settings, environment, machine) };
    (settings, config)
}

/// The name of the file and what it says.
fn file(cfg: &str, environment: &Environment) -> Result<(String, Vec<Property>), Vec<String>> {
    let lookup = |name: &str| environment.get(name).map(str::to_owned);
    let place = properties::expand(cfg, lookup).map_err(|e| vec![format!("-cfg {cfg}: {e}")])?;
    let text = document::read(&place).map_err(|e| vec![e])?;
    let place = super::settings::redact(&place);
    match properties::parse(&text, lookup) {
        Ok(properties) => Ok((place, properties)),
        Err(mistakes) => Err(mistakes.into_iter().map(|mistake| format!("{place}: {mistake}")).collect()),
    }
}

/// Gives every option its value from the highest source that has one.
fn fill(settings: &mut Settings, flags: &Flags, environment: &Environment, properties: &[Property], name: &Arc<str>) {
    let by_row: HashMap<usize, (&str, &str)> =
        flags.values.iter().map(|(row, name, value)| (*row, (name.as_str(), value.as_str()))).collect();
    let by_key: HashMap<&str, &Property> = properties.iter().map(|p| (p.key.as_str(), p)).collect();
    for (row, spec) in OPTIONS.iter().enumerate() {
        let names = || std::iter::once(&spec.key).chain(spec.aliases);
        let found = None
            .or_else(|| {
                let (name, value) = by_row.get(&row)?;
                Some((*name, *value, Source::Flag((*name).to_owned())))
            })
            .or_else(|| {
                names().find_map(|key| {
                    let (variable, value) = environment.option(key)?;
                    Some((*key, value, Source::Variable(variable.to_owned())))
                })
            })
            .or_else(|| {
                names().find_map(|key| {
                    let property = by_key.get(key)?;
                    Some((*key, property.value.as_str(), Source::File { name: name.clone(), line: property.line }))
                })
            });
        let Some((written, text, source)) = found else { continue };
        settings.give(row, Given { text: text.to_owned(), source });
        doubts(settings, spec, names().find_map(|key| by_key.get(key)).copied(), written, name);
        if written != spec.key {
            settings.warn(spec.key, &format!("the name is {}, not {written}", spec.key));
        }
        match spec.status {
            Status::GoOnly => {
                let line = settings.describe(spec.key, "accepted; it means something only inside the Go runtime");
                settings.report.say(Level::Debug, line);
            }
            Status::Inert(why) => {
                let line = settings.describe(spec.key, &format!("accepted without effect: {why}"));
                settings.report.say(Level::Debug, line);
            }
            // In the words that people look for in the log.
            Status::Deprecated(instead) => {
                settings.report.say(Level::Warn, format!("{} has been deprecated. {instead}", spec.key))
            }
            Status::Dropped(instead) if !text.is_empty() => {
                settings.warn(spec.key, &format!("accepted without effect: {instead}"))
            }
            Status::Dropped(_) | Status::Built | Status::Secret | Status::Pending(_) => {}
        }
    }
}

/// What fabio says nothing about either, but is hardly meant. `property`: the one of the file, whether it counts or not.
fn doubts(settings: &mut Settings, spec: &'static Spec, property: Option<&Property>, written: &str, file: &str) {
    let Some(given) = settings.text(spec.key) else { return };
    let negative = matches!(spec.kind, Kind::Duration { .. }) && given.trim_start().starts_with('-');
    if negative && spec.key != "proxy.keepalivetimeout" && !settings.faulty(spec.key) {
        settings.warn(spec.key, "a negative time means the same as 0s; write 0s");
    }
    let Some(property) = property else { return };
    if !property.earlier.is_empty() {
        let lines: Vec<String> = property.earlier.iter().map(usize::to_string).collect();
        let line = format!(
            "{written} ({file}:{}): also stands in line {}; only the last one counts",
            property.line,
            lines.join(", ")
        );
        settings.report.say(Level::Warn, line);
    }
    if !property.undefined.is_empty() {
        let names: Vec<String> = property.undefined.iter().map(|name| format!("${{{name}}}")).collect();
        let what =
            if property.value.is_empty() { "the value is empty, since" } else { "a part of the value is empty:" };
        let line = format!(
            "{written} ({file}:{}): {what} nobody defines {}; set it in the environment or in the file",
            property.line,
            names.join(", ")
        );
        settings.report.say(Level::Warn, line);
    }
}

/// Names that nobody knows. They stop nothing, as in fabio, but are said.
fn unknown(settings: &mut Settings, environment: &Environment, properties: &[Property], name: &Arc<str>) {
    let known =
        |key: &str| OPTIONS.iter().any(|spec| spec.key == key || spec.aliases.contains(&key)) || DUMMIES.contains(&key);
    for property in properties.iter().filter(|p| !known(&p.key) && !p.referenced) {
        let reason = match GONE.iter().find(|(gone, _)| property.key == *gone) {
            Some((_, why)) => format!("no such option any more ({why}); it is ignored"),
            None => match nearest(&property.key) {
                Some(meant) => format!("unknown option is ignored; did you mean {meant}?"),
                None => "unknown option is ignored".to_owned(),
            },
        };
        settings.report.say(Level::Warn, format!("{} ({name}:{}): {reason}", property.key, property.line));
    }
    for (variable, meant) in environment.mistyped() {
        settings.report.say(
            Level::Warn,
            format!("environment variable {variable}: unknown option is ignored; did you mean {meant}?"),
        );
    }
}

fn unknown_subcommand(word: &str, subcommands: &[&str]) -> Failure {
    let list = if subcommands.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are: {}", subcommands.join(", "))
    };
    let hint = near(word, subcommands.iter().copied()).map(|s| format!(" Did you mean {s}?")).unwrap_or_default();
    let message = format!(
        "unknown subcommand {word:?}; {list}.{hint} Without a subcommand the first argument is a flag, as in -cfg FILE; -h lists the flags"
    );
    Failure { code: 2, message }
}

fn fatal(mistakes: &[String]) -> Failure {
    let message = match mistakes {
        [one] => format!("{VERSION}. {one}"),
        _ => format!("{VERSION}. {} mistakes in the configuration:\n  {}", mistakes.len(), mistakes.join("\n  ")),
    };
    Failure { code: 1, message }
}

/// The version and the language it was built with, in fabio's form.
fn version() -> String {
    format!("{VERSION} rust{}\n", env!("CARGO_PKG_RUST_VERSION"))
}

/// An error of the operating system, in small letters and without its number, as others in a log.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

const PROGRAM: &str = "ferrio";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The key of mistakes that the file itself has.
pub(super) const CFG: &str = "cfg";
