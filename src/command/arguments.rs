//! Words behind the name of a command: flags with one dash or two, in any place, and the rest.

use std::collections::VecDeque;

use super::Failure;

/// The words that are not taken yet.
pub(super) struct Arguments {
    flags: Vec<(String, String)>,
    rest: VecDeque<String>,
    /// Behind `--`.
    behind: Vec<String>,
    mistake: Option<String>,
    help: bool,
}

impl Arguments {
    pub(super) fn new(words: impl Iterator<Item = String>, known: &[(&str, &str, &str)]) -> Self {
        let mut found =
            Self { flags: Vec::new(), rest: VecDeque::new(), behind: Vec::new(), mistake: None, help: false };
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                found.behind = words.collect();
                break;
            }
            // A single dash is a file name.
            let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                found.rest.push_back(word);
                continue;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if matches!(name, "h" | "help") {
                found.help = true;
                continue;
            }
            let Some((_, takes, _)) = known.iter().find(|(known, ..)| *known == name) else {
                found.mistake.get_or_insert(format!("there is no flag {word}"));
                break;
            };
            let value = match (takes.is_empty(), value) {
                (true, None) => String::new(),
                (true, Some(_)) => {
                    found.mistake.get_or_insert(format!("--{name} takes no value"));
                    break;
                }
                (false, Some(value)) => value,
                (false, None) => match words.next() {
                    Some(value) => value,
                    None => {
                        found.mistake.get_or_insert(format!("--{name} needs a value: --{name} {takes}"));
                        break;
                    }
                },
            };
            found.flags.push((name.to_owned(), value));
        }
        found
    }

    pub(super) fn help(&self) -> bool {
        self.help
    }

    /// Whether the flag is there.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(name, _)| name == flag)
    }

    /// The value of a flag, the last one if it is there several times.
    pub(super) fn value(&self, flag: &str) -> Option<&str> {
        self.flags.iter().rev().find(|(name, _)| name == flag).map(|(_, value)| value.as_str())
    }

    pub(super) fn values(&self, flag: &str) -> Vec<String> {
        self.flags.iter().filter(|(name, _)| name == flag).map(|(_, value)| value.clone()).collect()
    }

    /// The next word that is no flag.
    pub(super) fn next(&mut self) -> Option<String> {
        self.rest.pop_front()
    }

    /// What stands behind `--`.
    pub(super) fn behind(&self) -> &[String] {
        &self.behind
    }

    /// To be called once everything is taken.
    pub(super) fn done(&self) -> Result<(), Failure> {
        if let Some(mistake) = &self.mistake {
            return Err(Failure::Usage(mistake.clone()));
        }
        match self.rest.front() {
            Some(word) => Err(Failure::Usage(format!("{word:?} is one word too many"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[(&str, &str, &str)] = &[("json", "", ""), ("cfg", "FILE", "")];

    fn read(text: &str) -> Arguments {
        Arguments::new(text.split_whitespace().map(str::to_owned), KNOWN)
    }

    #[test]
    fn flags_may_stand_anywhere() {
        let mut found = read("a -cfg x --json b --cfg=y -- -proxy.addr :1");
        assert_eq!((found.value("cfg"), found.has("json"), found.help()), (Some("y"), true, false));
        assert_eq!(found.values("cfg"), ["x", "y"]);
        assert_eq!((found.next().as_deref(), found.next().as_deref(), found.next()), (Some("a"), Some("b"), None));
        assert_eq!(found.behind(), ["-proxy.addr", ":1"]);
        assert_eq!(found.done(), Ok(()));
        assert!(read("-h").help() && read("--help").help());
    }

    #[test]
    fn mistakes_are_said() {
        for (text, want) in [
            ("--jso", "no flag --jso"),
            ("--json=1", "takes no value"),
            ("--cfg", "needs a value: --cfg FILE"),
            ("a", "\"a\" is one word too many"),
        ] {
            let Err(Failure::Usage(said)) = read(text).done() else { panic!("{text} is taken") };
            assert!(said.contains(want), "{text}: {said}");
        }
    }
}
