use http::Request;

use super::*;

#[test]
fn heads_lose_what_belongs_to_connections_only() {
    for (host, tls, uri, left) in [
        ("a.com", false, "http://a.com/x?q=1", false),
        ("a.com:8443", true, "https://a.com:8443/x?q=1", false),
        ("[::1]:80", false, "http://[::1]:80/x?q=1", false),
        ("", false, "/x?q=1", true),
    ] {
        let from = Request::put("/x?q=1")
            .header("host", host)
            .header("connection", "close")
            .header("transfer-encoding", "chunked")
            .header("te", "trailers")
            .header("x-a", "1");
        let (head, ()) = from.body(()).expect("valid").into_parts();
        let made = request(&head, tls);
        assert_eq!((made.method(), made.uri().to_string().as_str()), (&Method::PUT, uri), "{host}");
        assert_eq!(made.headers().contains_key("host"), left, "{host}");
        let mut names: Vec<_> =
            made.headers().keys().filter(|name| *name != "host").map(|name| name.as_str()).collect();
        names.sort();
        assert_eq!(names, ["te", "x-a"], "{host}");
    }
}
