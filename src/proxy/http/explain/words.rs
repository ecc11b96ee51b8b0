//! The answer in sentences.

use http::StatusCode;

use super::Fate;
use crate::route::{Access, Candidate, Choice, Explanation, HostOption, Outcome, Route, Target, tag_option};

impl Explanation {
    pub(super) fn answered(&mut self, status: StatusCode, reason: &str) {
        self.outcome = Outcome::Answered;
        self.status = Some(status.as_u16());
        self.summary = format!("ferrio answers {} by itself: {reason}.", status.as_u16());
    }

    pub(super) fn take(&mut self, at: usize, route: &Route, candidate: &Candidate, fates: &[Fate]) {
        let place = place(route);
        self.chosen = Some(at);
        let real: Vec<&Fate> = fates.iter().filter(|fate| **fate != Fate::Loop).collect();
        let served: Vec<&Fate> = real.iter().copied().filter(|fate| **fate != Fate::Denied).collect();
        let usable: Vec<&Choice> = candidate.targets.iter().filter(|target| target.share > 0.0).collect();
        let login = usable.first().and_then(|target| target.auth.as_ref());
        let login = login.map(|names| format!(", once {names} lets the client in")).unwrap_or_default();
        let (outcome, status, summary) = match served.first() {
            None => {
                let line = format!("Route {place} is taken, and its access rules keep this client out: 403.");
                (Outcome::Denied, Some(StatusCode::FORBIDDEN.as_u16()), line)
            }
            Some(Fate::Own(status, reason)) => {
                let line = format!("Route {place} is taken, and ferrio answers {} itself: {reason}.", status.as_u16());
                (Outcome::Answered, Some(status.as_u16()), line)
            }
            Some(Fate::Redirect(code, location)) => {
                (Outcome::Redirect, Some(*code), format!("Route {place} redirects to {location}{login}."))
            }
            Some(_) => {
                let to = match (served.len(), usable.first()) {
                    (1, Some(only)) if usable.len() == 1 => format!("to {} of {}", only.destination, only.service),
                    (n, _) => format!("to one of {n} targets by their shares"),
                };
                (Outcome::Forward, None, format!("Route {place} sends it {to}{login}."))
            }
        };
        (self.outcome, self.status, self.summary) = (outcome, status, summary);
        if real.len() < fates.len() {
            self.summary
                .push_str(" A part of its targets redirects to the same URL; their share goes to the next route.");
        }
    }
}

pub(super) fn place(route: &Route) -> String {
    format!("{}{}", route.host, route.path)
}

pub(super) fn notes(target: &Target, permitted: Option<bool>) -> Vec<String> {
    let options = &*target.options;
    let mut notes = Vec::new();
    if let Some(datacenter) = &target.datacenter {
        notes.push(format!("of the datacenter {}, asked while nobody before it can be", datacenter.name));
    }
    match (&options.access, permitted) {
        (Access::Everyone, _) => {}
        (Access::Nobody, _) => notes.push("its access rules cannot be read, so nobody is let in".to_owned()),
        (_, Some(true)) => notes.push("its access rules let this client in".to_owned()),
        (_, Some(false)) => notes.push("its access rules keep this client out".to_owned()),
        (_, None) => notes.push("whether the client is let in depends on its address (allow, deny)".to_owned()),
    }
    if let Some(names) = &options.auth {
        notes.push(format!("asks who the client is: auth={names}"));
    }
    if let Some(prefix) = &options.strip {
        notes.push(format!("takes {prefix} off the path"));
    }
    if options.rewrite.is_some() {
        notes.push("changes the path by an expression (replace, rewrite)".to_owned());
    }
    if let Some(prefix) = &options.prepend {
        notes.push(format!("puts {prefix} before the path"));
    }
    match &options.host {
        Some(HostOption::Destination) => notes.push(format!("sends Host: {}", target.destination.authority)),
        Some(HostOption::Name(name)) => notes.push(format!("sends Host: {name}")),
        None => {}
    }
    if options.limits.as_ref().is_some_and(|limits| limits.rate.is_some()) {
        notes.push("takes only so many requests (rate)".to_owned());
    }
    if options.tls_skip_verify {
        notes.push("does not verify the certificate of the target".to_owned());
    }
    for name in options.raw.keys().filter(|name| tag_option(name).is_none()) {
        notes.push(format!("{name} is no option and changes nothing"));
    }
    if target.share == 0.0 {
        notes.push("gets no requests: weight 0".to_owned());
    }
    notes
}
