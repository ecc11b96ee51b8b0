//! Changes to headers that a route asks for: `reqset`, `reqadd`, `reqdel`, `respset`, `respadd`, `respdel`, `secure`, `cors`.

use std::collections::BTreeMap;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// What a route changes about requests and responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    pub request: HeaderEdits,
    pub response: HeaderEdits,
    pub cors: Option<Cors>,
}

/// First what is removed, then what is set, then what is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
    add: Vec<(HeaderName, HeaderValue)>,
}

/// Pages of which origins may use a route (the CORS protocol of the Fetch standard).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// `cors=*`: all, without credentials.
    Any,
    /// These, with credentials.
    Origins(Vec<String>),
}

impl Edits {
    /// `None` if nothing is asked for. An error is a reason not to have the route.
    pub(super) fn parse(options: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let mut edits = Self::default();
        for (key, value) in options {
            match key.as_str() {
                "reqset" => edits.request.set = pairs(key, value)?,
                "reqadd" => edits.request.add = pairs(key, value)?,
                "reqdel" => edits.request.remove = names(key, value)?,
                "respset" => edits.response.set = pairs(key, value)?,
                "respadd" => edits.response.add = pairs(key, value)?,
                "respdel" => edits.response.remove = names(key, value)?,
                "cors" => edits.cors = Some(cors(value)?),
                _ => {}
            }
        }
        if super::options::truth("secure", options.get("secure").map(String::as_str), false)? {
            for (name, value) in SECURE {
                if !edits.response.set.iter().any(|(set, _)| *set == name) && !edits.response.remove.contains(&name) {
                    edits.response.set.push((name, HeaderValue::from_static(value)));
                }
            }
        }
        Ok((edits != Self::default()).then(|| Box::new(edits)))
    }
}

impl HeaderEdits {
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }
}

impl Cors {
    /// What a page of `origin` may do with the response, or with the request that it asks about first.
    pub fn permit(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        // Ours alone: two values would count as none.
        headers.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        match self {
            Self::Any => _ = headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
            Self::Origins(origins) => {
                headers.append(header::VARY, HeaderValue::from_static("Origin"));
                if let Some(origin) = origin
                    && origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
                {
                    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
                }
            }
        }
    }
}

/// `Name:value|Name:value`, with `%20` for what an option cannot hold.
fn pairs(key: &str, text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let pair = |pair: &str| {
        let wrong = || format!("{:?} in {key}; write {key}=Name:value|Name:value", super::excerpt(pair));
        let (name, value) = pair.split_once(':').ok_or_else(wrong)?;
        let value: Vec<u8> = percent_decode_str(value).collect();
        Ok((self::name(key, name)?, HeaderValue::from_bytes(&value).map_err(|_| wrong())?))
    };
    text.split('|').map(pair).collect()
}

fn names(key: &str, text: &str) -> Result<Vec<HeaderName>, String> {
    text.split('|').map(|name| self::name(key, name)).collect()
}

/// Not one of those that decide where a message goes and where it ends.
fn name(key: &str, text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.trim().as_bytes())
        .map_err(|_| format!("{:?} in {key} is no header name", super::excerpt(text)))?;
    if FRAMING.contains(&name) || matches!(name.as_str(), "keep-alive" | "proxy-connection") {
        return Err(format!("{key} cannot change {name}"));
    }
    Ok(name)
}

fn cors(text: &str) -> Result<Cors, String> {
    if text == "*" {
        return Ok(Cors::Any);
    }
    let origin = |origin: &str| match origin.split_once("://") {
        Some((scheme, host)) if !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '*']) => {
            Ok(origin.to_owned())
        }
        _ => Err(format!(
            "{:?} in cors is no origin; write cors=https://a.com|https://b.com, or cors=*",
            super::excerpt(origin)
        )),
    };
    text.split('|').map(origin).collect::<Result<_, _>>().map(Cors::Origins)
}

const FRAMING: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// `secure=true`: what does no harm to an ordinary site.
const SECURE: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "SAMEORIGIN"),
    (header::REFERRER_POLICY, "strict-origin-when-cross-origin"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    fn edits(text: &str) -> Edits {
        *Edits::parse(&split(text)).unwrap().unwrap()
    }

    #[test]
    fn headers_are_removed_set_and_added() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        edits("reqset=B:x%20y|D:a:b reqadd=C:2|E:%25 reqdel=A|X").request.apply(&mut headers);
        let mut all: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        all.sort_unstable();
        assert_eq!(all, ["b=x y", "c=1", "c=2", "d=a:b", "e=%"]);
    }

    #[test]
    fn common_headers_give_way() {
        let mut headers = HeaderMap::new();
        headers.insert("x-frame-options", HeaderValue::from_static("ALLOW"));
        edits("secure=true respset=X-Frame-Options:DENY respdel=Referrer-Policy").response.apply(&mut headers);
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(!headers.contains_key("referrer-policy"));
    }

    #[test]
    fn who_may_read_a_response() {
        let listed = "https://a.com|http://b.com:8080";
        for (rule, origin, want, credentials) in [
            ("*", Some("https://x"), Some("*"), false),
            ("*", None, Some("*"), false),
            (listed, Some("https://a.com"), Some("https://a.com"), true),
            (listed, Some("http://b.com:8080"), Some("http://b.com:8080"), true),
            (listed, Some("http://a.com"), None, false),
            (listed, Some("https://a.com.evil"), None, false),
            (listed, Some("null"), None, false),
            (listed, None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("access-control-allow-origin", HeaderValue::from_static("https://of.target"));
            let origin = origin.map(|origin| HeaderValue::from_str(origin).unwrap());
            edits(&format!("cors={rule}")).cors.unwrap().permit(origin.as_ref(), &mut headers);
            let got = headers.get("access-control-allow-origin").map(|value| value.to_str().unwrap());
            assert_eq!(got, want, "{rule} {origin:?}");
            assert_eq!(headers.contains_key("access-control-allow-credentials"), credentials);
            assert_eq!(headers.contains_key("vary"), rule != "*");
        }
    }

    #[test]
    fn what_cannot_be_understood() {
        for text in [
            "reqset=",
            "reqset=A",
            "reqset=a%20b",
            "reqset=:x",
            "reqset=A:%0d%0aB:c",
            "reqset=Host:x",
            "reqdel=",
            "respdel=Content-Length",
            "reqadd=Transfer-Encoding:chunked",
            "respset=A:1|",
            "cors=",
            "cors=a.com",
            "cors=https://*.a.com",
            "cors=https://a.com/",
        ] {
            assert!(Edits::parse(&split(text)).is_err(), "{text}");
        }
        for text in ["secure=false", "secure=", "other=1", ""] {
            assert_eq!(Edits::parse(&split(text)).unwrap(), None, "{text}");
        }
    }
}
