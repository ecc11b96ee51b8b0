//! Who may use a target, by address: `allow=` and `deny=`.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Who may use a target, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    #[default]
    Everyone,
    /// Only these networks.
    Allow(Box<[IpNet]>),
    /// All but these networks.
    Deny(Box<[IpNet]>),
    /// The rules cannot be understood, so nobody gets in by mistake.
    Nobody,
}

impl Access {
    /// IPv4 addresses written as IPv6 (`::ffff:10.1.1.1`) count as IPv4.
    pub fn permits(&self, address: IpAddr) -> bool {
        let inside = |networks: &[IpNet]| {
            let address = address.to_canonical();
            networks.iter().any(|network| network.contains(&address))
        };
        match self {
            Self::Everyone => true,
            Self::Allow(networks) => inside(networks),
            Self::Deny(networks) => !inside(networks),
            Self::Nobody => false,
        }
    }

    /// The rules of the two options, and what is wrong with them: then nobody is let in.
    pub(super) fn parse(allow: Option<&str>, deny: Option<&str>) -> (Self, Option<String>) {
        let closed = |why: String| (Self::Nobody, Some(format!("{why}; until then the route denies everybody")));
        match (allow, deny) {
            (None, None) => (Self::Everyone, None),
            (Some(_), Some(_)) => closed("allow and deny exclude each other; write one of them".to_owned()),
            (Some(rules), None) => match networks("allow", rules) {
                Ok(networks) => (Self::Allow(networks), None),
                Err(why) => closed(why),
            },
            (None, Some(rules)) => match networks("deny", rules) {
                Ok(networks) => (Self::Deny(networks), None),
                Err(why) => closed(why),
            },
        }
    }
}

fn networks(key: &str, rules: &str) -> Result<Box<[IpNet]>, String> {
    rules
        .split(',')
        .map(|rule| {
            let network = rule
                .split_once(':')
                .filter(|(kind, _)| kind.trim().eq_ignore_ascii_case("ip"))
                .and_then(|(_, network)| parse_network(network.trim()));
            network.ok_or_else(|| {
                format!("{:?} in {key} is no rule; write {key}=ip:10.0.0.0/8,ip:fe80::1", super::excerpt(rule))
            })
        })
        .collect()
}

fn parse_network(text: &str) -> Option<IpNet> {
    let network = match text.parse() {
        Ok(network) => network,
        Err(_) => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    // Addresses are compared as IPv4 where they can be, so rules are too.
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Some(length) = v6.prefix_len().checked_sub(96)
    {
        return Ipv4Net::new(v4, length).ok().map(IpNet::V4);
    }
    Some(network)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_parse() {
        for (rules, count) in [
            ("ip:10.0.0.0/8,ip:192.168.0.0/24,ip:1.2.3.4/32", 3),
            ("ip:1234:567:beef:cafe::/64,ip:1234:5678:dead:beef::/32", 2),
            ("ip:1.2.3.4", 1),
            ("ip:fe80::1", 1),
            (" IP : 10.0.0.1/8 , ip:::1", 2),
        ] {
            assert_eq!(networks("allow", rules).unwrap().len(), count, "{rules}");
        }
    }

    #[test]
    fn bad_rules_deny_everybody() {
        let bad = [
            "xxx:10.0.0.0/8",
            "ip:10/8",
            "ip:10.0.0.0/255",
            "ip:10.0.0.0/33",
            "ip:fe80::1234,100.123.0.0/16",
            "ip:1.2.3.4,",
            "ip:",
            "ip:fe80::1%eth0",
            "",
            "1.2.3.4",
        ];
        for rules in bad {
            for (allow, deny) in [(Some(rules), None), (None, Some(rules))] {
                let (access, why) = Access::parse(allow, deny);
                assert_eq!(access, Access::Nobody, "{rules}");
                assert!(why.unwrap().contains("denies everybody"));
                assert!(!access.permits("10.0.0.1".parse().unwrap()));
            }
        }
        let (access, why) = Access::parse(Some("ip:10.0.0.0/8"), Some("ip:127.0.0.1"));
        assert_eq!(access, Access::Nobody);
        assert!(why.is_some());
    }

    #[test]
    fn who_is_let_in() {
        let v4 = "ip:10.0.0.0/8,ip:192.168.0.0/24";
        let v6 = "ip:1234:dead:beef:cafe::/64";
        for (allow, deny, address, want) in [
            (Some(v4), None, "10.10.0.1", true),
            (Some(v4), None, "1.2.3.4", false),
            (None, Some(v4), "10.10.0.1", false),
            (None, Some(v4), "1.2.3.4", true),
            (Some(v4), None, "::ffff:10.10.0.1", true),
            (None, Some(v4), "::ffff:10.10.0.1", false),
            (None, Some("ip:::ffff:10.0.0.0/104"), "10.1.1.1", false),
            (None, Some("ip:::ffff:10.0.0.0/104"), "::ffff:10.1.1.1", false),
            (None, Some("ip:::ffff:10.0.0.0/104"), "11.1.1.1", true),
            (Some(v6), None, "1234:dead:beef:cafe::5678", true),
            (Some(v6), None, "1234:5678::1", false),
            (None, Some(v6), "1234:dead:beef:cafe::5678", false),
            (None, Some(v6), "1234:5678::1", true),
            (Some("ip:127.0.0.5"), None, "127.0.0.5", true),
            (Some("ip:127.0.0.5"), None, "127.0.0.4", false),
            (None, None, "1.2.3.4", true),
        ] {
            let (access, why) = Access::parse(allow, deny);
            assert_eq!(why, None);
            assert_eq!(access.permits(address.parse().unwrap()), want, "{allow:?} {deny:?} {address}");
        }
    }

    #[test]
    fn every_element_of_forwarded_for_is_checked_by_the_caller() {
        let (access, _) = Access::parse(Some("ip:10.0.0.0/8,ip:192.168.0.0/24"), None);
        for (peer, forwarded, denied) in [
            ("10.11.12.1", "10.11.12.13, 1.1.1.2, 10.11.12.14", true),
            ("1.1.1.2", "10.11.12.13, 1.2.3.4", true),
            ("192.168.0.12", "10.11.12.13, 1.2.3.4", true),
            ("200.17.18.20", "1.2.3.4, 10.11.12.13, 10.11.12.14", true),
            ("192.168.0.12", "10.11.12.13, 10.110.120.130", false),
        ] {
            let mut all = forwarded.split(", ").chain([peer]);
            assert_eq!(!all.all(|a| access.permits(a.parse().unwrap())), denied, "{peer} {forwarded}");
        }
    }
}
