//! `maxconn`, `maxpending`, `queuetimeout`, `routemaxconn`, `rate`, `burst`, `ratekey`: how much a target and its route take.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;

use super::time;

/// What is refused or has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `maxconn`: requests under way at the target at the same time, over all workers.
    pub in_flight: Option<usize>,
    /// `maxpending`: requests that wait for one of them to end. Default: 100.
    pub pending: usize,
    /// `queuetimeout`: how long they wait. Default: 1 s.
    pub patience: Duration,
    /// `routemaxconn`: requests under way on the route at the same time.
    pub route_in_flight: Option<usize>,
    /// `rate`, `burst`, `ratekey`.
    pub rate: Option<Rate>,
}

/// Requests over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds from one request to the next. Not 0.
    pub interval: u64,
    /// Requests that may come at once. Not 0. Default: those of a second.
    pub burst: u64,
    pub key: RateKey,
}

/// Whose requests are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RateKey {
    /// All of the route.
    #[default]
    Route,
    /// Those of a client address; of IPv6, of a /64 network.
    Client,
    /// Those with the same value in this header.
    Header(HeaderName),
}

impl Limits {
    /// `None`: nothing is limited.
    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let unlimited =
            Self { in_flight: None, pending: 100, patience: Duration::from_secs(1), route_in_flight: None, rate: None };
        let mut limits = unlimited.clone();
        let mut burst = None;
        let mut rate_key = None;
        for (key, value) in raw {
            match key.as_str() {
                "maxconn" => limits.in_flight = Some(positive(key, value)?),
                "maxpending" => limits.pending = number(key, value)?,
                "queuetimeout" => limits.patience = time(key, value)?,
                "routemaxconn" => limits.route_in_flight = Some(positive(key, value)?),
                "rate" => limits.rate = Some(rate(value)?),
                "burst" => burst = Some(positive(key, value)? as u64),
                "ratekey" => rate_key = Some(RateKey::parse(value)?),
                _ => {}
            }
        }
        match &mut limits.rate {
            Some(rate) => {
                rate.burst = burst.unwrap_or(rate.burst);
                rate.key = rate_key.unwrap_or_default();
            }
            None if burst.is_some() || rate_key.is_some() => {
                return Err("burst= and ratekey= are about rate=, which is not there; write it as in rate=100/s".into());
            }
            None => {}
        }
        let limited = limits.in_flight.is_some() || limits.route_in_flight.is_some() || limits.rate.is_some();
        Ok(limited.then(|| Box::new(limits)))
    }
}

impl RateKey {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "route" => Ok(Self::Route),
            None if text == "ip" => Ok(Self::Client),
            Some(("header", name)) if !name.is_empty() => HeaderName::from_bytes(name.as_bytes())
                .map(Self::Header)
                .map_err(|_| format!("ratekey={text:?}: {name:?} is no name of a header; write header:NAME")),
            _ => Err(format!("ratekey={text:?} is nothing to count by; write route, ip, or header:NAME")),
        }
    }
}

/// `100/s`, `100/m`, `100/h`.
fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("rate={text:?} is no rate; write a number per time, as in 100/s, 30/m, 1000/h");
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let count: u64 = count.parse().ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(wrong)?;
    Ok(Rate { interval: seconds * 1_000_000_000 / count, burst: (count / seconds).max(1), key: RateKey::Route })
}

fn number(key: &str, text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number <= MOST as usize)
        .ok_or_else(|| format!("{key}={text:?} is no number of requests; write 0 to {MOST}"))
}

fn positive(key: &str, text: &str) -> Result<usize, String> {
    match number(key, text) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{key}={text:?} is no number of requests; write 1 to {MOST}")),
    }
}

/// More than that is no limit.
const MOST: u64 = 1_000_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    fn parse(text: &str) -> Result<Option<Box<Limits>>, String> {
        Limits::parse(&split(text))
    }

    #[test]
    fn meanings() {
        assert_eq!(parse("strip=/x maxpending=7"), Ok(None));
        let limits = parse("maxconn=10 maxpending=5 queuetimeout=250ms routemaxconn=100").unwrap().unwrap();
        assert_eq!((limits.in_flight, limits.pending, limits.route_in_flight), (Some(10), 5, Some(100)));
        assert_eq!((limits.patience, limits.rate), (Duration::from_millis(250), None));
        for (text, interval, burst, key) in [
            ("rate=100/s", 10_000_000, 100, RateKey::Route),
            ("rate=30/m", 2_000_000_000, 1, RateKey::Route),
            ("rate=7200/h burst=20 ratekey=ip", 500_000_000, 20, RateKey::Client),
            ("rate=1/s ratekey=header:X-Api-Key", 1_000_000_000, 1, RateKey::Header("x-api-key".parse().unwrap())),
        ] {
            assert_eq!(parse(text).unwrap().unwrap().rate, Some(Rate { interval, burst, key }), "{text}");
        }
    }

    #[test]
    fn faults_name_the_option_and_how_to_write_it() {
        for text in [
            "maxconn=0",
            "maxconn=x",
            "maxpending=-1",
            "queuetimeout=1",
            "routemaxconn=",
            "rate=100",
            "rate=0/s",
            "rate=1/d",
            "rate=x/s",
            "burst=5",
            "rate=1/s burst=0",
            "ratekey=ip",
            "rate=1/s ratekey=cookie",
            "rate=1/s ratekey=header:a b",
            "rate=1/s ratekey=header:",
        ] {
            let reason = parse(&text.replace("a b", "a@b")).unwrap_err();
            let key = text.rsplit(' ').next().unwrap().split_once('=').map_or("ratekey", |(key, _)| key);
            assert!(reason.contains(&format!("{key}=")) && reason.contains("write"), "{text}: {reason}");
        }
    }
}
