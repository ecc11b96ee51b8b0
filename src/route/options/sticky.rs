//! `sticky=name`: a client stays with an instance, by a cookie (RFC 6265).

use std::collections::BTreeMap;

use super::truth;
use crate::route::balance::is_token;

/// The cookie that binds a client to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// `sticky`
    pub name: Box<str>,
    /// What stands behind the value when the cookie is set, beginning with `; `.
    attributes: Box<str>,
}

/// `stickysamesite`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    Strict,
    Lax,
    /// Only with `stickysecure=true`: browsers refuse it otherwise.
    None,
}

impl Sticky {
    /// The value of a `Set-Cookie` header.
    pub fn cookie(&self, value: &str) -> String {
        [&*self.name, "=", value, &*self.attributes].concat()
    }

    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let given = |key: &str| raw.get(key).map(String::as_str);
        let Some(name) = given("sticky") else {
            return match KEYS.iter().find(|key| raw.contains_key(**key)) {
                Some(key) => Err(format!("{key} needs a cookie; write sticky=NAME beside it")),
                None => Ok(None),
            };
        };
        if !is_token(name) {
            return Err(format!("sticky={name:?} is no name of a cookie; write sticky=lb"));
        }
        let path = given("stickypath").unwrap_or("/");
        if !path.starts_with('/') || path.contains(';') || !path.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("stickypath={path:?} is no path of a cookie; write stickypath=/app"));
        }
        let secure = truth("stickysecure", given("stickysecure"), false)?;
        let http_only = truth("stickyhttponly", given("stickyhttponly"), true)?;
        let same_site = match given("stickysamesite") {
            None | Some("lax") => SameSite::Lax,
            Some("strict") => SameSite::Strict,
            Some("none") if secure => SameSite::None,
            Some("none") => {
                return Err("stickysamesite=none needs stickysecure=true: browsers refuse it else".to_owned());
            }
            Some(other) => return Err(format!("stickysamesite={other:?} is unknown; write strict, lax or none")),
        };
        let mut attributes = format!("; Path={path}");
        if let Some(text) = given("stickymaxage") {
            let seconds = seconds(text)
                .ok_or_else(|| format!("stickymaxage={text:?} is no time; write seconds, or 30m, 12h, and not 0"))?;
            attributes += &format!("; Max-Age={seconds}");
        }
        if secure {
            attributes += "; Secure";
        }
        if http_only {
            attributes += "; HttpOnly";
        }
        attributes += match same_site {
            SameSite::Strict => "; SameSite=Strict",
            SameSite::Lax => "; SameSite=Lax",
            SameSite::None => "; SameSite=None",
        };
        Ok(Some(Box::new(Self { name: name.into(), attributes: attributes.into() })))
    }
}

/// `90`, `90s`, `5m`, `12h`
fn seconds(text: &str) -> Option<u32> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) => (
            digits,
            if text.ends_with('h') {
                3600
            } else if text.ends_with('m') {
                60
            } else {
                1
            },
        ),
        None => (text, 1),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u32>().ok()?.checked_mul(unit).filter(|seconds| *seconds > 0)
}

const KEYS: [&str; 5] = ["stickypath", "stickysecure", "stickyhttponly", "stickysamesite", "stickymaxage"];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    #[test]
    fn cookies() {
        for (text, cookie) in [
            ("sticky=lb", "lb=v; Path=/; HttpOnly; SameSite=Lax"),
            (
                "sticky=lb stickypath=/a stickysecure=true stickyhttponly=false stickysamesite=none stickymaxage=2h",
                "lb=v; Path=/a; Max-Age=7200; Secure; SameSite=None",
            ),
            ("sticky=a.b stickymaxage=5 stickysamesite=strict", "a.b=v; Path=/; Max-Age=5; HttpOnly; SameSite=Strict"),
        ] {
            assert_eq!(Sticky::parse(&split(text)).unwrap().unwrap().cookie("v"), cookie, "{text}");
        }
        assert_eq!(Sticky::parse(&split("strip=/a")), Ok(None));
    }

    #[test]
    fn mistakes() {
        for (text, hint) in [
            ("sticky=", "no name of a cookie"),
            ("sticky=a;b", "no name of a cookie"),
            ("sticky=a=b", "no name of a cookie"),
            ("stickymaxage=5", "write sticky=NAME"),
            ("sticky=a stickypath=x", "stickypath"),
            ("sticky=a stickypath=/;Domain=x", "stickypath"),
            ("sticky=a stickysecure=yes", "write true or false"),
            ("sticky=a stickysamesite=none", "needs stickysecure=true"),
            ("sticky=a stickysamesite=Lax", "write strict, lax or none"),
            ("sticky=a stickymaxage=0", "stickymaxage"),
            ("sticky=a stickymaxage=1d", "stickymaxage"),
            ("sticky=a stickymaxage=-5", "stickymaxage"),
            ("sticky=a stickymaxage=4294967295h", "stickymaxage"),
        ] {
            let why = Sticky::parse(&split(text)).unwrap_err();
            assert!(why.contains(hint), "{text}: {why}");
        }
    }
}
