#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant, UNIX_EPOCH};

use http::HeaderValue;

use super::field::{Field, NAMES};
use super::*;

/// The event that the specification shows every field of.
fn event(headers: &[Option<HeaderValue>]) -> Line<'_> {
    Line {
        method: "GET",
        uri: "/?q=x",
        path: "/",
        query: "q=x",
        version: "HTTP/1.1",
        scheme: b"http",
        host: b"foo.com",
        sent_host: b"foo.com",
        headers,
        status: 200,
        sent: 1234,
        ended: UNIX_EPOCH + Duration::new(1_451_606_400, 123_456_789),
        upstream: Some(Upstream { service: "svc-a", scheme: "http", addr: "7.8.9.0:5678", uri: "/foo?q=x" }),
        ..Line::new("http", "2.2.2.2:666".parse().unwrap(), Duration::from_nanos(123_456_789))
    }
}

fn rendered(template: &str, line: &Line<'_>, mask: &Mask) -> String {
    let mut out = Vec::new();
    Format::parse(template).unwrap().render(line, mask, &mut out);
    String::from_utf8(out).unwrap()
}

fn values(names: &[HeaderName]) -> Vec<Option<HeaderValue>> {
    let value = |name: &HeaderName| match name.as_str() {
        "referer" => Some("http://foo.com/"),
        "user-agent" => Some("Mozilla Firefox"),
        "x-forwarded-for" => Some("3.3.3.3"),
        "host" => Some("foo.com"),
        _ => None,
    };
    names.iter().map(|name| value(name).map(HeaderValue::from_static)).collect()
}

#[test]
fn every_field_of_fabio() {
    for (template, want) in [
        ("$header.user-agent", "Mozilla Firefox"),
        ("$header.X-Forwarded-For", "3.3.3.3"),
        ("[$header.none]", "[]"),
        ("[$header.Host]", "[]"),
        ("$remote_addr", "2.2.2.2:666"),
        ("$remote_host", "2.2.2.2"),
        ("$remote_port", "666"),
        ("$request", "GET /?q=x HTTP/1.1"),
        ("$request_args", "q=x"),
        ("$request_host", "foo.com"),
        ("$request_method", "GET"),
        ("$request_scheme", "http"),
        ("$request_uri", "/?q=x"),
        ("$request_url", "http://foo.com/?q=x"),
        ("$request_proto", "HTTP/1.1"),
        ("$response_body_size", "1234"),
        ("$response_status", "200"),
        ("$response_time_ms", "0.123"),
        ("$response_time_us", "0.123456"),
        ("$response_time_ns", "0.123456789"),
        ("$time_common", "01/Jan/2016:00:00:00 +0000"),
        ("$time_rfc3339", "2016-01-01T00:00:00Z"),
        ("$time_rfc3339_ms", "2016-01-01T00:00:00.123Z"),
        ("$time_rfc3339_us", "2016-01-01T00:00:00.123456Z"),
        ("$time_rfc3339_ns", "2016-01-01T00:00:00.123456789Z"),
        ("$time_unix_ms", "1451606400123"),
        ("$time_unix_us", "1451606400123456"),
        ("$time_unix_ns", "1451606400123456789"),
        ("$upstream_addr", "7.8.9.0:5678"),
        ("$upstream_host", "7.8.9.0"),
        ("$upstream_port", "5678"),
        ("$upstream_request_scheme", "http"),
        ("$upstream_request_uri", "/foo?q=x"),
        ("$upstream_request_url", "http://7.8.9.0:5678/foo?q=x"),
        ("$upstream_service", "svc-a"),
        ("common", r#"2.2.2.2 - - [01/Jan/2016:00:00:00 +0000] "GET /?q=x HTTP/1.1" 200 1234"#),
        (
            "combined",
            r#"2.2.2.2 - - [01/Jan/2016:00:00:00 +0000] "GET /?q=x HTTP/1.1" 200 1234 "http://foo.com/" "Mozilla Firefox""#,
        ),
    ] {
        let headers = values(Format::parse(template).unwrap().headers());
        assert_eq!(rendered(template, &event(&headers), &Mask::default()), want, "{template}");
    }
}

#[test]
fn what_is_missing_leaves_nothing() {
    let client = "[::1]:80".parse().unwrap();
    let line = Line::new("tcp", client, Duration::ZERO);
    assert_eq!(rendered("$remote_addr $remote_host", &line, &Mask::default()), "[::1]:80 [::1]");
    let mapped = Line::new("tcp", "[::ffff:1.2.3.4]:80".parse().unwrap(), Duration::ZERO);
    assert_eq!(rendered("$remote_addr $remote_host", &mapped, &Mask::default()), "1.2.3.4:80 1.2.3.4");
    for (name, field) in NAMES {
        let always = matches!(
            field,
            Field::RemoteAddr
                | Field::RemoteHost
                | Field::RemotePort
                | Field::Request
                | Field::ResponseStatus
                | Field::ResponseBodySize
                | Field::ResponseTime(_)
                | Field::TimeCommon
                | Field::TimeRfc3339(_)
                | Field::TimeUnix(_)
                | Field::Protocol
                | Field::Outcome
        );
        assert_eq!(!rendered(&format!("${name}"), &line, &Mask::default()).is_empty(), always, "{name}");
    }
    assert!(NAMES.len() > 40);
    let portless = Line {
        upstream: Some(Upstream { service: "s", scheme: "http", addr: "[::1]", uri: "/" }),
        ..Line::new("http", client, Duration::ZERO)
    };
    assert_eq!(rendered("$upstream_host|$upstream_port", &portless, &Mask::default()), "[::1]|");
}

#[test]
fn formats_that_are_none() {
    assert_eq!(Format::parse("").unwrap_err().to_string(), "Invalid log format: empty log format");
    assert_eq!(Format::parse("a $x b").unwrap_err().to_string(), "Invalid log format: invalid field \"$x\"");
}

#[test]
fn json_is_json_whatever_a_client_sends() {
    let headers = [None, Some(HeaderValue::from_bytes(b"a\"b\\\xe9\tc").unwrap()), None];
    let line = Line {
        outcome: Outcome::Failed("connect"),
        first_byte: Some(Duration::from_millis(5)),
        tls: Some(Tls { version: 0x0304, cipher: 0x1301, server_name: "a.com", client: "" }),
        ..event(&headers)
    };
    let text = rendered("json", &line, &Mask::new(["q"]));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["user_agent"], "a\"b\\\u{e9}\tc");
    assert_eq!(value["response_status"], 200);
    assert_eq!(value["response_time"], 0.123456);
    assert_eq!(value["first_byte_time"], 0.005);
    assert_eq!(value["request_uri"], "/?q=***");
    assert_eq!(value["upstream_request_url"], "http://7.8.9.0:5678/foo?q=***");
    assert_eq!(value["outcome"], "connect");
    assert_eq!((&value["tls_version"], &value["tls_cipher"]), (&"TLSv1.3".into(), &"0x1301".into()));
    assert!(value.get("referer").is_none() && value.get("retries").is_none());
}

