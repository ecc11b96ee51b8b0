//! A store with many certificates: loading, choosing, and what each takes in memory.
//!
//! Run with `cargo bench --bench certificates [-- NUMBER]`. It fails if choosing takes more than 1 us, loading all of them
//! more than 1 s, or one of them more than 20 kB.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use ferrio::cert::{Asked, CertSource, Env, Kind, Selection, start};
use rcgen::{CertificateParams, KeyPair};

fn main() {
    let number = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(2000);
    rustls::crypto::aws_lc_rs::default_provider().install_default().expect("nothing was installed before");
    let dir = tempfile::tempdir().expect("a directory");
    for at in 0..number {
        write(dir.path(), at);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run(dir.path(), number));
}

async fn run(dir: &Path, number: usize) {
    // What the first one brings along is not counted.
    let small = tempfile::tempdir().expect("a directory");
    write(small.path(), 0);
    let _first = start(&config(small.path()), &Env::process()).await.expect("a source");
    let before = resident();
    let began = Instant::now();
    let source = start(&config(dir), &Env::process()).await.expect("a source");
    let store = source.store();
    while store.certificates().len() < number {
        assert!(began.elapsed() < Duration::from_secs(60), "not loaded");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let loaded = began.elapsed();
    let each = resident().saturating_sub(before) / number;

    // The whole set again, with every certificate new.
    for at in 0..number {
        write(dir, at);
    }
    let serials = |at: usize| store.certificates()[at].pair.facts.serial.clone();
    let old = serials(number - 1);
    let began = Instant::now();
    while serials(number - 1) == old {
        assert!(began.elapsed() < Duration::from_secs(60), "not loaded again");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // It is looked at once a second.
    let again = began.elapsed();

    let names: Vec<String> = (0..number).map(|at| name(at * 7919 % number)).collect();
    let asked = |name| Asked { name: Some(name), address: None, schemes: &[], strict: true };
    const ROUNDS: usize = 200;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        for name in &names {
            assert!(matches!(black_box(store.select(&asked(name))), Selection::Found(_)), "{name}");
        }
    }
    let choosing = began.elapsed() / (ROUNDS * number) as u32;
    println!("{number} certificates (ECDSA P-256), each its own file pair");
    println!("choosing      {choosing:?}");
    println!("loading all   {loaded:?}");
    println!("changing all  {again:?} until in service, up to 1 s of it until the next look");
    println!("memory        {each} bytes each");
    assert!(choosing < Duration::from_micros(1), "choosing is slow");
    assert!(loaded < Duration::from_secs(1), "loading is slow");
    assert!(each < 20_000, "a certificate takes much memory");
}

fn config(path: &Path) -> CertSource {
    CertSource {
        name: "bench".into(),
        kind: Kind::Path { cert: path.into(), client_ca: None },
        refresh: Duration::from_secs(1),
        header: None,
        ca_upgrade_cn: None,
        vault_fetch_token: None,
    }
}

fn name(at: usize) -> String {
    format!("host-{at}.example.com")
}

fn write(dir: &Path, at: usize) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([name(at), format!("www.{}", name(at))]).expect("names");
    params.serial_number = Some(fastrand::u64(..).into());
    let cert = params.self_signed(&key).expect("a certificate");
    std::fs::write(dir.join(format!("{at:05}-cert.pem")), cert.pem()).expect("a file");
    std::fs::write(dir.join(format!("{at:05}-key.pem")), key.serialize_pem()).expect("a file");
}

/// Bytes in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}
