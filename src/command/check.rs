//! `ferrio check`: everything that is wrong with properties files and with text in the route language.

use serde_json::json;

use super::arguments::Arguments;
use super::columns::count;
use super::{Answer, Failure, surroundings};
use crate::config::{Config, Mistake, inspect, near};
use crate::registry::{Backend, place};
use crate::route::{Builder, Origin, Reject, Settings, TAG_OPTIONS, Table, nearest_option, parse_text, tag_option};

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    let mut files = arguments.values("cfg");
    while let Some(file) = arguments.next() {
        files.push(file);
    }
    arguments.done()?;
    let routes = arguments.values("routes");
    let flags = arguments.behind();
    let mut report = Report { text_only: arguments.has("text"), ..Report::default() };
    let mut settings = Settings::default();
    if files.is_empty() && (routes.is_empty() || !flags.is_empty()) {
        // The environment alone may be what is asked about.
        settings = report.properties(None, flags);
    }
    for file in &files {
        settings = report.properties(Some(file), flags);
    }
    for file in &routes {
        report.routes(file, &settings);
    }
    let text = if arguments.has("json") { report.json() } else { report.text() };
    let counted = arguments.has("strict") && !report.warnings.is_empty();
    let good = report.mistakes.is_empty() && !counted;
    Ok(Answer { text, good })
}

#[derive(Default)]
struct Report {
    mistakes: Vec<Mistake>,
    warnings: Vec<String>,
    /// What was looked at, in words.
    checked: Vec<String>,
    /// Of `proxy.auth`; `None`: there is no configuration that could have any.
    schemes: Option<Vec<String>>,
    /// Nothing but the text is looked at.
    text_only: bool,
}

impl Report {
    /// Gives what decides how routes are read.
    fn properties(&mut self, file: Option<&str>, flags: &[String]) -> Settings {
        let cfg = file.map(|file| vec!["-cfg".to_owned(), file.to_owned()]).unwrap_or_default();
        let found = inspect(cfg.into_iter().chain(flags.iter().cloned()), std::env::vars_os());
        self.checked.push(file.unwrap_or("flags and environment").to_owned());
        self.mistakes.extend(found.mistakes.iter().cloned());
        self.warnings.extend(found.warnings.iter().cloned());
        let Some(config) = &found.config else { return Settings::default() };
        if !self.text_only {
            let surroundings = surroundings::look(config);
            self.mistakes.extend(surroundings.mistakes.iter().map(|(key, reason)| found.mistake(key, reason)));
            self.warnings.extend(surroundings.warnings.iter().map(|(key, reason)| found.describe(key, reason)));
        }
        self.schemes = Some(config.auth.schemes.iter().map(|scheme| scheme.name.clone()).collect());
        self.backend(config);
        config.registry.settings.clone()
    }

    /// Routes that stand in the configuration, or in a file that it names.
    fn backend(&mut self, config: &Config) {
        match &config.registry.backend {
            Backend::Static { routes, .. } => {
                self.language(routes, |line| Origin::Static { line }, &config.registry.settings);
            }
            Backend::File { path, .. } => {
                if let Some(path) = path.to_str() {
                    self.routes(path, &config.registry.settings);
                }
            }
            Backend::Consul(_) | Backend::Custom(_) => {}
        }
    }

    fn routes(&mut self, path: &str, settings: &Settings) {
        self.checked.push(path.to_owned());
        match std::fs::read_to_string(path) {
            Ok(text) => self.language(&text, |line| Origin::File { path: path.into(), line }, settings),
            Err(error) => {
                let mistake = Mistake { file: Some(path.to_owned()), ..Mistake::default() };
                self.mistakes.push(Mistake { text: format!("{path}: cannot be read: {error}"), ..mistake });
            }
        }
    }

    fn language(&mut self, text: &str, origin: impl Fn(u32) -> Origin, settings: &Settings) {
        let parsed = parse_text(text, origin);
        let mut builder = Builder::new(settings.clone());
        builder.manual(parsed.entries);
        let built = builder.build();
        for reject in parsed.rejects.iter().chain(&built.rejects) {
            let mistake = mistake(reject);
            if reject.advice {
                self.warnings.push(mistake.text);
            } else {
                self.mistakes.push(mistake);
            }
        }
        self.unknown_schemes(&built.table);
        self.unknown_options(&built.table);
    }

    /// They change nothing, as in fabio, which is seldom what was meant.
    fn unknown_options(&mut self, table: &Table) {
        for route in table.routes() {
            let names = route.targets.iter().flat_map(|target| target.options.raw.keys());
            // What one is a slip away from was told with its tag or line.
            for name in names.filter(|name| tag_option(name).is_none() && nearest_option(name).is_none()) {
                let known = TAG_OPTIONS.iter().map(|option| option.name);
                let hint = near(name, known).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
                let line = format!("route {}{}: {name} is no option and changes nothing{hint}", route.host, route.path);
                if !self.warnings.contains(&line) {
                    self.warnings.push(line);
                }
            }
        }
    }

    /// Routes that stay closed, since nobody can say who may use them.
    fn unknown_schemes(&mut self, table: &Table) {
        let Some(known) = &self.schemes else { return };
        let is_known = |names: &str| {
            known.iter().any(|name| name == names)
                || names.split([',', '+']).all(|name| known.iter().any(|known| known == name.trim()))
        };
        for route in table.routes() {
            for names in route.targets.iter().filter_map(|target| target.options.auth.as_deref()) {
                if !is_known(names) {
                    let line = format!(
                        "route {}{}: auth={names} names a scheme that proxy.auth does not have, so nobody is let in",
                        route.host, route.path
                    );
                    if !self.warnings.contains(&line) {
                        self.warnings.push(line);
                    }
                }
            }
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for mistake in &self.mistakes {
            out.push_str(&format!("error: {}\n", super::columns::plain(&mistake.text)));
        }
        for warning in &self.warnings {
            out.push_str(&format!("warning: {}\n", super::columns::plain(warning)));
        }
        let what = self.checked.join(", ");
        let warnings = if self.warnings.is_empty() {
            String::new()
        } else {
            format!(", {}", count(self.warnings.len(), "warning"))
        };
        match self.mistakes.len() {
            0 => out.push_str(&format!("{what}: good{warnings}\n")),
            n => out.push_str(&format!("{what}: {}{warnings}\n", count(n, "mistake"))),
        }
        out
    }

    fn json(&self) -> String {
        let mistakes: Vec<_> = self
            .mistakes
            .iter()
            .map(|m| json!({ "key": m.key, "file": m.file, "line": m.line, "text": m.text }))
            .collect();
        let all = json!({ "good": mistakes.is_empty(), "checked": self.checked, "mistakes": mistakes, "warnings": self.warnings });
        format!("{all:#}\n")
    }
}

fn mistake(reject: &Reject) -> Mistake {
    let (key, file, line) = match &reject.origin {
        Origin::File { path, line } => (None, Some(path.to_string()), Some(*line as usize)),
        Origin::Static { line } => (Some("registry.static.routes"), None, Some(*line as usize)),
        _ => (None, None, None),
    };
    Mistake { key, file, line, text: format!("{}: {:?}: {}", place(&reject.origin), reject.text, reject.reason) }
}
