//! `eject`, `eject5xx`, `ejectrate`, `ejecttime`, `ejectmax`, `slowstart`: when a target that fails is passed over, and how
//! a new one begins.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use super::time;

/// When a target is passed over for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// `eject`: failures to connect, and connections that broke before the response, in a row; 0: never. Default: 5.
    pub connections: u32,
    /// `eject5xx`: gateway errors (502, 503, 504, no response in time, and what `retryon` names) in a row; 0: never.
    /// Default: 5 with `retry`, else 0.
    pub gateway: u32,
    /// `ejectrate`: percent of requests that must succeed, of at least 20 in 10 s; 0: any.
    pub success_rate: u32,
    /// `ejecttime`: how long at first; twice as long each time that follows. Default: 5 s.
    pub time: Duration,
    /// `ejectmax`: how long at most. Default: 5 min.
    pub longest: Duration,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            connections: IN_A_ROW,
            gateway: 0,
            success_rate: 0,
            time: Duration::from_secs(5),
            longest: Duration::from_secs(300),
        }
    }
}

impl Ejection {
    /// `None`: as usual.
    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let mut rules = Self::default();
        if raw.get("retry").is_some_and(|retry| !matches!(retry.as_str(), "0" | "off")) {
            rules.gateway = IN_A_ROW;
        }
        for (key, value) in raw {
            match key.as_str() {
                "eject" => rules.connections = number(key, value, 10_000)?,
                "eject5xx" => rules.gateway = number(key, value, 10_000)?,
                "ejectrate" => rules.success_rate = number(key, value.trim_end_matches('%'), 100)?,
                "ejecttime" => rules.time = time(key, value)?,
                "ejectmax" => rules.longest = time(key, value)?,
                _ => {}
            }
        }
        Ok((rules != Self::default()).then(|| Box::new(rules)))
    }

    /// Where nothing is asked for.
    pub fn usual() -> &'static Self {
        static USUAL: LazyLock<Ejection> = LazyLock::new(Ejection::default);
        &USUAL
    }
}

fn number(key: &str, text: &str, most: u32) -> Result<u32, String> {
    match text {
        "off" => Ok(0),
        _ => text
            .parse()
            .ok()
            .filter(|number| *number <= most)
            .ok_or_else(|| format!("{key}={text:?} is no number; write 1 to {most}, or off")),
    }
}

/// One failure is an accident.
const IN_A_ROW: u32 = 5;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    #[test]
    fn meanings() {
        let parse = |text: &str| Ejection::parse(&split(text));
        assert_eq!(parse("strip=/x"), Ok(None));
        let rules = parse("eject=off eject5xx=7 ejectrate=90% ejecttime=1s ejectmax=1m").unwrap().unwrap();
        let (time, longest) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(*rules, Ejection { connections: 0, gateway: 7, success_rate: 90, time, longest });
        assert_eq!(parse("retry=2").unwrap().unwrap().gateway, 5);
        assert_eq!(parse("retry=2 eject5xx=off"), Ok(None));
        for (text, value) in [("eject=x", "\"x\""), ("eject5xx=-1", "\"-1\""), ("ejectrate=101", "\"101\"")] {
            let reason = parse(text).unwrap_err();
            assert!(reason.contains(value) && reason.contains("write"), "{reason}");
        }
    }
}
