//! Which names are worth an order.
//!
//! Names come from a list, and from the routing table: whoever may register a service can write anything there, so these
//! pass a filter and are counted.

use std::net::IpAddr;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Always ordered. In lower case.
    pub fixed: Vec<String>,
    /// Whether hosts of the routing table are ordered.
    pub table: bool,
    /// Hosts of the table have to match one of these, in which `*` stands for anything; empty: any public name.
    pub filter: Vec<String>,
    /// How many hosts of the table may have a certificate, or an order under way, at the same time.
    pub most: usize,
}

impl Names {
    /// Whether a host of the routing table may be ordered at all.
    pub fn admits(&self, host: &str) -> bool {
        self.table
            && is_name(host)
            && if self.filter.is_empty() {
                is_public(host)
            } else {
                self.filter.iter().any(|pattern| matches(pattern, host))
            }
    }
}

/// A name that a certificate can be for (RFC 1123 section 2.1), in lower case and without a dot at its end.
pub fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label) && text.parse::<IpAddr>().is_err()
}

/// Has a dot, and no ending that public CAs refuse anyway (RFC 2606, RFC 6761, RFC 6762, RFC 8375, RFC 9476, and Consul's).
fn is_public(host: &str) -> bool {
    let Some((_, last)) = host.rsplit_once('.') else { return false };
    !PRIVATE.contains(&last) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

const PRIVATE: &[&str] = &[
    "alt",
    "arpa",
    "consul",
    "corp",
    "example",
    "home",
    "internal",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "test",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_the_table() {
        let long = format!("{}.com", "a".repeat(64));
        for (filter, host, want) in [
            (&[][..], "shop.firm.com", true),
            (&[], "firm.com", true),
            (&[], "xn--bcher-kva.de", true),
            (&[], "firm", false),
            (&[], "web.service.consul", false),
            (&[], "web.internal", false),
            (&[], "10.0.0.1", false),
            (&[], "1.2.3.4.5", false),
            (&[], "::1", false),
            (&[], "*.firm.com", false),
            (&[], "a_b.firm.com", false),
            (&[], "-a.firm.com", false),
            (&[], "a..com", false),
            (&[], ".com", false),
            (&[], "", false),
            (&[], long.as_str(), false),
            (&[], "Firm.com", false),
            (&["*.firm.com"], "a.firm.com", true),
            (&["*.firm.com"], "a.b.firm.com", true),
            (&["*.firm.com"], "firm.com", false),
            (&["*.firm.com"], "afirm.com", false),
            (&["*.firm.com"], "a.firm.com.evil.org", false),
            (&["x.org", "*.firm.com"], "x.org", true),
            (&["a*c*.org"], "abcd.org", true),
            (&["a*c*.org"], "abd.org", false),
            (&["*.consul"], "web.service.consul", true),
            (&["*"], "anything", true),
            (&["*"], "*.firm.com", false),
        ] {
            let filter = filter.iter().map(|pattern| (*pattern).to_owned()).collect();
            let names = Names { fixed: vec![], table: true, filter, most: 1 };
            assert_eq!(names.admits(host), want, "{:?} {host}", names.filter);
            assert!(!Names { table: false, ..names }.admits(host));
        }
    }
}
