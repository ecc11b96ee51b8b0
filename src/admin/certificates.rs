//! `/api/certificates`: what is served to whom, until when, and what is wrong with it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::State;
use super::answer::Answer;
use super::api::json_answer;
use super::json::{Object, array};

/// Certificates and TLS listeners, as of now.
#[derive(Clone, Debug, Default)]
pub struct CertificatesView {
    pub sources: Vec<CertificateSourceView>,
    pub listeners: Vec<TlsListenerView>,
}

/// A certificate source.
#[derive(Clone, Debug, Default)]
pub struct CertificateSourceView {
    pub name: String,
    /// As `type=` spells it.
    pub kind: &'static str,
    /// Where it reads, without secrets.
    pub place: String,
    /// Since it was read successfully; `None`: it was not yet.
    pub age: Option<Duration>,
    /// When the served set changed last.
    pub changed: Option<SystemTime>,
    /// Why its last read failed, or was not taken into service.
    pub error: Option<String>,
    pub certificates: Vec<CertificateView>,
    /// Pairs that cannot be used, with the reason.
    pub problems: Vec<(String, String)>,
    /// Names that wait for a certificate.
    pub waiting: Vec<WaitingView>,
}

/// A served certificate. Times are seconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct CertificateView {
    pub name: String,
    pub subject: String,
    pub issuer: String,
    pub serial: String,
    /// DNS names.
    pub names: Vec<String>,
    pub not_before: i64,
    pub not_after: i64,
    /// SHA-256, hex.
    pub fingerprint: String,
    /// `valid`, `expired` or `not yet valid`.
    pub state: &'static str,
}

/// A name whose order failed, or was not made.
#[derive(Clone, Debug, Default)]
pub struct WaitingView {
    pub name: String,
    pub reason: String,
    /// When it is tried again, seconds since 1970; `None`: not by itself.
    pub next: Option<i64>,
}

/// A listener with TLS, and what came of its handshakes since the start.
#[derive(Clone, Debug, Default)]
pub struct TlsListenerView {
    pub addr: String,
    /// Name of its certificate source.
    pub source: String,
    pub resumed: u64,
    /// By result: `ok`, `failed`, ...
    pub results: Vec<(&'static str, u64)>,
    /// Version, cipher suite, count.
    pub ciphers: Vec<(&'static str, &'static str, u64)>,
}

pub(super) fn certificates(state: &State, query: Option<&str>) -> Answer {
    let view = (state.views.certificates)();
    let mut out = String::new();
    let mut object = Object::new(&mut out);
    array(object.key("sources"), &view.sources, source);
    array(object.key("listeners"), &view.listeners, listener);
    object.end();
    json_answer(query, out)
}

fn source(out: &mut String, source: &CertificateSourceView) {
    let mut object = Object::new(out);
    object.text("name", &source.name).text("type", source.kind).text("place", &source.place);
    if let Some(age) = source.age {
        object.number("age", age.as_millis() as f64 / 1000.0);
    }
    if let Some(changed) = source.changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
        object.number("changed", changed.as_secs() as f64);
    }
    if let Some(error) = &source.error {
        object.text("error", error);
    }
    array(object.key("certificates"), &source.certificates, certificate);
    array(object.key("problems"), &source.problems, |out, (name, reason)| {
        Object::new(out).text("name", name).text("reason", reason).end();
    });
    array(object.key("waiting"), &source.waiting, |out, waiting| {
        let mut object = Object::new(out);
        object.text("name", &waiting.name).text("reason", &waiting.reason);
        if let Some(next) = waiting.next {
            object.number("next", next as f64);
        }
        object.end();
    });
    object.end();
}

fn certificate(out: &mut String, certificate: &CertificateView) {
    Object::new(out)
        .text("name", &certificate.name)
        .text("subject", &certificate.subject)
        .text("issuer", &certificate.issuer)
        .text("serial", &certificate.serial)
        .texts("names", &certificate.names)
        .number("notBefore", certificate.not_before as f64)
        .number("notAfter", certificate.not_after as f64)
        .text("fingerprint", &certificate.fingerprint)
        .text("state", certificate.state)
        .end();
}

fn listener(out: &mut String, listener: &TlsListenerView) {
    let mut object = Object::new(out);
    object.text("addr", &listener.addr).text("source", &listener.source).number("resumed", listener.resumed as f64);
    array(object.key("handshakes"), &listener.results, |out, (result, count)| {
        Object::new(out).text("result", result).number("count", *count as f64).end();
    });
    array(object.key("ciphers"), &listener.ciphers, |out, (version, cipher, count)| {
        Object::new(out).text("version", version).text("cipher", cipher).number("count", *count as f64).end();
    });
    object.end();
}
