//! Commands in the route language and as JSON: nothing panics, and what is written out is read again as the same.
#![no_main]

use ferrio::route::{Builder, Matcher, Origin, Settings, parse_json, parse_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let origin = |line| Origin::Static { line };
    let parsed = parse_text(&text, origin);
    for entry in &parsed.entries {
        let line = entry.command.to_string();
        assert!(!line.contains('\n'));
        // Quotes and backslashes are written in a way that people read and the parser does not.
        if !line.contains(['"', '\\']) {
            let again = parse_text(&line, origin);
            assert_eq!(again.entries.first().map(|entry| entry.command.to_string()), Some(line));
        }
    }
    for (matcher, globs) in [(Matcher::Prefix, true), (Matcher::IPrefix, false), (Matcher::Glob, true)] {
        let mut builder = Builder::new(Settings { matcher, globs, ..Settings::default() });
        builder.manual(parsed.entries.clone());
        let table = builder.build().table;
        for route in table.routes() {
            table.http(&route.host, false, route.path.as_bytes()).count();
            table.http(&route.host, true, route.path.as_bytes()).count();
            table.tcp(&route.host);
        }
        table.listing();
        table.tree();
    }
    if let Ok(parsed) = parse_json(data) {
        let mut builder = Builder::new(Settings::default());
        builder.manual(parsed.entries);
        builder.build();
    }
});
