#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::Rewind;

/// Both ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (far, listener.accept().await.unwrap().0)
}

struct Ends {
    client: TcpStream,
    target: TcpStream,
}

/// Runs `test` at the far ends of a relay, and says how the relay ended, and what it has moved.
async fn with_relay<F>(limits: Limits, supplies: &Supplies, test: impl FnOnce(Ends) -> F) -> (End, u64, u64)
where
    F: Future<Output = ()>,
{
    let (client, near_client) = pair().await;
    let (target, near_target) = pair().await;
    let moved = (Cell::new(0), Cell::new(0));
    let relay = async {
        let (mut client, mut target) = (Stream::Plain(near_client), Stream::Plain(near_target));
        let count = |forth, back| {
            moved.0.set(moved.0.get() + forth);
            moved.1.set(moved.1.get() + back);
        };
        relay(&mut client, &mut target, limits, supplies, count).await
    };
    let both = async { tokio::join!(relay, test(Ends { client, target })).0 };
    let end = tokio::time::timeout(Duration::from_secs(20), both).await.expect("hangs");
    (end, moved.0.get(), moved.1.get())
}

async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    all
}

#[tokio::test]
async fn each_side_may_end_first_and_still_gets_its_answer() {
    for client_first in [true, false] {
        let (end, forth, back) = with_relay(Limits::default(), &Supplies::default(), |ends| async move {
            let Ends { client, target } = ends;
            let (mut first, mut second) = if client_first { (client, target) } else { (target, client) };
            first.write_all(b"question").await.unwrap();
            first.shutdown().await.unwrap();
            assert_eq!(read_all(&mut second).await, b"question");
            second.write_all(b"answer").await.unwrap();
            second.shutdown().await.unwrap();
            assert_eq!(read_all(&mut first).await, b"answer");
        })
        .await;
        assert!(matches!(end, End::Done), "{end:?}");
        assert_eq!((forth, back), if client_first { (8, 6) } else { (6, 8) });
    }
}

#[tokio::test]
async fn bulk_arrives_whole_both_ways_and_nothing_is_kept() {
    const SIZE: usize = 20 << 20;
    let supplies = Supplies::default();
    let data: Vec<u8> = (0..SIZE).map(|i| (i * 7 + i / 251) as u8).collect();
    let (end, forth, back) = with_relay(Limits::default(), &supplies, |ends| async {
        let Ends { mut client, mut target } = ends;
        let ((mut from_client, mut to_client), (mut from_target, mut to_target)) = (client.split(), target.split());
        let send = async |to: &mut tokio::net::tcp::WriteHalf<'_>| {
            to.write_all(&data).await.unwrap();
            to.shutdown().await.unwrap();
        };
        let mut at = (Vec::new(), Vec::new());
        let (.., a, b) = tokio::join!(
            send(&mut to_client),
            send(&mut to_target),
            from_client.read_to_end(&mut at.0),
            from_target.read_to_end(&mut at.1),
        );
        assert_eq!((a.unwrap(), b.unwrap()), (SIZE, SIZE));
        assert!(at.0 == data && at.1 == data, "bytes changed");
    })
    .await;
    assert!(matches!(end, End::Done), "{end:?}");
    assert_eq!((forth, back), (SIZE as u64, SIZE as u64));
    let (buffers, pipes) = supplies.lying();
    assert!((1..=2).contains(&buffers), "{buffers} buffers came back");
    assert!((1..=2).contains(&pipes), "{pipes} pipes came back: was nothing spliced?");
}

#[test]
fn few_pipes_are_large() {
    let supplies = Supplies::default();
    let sizes = || {
        let pipes: Vec<_> = (0..20).map(|_| supplies.pipe().unwrap()).collect();
        let mut sizes: Vec<_> =
            pipes.iter().map(|pipe| rustix::pipe::fcntl_getpipe_size(&pipe.reader).unwrap()).collect();
        sizes.sort_unstable();
        sizes
    };
    let first = sizes();
    assert!(first[11] < 1 << 20 && first[19] <= 1 << 20, "{first:?}");
    // Those that were dropped make room for others.
    assert_eq!(sizes(), first);
}

#[tokio::test]
async fn an_idle_connection_holds_nothing() {
    let supplies = Supplies::default();
    let big = vec![1; 1 << 20];
    with_relay(Limits::default(), &supplies, |ends| async {
        let Ends { mut client, mut target } = ends;
        let mut got = vec![0; big.len()];
        let (sent, read) = tokio::join!(client.write_all(&big), target.read_exact(&mut got));
        sent.unwrap();
        read.unwrap();
        // A round trip: the relay has seen that there is no more.
        target.write_all(b"x").await.unwrap();
        client.read_exact(&mut got[..1]).await.unwrap();
        let (buffers, pipes) = supplies.lying();
        assert!(buffers >= 1 && pipes >= 1, "{buffers} buffers and {pipes} pipes");
    })
    .await;
}

#[tokio::test]
async fn resets_are_passed_on() {
    for client_first in [true, false] {
        let (end, ..) = with_relay(Limits::default(), &Supplies::default(), |ends| async move {
            let Ends { client, target } = ends;
            let (mut first, mut second) = if client_first { (client, target) } else { (target, client) };
            first.write_all(b"x").await.unwrap();
            second.read_exact(&mut [0]).await.unwrap();
            first.set_zero_linger().unwrap();
            drop(first);
            let error = second.read(&mut [0]).await.expect_err("a reset, not an end");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        })
        .await;
        let side = if client_first { Side::Client } else { Side::Target };
        assert!(matches!(end, End::Failed(failed, _) if failed == side), "{end:?}");
    }
}

