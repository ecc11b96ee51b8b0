//! The options that mean something, and which of them somebody may have meant.

use std::collections::BTreeMap;

use super::{TAG_OPTIONS, tag_option};

/// `true` or `false`; without the option, what is usual.
pub(in super::super) fn truth(key: &str, value: Option<&str>, usual: bool) -> Result<bool, String> {
    match value {
        None | Some("") => Ok(usual),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(format!("{key}={other:?} is neither; write true or false")),
    }
}

/// What an operator should know about options that are kept and do nothing. They do not cost the route: fabio takes any.
pub(super) fn hint(options: &BTreeMap<String, String>) -> Option<String> {
    let misspelled = |key: &String| {
        nearest_option(key).map(|known| format!("{key:?} is no option and does nothing; did you mean {known}?"))
    };
    let told: Vec<String> =
        options.iter().filter_map(|(key, value)| misspelled(key).or_else(|| idle_value(key, value))).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Values of fabio's own options that fabio takes for nothing.
fn idle_value(key: &str, value: &str) -> Option<String> {
    let meant = match key {
        "tlsskipverify" if !matches!(value, "true" | "false" | "") => "tlsskipverify=true",
        "pxyproto" if !matches!(value, "true" | "false" | "v1" | "v2" | "") => "pxyproto=v1 or pxyproto=v2",
        _ => return None,
    };
    Some(format!("{key}={:?} does nothing; write {meant}", super::super::excerpt(value)))
}

/// The option that differs by a slip of the hand from a name that is none.
pub fn nearest_option(key: &str) -> Option<&'static str> {
    if tag_option(key).is_some() || key.len() > LONGEST {
        return None;
    }
    let lower = key.to_ascii_lowercase();
    TAG_OPTIONS
        .iter()
        .map(|option| option.name)
        .find(|known| *known == lower || known.len() >= SHORTEST && is_slip(known, &lower))
}

/// One byte more, less or other, or two that have changed places.
fn is_slip(known: &str, given: &str) -> bool {
    let (a, b) = (known.as_bytes(), given.as_bytes());
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    match (a, b) {
        ([_, a @ ..], b) if a == b => true,
        (a, [_, b @ ..]) if a == b => true,
        ([_, a @ ..], [_, b @ ..]) if a == b => true,
        ([x, y, a @ ..], [v, w, b @ ..]) => (x, y, a) == (w, v, b),
        _ => false,
    }
}

/// Shorter words are a slip away from too much.
const SHORTEST: usize = 4;
const LONGEST: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips() {
        for (key, known) in [
            ("stirp", Some("strip")),
            ("strp", Some("strip")),
            ("sttrip", Some("strip")),
            ("STRIP", Some("strip")),
            ("Host", Some("host")),
            ("tlsskipverfy", Some("tlsskipverify")),
            ("retries", None),
            ("color", None),
            ("a", None),
            ("", None),
            ("blimp", None),
            ("strip", None),
            ("é", None),
        ] {
            assert_eq!(nearest_option(key), known, "{key}");
        }
        for known in TAG_OPTIONS.iter().map(|option| option.name) {
            assert_eq!(nearest_option(known), None, "{known}");
        }
    }

    #[test]
    fn values_that_do_nothing() {
        for (key, value, told) in [
            ("tlsskipverify", "1", true),
            ("tlsskipverify", "TRUE", true),
            ("tlsskipverify", "true", false),
            ("tlsskipverify", "", false),
            ("pxyproto", "2", true),
            ("pxyproto", "v2", false),
            ("whatever", "1", false),
        ] {
            assert_eq!(hint(&[(key.to_owned(), value.to_owned())].into()).is_some(), told, "{key}={value}");
        }
        let several =
            [("stirp", "/a"), ("tlsskipverify", "1"), ("host", "dst")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let told = hint(&several.into()).expect("two of them do nothing");
        assert!(told.contains("strip?") && told.contains("tlsskipverify=true"), "{told}");
    }
}
