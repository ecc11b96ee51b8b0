//! The command line by the rules of Go's flag package, which clap's differ from: one dash or two, a truth value never takes
//! the next argument, the first argument that is no flag ends them all.

use super::kind::{Kind, Refusal};
use super::options::{OPTIONS, find, find_alias};
use super::suggest::nearest;

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Run(Flags),
    Help,
    Version,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Row of the table, the name as it was written, the value. In order; the last of a row counts.
    pub(crate) values: Vec<(usize, String, String)>,
    /// `-cfg`; `None`: no file.
    pub(crate) cfg: Option<String>,
    /// Words behind the flags.
    pub(crate) ignored: Vec<String>,
}

/// Why the arguments are refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `-cfg` without a path. fabio ends with 1 here.
    Cfg,
    /// Everything else ends with 2.
    Syntax(Vec<String>),
}

/// Reads the arguments behind the name of the program.
pub(crate) fn parse(arguments: &[String]) -> Result<Parsed, Fault> {
    let (rest, cfg) = match scan(arguments)? {
        Scanned::Version => return Ok(Parsed::Version),
        Scanned::Rest(rest, cfg) => (rest, cfg),
    };
    let mut flags = Flags { cfg, ..Flags::default() };
    let mut faults = Vec::new();
    let mut rest = rest.into_iter();
    while let Some(argument) = rest.next() {
        let Some(name) = argument.strip_prefix('-').filter(|name| !name.is_empty()) else {
            flags.ignored = std::iter::once(argument).chain(rest).collect();
            break;
        };
        if name == "-" {
            flags.ignored = rest.collect();
            break;
        }
        let name = name.strip_prefix('-').unwrap_or(name);
        if name.starts_with(['-', '=']) {
            faults.push(format!("bad flag syntax: {argument}"));
            break;
        }
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        if matches!(name, "v" | "version") {
            match super::number::boolean(value.as_deref().unwrap_or("true")) {
                Some(true) => return Ok(Parsed::Version),
                Some(false) => continue,
                None => {
                    faults.push(format!(
                        "invalid boolean value {:?} for -{name}: parse error",
                        value.unwrap_or_default()
                    ));
                    continue;
                }
            }
        }
        let Some(row) = find(name).or_else(|| find_alias(name)) else {
            if matches!(name, "h" | "help") {
                return Ok(Parsed::Help);
            }
            let hint = nearest(name).map(|key| format!(" (did you mean -{key}?)")).unwrap_or_default();
            faults.push(format!("flag provided but not defined: -{name}{hint}"));
            // Whether the next argument is its value cannot be known.
            break;
        };
        let spec = &OPTIONS[row];
        let value = match (value, spec.kind) {
            (Some(value), _) => value,
            (None, Kind::Bool) => "true".to_owned(),
            (None, _) => match rest.next() {
                Some(value) => value,
                None => {
                    faults.push(format!("flag needs an argument: -{name}"));
                    break;
                }
            },
        };
        match spec.kind.read(spec.key, &value) {
            Err(Refusal::Syntax(reason)) => {
                let what = if spec.kind == Kind::Bool { "invalid boolean value" } else { "invalid value" };
                let flag = if spec.kind == Kind::Bool { "" } else { "flag " };
                faults.push(format!("{what} {value:?} for {flag}-{name}: parse error: {reason}"));
            }
            // What is out of bounds is a mistake in the configuration, found with the others.
            Ok(_) | Err(Refusal::Bounds(_)) => flags.values.push((row, name.to_owned(), value)),
        }
    }
    if faults.is_empty() { Ok(Parsed::Run(flags)) } else { Err(Fault::Syntax(faults)) }
}

enum Scanned {
    Version,
    Rest(Vec<String>, Option<String>),
}

