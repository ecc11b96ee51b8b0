//! The load that neither wrk nor h2load makes, and the two origins that nginx cannot be. Standard library only, one thread
//! per connection; scripts/bench compiles it with rustc.
//!
//!     load steady ADDR CONNECTIONS SECONDS RATE HOSTS < heads    open loop: a request leaves when it is due, or as soon as
//!         the one before it on its connection is answered; its time counts from when it was due
//!     load echo ADDR CONNECTIONS SECONDS SIZE                    WebSocket messages there and back
//!     load connect ADDR CONNECTIONS SECONDS                      a byte there and back on a connection of its own
//!     load websocket PORT | load greeter PORT                    the origins of the last two
//!
//! Prints one line of JSON.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words[at].parse::<f64>().expect("a number");
    match words[0].as_str() {
        "steady" => steady(&words[1], number(2) as usize, number(3), number(4), number(5) as usize),
        "echo" => echo(&words[1], number(2) as usize, number(3), number(4) as usize),
        "connect" => connect(&words[1], number(2) as usize, number(3)),
        "websocket" => serve(&words[1], websocket),
        "greeter" => serve(&words[1], greeter),
        other => panic!("load: no {other}"),
    }
}

/// Standard input is a request, in whose head `{host}` stands for the number of a host.
fn steady(addr: &str, connections: usize, seconds: f64, rate: f64, hosts: usize) {
    let mut request = Vec::new();
    std::io::stdin().read_to_end(&mut request).expect("a request");
    let head = find(&request, b"\r\n\r\n").expect("a head") + 4;
    let (head, body) = request.split_at(head);
    let head = std::str::from_utf8(head).expect("text");
    let gap = Duration::from_secs_f64(connections as f64 / rate);
    let length = Duration::from_secs_f64(seconds);
    let failed = AtomicU64::new(0);
    // Everybody is connected, and has had an answer, before the clock starts.
    let start = Instant::now() + Duration::from_millis(500 + connections as u64);
    let mut times: Vec<u32> = thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|index| {
                let failed = &failed;
                thread::Builder::new()
                    .stack_size(128 << 10)
                    .spawn_scoped(scope, move || {
                        let mut times = Vec::with_capacity((seconds * rate) as usize / connections + 8);
                        let mut buffer = vec![0; 64 << 10];
                        let mut key = (index * 7919) % hosts;
                        let mut message = Vec::new();
                        let mut one = |stream: &mut TcpStream| {
                            key = (key + 104_729) % hosts;
                            message.clear();
                            message.extend_from_slice(head.replace("{host}", &key.to_string()).as_bytes());
                            message.extend_from_slice(body);
                            stream.write_all(&message).is_ok() && answer(stream, &mut buffer)
                        };
                        let mut stream = open(addr);
                        if !one(&mut stream) {
                            failed.fetch_add(1, Relaxed);
                        }
                        // Spread evenly over the gap, or all connections would ask at the same moment.
                        let mut due = gap.mul_f64(index as f64 / connections as f64);
                        while due < length {
                            let at = start + due;
                            thread::sleep(at.saturating_duration_since(Instant::now()));
                            if one(&mut stream) {
                                times.push(at.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
                            } else {
                                failed.fetch_add(1, Relaxed);
                                stream = open(addr);
                            }
                            due += gap;
                        }
                        times
                    })
                    .expect("a thread")
            })
            .collect();
        workers.into_iter().flat_map(|w| w.join().expect("a worker that ends")).collect()
    });
    times.sort_unstable();
    let wall = start.elapsed().as_secs_f64();
    let at = |part: f64| times.get(((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1))).copied().unwrap_or(0);
    println!(
        "{{\"count\":{},\"failed\":{},\"seconds\":{wall:.3},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{}}}",
        times.len(), failed.into_inner(), at(0.5), at(0.99), at(0.999)
    );
}

