//! Lists of options: no panic, no empty element, and a list that is written out quoted reads the same again.

#![no_main]

use ferrio::config::kvlist::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(list) = parse(text) else { return };
    let mut written = String::new();
    for map in &list {
        assert!(!map.pairs.is_empty());
        if !written.is_empty() {
            written.push(',');
        }
        // Only the first word may stand alone, and its key is the first of the map, being empty.
        let pairs: Vec<String> = map
            .pairs
            .iter()
            .map(|(key, value)| if key.is_empty() { quote(value) } else { format!("{}={}", quote(key), quote(value)) })
            .collect();
        written.push_str(&pairs.join(";"));
    }
    // An empty key with a value of its own (`a=b; =c`) has no other spelling.
    if text.contains('=') && list.iter().any(|map| map.get("").is_some_and(|value| value.trim() != value || value.is_empty())) {
        return;
    }
    let again = parse(&written).expect("quoted text");
    assert_eq!(again.iter().map(|m| &m.pairs).collect::<Vec<_>>(), list.iter().map(|m| &m.pairs).collect::<Vec<_>>());
});

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
