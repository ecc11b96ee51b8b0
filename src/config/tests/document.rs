//! Properties from a URL, served by a socket of our own.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// Answers one connection for each answer, then is gone. The URL of its root.
fn serve(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            _ = stream.write_all(&answer);
        }
    });
    url
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn load(url: &str) -> Result<Outcome, Failure> {
    Input { arguments: vec!["-cfg", url], ..Input::default() }.load()
}

#[test]
fn the_encoding_follows_the_content_type() {
    for (content_type, body, want) in [
        ("", "ui.title = \u{e9}".as_bytes(), "\u{e9}"),
        ("Content-Type: text/plain; charset=UTF-8\r\n", "ui.title = \u{e9}".as_bytes(), "\u{e9}"),
        ("Content-Type: text/plain\r\n", b"ui.title = \xe9", "\u{e9}"),
        ("Content-Type: text/plain ; charset=latin1\r\n", b"ui.title = \xe9", "\u{e9}"),
        ("Content-Type: Text/Plain;charset=ISO-8859-1\r\n", b"ui.title = \xe9", "\u{e9}"),
    ] {
        let url = serve(vec![answer("200 OK", content_type, body)]);
        match load(&format!("{url}/fabio.properties")) {
            Ok(Outcome::Run { config, .. }) => assert_eq!(config.admin.unwrap().title, want, "{content_type}"),
            other => panic!("{content_type}: {other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_fetched_is_said_without_its_secrets() {
    let json = answer("200 OK", "Content-Type: application/json\r\n", b"{}");
    let gone = answer("404 Not Found", "", b"ui.title = x");
    let broken = answer("200 OK", "", b"= x");
    let url = serve(vec![json, gone, broken]);
    for want in [
        "properties: invalid content type application/json".to_owned(),
        format!("properties: {url}/p?token=<redacted> returned 404"),
        format!("{url}/p?token=<redacted>: properties: Line 1: \"x\""),
    ] {
        let failure = load(&format!("{url}/p?token=s3cret")).unwrap_err();
        assert!(failure.code == 1 && failure.message.contains(&want), "{}", failure.message);
        assert!(!failure.message.contains("s3cret"));
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = load(&format!("http://u:s3cret@{closed}/p")).unwrap_err();
    assert!(
        failure.message.contains(&format!("properties: error fetching \"http://<redacted>@{closed}/p\". ")),
        "{}",
        failure.message
    );
    assert!(!failure.message.contains("s3cret"));
}

#[test]
fn redirects_are_followed_and_variables_expanded() {
    let to = serve(vec![answer("200 OK", "", b"ui.title = moved")]);
    let url = serve(vec![answer("302 Found", &format!("Location: {to}/x\r\n"), b"")]);
    let input = Input { arguments: vec!["-cfg", "${WHERE}/p"], variables: vec![("WHERE", &url)], ..Input::default() };
    assert_eq!(input.run().0.admin.unwrap().title, "moved");
    assert!(load("${open").unwrap_err().message.contains("malformed expression"));
}

#[test]
fn a_file_without_an_end_is_refused() {
    let failure = load("/dev/zero").unwrap_err();
    assert!(failure.message.contains("larger than"), "{}", failure.message);
    let url = serve(vec![answer("200 OK", "", &vec![b'#'; 9 << 20])]);
    assert!(load(&url).unwrap_err().message.contains("larger than"));
    assert!(load("/tmp").unwrap_err().message.contains("is a directory"));
}
