//! Connections that are slow, many or idle.

use super::*;

#[tokio::test]
async fn stopping_ends_idle_connections_and_returns() {
    let admin = start(Access::ReadWrite, "").await;
    let mut idle = TcpStream::connect(admin.address).await.unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut buffer = [0; 4096];
    let n = idle.read(&mut buffer).await.unwrap();
    assert!(buffer[..n].starts_with(b"HTTP/1.1 200 OK\r\n"));
    admin.life.advance(Phase::Leaving);
    admin.statuses(&[("/health", 200)]).await;
    admin.life.advance(Phase::Closing);
    timeout(Duration::from_secs(10), admin.task).await.expect("serve returns").unwrap();
    assert_eq!(idle.read(&mut buffer).await.unwrap(), 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let admin = start(Access::ReadWrite, "").await;
    let mut open = Vec::new();
    for _ in 0..super::serve::CONNECTIONS_MAX {
        let mut socket = TcpStream::connect(admin.address).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(socket.read(&mut [0; 64]).await.unwrap() > 0);
        open.push(socket);
    }
    let mut over = TcpStream::connect(admin.address).await.unwrap();
    assert_eq!(over.read(&mut [0; 64]).await.unwrap_or(0), 0);
    drop(open);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let mut socket = TcpStream::connect(admin.address).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        if matches!(socket.read(&mut [0; 64]).await, Ok(n) if n > 0) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "places do not become free");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let mut config = config(Access::ReadWrite, "");
    config.listen.read_timeout = Duration::from_millis(50);
    let admin = start_with(config, true).await;
    let mut slow = TcpStream::connect(admin.address).await.unwrap();
    slow.write_all(b"GET /health HT").await.unwrap();
    let mut bytes = Vec::new();
    let end = timeout(Duration::from_secs(10), slow.read_to_end(&mut bytes)).await;
    assert!(end.is_ok(), "still open");
    assert!(!bytes.starts_with(b"HTTP/1.1 200"), "{bytes:?}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let admin = start(Access::ReadWrite, "").await;
    let request = format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert_eq!(admin.raw(request.as_bytes()).await.status, 431);
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_given_up() {
    let (ours, theirs) = tokio::io::duplex(16);
    let mut stream = super::stall::Impatient::new(ours, Duration::from_millis(50));
    let result = timeout(Duration::from_secs(10), stream.write_all(&[0; 64])).await.expect("given up");
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    drop(theirs);
}