/// Looks for the version flags and `-cfg`, which count wherever they stand.
fn scan(arguments: &[String]) -> Result<Scanned, Fault> {
    let (mut rest, mut cfg) = (Vec::with_capacity(arguments.len()), None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-v" | "-version" | "--version" => return Ok(Scanned::Version),
            "-cfg" | "--cfg" => {
                let path = arguments.next().ok_or(Fault::Cfg)?;
                cfg = Some(path.clone()).filter(|path| !path.is_empty());
            }
            a => match a.strip_prefix("--cfg=").or_else(|| a.strip_prefix("-cfg=")) {
                Some(path) => {
                    let quote = path.chars().next().filter(|c| matches!(c, '\'' | '"'));
                    let path = quote.map_or(path, |quote| path.trim_matches(quote));
                    if path.is_empty() {
                        return Err(Fault::Cfg);
                    }
                    cfg = Some(path.to_owned());
                }
                None if a.starts_with("-test.") => {}
                None => rest.push(argument.clone()),
            },
        }
    }
    Ok(Scanned::Rest(rest, cfg))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Parsed, Fault> {
        let arguments: Vec<String> = line.split('|').filter(|_| !line.is_empty()).map(str::to_owned).collect();
        parse(&arguments)
    }

    /// `key=value ... [cfg] (ignored)`
    fn print(line: &str) -> String {
        match parsed(line) {
            Ok(Parsed::Run(flags)) => {
                let values = flags.values.iter().map(|(row, _, value)| format!("{}={value}", OPTIONS[*row].key));
                let cfg = flags.cfg.map(|path| format!("[{path}]"));
                let ignored = Some(format!("({})", flags.ignored.join(" "))).filter(|_| !flags.ignored.is_empty());
                values.chain(cfg).chain(ignored).collect::<Vec<_>>().join(" ")
            }
            Ok(Parsed::Help) => "help".to_owned(),
            Ok(Parsed::Version) => "version".to_owned(),
            Err(Fault::Cfg) => "cfg".to_owned(),
            Err(Fault::Syntax(faults)) => faults.join(" & "),
        }
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        for (line, want) in [
            ("", ""),
            ("-proxy.addr|:80", "proxy.addr=:80"),
            ("--proxy.addr=:80", "proxy.addr=:80"),
            ("-proxy.addr=", "proxy.addr="),
            ("-proxy.addr|", "proxy.addr="),
            ("-ui.title|-x", "ui.title=-x"),
            ("-ui.title=a=b", "ui.title=a=b"),
            ("-ui.title|a|-ui.title|b", "ui.title=a ui.title=b"),
            ("-insecure", "insecure=true"),
            ("-insecure=0", "insecure=0"),
            ("-insecure|false|-ui.title|x", "insecure=true (false -ui.title x)"),
            ("-ui.title|T|word|-no.such", "ui.title=T (word -no.such)"),
            ("-|-ui.title|x", "(- -ui.title x)"),
            ("--|-ui.title|x", "(-ui.title x)"),
            ("-h", "help"),
            ("--help", "help"),
            ("-insecure|-help", "help"),
            ("-v", "version"),
            ("-version", "version"),
            ("--version", "version"),
            ("-ui.title|-v", "version"),
            ("-no.such|x|-v", "version"),
            ("--v", "version"),
            ("-v=true", "version"),
            ("-version=false", ""),
            ("-test.run|-test.v=true", ""),
            ("-registry.consul.pollInterval|1s", "registry.consul.pollinterval=1s"),
            ("-proxy.strategy|random", "proxy.strategy=random"),
        ] {
            assert_eq!(print(line), want, "{line}");
        }
    }

    #[test]
    fn the_file_may_be_named_in_many_ways() {
        for (line, want) in [
            ("-cfg|/x", "[/x]"),
            ("--cfg|/x", "[/x]"),
            ("-cfg=/x", "[/x]"),
            ("--cfg=/x", "[/x]"),
            ("-cfg='/x'", "[/x]"),
            ("-cfg=\"/x\"", "[/x]"),
            ("-cfg=''/x''", "[/x]"),
            ("-cfg|'/x'", "['/x']"),
            ("-ui.title|a|-cfg|/x|-ui.color|b", "ui.title=a ui.color=b [/x]"),
            ("-cfg|/x|-cfg|/y", "[/y]"),
            ("-cfg|", ""),
            ("-cfg", "cfg"),
            ("-cfg=", "cfg"),
            ("-cfg=''", "cfg"),
            ("-cfg=\"\"", "cfg"),
            ("-cfg='", "cfg"),
        ] {
            assert_eq!(print(line), want, "{line}");
        }
    }

    #[test]
    fn mistakes_are_worded_as_in_go() {
        for (line, want) in [
            ("-no.such.flag|x", "flag provided but not defined: -no.such.flag"),
            ("-proxy.adr|x", "flag provided but not defined: -proxy.adr (did you mean -proxy.addr?)"),
            ("-proxy.maxconn|x", "invalid value \"x\" for flag -proxy.maxconn: parse error"),
            ("-proxy.dialtimeout|5", "invalid value \"5\" for flag -proxy.dialtimeout: parse error"),
            ("-insecure=maybe", "invalid boolean value \"maybe\" for -insecure: parse error"),
            ("-v=maybe", "invalid boolean value \"maybe\" for -v: parse error"),
            ("-proxy.addr", "flag needs an argument: -proxy.addr"),
            ("---proxy.addr", "bad flag syntax: ---proxy.addr"),
            ("-=x", "bad flag syntax: -=x"),
        ] {
            let got = print(line);
            assert!(got.starts_with(want), "{line}: {got}");
        }
        let two = print("-proxy.maxconn|x|-registry.timeout|soon");
        assert!(two.contains("proxy.maxconn") && two.contains("registry.timeout"), "{two}");
    }
}
