//! What services may claim: rules of an operator that bind services to hosts and paths (`registry.consul.allow`).
//!
//! Tags are written by whoever registers a service. With rules, a tag that claims what no rule gives its service is a
//! reject; without any, everybody may claim everything. The service's name is believed: who may use it is for the access
//! control of Consul.

use super::{Command, Entry, Parsed, Reject, Source, excerpt};

/// No rules: everything is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// A name, or a pattern with `*` for any characters.
    service: String,
    claims: Vec<Claim>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    host: Host,
    /// And what is below it. Empty or `/`: every path.
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    /// May be empty, for routes of every host, or a port such as `:1234`.
    Exact(String),
    /// With its leading dot: every host that ends so.
    Below(String),
}

impl Allow {
    /// Reads rules: a service, then what it may claim, with blanks between them, as in `shop-* shop.example.com/
    /// *.shop.example.com/ /shop`.
    pub fn parse<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        rules.into_iter().map(rule).collect::<Result<_, _>>().map(Self)
    }

    /// Turns what is not allowed into rejects.
    pub fn apply(&self, parsed: Parsed) -> Parsed {
        if self.0.is_empty() {
            return parsed;
        }
        let Parsed { entries, mut rejects } = parsed;
        let entries = entries.into_iter().filter(|entry| match self.refusal(entry) {
            None => true,
            Some(why) => {
                rejects.push(Reject::new(entry.origin.clone(), &entry.command.to_string(), why));
                false
            }
        });
        let entries = entries.collect();
        Parsed { entries, rejects }
    }

    fn refusal(&self, entry: &Entry) -> Option<String> {
        let Command::Add(add) = &entry.command else { return None };
        if self.may(&add.service, &add.source) {
            return None;
        }
        let own: Vec<String> = self.rules_of(&add.service).flat_map(|rule| &rule.claims).map(Claim::text).collect();
        let own = if own.is_empty() { "nothing".to_owned() } else { own.join(", ") };
        let holders = self.0.iter().filter(|rule| rule.claims.iter().any(|claim| claim.holds(&add.source)));
        let holders: Vec<&str> = holders.map(|rule| rule.service.as_str()).take(NAMED).collect();
        let held = match holders.as_slice() {
            [] => String::new(),
            holders => format!("; {} is for {}", excerpt(&add.source.to_string()), holders.join(", ")),
        };
        Some(format!("registry.consul.allow lets {} claim {}{held}", excerpt(&add.service), excerpt(&own)))
    }

    fn may(&self, service: &str, source: &Source) -> bool {
        self.rules_of(service).any(|rule| rule.claims.iter().any(|claim| claim.holds(source)))
    }

    fn rules_of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a Rule> {
        self.0.iter().filter(move |rule| fits(&rule.service, service))
    }
}

impl Claim {
    fn holds(&self, source: &Source) -> bool {
        let below = match self.path.as_str() {
            "" | "/" => true,
            path => source.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        };
        below && self.host.holds(&source.host)
    }

    fn text(&self) -> String {
        match &self.host {
            Host::Any => format!("*{}", self.path),
            Host::Exact(host) => format!("{host}{}", self.path),
            Host::Below(end) => format!("*{end}{}", self.path),
        }
    }
}

impl Host {
    /// A host in a tag may be a pattern: it is allowed if all that it can fit is.
    fn holds(&self, host: &str) -> bool {
        let bare = without_port(host);
        match self {
            Host::Any => true,
            Host::Exact(exact) => host == exact || (!bare.is_empty() && bare == exact),
            // A star is fine before the end that counts. Lists and classes could hide another end.
            Host::Below(end) => bare.len() > end.len() && bare.ends_with(end.as_str()) && !bare.contains(CLASSES),
        }
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    let mut words = text.split_whitespace();
    let service = words.next().ok_or("a rule is empty")?.to_owned();
    let claims = words.map(claim).collect::<Result<Vec<_>, _>>()?;
    if claims.is_empty() {
        return Err(format!(
            "the rule {text:?} gives nothing; write what the service may claim behind it: host/path, *.host/path, /path or *"
        ));
    }
    Ok(Rule { service, claims })
}

fn claim(text: &str) -> Result<Claim, String> {
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    // A last slash says nothing: what is below a path is meant anyway.
    let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    let host = host.to_lowercase();
    let host = match (host.as_str(), host.strip_prefix('*')) {
        ("*", _) => Host::Any,
        (_, Some(end)) if end.starts_with('.') && end.len() > 1 && !end.contains('*') && !end.contains(CLASSES) => {
            Host::Below(end.to_owned())
        }
        (_, None) if !host.contains('*') && (!host.contains(CLASSES) || host.starts_with('[')) => Host::Exact(host),
        _ => {
            return Err(format!(
                "{text:?} is nothing that can be claimed; write host/path, *.host/path, /path, :port or *"
            ));
        }
    };
    if path.contains('*') {
        return Err(format!("{text:?}: a path has no star; all that is below it is meant anyway"));
    }
    Ok(Claim { host, path: path.to_owned() })
}

/// Unless it is a port alone, or the address of an IPv6 host ends with what looks like one.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((bare, port)) if !bare.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => bare,
        _ => host,
    }
}

