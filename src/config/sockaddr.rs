//! Address templates: `{{ GetPrivateIP }}:9999`, `{{ GetInterfaceIP "eth0" }}:80`.
//!
//! Of the HashiCorp template language the functions that give text are known: `GetPrivateIP`, `GetPrivateIPs`, `GetPublicIP`,
//! `GetPublicIPs`, `GetInterfaceIP` and `GetInterfaceIPs`. Those that give lists are named in the error.

use std::net::IpAddr;

use super::template::{Scope, expand as expand_template};

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    pub(crate) prefix_len: u8,
    pub(crate) up: bool,
    /// The default route leaves through this interface.
    pub(crate) default: bool,
}

/// All addresses of this machine, in the order of the operating system.
pub(crate) fn interfaces() -> Vec<Interface> {
    let default = default_route();
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    found
        .into_iter()
        .map(|i| Interface {
            ip: i.ip(),
            prefix_len: match &i.addr {
                if_addrs::IfAddr::V4(a) => a.prefixlen,
                if_addrs::IfAddr::V6(a) => a.prefixlen,
            },
            up: i.is_oper_up(),
            default: default.as_ref().is_some_and(|name| *name == i.name),
            name: i.name,
        })
        .collect()
}

/// The first address that others can reach: not loopback, link-local, multicast, unspecified or broadcast.
pub(crate) fn local_ip(interfaces: &[Interface]) -> Option<IpAddr> {
    interfaces.iter().map(|i| i.ip).find(|&ip| global_unicast(ip))
}

/// The text with its templates replaced. Text without templates comes back as it is.
pub(crate) fn expand(text: &str, interfaces: &[Interface]) -> Result<String, String> {
    if !text.contains("{{") {
        return Ok(text.to_owned());
    }
    expand_template(text, &AddressScope { interfaces })
        .map_err(|e| format!("unable to parse template {text:?}: {e}"))
        .map(|address| address.trim().to_owned())
}

struct AddressScope<'a> {
    interfaces: &'a [Interface],
}

impl Scope for AddressScope<'_> {
    fn field(&self, name: &str) -> Result<String, String> {
        Err(format!("no field .{name}"))
    }

    fn call(&self, function: &str, arguments: &[String]) -> Result<String, String> {
        let (addresses, all) = match (function, arguments) {
            ("GetPrivateIP", []) => (self.forwardable(private), false),
            ("GetPrivateIPs", []) => (self.forwardable(private), true),
            ("GetPublicIP", []) => (self.forwardable(|ip| !private(ip)), false),
            ("GetPublicIPs", []) => (self.forwardable(|ip| !private(ip)), true),
            ("GetInterfaceIP", [name]) => (self.named(name)?, false),
            ("GetInterfaceIPs", [name]) => (self.named(name)?, true),
            ("GetPrivateIP" | "GetPrivateIPs" | "GetPublicIP" | "GetPublicIPs", _) => {
                return Err(format!("{function} takes no argument"));
            }
            ("GetInterfaceIP" | "GetInterfaceIPs", _) => {
                return Err(format!("{function} takes the name of an interface in quotes"));
            }
            _ => {
                return Err(format!(
                    "function {function:?} not defined; there are GetPrivateIP, GetPublicIP, GetInterfaceIP \"name\" and the same with IPs"
                ));
            }
        };
        // Nothing would mean: listen on every address.
        if addresses.is_empty() {
            return Err(match arguments.first() {
                Some(name) => format!("{function} {name:?}: no such address on this machine"),
                None => format!("{function}: no such address on this machine"),
            });
        }
        let count = if all { addresses.len() } else { 1 };
        Ok(addresses.iter().take(count).map(IpAddr::to_string).collect::<Vec<_>>().join(" "))
    }
}

