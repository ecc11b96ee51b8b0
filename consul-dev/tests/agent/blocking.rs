//! Blocking queries: who wakes up, how fast, and who does not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::side_by_side::Pair;
use crate::wire::{call, get, put};

/// A read, writes that must not end its waiting, and one that must. `DELETE ` begins a write that is a DELETE.
const CASES: &[(&str, &[&str], &str)] = &[
    ("/v1/health/state/any", &["kv other", "node n9", "service b"], "check a passing"),
    ("/v1/health/service/a", &["kv other", "service b", "check b passing"], "check a warning"),
    ("/v1/health/service/a?passing", &["kv other", "service b"], "check a passing"),
    ("/v1/catalog/service/a", &["kv other", "service b", "check b warning"], "service a"),
    ("/v1/catalog/services", &["kv other", "check a passing"], "service b"),
    ("/v1/catalog/nodes", &["kv other", "check a warning", "service b"], "node n8"),
    ("/v1/kv/key", &["kv other", "check a passing", "service b"], "kv key"),
    ("/v1/kv/tree/?recurse", &["kv other", "kv key", "service b"], "kv tree/leaf"),
    ("/v1/kv/tree/?keys", &["kv other", "kv key"], "delete tree/leaf"),
    ("/v1/session/list", &["kv other", "service b"], "session"),
];

#[tokio::test]
async fn only_a_change_that_concerns_it_ends_a_wait() {
    let pair = Pair::start().await;
    for (name, addr) in [("Consul", pair.real), ("consul-dev", pair.dev)] {
        prepare(addr).await;
        for (target, others, change) in CASES {
            let mut late = Vec::new();
            // Whoever shares this machine may delay one of them, but not each.
            while late.len() < 3 && late.last().is_none_or(|late| *late > Duration::from_millis(100)) {
                if *change == "delete tree/leaf" {
                    write(addr, "kv tree/leaf", late.len()).await;
                }
                late.push(wakes(name, addr, target, others, change).await);
            }
            assert!(late.last() < Some(&Duration::from_millis(100)), "{name}: {target}: {late:?} after {change}");
        }
    }
}

/// Wait with this read while the others are written, and then for `change`. Returns how long after it the answer came.
async fn wakes(name: &str, addr: SocketAddr, target: &str, others: &[&str], change: &str) -> Duration {
    static SERIAL: AtomicUsize = AtomicUsize::new(1);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let joint = if target.contains('?') { '&' } else { '?' };
    let index = get(addr, target).await.index();
    let waiting = format!("{target}{joint}index={index}&wait=20s");
    let waiter = tokio::spawn(async move { (get(addr, &waiting).await.index(), Instant::now()) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    for other in others {
        write(addr, other, serial).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiter.is_finished(), "{name}: {target} returned after one of {others:?}");
    write(addr, change, serial).await;
    let written = Instant::now();
    let (newer, returned) = waiter.await.unwrap();
    assert!(newer > index, "{name}: {target}: {newer} after {index}");
    returned.saturating_duration_since(written)
}

#[tokio::test]
async fn a_wait_ends_in_time_with_the_index_it_began_with() {
    let pair = Pair::start().await;
    for (name, addr) in [("Consul", pair.real), ("consul-dev", pair.dev)] {
        let index = get(addr, "/v1/health/state/any").await.index();
        let begun = Instant::now();
        let answer = get(addr, &format!("/v1/health/state/any?index={index}&wait=400ms")).await;
        let took = begun.elapsed();
        assert_eq!((answer.status.as_u16(), answer.index()), (200, index), "{name}");
        // A sixteenth of jitter, and some time for a busy machine.
        assert!(took >= Duration::from_millis(400) && took < Duration::from_millis(900), "{name}: {took:?}");
    }
}

/// The trap that clients fall into: nothing says that the index is too high but the next answer.
#[tokio::test]
async fn an_index_from_before_a_restart_waits_and_then_shows_the_lower_one() {
    let pair = Pair::start().await;
    for (name, addr) in [("Consul", pair.real), ("consul-dev", pair.dev)] {
        let begun = Instant::now();
        let answer = get(addr, "/v1/health/state/any?index=1000000&wait=300ms").await;
        assert!(begun.elapsed() >= Duration::from_millis(300), "{name}");
        assert!(answer.index() < 1_000_000, "{name}");
    }
}

async fn prepare(addr: SocketAddr) {
    for service in ["a", "b"] {
        write(addr, &format!("service {service}"), 1000).await;
        write(addr, &format!("check {service} critical"), 1000).await;
    }
    for key in ["key", "other", "tree/leaf"] {
        write(addr, &format!("kv {key}"), 1000).await;
    }
}

/// `serial` makes every write a change.
async fn write(addr: SocketAddr, what: &str, serial: usize) {
    let words: Vec<&str> = what.split(' ').collect();
    let port = 2000 + serial;
    match words[..] {
        ["kv", key] => drop(put(addr, &format!("/v1/kv/{key}"), &serial.to_string()).await),
        ["delete", key] => drop(call(addr, "DELETE", &format!("/v1/kv/{key}"), "").await),
        ["session"] => drop(put(addr, "/v1/session/create", "{}").await),
        ["node", node] => {
            let body = format!(r#"{{"Node": "{node}", "Address": "10.0.{serial}.1"}}"#);
            put(addr, "/v1/catalog/register", &body).await;
        }
        ["service", name] => {
            let body = format!(
                r#"{{"Node": "on-{name}", "Address": "10.1.1.1", "Service": {{"Service": "{name}", "Port": {port}}}}}"#
            );
            put(addr, "/v1/catalog/register", &body).await;
        }
        ["check", name, status] => {
            let body = format!(
                r#"{{"Node": "on-{name}", "Address": "10.1.1.1", "Check": {{"CheckID": "c", "ServiceID": "{name}",
                "Status": "{status}", "Output": "{serial}"}}}}"#
            );
            put(addr, "/v1/catalog/register", &body).await;
        }
        _ => panic!("unknown write {what}"),
    }
}
