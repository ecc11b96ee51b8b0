//! `ui.color`: the colour names of Materialize CSS, which is what fabio's pages are made with.

/// The class names for a configured colour: names we know, nothing else gets into a page.
pub(super) fn classes(configured: &str) -> String {
    let mut words = configured.split_ascii_whitespace();
    let known = |word: &&str| NAMES.contains(word) || is_shade(word);
    if configured.is_empty() || !words.clone().any(|word| NAMES.contains(&word)) {
        return DEFAULT.into();
    }
    let mut classes = String::new();
    for word in words.by_ref().filter(known) {
        if !classes.is_empty() {
            classes.push(' ');
        }
        classes.push_str(word);
    }
    classes
}

/// Whether [`classes`] knows all of it.
pub fn is_color(configured: &str) -> bool {
    let mut words = configured.split_ascii_whitespace();
    words.clone().any(|word| NAMES.contains(&word)) && words.all(|word| NAMES.contains(&word) || is_shade(word))
}

fn is_shade(word: &str) -> bool {
    word.split_once('-').is_some_and(|(kind, step)| {
        matches!(kind, "lighten" | "darken" | "accent") && matches!(step, "1" | "2" | "3" | "4" | "5")
    })
}

const DEFAULT: &str = "light-green";
/// Each has a rule in `assets/style.css`.
const NAMES: &[&str] = &[
    "red",
    "pink",
    "purple",
    "deep-purple",
    "indigo",
    "blue",
    "light-blue",
    "cyan",
    "teal",
    "green",
    "light-green",
    "lime",
    "yellow",
    "amber",
    "orange",
    "deep-orange",
    "brown",
    "grey",
    "blue-grey",
    "black",
    "white",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_pass() {
        for (configured, want) in [
            ("", DEFAULT),
            ("light-green", "light-green"),
            ("blue darken-2", "blue darken-2"),
            ("  red \t lighten-5 ", "red lighten-5"),
            ("darken-2", DEFAULT),
            ("nope", DEFAULT),
            ("red\"><script>", DEFAULT),
            ("red evil darken-9", "red"),
        ] {
            assert_eq!(classes(configured), want, "{configured:?}");
        }
    }

    #[test]
    fn every_name_has_a_rule() {
        let css = include_str!("assets/style.css");
        for name in NAMES {
            assert!(css.contains(&format!(".bar.{name} {{")), "no rule for {name}");
        }
    }
}
