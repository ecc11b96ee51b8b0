//! `mirror=service:percent`: some requests are also sent to another service, whose answers nobody sees.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Who gets copies of requests, and of how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub service: Arc<str>,
    /// Requests whose random number is not above this one are copied.
    threshold: u64,
}

impl Mirror {
    /// Is the request with this random number copied?
    pub fn takes(&self, random: u64) -> bool {
        random <= self.threshold
    }

    pub(super) fn parse(raw: &BTreeMap<String, String>) -> Result<Option<Box<Self>>, String> {
        let Some(text) = raw.get("mirror") else { return Ok(None) };
        let wrong = || format!("mirror={text:?} is no service and percentage; write mirror=shadow:10 for ten percent");
        let (service, percent) = text.rsplit_once(':').unwrap_or((text, "100"));
        let percent = percent.strip_suffix('%').unwrap_or(percent);
        let plain = percent.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let percent: f64 = Some(percent).filter(|_| plain).and_then(|p| p.parse().ok()).ok_or_else(wrong)?;
        if service.is_empty() || !(percent > 0.0 && percent <= 100.0) {
            return Err(wrong());
        }
        // The cast saturates.
        let threshold = (percent / 100.0 * 2f64.powi(64)) as u64;
        Ok(Some(Box::new(Self { service: service.into(), threshold })))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::options::split;

    #[test]
    fn how_many_are_copied() {
        for (text, service, below, above) in [
            ("mirror=shadow:10", "shadow", Some(u64::MAX / 11), Some(u64::MAX / 9)),
            ("mirror=shadow:10%", "shadow", Some(u64::MAX / 11), Some(u64::MAX / 9)),
            ("mirror=shadow", "shadow", Some(u64::MAX), None),
            ("mirror=shadow:100", "shadow", Some(u64::MAX), None),
            ("mirror=a:b:0.5", "a:b", Some(u64::MAX / 201), Some(u64::MAX / 199)),
        ] {
            let mirror = Mirror::parse(&split(text)).unwrap().unwrap();
            assert_eq!(&*mirror.service, service, "{text}");
            assert!(below.is_none_or(|n| mirror.takes(n)) && above.is_none_or(|n| !mirror.takes(n)), "{text}");
        }
    }

    #[test]
    fn mistakes() {
        for text in [
            "mirror=",
            "mirror=:10",
            "mirror=s:0",
            "mirror=s:101",
            "mirror=s:-1",
            "mirror=s:x",
            "mirror=s:",
            "mirror=s:nan",
        ] {
            let why = Mirror::parse(&split(text)).unwrap_err();
            assert!(why.contains("write mirror=shadow:10"), "{text}: {why}");
        }
    }
}
