//! The route language and the JSON form: what is read, what is refused and why.

use super::*;

/// Commands as the language writes them.
fn lines(text: &str) -> Vec<String> {
    commands(text).iter().map(|entry| entry.command.to_string()).collect()
}

fn reason(line: &str) -> String {
    let parsed = parse_text(line, line_of);
    assert_eq!((parsed.entries.len(), parsed.rejects.len()), (0, 1), "{line}: {parsed:?}");
    parsed.rejects[0].reason.clone()
}

#[test]
fn commands_that_are_read() {
    let full = r#"route add svc /prefix http://1.2.3.4/ weight 1.2 tags "a,b" opts "baz=bang blimp= foo=bar""#;
    for (line, want) in [
        ("route add svc /prefix http://1.2.3.4/", "route add svc /prefix http://1.2.3.4/"),
        ("route add svc :1234 tcp://1.2.3.4:5678", "route add svc :1234 tcp://1.2.3.4:5678"),
        ("route add svc /prefix http://1.2.3.4/ weight 1.2", "route add svc /prefix http://1.2.3.4/ weight 1.2"),
        (
            r#"route add svc /prefix http://1.2.3.4/ weight 1.2 tags "a,b""#,
            r#"route add svc /prefix http://1.2.3.4/ weight 1.2 tags "a,b""#,
        ),
        (
            r#"route add svc /prefix http://1.2.3.4/ weight 1.2 opts "foo=bar baz=bang blimp""#,
            r#"route add svc /prefix http://1.2.3.4/ weight 1.2 opts "baz=bang blimp= foo=bar""#,
        ),
        (r#"route add svc /prefix http://1.2.3.4/ weight 1.2 tags "a,b" opts "foo=bar baz=bang blimp""#, full),
        (
            r#" route  add  svc  /prefix  http://1.2.3.4/  weight  1.2  tags  " a , b "  opts  "foo=bar  baz=bang  blimp" "#,
            full,
        ),
        ("route\tadd\x0csvc\t/prefix http://1.2.3.4/", "route add svc /prefix http://1.2.3.4/"),
        (r#"route add svc /prefix http://1.2.3.4/ tags "a,b""#, r#"route add svc /prefix http://1.2.3.4/ tags "a,b""#),
        (
            r#"route add svc /prefix http://1.2.3.4/ tags "a,b" opts "foo=bar""#,
            r#"route add svc /prefix http://1.2.3.4/ tags "a,b" opts "foo=bar""#,
        ),
        (
            r#"route add svc /prefix http://1.2.3.4/ opts "foo=bar""#,
            r#"route add svc /prefix http://1.2.3.4/ opts "foo=bar""#,
        ),
        (r#"route add svc /prefix http://1.2.3.4/ tags "" opts """#, "route add svc /prefix http://1.2.3.4/"),
        (
            r#"route add svc /prefix http://1.2.3.4/ tags "a,,b""#,
            r#"route add svc /prefix http://1.2.3.4/ tags "a,,b""#,
        ),
        (
            r#"route add svc /prefix http://1.2.3.4/ opts "a=1 a=2 b=c=d""#,
            r#"route add svc /prefix http://1.2.3.4/ opts "a=2 b=c=d""#,
        ),
        ("route add svc /prefix http://1.2.3.4/ weight 0", "route add svc /prefix http://1.2.3.4/ weight 0"),
        ("route add svc /prefix http://1.2.3.4/ weight -1", "route add svc /prefix http://1.2.3.4/"),
        ("route add svc FOO.com/Bar HTTP://Host/", "route add svc foo.com/Bar http://Host/"),
        (r#"route del tags "a,b""#, r#"route del tags "a,b""#),
        (r#"route  del  tags  " a , b ""#, r#"route del tags "a,b""#),
        (r#"route del tags """#, r#"route del tags """#),
        ("route del svc", "route del svc"),
        (r#"route del svc tags "a,b""#, r#"route del svc tags "a,b""#),
        (r#"route  del  svc  tags  " a , b ""#, r#"route del svc tags "a,b""#),
        (r#"route del svc tags """#, "route del svc"),
        ("route del svc /prefix", "route del svc /prefix"),
        ("route del svc :1234", "route del svc :1234"),
        ("route del svc /prefix http://1.2.3.4/", "route del svc /prefix http://1.2.3.4/"),
        ("route del svc :1234 tcp://1.2.3.4:5678", "route del svc :1234 tcp://1.2.3.4:5678"),
        ("route del svc :1234 grpc://1.2.3.4:5678", "route del svc :1234 grpc://1.2.3.4:5678"),
        ("route del tags foo", "route del tags foo/"),
        ("route del tags", "route del tags"),
        ("route weight svc /prefix weight 1.2", "route weight svc /prefix weight 1.2"),
        (r#"route weight svc /prefix weight 1.2 tags "a,b""#, r#"route weight svc /prefix weight 1.2 tags "a,b""#),
        (
            r#"route  weight  svc  /prefix  weight  1.2  tags  " a , b ""#,
            r#"route weight svc /prefix weight 1.2 tags "a,b""#,
        ),
        (r#"route weight /prefix weight 1.2 tags "a,b""#, r#"route weight /prefix weight 1.2 tags "a,b""#),
        (r#"route  weight  /prefix  weight  1.2  tags  " a , b ""#, r#"route weight /prefix weight 1.2 tags "a,b""#),
        ("route weight svc /prefix weight -0.5", "route weight svc /prefix weight -1"),
    ] {
        assert_eq!(lines(line), [want], "{line}");
        // What is written can be read again, and means the same.
        assert_eq!(lines(want), [want]);
    }
    let [Entry { command: Command::Delete(delete), .. }] = &commands("route del tags foo")[..] else { panic!() };
    assert_eq!((delete.service.as_deref(), delete.tags.len()), (Some("tags"), 0));
}

#[test]
fn commands_that_are_refused() {
    for (line, hint) in [
        ("bang", "'route' expected"),
        ("route x", "'route' expected"),
        ("route", "'route' expected"),
        ("Route add s /p http://h/", "'route' expected"),
        ("route addx s /p http://h/", "'route' expected"),
        ("route add", "'route add' invalid"),
        ("route add svc", "'route add' invalid"),
        ("route add svc /p", "write route add <service> <source> <destination>"),
        (r#"route add s /p http://h/ opts "x=1" weight 1"#, "'route add' invalid"),
        (r#"route add s /p http://h/ opts "x=1" tags "a""#, "'route add' invalid"),
        ("route add s /p http://h/ # note", "'route add' invalid"),
        ("route add my svc /p http://h/", "'route add' invalid"),
        ("route add s /p http://h/ tags a", "'route add' invalid"),
        (r#"route add s /p http://h/ tags "a"#, "'route add' invalid"),
        (r#"route add s /p http://h/ tags "a"b"#, "'route add' invalid"),
        ("route add s /p http://h/ weight", "'route add' invalid"),
        ("route add s /p http://h/ weight abc", "weight value invalid"),
        ("route add s /p http://h/ weight inf", "weight value invalid"),
        ("route add s /p http://h/ weight nan", "weight value invalid"),
        ("route add s /p h:80", "write http://h:80/"),
        ("route add s /p :5000", "write http://host:5000"),
        ("route add s /p http://h:8080$path", "before $path"),
        ("route add s :x tcp://h:80", "is not a port"),
        (r#"route add s /p http://h/ opts "proto=h2""#, "write the destination as https://"),
        (r#"route add s /p https://h/ opts "proto=h2c""#, "write the destination as http://"),
        (r#"route add s /p http://h/ opts "redirect=abc""#, "no code from 300 to 399"),
        (r#"route add s /p http://h/ opts "redirect=200""#, "no code from 300 to 399"),
        (r#"route add s /p http://h/ opts "redirect=""#, "no code from 300 to 399"),
        (r#"route add s /p http://h/ opts "redirect""#, "no code from 300 to 399"),
        (r#"route add s /p http://h/ opts "redirect=301,http://x/""#, "the URL is the destination"),
        (r#"route add s :80 tcp://h:80 opts "redirect=301""#, "needs an http or https URL"),
        ("route del", "'route del' invalid"),
        ("route del a /b http://c/ d", "'route del' invalid"),
        ("route del a /b c", "write http://c/"),
        (r#"route del tags "a" x"#, "write http://x/"),
        ("route weight svc /p", "'route weight' invalid"),
        ("route weight /prefix weight 0.5", "'route weight' invalid"),
        ("route weight svc /p weight", "'route weight' invalid"),
        ("route weight svc /p weight x", "weight value invalid"),
        (r#"route weight /p weight nan tags "a""#, "weight value invalid"),
    ] {
        let reason = reason(line);
        assert!(reason.contains(hint), "{line}: {reason}");
    }
}

#[test]
fn lines_are_counted_with_blanks_and_comments() {
    let text =
        "\u{feff}# first\r\n\r\n// second\r\nroute add a / http://h/\r\n  rout add typo\nroute weight a / weight 1";
    let parsed = parse_text(text, |line| Origin::Key { key: "fabio/config".into(), line });
    let at = |line| Origin::Key { key: "fabio/config".into(), line };
    assert_eq!(parsed.entries.iter().map(|e| e.origin.clone()).collect::<Vec<_>>(), [at(4), at(6)]);
    assert_eq!(parsed.rejects[0].origin, at(5));
    assert_eq!(parsed.rejects[0].text, "rout add typo");
    assert_eq!(parse_text("", line_of), Parsed::default());
}

#[test]
fn a_line_of_any_length_hides_nothing() {
    let text = format!("# {}\nroute {}\nroute add s /behind http://h/", "x".repeat(70_000), "é".repeat(200_000));
    let parsed = parse_text(&text, line_of);
    assert_eq!((parsed.entries.len(), parsed.rejects.len()), (1, 1));
    assert!(parsed.rejects[0].text.len() < 2000);
}

#[test]
fn r32_one_bad_line_costs_itself() {
    let text = "route weight gone /x weight 0.5\nrout add typo\nroute add ok /ok http://10.0.0.1:1/";
    let parsed = parse_text(text, line_of);
    assert_eq!(parsed.rejects.len(), 1);
    let mut builder = Builder::new(Settings::default());
    builder
        .service("web", parse_tags(&named_instance("web", "2.2.2.2", &["urlprefix-/web"]), "urlprefix-", "").entries);
    builder.manual(parsed.entries);
    let built = builder.build();
    assert_eq!((served_by(&built.table, "h", "/ok"), served_by(&built.table, "h", "/web")), ("ok", "web"));
    assert_eq!(built.rejects.len(), 1);
    assert!(built.rejects[0].reason.contains("route: no target match"), "{:?}", built.rejects);
    assert_eq!(built.rejects[0].origin, line_of(1));
}

#[test]
fn r38_line_ends_comments_and_byte_order_mark() {
    assert_eq!(
        lines("\u{feff}route add a / http://h/\r\n# no\r\n// no\r\n\r\nroute del b\r\n"),
        ["route add a / http://h/", "route del b"]
    );
}

const DOCUMENT: &str = r#"[
    {"cmd": "route add", "service": "service1", "src": "app.com", "dst": "http://10.1.1.1:8080", "weight": 0.5,
     "tags": ["tag1", "tag2"], "opts": {"tlsskipverify": "true", "proto": "http"}},
    {"cmd": "route add", "service": "service1", "src": "app.com", "dst": "http://10.1.1.2:8080", "weight": 0.5,
     "tags": ["tag1", "tag2"], "opts": {"tlsskipverify": "true", "proto": "http"}},
    {"cmd": "route add", "service": "service2", "src": "app.com", "dst": "http://10.1.1.3:8080", "weight": 0.25,
     "tags": ["tag1", "tag2"], "opts": {"tlsskipverify": "true", "proto": "http"}},
    {"cmd": "route weight", "service": "service1", "src": "app.com", "weight": 0.10, "tags": ["tag1", "tag2"]},
    {"cmd": "route weight", "service": "service3", "src": "example.com", "weight": 1}
]"#;

#[test]
fn json_definitions() {
    let definitions: Vec<Definition> = serde_json::from_str(DOCUMENT).unwrap();
    let parsed = parse_definitions(definitions);
    assert_eq!(parsed.rejects, []);
    assert_eq!(parse_json(DOCUMENT.as_bytes()).unwrap().entries, parsed.entries);
    let mut builder = Builder::new(Settings::default());
    builder.manual(parsed.entries);
    let built = builder.build();
    assert_eq!(
        built.table.listing(),
        r#"route add service1 app.com/ http://10.1.1.1:8080 weight 0.0500 tags "tag1,tag2" opts "proto=http tlsskipverify=true"
route add service1 app.com/ http://10.1.1.2:8080 weight 0.0500 tags "tag1,tag2" opts "proto=http tlsskipverify=true"
route add service2 app.com/ http://10.1.1.3:8080 weight 0.2500 tags "tag1,tag2" opts "proto=http tlsskipverify=true""#
    );
    assert_eq!(built.rejects.len(), 1);
    assert_eq!(built.rejects[0].origin, Origin::Custom { index: 4 });
}

#[test]
fn json_that_is_odd() {
    let read = |text: &str| parse_json(text.as_bytes()).unwrap();
    for empty in ["null", "[]", "[null]", "[{}]", r#"[{"cmd": null, "weight": null, "tags": null, "opts": null}]"#] {
        assert_eq!(read(empty), Parsed::default(), "{empty}");
    }
    assert_eq!(
        serde_json::from_str::<Definition>(
            r#"{"src": null, "tags": [null, "a"], "opts": {"a": null, "b": true, "c": 5}}"#
        )
        .unwrap()
        .tags,
        Some(vec!["a".to_owned()])
    );
    for bad in ["", "{}", "[", "5"] {
        assert!(parse_json(bad.as_bytes()).is_err(), "{bad}");
    }
    let parsed = read(
        r#"[{"cmd": "route add", "service": "s", "src": "/a", "dst": "http://h/", "weight": 0, "opts": {"x": null, "tlsskipverify": true}},
            {"cmd": "route add", "service": "s", "src": "/b", "dst": "http://h/", "weight": -1},
            {"cmd": "route weight", "service": "s", "src": "/a", "weight": 0}]"#,
    );
    assert_eq!(parsed.rejects, []);
    assert_eq!(parsed.entries[0].command.to_string(), r#"route add s /a http://h/ opts "tlsskipverify=true x=""#);
    assert_eq!(parsed.entries[1].command.to_string(), "route add s /b http://h/");
    assert_eq!(parsed.entries[2].command.to_string(), "route weight s /a weight 0");
    for (bad, hint) in [
        (r#"{"cmd": "route add", "service": "s", "dst": "http://h/"}"#, "route: prefix must not be empty"),
        (r#"{"cmd": "route add", "service": "s", "src": "/a"}"#, "route: target must not be empty"),
        (r#"{"cmd": "route add", "src": "/a", "dst": "http://h/"}"#, "name of the service is empty"),
        (r#"{"cmd": "route add", "service": "s", "src": "/a", "dst": "h"}"#, "route: invalid target."),
        (r#"{"cmd": "route foo", "service": "s"}"#, "route: invalid command: \"route foo\""),
        (r#"{"service": "s"}"#, "route: invalid command"),
        (r#"{"cmd": "route add", "service": 5}"#, "no route definition"),
        ("5", "no route definition"),
        (r#"{"cmd": "route weight", "service": "s", "src": "/a"}"#, "needs weight"),
        (r#"{"cmd": "route weight", "src": "/a", "weight": 1}"#, "needs service or tags"),
        (r#"{"cmd": "route del", "src": "/a"}"#, "needs service"),
        (
            r#"{"cmd": "route add", "service": "s", "src": "/a", "dst": "http://h/", "opts": {"strip": "a\nb"}}"#,
            "control characters",
        ),
        (r#"{"cmd": "route add", "service": "s", "src": "/a\nb", "dst": "http://h/"}"#, "control characters"),
    ] {
        let parsed = read(&format!("[{bad}, {}]", r#"{"cmd": "route del", "service": "s"}"#));
        assert_eq!((parsed.entries.len(), parsed.rejects.len()), (1, 1), "{bad}: {parsed:?}");
        assert!(parsed.rejects[0].reason.contains(hint), "{bad}: {:?}", parsed.rejects);
    }
}
