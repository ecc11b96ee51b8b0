//! Properties files: no panic, no endless work, and what was read reads the same again when it is written out escaped.

#![no_main]

use ferrio::config::properties::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(properties) = parse(text, |name| (name == "HOME").then(|| "/${USER}".to_owned())) else { return };
    let mut written = String::new();
    for property in &properties {
        escape(&property.key, &mut written);
        written.push('=');
        escape(&property.value, &mut written);
        written.push('\n');
    }
    // An expanded value may hold what looks like another reference.
    if properties.iter().any(|p| p.value.contains("${")) {
        return;
    }
    let again = parse(&written, |_| None).expect("escaped text");
    assert_eq!(again.len(), properties.len());
    for (a, b) in again.iter().zip(&properties) {
        assert_eq!((&a.key, &a.value), (&b.key, &b.value));
    }
});

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0c' => out.push_str("\\f"),
            ' ' | ':' | '=' | '\\' | '#' | '!' => out.extend(['\\', c]),
            // Would be taken for a byte order mark at the very beginning.
            '\u{feff}' => out.push_str("\\ufeff"),
            c => out.push(c),
        }
    }
}