#[test]
fn queries_are_masked_wherever_they_show() {
    let template =
        "$request|$request_args|$request_uri|$request_url|$upstream_request_uri|$upstream_request_url|$header.Referer";
    let headers = [Some(HeaderValue::from_static("http://x/?q=1"))];
    let text = rendered(template, &event(&headers), &Mask::new(["Q"]));
    assert!(!text.contains("q=x") && !text.contains("q=1"), "{text}");
    assert_eq!(text.matches("q=***").count(), 7, "{text}");
}

#[test]
fn targets() {
    for (text, want) in [
        ("stdout", Some("stdout")),
        ("stderr", Some("stderr")),
        ("file:/var/log/a.log", Some("/var/log/a.log")),
        ("syslog:/dev/log", Some("syslog at /dev/log")),
        ("syslog:host", Some("syslog at udp://host:514")),
        ("syslog:host:1514", Some("syslog at udp://host:1514")),
        ("syslog:udp://[::1]", Some("syslog at udp://[::1]:514")),
        ("syslog:tcp://[::1]:6514", Some("syslog at tcp://[::1]:6514")),
        ("syslog", None),
        ("syslog:", None),
        ("syslog:host:port", None),
        ("syslog:http://host:514", None),
        ("file:", None),
        ("file", None),
        ("Stdout", None),
        ("", None),
    ] {
        let target = Target::parse(text);
        assert_eq!(target.as_ref().ok().map(ToString::to_string).as_deref(), want, "{text} {target:?}");
    }
}

fn config(target: &str, format: &str) -> Config {
    Config {
        target: Target::parse(target).unwrap(),
        format: Format::parse(format).unwrap(),
        all: false,
        sample: 1,
        only_errors: false,
        mask: Mask::default(),
        rotate: 0,
        keep: 3,
    }
}

fn file_in(dir: &tempfile::TempDir) -> (std::path::PathBuf, String) {
    let path = dir.path().join("access.log");
    let target = format!("file:{}", path.display());
    (path, target)
}

fn with_status(status: u16) -> Line<'static> {
    Line { status, ..event(&[]) }
}

const SOON: Duration = Duration::from_secs(10);

