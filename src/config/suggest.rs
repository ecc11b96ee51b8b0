//! The known name that a mistyped one probably means.

use super::options::OPTIONS;

/// The nearest key, if one is near.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    near(name, OPTIONS.iter().map(|spec| spec.key))
}

/// The candidate with the fewest edits, if these are few for its length. Case counts half an edit at most.
pub(crate) fn near<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes a name of this length into one of ours.
    if name.len() > 100 {
        return None;
    }
    let lower = name.to_lowercase();
    candidates
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(edits, candidate)| *edits <= (candidate.len() / 5).clamp(1, 4))
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove or exchange.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        for (name, want) in [
            ("proxy.adr", Some("proxy.addr")),
            ("Proxy.Addr", Some("proxy.addr")),
            ("proxy.noroutstatus", Some("proxy.noroutestatus")),
            ("registry.consul.checksrequired", Some("registry.consul.checksRequired")),
            ("no.such.flag", None),
            ("", None),
        ] {
            assert_eq!(nearest(name), want, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000)), None);
    }
}