/// `*` stands for any characters. Linear in both but for the last star, so no name takes long.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

/// Of patterns for hosts.
const CLASSES: [char; 7] = ['{', '}', '[', ']', '?', '\\', ','];
/// Services of rules that a reject names.
const NAMED: usize = 5;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::{Instance, parse_tags};

    #[test]
    fn who_may_claim_what() {
        let rules = ["shop-* shop.example.com/ *.shop.example.com /shop", "pay pay.example.com/v1/ :1234", "admin *"];
        let allow = Allow::parse(rules).unwrap();
        for (service, source, may) in [
            ("shop-web", "shop.example.com/", true),
            ("shop-web", "Shop.Example.com/cart", true),
            ("shop-web", "shop.example.com:8443/cart", true),
            ("shop-web", "a.shop.example.com/", true),
            ("shop-web", "*.shop.example.com/", true),
            ("shop-web", "*.a.shop.example.com/x", true),
            ("shop-web", "*shop.example.com/", false),
            ("shop-web", "evilshop.example.com/", false),
            ("shop-web", "{evil.com,a.shop.example.com}/", false),
            ("shop-web", "evil.com?.shop.example.com/", false),
            ("shop-web", ".shop.example.com/", false),
            ("shop-web", "/shop", true),
            ("shop-web", "/shop/cart", true),
            ("shop-web", "/shopping", false),
            ("shop-web", "/shop*", false),
            ("shop-web", "/Shop", false),
            ("shop-web", "/", false),
            ("shop-web", "pay.example.com/v1", false),
            ("shop-web", "*/", false),
            ("shop-", "/shop", true),
            ("shop", "/shop", false),
            ("my-shop-web", "/shop", false),
            ("pay", "pay.example.com/v1", true),
            ("pay", "pay.example.com/v1/x", true),
            ("pay", "pay.example.com/v2", false),
            ("pay", "pay.example.com/", false),
            ("pay", ":1234", true),
            ("pay", ":1235", false),
            ("admin", "/", true),
            ("admin", ":80", true),
            ("admin", "*.com/", true),
            ("other", "/other", false),
        ] {
            assert_eq!(allow.may(service, &Source::parse(source).unwrap()), may, "{service} {source}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_a_reject_that_says_whose_it_is() {
        let allow = Allow::parse(["shop shop.example.com/", "blog blog.example.com/"]).unwrap();
        let instance = Instance {
            service: "blog".into(),
            id: "n/blog".into(),
            datacenter: None,
            address: "10.0.0.1".into(),
            port: 80,
            tags: vec!["urlprefix-blog.example.com/".into(), "urlprefix-shop.example.com/".into()],
            options: Default::default(),
            down: false,
        };
        let parsed = parse_tags(&instance, "urlprefix-", "dc1");
        assert_eq!(Allow::default().apply(parsed.clone()), parsed);
        let left = allow.apply(parsed);
        assert_eq!((left.entries.len(), left.rejects.len()), (1, 1));
        let reason = &left.rejects[0].reason;
        let want = "registry.consul.allow lets blog claim blog.example.com/; shop.example.com/ is for shop";
        assert_eq!(reason, want);
    }

    #[test]
    fn rules_that_mean_nothing_are_refused() {
        for text in
            ["", "  ", "shop", "shop a*.com/", "shop *com", "shop {a,b}/", "shop *.", "shop /a/*", "shop a.*.com"]
        {
            assert!(Allow::parse([text]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn patterns_of_names() {
        for (pattern, name, fit) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("**", "x", true),
        ] {
            assert_eq!(fits(pattern, name), fit, "{pattern} {name}");
        }
    }
}
