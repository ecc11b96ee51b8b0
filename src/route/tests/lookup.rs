//! Which route a request gets.

use super::*;

const TABLE_A: &str = "
    route add s / http://foo.com:800
    route add s /foo http://foo.com:900
    route add s abc.com/ http://foo.com:1000
    route add s abc.com/foo http://foo.com:1500
    route add s abc.com/foo/ http://foo.com:2000
    route add s abc.com/foo/bar http://foo.com:2500
    route add s abc.com/foo/bar/ http://foo.com:3000
    route add s z.abc.com/foo/ http://foo.com:3100
    route add s *.abc.com/ http://foo.com:4000
    route add s *.abc.com/foo/ http://foo.com:5000
    route add s *.aaa.abc.com/ http://foo.com:6000
    route add s *.bbb.abc.com/ http://foo.com:6100
    route add s xyz.com:80/ https://xyz.com";

#[test]
fn table_a() {
    let table = table(TABLE_A);
    for (host, tls, path, want) in [
        ("abc.com", false, "/", "http://foo.com:1000"),
        ("abc.com", false, "/bar", "http://foo.com:1000"),
        ("abc.com", false, "/foo", "http://foo.com:1500"),
        ("abc.com", false, "/foo/", "http://foo.com:2000"),
        ("abc.com", false, "/foo/bar", "http://foo.com:2500"),
        ("abc.com", false, "/foo/bar/", "http://foo.com:3000"),
        ("def.com", false, "/", "http://foo.com:800"),
        ("def.com", false, "/bar", "http://foo.com:800"),
        ("def.com", false, "/foo", "http://foo.com:900"),
        ("abc.com:80", false, "/", "http://foo.com:1000"),
        ("abc.com:443", true, "/", "http://foo.com:1000"),
        ("abc.com:443", false, "/", "http://foo.com:800"),
        ("abc.com:80", true, "/", "http://foo.com:800"),
        ("x.abc.com", false, "/", "http://foo.com:4000"),
        ("y.abc.com", false, "/abc", "http://foo.com:4000"),
        ("x.abc.com", false, "/foo/", "http://foo.com:5000"),
        ("y.abc.com", false, "/foo/", "http://foo.com:5000"),
        (".abc.com", false, "/foo/", "http://foo.com:5000"),
        ("x.y.abc.com", false, "/foo/", "http://foo.com:5000"),
        ("y.abc.com:80", false, "/foo/", "http://foo.com:5000"),
        ("y.abc.com:443", true, "/foo/", "http://foo.com:5000"),
        ("x.aaa.abc.com", false, "/", "http://foo.com:6000"),
        ("x.aaa.abc.com", false, "/foo", "http://foo.com:6000"),
        ("x.bbb.abc.com", false, "/", "http://foo.com:6100"),
        ("x.bbb.abc.com", false, "/foo", "http://foo.com:6100"),
        ("z.abc.com", false, "/foo/", "http://foo.com:3100"),
        ("z.abc.com", false, "/", "http://foo.com:4000"),
        ("xyz.com", false, "/", "https://xyz.com"),
        ("xyz.com", true, "/", "http://foo.com:800"),
    ] {
        assert_eq!(first(&table, host, tls, path), want, "{host} {tls} {path}");
    }
}