impl AddressScope<'_> {
    /// Of interfaces that are up: the one with the default route first, IPv4 before IPv6, larger networks first.
    fn forwardable(&self, wanted: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
        let mut found: Vec<&Interface> =
            self.interfaces.iter().filter(|i| i.up && global_unicast(i.ip) && wanted(i.ip)).collect();
        found.sort_by_key(|i| (!i.default, i.ip.is_ipv6(), i.prefix_len));
        found.iter().map(|i| i.ip).collect()
    }

    /// An interface of exactly this name, else every one that fits it as a regular expression, as the original does.
    fn named(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let exact: Vec<&Interface> = self.interfaces.iter().filter(|i| i.name == name).collect();
        let mut found = if exact.is_empty() {
            let pattern =
                regex::Regex::new(name).map_err(|_| format!("{name:?} is neither an interface nor an expression"))?;
            self.interfaces.iter().filter(|i| pattern.is_match(&i.name)).collect()
        } else {
            exact
        };
        found.sort_by_key(|i| (i.ip.is_ipv6(), link_local(i.ip), i.prefix_len));
        Ok(found.iter().map(|i| i.ip).collect())
    }
}

fn global_unicast(ip: IpAddr) -> bool {
    let special = ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || link_local(ip);
    !special && !matches!(ip, IpAddr::V4(v4) if v4.is_broadcast())
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Private use, shared address space and unique local addresses (RFC 6890).
fn private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_private() || v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64,
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// The interface of the default route. Other systems than Linux have no such file: then no interface is preferred.
fn default_route() -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/route").ok()?;
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let (name, destination) = (words.next()?, words.next()?);
        (destination == "00000000").then(|| name.to_owned())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn interface(name: &str, ip: &str, prefix_len: u8, default: bool) -> Interface {
        Interface { name: name.to_owned(), ip: ip.parse().unwrap(), prefix_len, up: name != "down0", default }
    }

    fn machine() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1", 8, false),
            interface("lo", "::1", 128, false),
            interface("down0", "10.9.9.9", 8, false),
            interface("docker0", "172.17.0.1", 16, false),
            interface("eth0", "fe80::1", 64, true),
            interface("eth0", "2001:db8::7", 64, true),
            interface("eth0", "192.168.1.7", 24, true),
            interface("eth10", "203.0.113.9", 24, false),
        ]
    }

    #[test]
    fn templates_become_addresses() {
        for (text, want) in [
            (":9999", ":9999"),
            ("{{ GetPrivateIP }}:9999", "192.168.1.7:9999"),
            ("{{GetPrivateIPs}}", "192.168.1.7 172.17.0.1"),
            ("{{ GetPublicIP }}:80", "2001:db8::7:80"),
            ("{{ GetPublicIPs }}", "2001:db8::7 203.0.113.9"),
            ("{{ GetInterfaceIP \"eth0\" }}:80", "192.168.1.7:80"),
            ("{{ GetInterfaceIP \"eth1\" }}", "203.0.113.9"),
            ("{{ GetInterfaceIPs \"^eth0$\" }}", "192.168.1.7 2001:db8::7 fe80::1"),
        ] {
            assert_eq!(expand(text, &machine()).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn an_address_that_is_not_there_is_no_empty_address() {
        for (text, want) in [
            ("{{ GetInterfaceIP \"wlan0\" }}:80", "GetInterfaceIP \"wlan0\": no such address"),
            ("{{ GetInterfaceIP }}", "takes the name of an interface"),
            ("{{ GetPrivateIP \"x\" }}", "takes no argument"),
            ("{{ GetAllInterfaces | attr \"address\" }}", "function \"GetAllInterfaces\" not defined"),
            ("{{ GetPrivateIP", "unclosed action"),
            ("{{ GetInterfaceIP \"[\" }}", "neither an interface nor an expression"),
        ] {
            let mistake = expand(text, &machine()).unwrap_err();
            assert!(mistake.contains(want) && mistake.contains("unable to parse template"), "{mistake}");
        }
        assert!(expand("{{ GetPublicIP }}", &machine()[..4]).is_err());
    }

    #[test]
    fn the_local_address_is_the_first_that_others_can_reach() {
        assert_eq!(local_ip(&machine()), Some("10.9.9.9".parse().unwrap()));
        assert_eq!(local_ip(&machine()[..2]), None);
    }

    #[test]
    fn this_machine_has_loopback() {
        assert!(interfaces().iter().any(|i| i.ip.is_loopback()));
    }
}
