//! `strategy=`, `hash=`, `priority=`, `failopen=`: which target of a route gets a request.

use std::collections::BTreeMap;

use crate::route::balance::HashKey;
use crate::route::{FAIL_OPEN, Strategy};

/// Options about choosing between the targets of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// `None`: as `proxy.strategy` says. Of the targets of a route the first one that has a strategy decides.
    pub strategy: Option<Strategy>,
    /// Targets of a higher number are asked only when none of a lower one is available. Default: 0.
    pub priority: u32,
}

impl Balance {
    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        if let Some(value) = raw.get(FAIL_OPEN)
            && !matches!(value.as_str(), "true" | "false")
        {
            return Err(format!("failopen={value:?} is neither; write failopen=true or failopen=false"));
        }
        let [strategy, hash, priority] = ["strategy", "hash", "priority"].map(|key| raw.get(key).map(String::as_str));
        if strategy.is_none() && hash.is_none() && priority.is_none() {
            return Ok(None);
        }
        let strategy = match (strategy, hash) {
            (None, None) => None,
            (None | Some("hash"), Some(key)) => Some(Strategy::Hash(
                HashKey::parse(key)
                    .ok_or_else(|| format!("hash={key:?} is unknown; write hash=header:NAME, cookie:NAME, ip or path"))?,
            )),
            (Some(name), Some(_)) => {
                return Err(format!("strategy={name:?} has no use for hash=; write one of them"));
            }
            (Some(name), None) => Some(Strategy::parse(name).ok_or_else(|| {
                format!(
                    "strategy={name:?} is unknown; write rnd, rr, p2c, least, or hash=header:NAME, hash=cookie:NAME, hash=ip, hash=path"
                )
            })?),
        };
        let priority = match priority {
            None => 0,
            Some(number) => number.parse().map_err(|_| {
                format!("priority={number:?} is no whole number; write priority=1, lower ones come first")
            })?,
        };
        Ok(Some(Box::new(Self { strategy, priority })))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    #[test]
    fn meanings() {
        let hash = |text: &str| Some(Strategy::Hash(HashKey::parse(text).unwrap()));
        for (text, strategy, priority) in [
            ("strategy=rnd", Some(Strategy::Random), 0),
            ("strategy=rr priority=3", Some(Strategy::RoundRobin), 3),
            ("strategy=p2c", Some(Strategy::TwoChoices), 0),
            ("strategy=least", Some(Strategy::Least), 0),
            ("strategy=hash=header:X-User", hash("header:x-user"), 0),
            ("strategy=hash:ip", hash("ip"), 0),
            ("strategy=hash hash=cookie:sid", hash("cookie:sid"), 0),
            ("hash=path", hash("path"), 0),
            ("priority=1", None, 1),
        ] {
            let balance = *Balance::parse(&split(text)).unwrap().unwrap();
            assert_eq!(balance, Balance { strategy, priority }, "{text}");
        }
        assert_eq!(Balance::parse(&split("strip=/a")), Ok(None));
    }

    #[test]
    fn mistakes() {
        for (text, hint) in [
            ("strategy=random", "strategy=\"random\" is unknown; write rnd, rr, p2c"),
            ("strategy=", "is unknown"),
            ("strategy=hash", "is unknown"),
            ("strategy=hash=header:a,b", "is unknown"),
            ("strategy=rr hash=ip", "has no use for hash="),
            ("hash=cookie:", "write hash=header:NAME"),
            ("hash=cookie:a;b", "write hash=header:NAME"),
            ("hash=query", "write hash=header:NAME"),
            ("priority=-1", "no whole number"),
            ("priority=", "no whole number"),
            ("priority=4294967296", "no whole number"),
        ] {
            let why = Balance::parse(&split(text)).unwrap_err();
            assert!(why.contains(hint), "{text}: {why}");
        }
    }
}