/// Whether a whole answer with status 200 and a length came.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    let mut filled = 0;
    let (head, length) = loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => return false,
            Ok(n) => filled += n,
        }
        if let Some(end) = find(&buffer[..filled], b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end + 2]).to_ascii_lowercase();
            let length = head.split("content-length:").nth(1).and_then(|rest| rest.split("\r\n").next()?.trim().parse::<usize>().ok());
            match length {
                Some(length) if head[9..].starts_with("200") => break (end + 4, length),
                _ => return false,
            }
        }
    };
    let mut left = (head + length).saturating_sub(filled);
    while left > 0 {
        match stream.read(buffer) {
            Ok(0) | Err(_) => return false,
            Ok(n) => left = left.saturating_sub(n),
        }
    }
    true
}

fn echo(addr: &str, connections: usize, seconds: f64, size: usize) {
    let end = Duration::from_secs_f64(seconds);
    closed(connections, |count| {
        let mut stream = open(addr);
        let hello = "GET / HTTP/1.1\r\nHost: bench.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(hello.as_bytes()).expect("a handshake");
        let mut buffer = [0; 4096];
        let mut filled = 0;
        while find(&buffer[..filled], b"\r\n\r\n").is_none() {
            let n = stream.read(&mut buffer[filled..]).expect("an answer");
            assert!(n > 0, "refused: {}", String::from_utf8_lossy(&buffer[..filled]));
            filled += n;
        }
        assert!(buffer.starts_with(b"HTTP/1.1 101"), "refused: {}", String::from_utf8_lossy(&buffer[..filled]));
        // A mask of zeros is one, and costs nobody here anything.
        let mut message = vec![0x82, 0x80 | size as u8, 0, 0, 0, 0];
        message.resize(6 + size, b'x');
        let began = Instant::now();
        while began.elapsed() < end {
            stream.write_all(&message).expect("a way out");
            stream.read_exact(&mut buffer[..2 + size]).expect("an echo");
            count.fetch_add(1, Relaxed);
        }
    });
}

fn connect(addr: &str, connections: usize, seconds: f64) {
    let end = Duration::from_secs_f64(seconds);
    closed(connections, |count| {
        let began = Instant::now();
        while began.elapsed() < end {
            let mut stream = open(addr);
            stream.write_all(b"x").expect("a way out");
            let mut back = Vec::new();
            stream.read_to_end(&mut back).expect("an end");
            assert_eq!(back, b"x");
            count.fetch_add(1, Relaxed);
        }
    });
}

/// Runs clients that go as fast as they can.
fn closed(connections: usize, client: impl Fn(&AtomicU64) + Sync) {
    let count = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| client(&count));
        }
    });
    println!("{{\"count\":{},\"failed\":0}}", count.into_inner());
}

fn serve(port: &str, client: fn(TcpStream) -> std::io::Result<()>) {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("a port");
    for stream in listener.incoming().flatten() {
        thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || {
                // A client that goes is no news.
                let _ = client(stream);
            })
            .expect("a thread");
    }
}

/// Takes messages of one small size, masked with zeros, and sends them back without the mask.
fn websocket(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    // The answer to the key that `echo` sends (RFC 6455, section 1.3).
    stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")?;
    let mut buffer = [0; 512];
    let mut filled = 0;
    loop {
        let n = stream.read(&mut buffer[filled..])?;
        if n == 0 {
            return Ok(());
        }
        filled += n;
        while filled >= 6 && filled >= 6 + usize::from(buffer[1] & 0x7f) {
            let size = usize::from(buffer[1] & 0x7f);
            buffer[4] = buffer[0] & 0x8f;
            buffer[5] = size as u8;
            stream.write_all(&buffer[4..6 + size])?;
            if buffer[0] & 0x0f == 8 {
                return Ok(());
            }
            buffer.copy_within(6 + size..filled, 0);
            filled -= 6 + size;
        }
    }
}

fn greeter(mut stream: TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    stream.write_all(&byte)
}

fn open(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("a connection");
    stream.set_nodelay(true).expect("an option");
    stream
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}