#[test]
fn what_is_written() {
    for (only_errors, sample, statuses, want) in [
        (false, 1, &[200, 404, 502][..], "200\n404\n502\n"),
        (true, 1, &[200, 404, 301, 502], "404\n502\n"),
        (false, 3, &[200, 201, 202, 203, 500, 204, 205, 206], "200\n203\n500\n206\n"),
        (true, 2, &[200, 401, 200, 402, 403, 503], "401\n403\n503\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = file_in(&dir);
        let log = Log::start(Config { only_errors, sample, ..config(&target, "$response_status") }).unwrap();
        let logger = log.logger();
        for status in statuses {
            logger.write(&with_status(*status));
        }
        log.flush(SOON);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    }
}

#[test]
fn an_empty_line_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = file_in(&dir);
    let log = Log::start(config(&target, "$tls_version")).unwrap();
    log.logger().write(&with_status(200));
    log.flush(SOON);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn a_file_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = file_in(&dir);
    std::fs::write(&path, "old\n").unwrap();
    let log = Log::start(config(&target, "$response_status")).unwrap();
    let logger = log.logger();
    logger.write(&with_status(200));
    log.flush(SOON);
    let moved = dir.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    logger.write(&with_status(201));
    log.reopen();
    logger.write(&with_status(202));
    log.flush(SOON);
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "old\n200\n201\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "202\n");

    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    log.reopen();
    logger.write(&with_status(203));
    log.flush(SOON);
    assert_eq!(log.dropped(), 0, "the file that was open goes on");
    assert!(Log::start(config(&target, "x")).is_err(), "what cannot be had fails at start");
}

#[test]
fn a_file_that_has_grown_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = file_in(&dir);
    let log = Log::start(Config { rotate: 8, keep: 2, ..config(&target, "$response_status") }).unwrap();
    let logger = log.logger();
    for status in 200..207 {
        logger.write(&with_status(status));
        log.flush(SOON);
    }
    let read = |suffix: &str| std::fs::read_to_string(format!("{}{suffix}", path.display())).ok();
    assert_eq!(read("").as_deref(), Some("206\n"));
    assert_eq!(read(".1").as_deref(), Some("204\n205\n"));
    assert_eq!(read(".2").as_deref(), Some("202\n203\n"));
    assert_eq!(read(".3"), None);
}

#[test]
fn syslog_messages() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    let target = format!("syslog:{}", server.local_addr().unwrap());
    let log = Log::start(config(&target, "$request")).unwrap();
    log.logger().write(&with_status(200));
    let mut buffer = [0; 9000];
    let length = server.recv(&mut buffer).unwrap();
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    let shape = regex::Regex::new(
        r"^<134>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ ferrio \d+ access - GET /\?q=x HTTP/1\.1$",
    );
    assert!(shape.unwrap().is_match(text), "{text}");

    let long = "\u{e4}".repeat(20_000);
    log.logger().write(&Line { uri: &long, ..with_status(200) });
    let length = server.recv(&mut buffer).unwrap();
    assert!(std::str::from_utf8(&buffer[..length]).is_ok_and(|text| text.ends_with('\u{e4}')));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let local = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    local.set_read_timeout(Some(SOON)).unwrap();
    let log = Log::start(config(&format!("syslog:{}", path.display()), "$response_status")).unwrap();
    log.logger().write(&with_status(204));
    let length = local.recv(&mut buffer).unwrap();
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    let shape = regex::Regex::new(r"^<134>\w{3} [ \d]\d \d\d:\d\d:\d\d ferrio\[\d+\]: 204$");
    assert!(shape.unwrap().is_match(text), "{text}");
}

#[test]
fn a_syslog_server_that_comes_back_gets_lines_again() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("syslog:tcp://{}", server.local_addr().unwrap());
    let log = Log::start(config(&target, "$response_status")).unwrap();
    let logger = log.logger();
    for _ in 0..2 {
        let until = Instant::now() + SOON;
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = server.accept().unwrap();
                let mut buffer = [0; 300];
                sender.send(std::io::Read::read(&mut stream, &mut buffer).map(|n| buffer[..n].to_vec())).unwrap();
            });
            let got = loop {
                logger.write(&with_status(200));
                log.flush(SOON);
                match receiver.try_recv() {
                    Ok(got) => break got.unwrap(),
                    Err(_) => assert!(Instant::now() < until, "nothing came"),
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            let text = String::from_utf8(got).unwrap();
            let (length, rest) = text.split_once(' ').unwrap();
            let length: usize = length.parse().unwrap();
            assert!(rest.len() >= length && rest[..length].ends_with(" 200"), "{text}");
        });
    }
}

#[test]
fn a_target_that_nobody_reads_costs_lines_and_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let status = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(status.success());
    // Somebody has it open and does not read.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let log = Log::start(config(&format!("file:{}", path.display()), "$request_uri")).unwrap();
    let logger = log.logger();
    let long = "x".repeat(1000);
    let begun = Instant::now();
    for _ in 0..60_000 {
        logger.write(&Line { uri: &long, ..with_status(200) });
    }
    assert!(log.dropped() > 20_000, "{}", log.dropped());
    assert!(begun.elapsed() < SOON);
    log.flush(Duration::from_millis(20));
    drop(reader);
}
