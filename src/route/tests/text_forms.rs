//! The table as people see it.

use super::*;

#[test]
fn listing_order_and_form() {
    let table = table(
        "route add b z.com/q http://b/ weight 0.25\nroute add a a.com/ http://a/ tags \"t1,t2\"\nroute add a / http://a/ opts \"z=1 a=2 bare\"\nroute add a /x http://a\nroute add c a.com/ http://c/ weight 0",
    );
    assert_eq!(
        table.listing(),
        "route add b z.com/q http://b/ weight 0.2500\nroute add a a.com/ http://a/ tags \"t1,t2\"\nroute add a /x http://a\nroute add a / http://a/ opts \"a=2 bare= z=1\""
    );
    let order: Vec<String> = table.routes().map(|r| format!("{}{}", r.host, r.path)).collect();
    assert_eq!(order, ["/x", "/", "a.com/", "z.com/q"]);
    assert_eq!(table.size(), (4, 5));
    assert_eq!(Table::default().listing(), "");
}

#[test]
fn listing_can_be_read_again() {
    let text = "route add b z.com/q http://b/ weight 0.2500 tags \"a,b\" opts \"strip=/q\"\nroute add t :1234 tcp://t:1\nroute add a / http://a";
    let once = table(text).listing();
    assert_eq!(table(&once).listing(), once);
}

#[test]
fn one_target_is_one_line_whatever_is_in_it() {
    let mut odd = instance(&["urlprefix-/a", "t\n1\",\\\u{7f}\u{85}x"]);
    odd.service = "s\nroute del x\u{2028}".into();
    let built = table_of(Settings::default(), &[odd], "");
    assert_eq!(
        built.table.listing(),
        r#"route add s\nroute\x20del\x20x\u2028 /a http://1.1.1.1:2222/ tags "t\n1\",\\\x7f\u0085x""#
    );
    assert_eq!(built.delta.lines().len(), 1);
}

#[test]
fn tree() {
    let table = table(
        "route add s / http://foo.com:800\nroute add s /foo http://foo.com:900\nroute add s abc.com/ http://foo.com:1000",
    );
    assert_eq!(
        table.tree(),
        "\
+-- host=
|   |-- path=/foo
|   |    +-- addr=foo.com:900 weight 1.00 slots 1/1
|   +-- path=/
|       +-- addr=foo.com:800 weight 1.00 slots 1/1
+-- host=abc.com
    +-- path=/
        +-- addr=foo.com:1000 weight 1.00 slots 1/1
"
    );
}

#[test]
fn slots_of_the_tree() {
    for (text, want) in [
        (
            "route add s / http://a/ weight 0.57\nroute add s / http://b/",
            &["a weight 0.57 slots 5699/9999", "b weight 0.43 slots 4300/9999"][..],
        ),
        (
            "route add s / http://a/ weight 0.2\nroute add s / http://b/ weight 0.3",
            &["a weight 0.40 slots 4000/10000", "b weight 0.60 slots 6000/10000"],
        ),
        ("route add s / http://a/\nroute add s / http://b/", &["a weight 0.50 slots 1/2", "b weight 0.50 slots 1/2"]),
        ("route add s / http://a/ weight 0\nroute add s / http://b/", &["b weight 1.00 slots 1/1"]),
        (
            "route add s / http://a/ weight 0.00001\nroute add s / http://b/",
            &["a weight 0.00 slots 1/10000", "b weight 1.00 slots 9999/10000"],
        ),
    ] {
        let tree = table(text).tree();
        let got: Vec<_> = tree.lines().filter_map(|line| line.split_once("addr=")).map(|(_, rest)| rest).collect();
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn delta_of_commands() {
    let mut builder = Builder::new(Settings::default());
    let entries = |address: &str| {
        parse_tags(&named_instance("web", address, &["urlprefix-/a", "urlprefix-/b"]), "urlprefix-", "").entries
    };
    builder.service("web", entries("1.1.1.1"));
    builder.manual(commands("route add m /m http://m/\nroute del x"));
    assert_eq!(
        builder.build().delta.lines(),
        [
            "+ route add web /b http://1.1.1.1:2222/",
            "+ route add web /a http://1.1.1.1:2222/",
            "+ route add m /m http://m/",
            "+ route del x"
        ]
    );
    let nothing = builder.build().delta;
    assert!(nothing.is_empty());
    builder.service("web", entries("2.2.2.2"));
    builder.manual(commands("route add m /m http://m/\nroute del y"));
    assert_eq!(
        builder.build().delta.lines(),
        [
            "- route add web /b http://1.1.1.1:2222/",
            "- route add web /a http://1.1.1.1:2222/",
            "+ route add web /b http://2.2.2.2:2222/",
            "+ route add web /a http://2.2.2.2:2222/",
            "- route del x",
            "+ route del y"
        ]
    );
    assert_eq!(
        builder.source_lines(),
        [
            "route add web /b http://2.2.2.2:2222/",
            "route add web /a http://2.2.2.2:2222/",
            "route add m /m http://m/",
            "route del y"
        ]
    );
    // Coming and going between two builds is no difference.
    builder.service("web", Vec::new());
    builder.service("web", entries("2.2.2.2"));
    assert!(builder.build().delta.is_empty());
}
