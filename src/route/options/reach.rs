//! `cafile=`, `clientcert=`, `servername=`, `alpn=`: how a target with TLS is reached.
//!
//! Files are meant by a name that the configuration gives them. Whoever may register a service must not be able to make
//! the proxy read any file of its machine.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Options about TLS to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reach {
    /// `cafile`: who is believed instead of the system's authorities. A name of `proxy.targettls`.
    pub authorities: Option<Arc<str>>,
    /// `clientcert`: who we are. A name of `proxy.targettls`.
    pub certificate: Option<Arc<str>>,
    /// `servername`: sent, and looked for in the certificate, instead of the target's host.
    pub server_name: Option<Arc<str>>,
    /// `alpn`: the protocols that are offered, the best one first (RFC 7301).
    pub alpn: Arc<[Arc<str>]>,
    /// `connect=true`: the target is a member of Consul's service mesh.
    pub connect: bool,
}

impl Reach {
    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        if !["cafile", "clientcert", "servername", "alpn", "connect"].iter().any(|key| raw.contains_key(*key)) {
            return Ok(None);
        }
        if raw.contains_key("cafile") && raw.get("tlsskipverify").is_some_and(|value| value == "true") {
            return Err("cafile= has no meaning with tlsskipverify=true; write one of them".to_owned());
        }
        let connect = super::truth("connect", raw.get("connect").map(String::as_str), false)?;
        let other = ["cafile", "clientcert", "tlsskipverify"].into_iter().find(|key| raw.contains_key(*key));
        if let (true, Some(other)) = (connect, other) {
            return Err(format!("{other} has no meaning with connect=true; write one of them"));
        }
        let name = |key: &str| match raw.get(key) {
            None => Ok(None),
            Some(text) if is_name(text) => Ok(Some(Arc::<str>::from(text.as_str()))),
            Some(text) => Err(format!(
                "{key}={text:?} is no name; write {key}=NAME, where NAME is an entry of proxy.targettls, not a path"
            )),
        };
        let server_name = match raw.get("servername") {
            None => None,
            Some(text) if rustls_pki_types::ServerName::try_from(text.as_str()).is_ok() => Some(text.as_str().into()),
            Some(text) => return Err(format!("servername={text:?} is no server name; write servername=web.internal")),
        };
        let alpn = match raw.get("alpn") {
            None => Arc::default(),
            Some(list) => {
                let protocols: Vec<Arc<str>> = list.split(',').map(Into::into).collect();
                if protocols.iter().any(|protocol| protocol.is_empty() || protocol.len() > 255) {
                    return Err(format!(
                        "alpn={list:?} is no list of protocols; write alpn=postgresql or alpn=h2,http/1.1"
                    ));
                }
                protocols.into()
            }
        };
        let reach = Self { authorities: name("cafile")?, certificate: name("clientcert")?, server_name, alpn, connect };
        Ok(Some(Box::new(reach)))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    #[test]
    fn meanings() {
        let reach =
            *Reach::parse(&split("cafile=corp clientcert=me servername=web.internal alpn=a,b")).unwrap().unwrap();
        assert_eq!((reach.authorities.as_deref(), reach.certificate.as_deref()), (Some("corp"), Some("me")));
        assert_eq!((reach.server_name.as_deref(), &*reach.alpn), (Some("web.internal"), &["a".into(), "b".into()][..]));
        assert_eq!(Reach::parse(&split("strip=/a")), Ok(None));
    }

    #[test]
    fn mistakes() {
        for (text, hint) in [
            ("cafile=/etc/passwd", "not a path"),
            ("cafile=../x", "not a path"),
            ("cafile=", "no name"),
            ("cafile=a tlsskipverify=true", "write one of them"),
            ("connect=yes", "write true or false"),
            ("connect=true cafile=a", "write one of them"),
            ("connect=true tlsskipverify=false", "write one of them"),
            ("clientcert=a/b", "not a path"),
            ("servername=", "no server name"),
            ("servername=a_b:1", "no server name"),
            ("alpn=", "no list"),
            ("alpn=a,,b", "no list"),
        ] {
            let why = Reach::parse(&split(text)).unwrap_err();
            assert!(why.contains(hint), "{text}: {why}");
        }
    }
}
