//! Tags of an instance, one per NUL-terminated piece: whatever is in them, other services keep their routes, and every
//! target of the listing stays one line.
#![no_main]

use ferrio::route::{Builder, Entry, Instance, Settings, Turn, parse_tags, path};
use libfuzzer_sys::fuzz_target;

fn entries(service: &str, tags: Vec<String>) -> Vec<Entry> {
    let instance = Instance {
        service: service.into(),
        id: format!("node/{service}").into(),
        datacenter: None,
        address: "10.0.0.1".to_owned(),
        port: 8000,
        tags,
        options: Default::default(),
        down: false,
    };
    parse_tags(&instance, "urlprefix-", "dc1").entries
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let tags: Vec<String> = text.split('\0').map(str::to_owned).collect();
    let mut builder = Builder::new(Settings::default());
    builder.service("victim", entries("victim", vec!["urlprefix-victim.example.com/only/here".to_owned()]));
    builder.service("odd", entries("odd", tags));
    let table = builder.build().table;

    assert!(table.routes().any(|route| route.targets.iter().any(|target| &*target.service == "victim")));
    let shown = table.routes().flat_map(|route| &route.targets).filter(|target| target.share > 0.0).count();
    assert_eq!(table.listing().split('\n').count(), shown);
    for route in table.routes() {
        route.pick(Turn::Nth(1));
        for target in &route.targets {
            let cleaned = path::clean(&route.path);
            assert!(cleaned.forward(&target.options).starts_with('/'));
            if let Some(redirect) = &target.options.redirect {
                let location = redirect.location(target, "h.example.com", &cleaned, Some("q"));
                assert!(location.bytes().all(|b| b.is_ascii_graphic()));
            }
        }
    }
});
