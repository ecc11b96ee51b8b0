//! A look at a configuration without starting anything: every value with its source, and all that is wrong.

use std::ffi::OsString;

use super::environment::Environment;
use super::flags::{self, Fault, Flags, Parsed};
use super::loader::{self, CFG};
use super::options::OPTIONS;
use super::parts::Machine;
use super::settings::Source;
use super::{Config, Effective, Level, effective};

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Every option, in the order of the reference.
    pub options: Vec<Effective>,
    pub mistakes: Vec<Mistake>,
    /// What would be logged at start, from the level warn on.
    pub warnings: Vec<String>,
    /// What would run if there were no mistakes; `None`: a part of it cannot be told.
    pub config: Option<Box<Config>>,
}

impl Inspection {
    /// A sentence about an option as all others are: `key = "value" (source): reason`.
    pub fn describe(&self, key: &str, reason: &str) -> String {
        match self.options.iter().find(|option| option.key == key) {
            Some(option) => format!("{key} = {:?} ({}): {reason}", option.value, option.source),
            None => format!("{key}: {reason}"),
        }
    }

    /// As [`describe`](Self::describe), for something that would keep a start from succeeding.
    pub fn mistake(&self, key: &'static str, reason: &str) -> Mistake {
        let source = self.options.iter().find(|option| option.key == key).map(|option| option.source.as_str());
        let place = source.and_then(|source| source.rsplit_once(':')).map(|(file, line)| (file, line.parse().ok()));
        let (file, line) = match place {
            Some((file, Some(line))) => (Some(file.to_owned()), Some(line)),
            _ => (None, None),
        };
        Mistake { key: Some(key), file, line, text: self.describe(key, reason) }
    }
}

/// Something that is wrong, and keeps ferrio from starting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistake {
    /// `None`: it is about the file or the command line as a whole.
    pub key: Option<&'static str>,
    pub file: Option<String>,
    /// Counted from 1.
    pub line: Option<usize>,
    /// The whole sentence: key, value, place, what is wrong, and what to write.
    pub text: String,
}

/// Reads flags (without the name of the program), variables and the file, as a start would.
pub fn inspect(
    arguments: impl IntoIterator<Item = String>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Inspection {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let environment = Environment::new(environment);
    let flags = match flags::parse(&arguments) {
        Ok(Parsed::Run(flags)) => flags,
        Ok(Parsed::Help | Parsed::Version) => Flags::default(),
        Err(Fault::Cfg) => return only("-cfg needs the path or the URL of a file; write -cfg FILE"),
        Err(Fault::Syntax(faults)) => {
            let mistakes = faults.into_iter().map(|text| Mistake { text, ..Mistake::default() }).collect();
            return Inspection { mistakes, ..Inspection::default() };
        }
    };
    let (settings, config) = loader::read(&flags, &environment, &Machine::this());
    let place = |key: &str| match OPTIONS.iter().position(|spec| spec.key == key).map(|row| settings.shown(row).1) {
        Some(Source::File { name, line }) => (Some(name.to_string()), Some(*line)),
        _ => (None, None),
    };
    let mistakes: Vec<Mistake> = settings
        .report
        .mistakes
        .iter()
        .map(|(key, text)| {
            let (file, line) = if *key == CFG { in_file(text) } else { place(key) };
            Mistake { key: Some(*key).filter(|key| *key != CFG), file, line, text: text.clone() }
        })
        .collect();
    let warnings =
        settings.report.notes.iter().filter(|(level, _)| *level >= Level::Warn).map(|(_, text)| text.clone());
    Inspection {
        options: effective::effective(&settings),
        warnings: warnings.collect(),
        config: config.map(Box::new),
        mistakes,
    }
}

fn only(text: &str) -> Inspection {
    Inspection { mistakes: vec![Mistake { text: text.to_owned(), ..Mistake::default() }], ..Inspection::default() }
}

/// The place in a sentence about a file: `FILE: properties: Line N: ...`
fn in_file(text: &str) -> (Option<String>, Option<usize>) {
    let Some((file, rest)) = text.split_once(": properties: ") else { return (None, None) };
    let line = rest.strip_prefix("Line ").and_then(|rest| rest.split(':').next()?.parse().ok());
    (Some(file.to_owned()), line)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(arguments: &[&str], environment: &[(&str, &str)]) -> Inspection {
        let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        inspect(arguments.iter().map(|text| (*text).to_owned()), environment.collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn every_value_has_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.properties");
        std::fs::write(&file, "# one\nproxy.strategy = rr\nregistry.consul.token = s3cret\n").unwrap();
        let file = file.to_str().unwrap();
        let found = of(&["-cfg", file, "-proxy.maxconn=5"], &[("FABIO_UI_TITLE", "t")]);
        assert_eq!(found.mistakes, []);
        assert!(found.config.is_some());
        let row = |key: &str| {
            let option = found.options.iter().find(|option| option.key == key).unwrap();
            (option.value.clone(), option.source.clone(), option.default)
        };
        assert_eq!(row("proxy.strategy"), ("rr".into(), format!("{file}:2"), false));
        assert_eq!(row("proxy.maxconn"), ("5".into(), "flag -proxy.maxconn".into(), false));
        assert_eq!(row("ui.title"), ("t".into(), "environment variable FABIO_UI_TITLE".into(), false));
        assert_eq!(row("registry.consul.token").0, "<redacted>");
        assert_eq!(row("proxy.matcher"), ("prefix".into(), "default".into(), true));
        assert_eq!(found.options.len(), OPTIONS.len());
    }

    #[test]
    fn all_mistakes_are_found_with_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.properties");
        std::fs::write(&file, "proxy.strategy = no\n\nproxy.matcher = no\nproxy.strateg = rr\n").unwrap();
        let file = file.to_str().unwrap();
        let found = of(&["-cfg", file, "-proxy.noroutestatus=7"], &[]);
        let places: Vec<_> = found.mistakes.iter().map(|m| (m.key.unwrap(), m.file.as_deref(), m.line)).collect();
        for want in [
            ("proxy.strategy", Some(file), Some(1)),
            ("proxy.matcher", Some(file), Some(3)),
            ("proxy.noroutestatus", None, None),
        ] {
            assert!(places.contains(&want), "{want:?} in {places:?}");
        }
        assert!(found.warnings.iter().any(|text| text.contains("proxy.strategy?")), "{:?}", found.warnings);

        std::fs::write(file, "a = 1\nb = ${b}${\n").unwrap();
        let found = of(&["-cfg", file], &[]);
        let first = &found.mistakes[0];
        assert_eq!((first.key, first.file.as_deref(), first.line), (None, Some(file), Some(2)), "{}", first.text);
        assert!(of(&["-cfg"], &[]).mistakes[0].text.contains("-cfg"));
        assert!(of(&["-nonsense"], &[]).mistakes[0].text.contains("-nonsense"));
        let missing = of(&["-cfg", "/nowhere/at/all"], &[]);
        assert_eq!(missing.mistakes.len(), 1);
    }
}
