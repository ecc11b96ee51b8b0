//! What the route language knows and nobody serves yet. A route that asks for it is refused, so that it fails closed
//! instead of being served without.

use std::collections::BTreeMap;

use super::Scheme;

/// Key of an option (`scheme` is the destination's), whether a value of it is meant, why it is refused.
type Rule = (&'static str, fn(&str) -> bool, &'static str);

const PENDING: &[Rule] = &[];

/// The reason to refuse a route with these options and this scheme of its destination.
pub(super) fn check(options: &BTreeMap<String, String>, scheme: Scheme) -> Result<(), String> {
    let given = options.iter().map(|(k, v)| (k.as_str(), v.as_str())).filter(|(key, _)| *key != "scheme");
    for (key, value) in given.chain([("scheme", scheme.name())]) {
        if let Some(reason) = reason(key, value) {
            return Err(reason.to_owned());
        }
    }
    Ok(())
}

pub(super) fn reason(key: &str, value: &str) -> Option<&'static str> {
    PENDING.iter().find(|(k, meant, _)| *k == key && meant(value)).map(|(_, _, reason)| *reason)
}
