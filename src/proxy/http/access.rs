//! Who sends a request, for the rules `allow=` and `deny=`.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

use super::headers::X_FORWARDED_FOR;
use crate::route::Access;

/// The peer and everybody before it must be let in. What is no address (`unknown`, say) says nothing about anybody.
///
/// With `trusted` networks (`proxy.trusted`) the client is the right-most address that is not one of them. `allow` need
/// not name the proxies between that client and us, and lets nobody in who cannot be told.
pub(super) fn permits(access: &Access, peer: IpAddr, headers: &HeaderMap, trusted: Option<&[IpNet]>) -> bool {
    if *access == Access::Everyone {
        return true;
    }
    let elements = || {
        headers
            .get_all(X_FORWARDED_FOR)
            .iter()
            .flat_map(|line| line.as_bytes().split(|b| *b == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|element| !element.is_empty())
    };
    if let Some(trusted) = trusted {
        let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(&address.to_canonical()));
        // None: the peer is the client, or all that came before it is ours.
        let mut beyond = elements().rev().skip_while(|element| address(element).as_ref().is_some_and(is_trusted));
        if is_trusted(&peer)
            && let Some(client) = beyond.next()
        {
            let Some(client) = address(client) else { return false };
            if matches!(access, Access::Allow(_)) {
                return access.permits(client) && beyond.filter_map(address).all(|address| access.permits(address));
            }
        }
    }
    access.permits(peer) && elements().filter_map(address).all(|address| address == peer || access.permits(address))
}

/// The client as far as it can be told: the peer, or whoever the `trusted` networks in front of us say that it is.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, trusted: Option<&[IpNet]>) -> IpAddr {
    let peer = peer.to_canonical();
    let Some(trusted) = trusted else { return peer };
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(&address.to_canonical()));
    if !is_trusted(&peer) {
        return peer;
    }
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let elements = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b',').map(<[u8]>::trim_ascii));
    let mut client = peer;
    for element in elements.filter(|element| !element.is_empty()) {
        let Some(address) = address(element) else { break };
        client = address.to_canonical();
        if !is_trusted(&client) {
            break;
        }
    }
    client
}

/// As [`permits`], for a peer that nobody has named: `None` if it depends on the peer.
pub(super) fn permits_anybody(access: &Access, headers: &HeaderMap, trusted: Option<&[IpNet]>) -> Option<bool> {
    let lines = headers.get_all(X_FORWARDED_FOR).iter();
    let mut before = lines.flat_map(|line| line.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii));
    match access {
        Access::Everyone => Some(true),
        Access::Nobody => Some(false),
        _ if trusted.is_none() && before.any(|one| address(one).is_some_and(|one| !access.permits(one))) => Some(false),
        _ => None,
    }
}

/// An element of `X-Forwarded-For`: an address, perhaps with a port.
fn address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn who_the_client_is() {
        let ours: Vec<IpNet> = vec!["172.16.0.0/12".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
        for (trusted, peer, lines, want) in [
            (None, "1.2.3.4", &["5.6.7.8"][..], "1.2.3.4"),
            (Some(&ours), "1.2.3.4", &["5.6.7.8"], "1.2.3.4"),
            (Some(&ours), "172.16.0.1", &["9.9.9.9, 5.6.7.8"], "5.6.7.8"),
            (Some(&ours), "172.16.0.1", &["9.9.9.9", "5.6.7.8, 172.16.0.2"], "5.6.7.8"),
            (Some(&ours), "::ffff:172.16.0.1", &["172.16.0.3,172.16.0.2"], "172.16.0.3"),
            (Some(&ours), "172.16.0.1", &["5.6.7.8, unknown, 172.16.0.2"], "172.16.0.2"),
            (Some(&ours), "172.16.0.1", &[], "172.16.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(X_FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
            }
            let trusted = trusted.map(|networks| &networks[..]);
            let want: IpAddr = want.parse().unwrap();
            assert_eq!(client(peer.parse().unwrap(), &headers, trusted), want, "{peer} {lines:?}");
        }
    }

    #[test]
    fn who_is_asked() {
        let nets = |list: &[&str]| -> Box<[IpNet]> { list.iter().map(|net| net.parse().unwrap()).collect() };
        let allow = Access::Allow(nets(&["10.0.0.0/8", "192.168.0.0/24"]));
        let deny = Access::Deny(nets(&["10.0.0.0/8"]));
        let ours = nets(&["172.16.0.0/12", "fd00::/8"]);
        for (access, trusted, peer, lines, want) in [
            (&allow, None, "10.11.12.1", &["10.11.12.13, 1.1.1.2, 10.11.12.14"][..], false),
            (&allow, None, "1.1.1.2", &["10.11.12.13, 1.2.3.4"], false),
            (&allow, None, "192.168.0.12", &["10.11.12.13, 10.110.120.130"], true),
            (&allow, None, "192.168.0.12", &["10.11.12.13", "1.2.3.4"], false),
            (&allow, None, "10.0.0.1", &["unknown, [10.0.0.2]:80, 10.0.0.3:80"], true),
            (&allow, None, "172.16.0.1", &["10.0.0.1"], false),
            (&deny, None, "1.2.3.4", &["1.2.3.4, 10.0.0.1"], false),
            (&deny, None, "1.2.3.4", &["unknown"], true),
            // A balancer of ours need not be allowed itself.
            (&allow, Some(&ours), "172.16.0.1", &["10.0.0.1"], true),
            (&allow, Some(&ours), "172.16.0.1", &["10.0.0.1, 172.16.0.2, fd00::1"], true),
            (&allow, Some(&ours), "172.16.0.1", &["10.0.0.1", "1.2.3.4"], false),
            (&allow, Some(&ours), "172.16.0.1", &["1.2.3.4, 10.0.0.1"], false),
            (&allow, Some(&ours), "172.16.0.1", &["10.0.0.1, unknown"], false),
            (&allow, Some(&ours), "172.16.0.1", &[], false),
            (&allow, Some(&ours), "172.16.0.1", &["172.16.0.2"], false),
            (&allow, Some(&ours), "10.0.0.1", &[], true),
            (&allow, Some(&ours), "1.2.3.4", &[], false),
            (&deny, Some(&ours), "172.16.0.1", &["10.0.0.1"], false),
            (&deny, Some(&ours), "172.16.0.1", &["10.0.0.1, 1.2.3.4"], false),
            (&deny, Some(&ours), "172.16.0.1", &["1.2.3.4"], true),
            (&deny, Some(&ours), "172.16.0.1", &["unknown"], false),
            (&deny, Some(&ours), "10.0.0.1", &[], false),
            (&Access::Everyone, Some(&ours), "172.16.0.1", &["unknown"], true),
            (&Access::Nobody, None, "10.0.0.1", &[], false),
            (&Access::Nobody, Some(&ours), "172.16.0.1", &["10.0.0.1"], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(X_FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
            }
            let trusted = trusted.map(|networks| &networks[..]);
            let got = permits(access, peer.parse().unwrap(), &headers, trusted);
            assert_eq!(got, want, "{access:?} {trusted:?} {peer} {lines:?}");
        }
    }
}
