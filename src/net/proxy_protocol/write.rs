//! Headers that we send.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::V2_SIGNATURE;

/// The line of version 1 that tells a server about a connection: `client` is at the other end, `local` at ours.
///
/// TCP4 if both are IPv4 or IPv4-mapped. Else TCP6, whose grammar has no IPv4 literals, hence a mapped one if only one of
/// them is IPv4.
pub fn v1_line(client: SocketAddr, local: SocketAddr) -> String {
    let (from, to) = (client.ip().to_canonical(), local.ip().to_canonical());
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) {
        return format!("PROXY TCP4 {from} {to} {} {}\r\n", client.port(), local.port());
    }
    format!("PROXY TCP6 {} {} {} {}\r\n", v6(from), v6(to), client.port(), local.port())
}

/// What version 2 can say beside addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The name that the client asked for (`PP2_TYPE_AUTHORITY`).
    pub server_name: Option<&'a str>,
    /// The protocol that was agreed on (`PP2_TYPE_ALPN`).
    pub alpn: Option<&'a [u8]>,
}

/// The header of version 2 for a TCP connection. Addresses as in [`v1_line`]; facts of more than 255 bytes are left out.
pub fn v2_header(client: SocketAddr, local: SocketAddr, facts: Facts<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    let family = match (client.ip().to_canonical(), local.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            body.extend(from.octets());
            body.extend(to.octets());
            TCP_IPV4
        }
        (from, to) => {
            body.extend(v6(from).octets());
            body.extend(v6(to).octets());
            TCP_IPV6
        }
    };
    body.extend(client.port().to_be_bytes());
    body.extend(local.port().to_be_bytes());
    for (kind, value) in [(TLV_ALPN, facts.alpn), (TLV_AUTHORITY, facts.server_name.map(str::as_bytes))] {
        if let Some(value) = value
            && let Ok(length @ 1..) = u8::try_from(value.len())
        {
            body.extend([kind, 0, length]);
            body.extend(value);
        }
    }
    let mut header = V2_SIGNATURE.to_vec();
    header.extend([VERSION_2_PROXY, family]);
    let length = u16::try_from(body.len()).expect("addresses and two short facts");
    header.extend(length.to_be_bytes());
    header.append(&mut body);
    header
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

const VERSION_2_PROXY: u8 = 0x21;
/// Family and transport.
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;
/// `PP2_TYPE_ALPN`
const TLV_ALPN: u8 = 0x01;
/// `PP2_TYPE_AUTHORITY`
const TLV_AUTHORITY: u8 = 0x02;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Header, read_header};
    use super::*;

    #[tokio::test]
    async fn what_we_send_is_what_we_read() {
        let facts = Facts { server_name: Some("a.test"), alpn: Some(b"h2") };
        for (client, local, length) in [
            ("1.2.3.4:5", "6.7.8.9:10", 28),
            ("[2001:db8::1]:5", "[2001:db8::2]:10", 52),
            ("1.2.3.4:5", "[2001:db8::2]:10", 52),
            ("[::ffff:1.2.3.4]:5", "6.7.8.9:10", 28),
        ] {
            let (client, local): (SocketAddr, SocketAddr) = (client.parse().unwrap(), local.parse().unwrap());
            let want = Header::Proxied {
                source: SocketAddr::new(client.ip().to_canonical(), client.port()),
                destination: SocketAddr::new(local.ip().to_canonical(), local.port()),
            };
            for (facts, more) in [(Facts::default(), 0), (facts, 3 + 6 + 3 + 2)] {
                let header = v2_header(client, local, facts);
                assert_eq!(header.len(), length + more, "{client} {local}");
                let mut rest = &header[..];
                assert_eq!(read_header(&mut rest).await.unwrap(), want);
                assert!(rest.is_empty());
            }
            assert_eq!(read_header(&mut v1_line(client, local).as_bytes()).await.unwrap(), want);
        }
    }

    #[test]
    fn facts_are_where_the_specification_puts_them() {
        let client = "1.2.3.4:258".parse().unwrap();
        let header = v2_header(client, client, Facts { server_name: Some("ab"), alpn: Some(b"h2") });
        assert_eq!(&header[12..16], [0x21, 0x11, 0, 12 + 5 + 5]);
        assert_eq!(&header[24..], [1, 2, 1, 2, 1, 0, 2, b'h', b'2', 2, 0, 2, b'a', b'b']);
        let long = "x".repeat(256);
        assert_eq!(v2_header(client, client, Facts { server_name: Some(&long), alpn: None }).len(), 28);
    }
}
