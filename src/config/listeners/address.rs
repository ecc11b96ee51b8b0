//! Where a listener listens, and networks of those who connect.

use ipnet::IpNet;

/// An address or a network. A bare address is a network of its own.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|n| n.trunc()).or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

/// `[host]:port`, the port a number or a name. Names are looked up when the listener is bound.
pub(super) fn check_addr(addr: &str) -> Result<(), &'static str> {
    let (host, port) = addr.rsplit_once(':').ok_or("no port")?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !bracketed {
        return Err("an IPv6 address stands in brackets, as in [::1]:80");
    }
    if bracketed && host[1..host.len() - 1].split('%').next().is_none_or(|ip| ip.parse::<std::net::Ipv6Addr>().is_err())
    {
        return Err("what stands in brackets is no IPv6 address");
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("the host has blanks");
    }
    if port.is_empty() || !port.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err("no port");
    }
    // A range, perhaps.
    let number = port.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if number && port.split('-').any(|port| port.parse::<u16>().is_err()) {
        return Err("a port is at most 65535");
    }
    Ok(())
}

/// Host and ports of `host:7000-7010`.
pub(super) fn range(addr: &str) -> Option<(&str, std::ops::RangeInclusive<u16>)> {
    let (host, ports) = addr.rsplit_once(':')?;
    let (first, last) = ports.split_once('-')?;
    Some((host, first.parse().ok()?..=last.parse().ok()?))
}