#[tokio::test]
async fn any_byte_in_any_direction_keeps_an_idle_limit_away() {
    let idle = Duration::from_millis(300);
    let begun = Instant::now();
    let (end, forth, back) = with_relay(Limits { idle, ..Limits::default() }, &Supplies::default(), |ends| async {
        let Ends { mut client, mut target } = ends;
        for n in 0..8 {
            tokio::time::sleep(idle / 3).await;
            if n % 4 == 3 { client.write_all(b"c").await } else { target.write_all(b"t").await }.unwrap();
        }
        tokio::join!(read_all(&mut client), read_all(&mut target));
    })
    .await;
    assert!(matches!(end, End::Idle), "{end:?}");
    assert_eq!((forth, back), (2, 6));
    assert!(begun.elapsed() >= idle * 8 / 3 + idle, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let write = Duration::from_millis(200);
    let (end, ..) = with_relay(Limits { write, ..Limits::default() }, &Supplies::default(), |ends| async {
        let Ends { client, mut target } = ends;
        // Nothing waits for the client: it may be silent.
        tokio::time::sleep(write * 2).await;
        let flood = vec![0; 64 << 20];
        assert!(target.write_all(&flood).await.is_err());
        drop(client);
    })
    .await;
    assert!(matches!(end, End::Stuck), "{end:?}");
}

#[tokio::test]
async fn what_was_read_before_goes_first() {
    let (mut client, near_client) = pair().await;
    let (mut target, near_target) = pair().await;
    let relay = async {
        let mut near_client = Stream::Rewound(Rewind::new(bytes::Bytes::from(vec![b'a'; 100_000]), near_client));
        let mut near_target = Stream::Plain(near_target);
        relay(&mut near_client, &mut near_target, Limits::default(), &Supplies::default(), |_, _| {}).await
    };
    let test = async move {
        client.write_all(&[b'b'; 100_000]).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut target).await, [[b'a'; 100_000], [b'b'; 100_000]].concat());
    };
    let (end, ()) = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(relay, test) }).await.unwrap();
    assert!(matches!(end, End::Done), "{end:?}");
}

/// As [`with_relay`], for a WebSocket that is told to end as soon as `leave` is given.
async fn websocket(limits: Limits, ahead: &[u8], leave: impl Future<Output = ()>, test: impl AsyncFnOnce(Ends)) -> End {
    let (client, near_client) = pair().await;
    let (target, near_target) = pair().await;
    let supplies = Supplies::default();
    let (mut near_client, mut near_target) = (Stream::Plain(near_client), Stream::Plain(near_target));
    let farewell = Some(Farewell::going_away([0; 4]));
    let course = Course { limits, from_client: ahead, from_target: b"\x81\x02hi", farewell };
    let relay = async {
        let end = relay_until(&mut near_client, &mut near_target, course, &supplies, leave, |_, _| {}).await;
        drop((near_client, near_target));
        end
    };
    let both = async { tokio::join!(relay, test(Ends { client, target })).0 };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("hangs")
}

const TO_CLIENT: &[u8] = b"\x88\x02\x03\xe9";
const TO_TARGET: &[u8] = b"\x88\x82\0\0\0\0\x03\xe9";

#[tokio::test]
async fn a_websocket_ends_between_its_frames() {
    // What was read before, with the beginning of a frame behind it.
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let told = async { _ = left.await };
    let end = websocket(Limits::default(), b"\x82\x81\0\0\0\0x\x82\x83\0\0\0\0a", told, async |ends| {
        let Ends { mut client, mut target } = ends;
        let mut begun = [0; 14];
        target.read_exact(&mut begun).await.unwrap();
        leave.send(()).unwrap();
        client.write_all(b"bc\x82\x81\0\0\0\0lost").await.unwrap();
        assert_eq!(read_all(&mut target).await, [b"bc", TO_TARGET].concat());
        drop(target);
        assert_eq!(read_all(&mut client).await, [b"\x81\x02hi", TO_CLIENT].concat());
    })
    .await;
    assert!(matches!(end, End::Left), "{end:?}");
}

#[tokio::test]
async fn an_idle_websocket_is_told_so() {
    let limits = Limits { idle: Duration::from_millis(50), ..Limits::default() };
    let end = websocket(limits, b"", std::future::pending(), async |ends| {
        let Ends { mut client, mut target } = ends;
        assert_eq!(read_all(&mut target).await, TO_TARGET);
        drop(target);
        assert_eq!(read_all(&mut client).await, [b"\x81\x02hi", TO_CLIENT].concat());
    })
    .await;
    assert!(matches!(end, End::Idle), "{end:?}");
}

#[tokio::test]
async fn a_frame_without_an_end_does_not_hold_it_up() {
    let begun = std::time::Instant::now();
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let told = async { _ = left.await };
    let end = websocket(Limits::default(), b"\x82\x83\0\0\0\0a", told, async |ends| {
        let Ends { mut client, mut target } = ends;
        let mut part = [0; 7];
        target.read_exact(&mut part).await.unwrap();
        leave.send(()).unwrap();
        assert_eq!(read_all(&mut target).await, b"", "nothing within a frame");
        assert_eq!(read_all(&mut client).await, [b"\x81\x02hi", TO_CLIENT].concat());
    })
    .await;
    assert!(matches!(end, End::Left), "{end:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}
