//! BGP peers: `bgp.peers`. They are read and shown; nothing is announced.

use super::kvlist::{self, Map};
use super::number;
use super::settings::Settings;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: String,
    pub(crate) password: String,
    pub(crate) port: u64,
    pub(crate) asn: u64,
    pub(crate) multihop_length: u64,
    pub(crate) multihop: bool,
}

pub(crate) fn parse(settings: &mut Settings, text: &str) -> Vec<Peer> {
    let maps = match kvlist::parse(text) {
        Ok(maps) => maps,
        Err(token) => {
            settings.mistake(KEY, &format!("unexpected {token}; write address=ip;asn=n, with a comma between peers"));
            return Vec::new();
        }
    };
    maps.iter()
        .map(|map| Peer {
            address: map.get("address").unwrap_or_default().to_owned(),
            password: map.get("password").unwrap_or_default().to_owned(),
            port: uint(settings, map, "port", 0, u64::from(u16::MAX)),
            asn: uint(settings, map, "asn", 0, u64::from(u32::MAX)),
            multihop_length: uint(settings, map, "multihoplength", 2, u64::from(u32::MAX)),
            multihop: match map.get("multihop") {
                None => false,
                Some(text) => number::boolean(text).unwrap_or_else(|| {
                    settings.mistake(
                        KEY,
                        &format!("multihop: strconv.ParseBool: parsing {text:?}: invalid syntax; write true or false"),
                    );
                    false
                }),
            },
        })
        .collect()
}

fn uint(settings: &mut Settings, map: &Map, option: &str, default: u64, max: u64) -> u64 {
    let Some(text) = map.get(option) else { return default };
    let read = number::uint(text).and_then(|n| if n <= max { Ok(n) } else { Err(number::Fault::Range) });
    read.unwrap_or_else(|fault| {
        settings.mistake(
            KEY,
            &format!("{option}: strconv.ParseUint: parsing {text:?}: {}; write a number up to {max}", fault.words()),
        );
        default
    })
}

const KEY: &str = "bgp.peers";
