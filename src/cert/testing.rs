//! Throw-away authorities and certificates for the tests of certificates and TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{CertSource, Certificate, Kind, Pair};

/// Seconds from now. A macro, because the type is another crate's.
macro_rules! time_at {
    ($seconds:expr) => {{
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs((now + $seconds) as u64)
    }};
}

pub(crate) fn config(kind: Kind) -> CertSource {
    CertSource {
        name: "test".into(),
        kind,
        refresh: Duration::ZERO,
        header: None,
        ca_upgrade_cn: None,
        vault_fetch_token: None,
    }
}

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) key: String,
    der: Vec<u8>,
    pub(crate) params: CertificateParams,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let issuer = CertifiedIssuer::self_signed(authority(name), key());
        Self { issuer: issuer.expect("the parameters are fine") }
    }

    /// One below this one.
    pub(crate) fn authority(&self, name: &str) -> Self {
        let issuer = CertifiedIssuer::signed_by(authority(name), key(), &self.issuer);
        Self { issuer: issuer.expect("the parameters are fine") }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Valid for ten days. The first name is the common name as well.
    pub(crate) fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_valid(names, -1, 10)
    }

    /// Valid between two days, counted from now.
    pub(crate) fn leaf_valid(&self, names: &[&str], from: i64, to: i64) -> Leaf {
        self.sign(params(names, from * DAY, to * DAY), &key())
    }

    /// Valid for some more seconds.
    pub(crate) fn leaf_for(&self, names: &[&str], seconds: i64) -> Leaf {
        self.sign(params(names, -DAY, seconds), &key())
    }

    pub(crate) fn leaf_rsa(&self, names: &[&str]) -> Leaf {
        let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
        self.sign(params(names, -DAY, 10 * DAY), &key.expect("RSA is supported"))
    }

    /// A revocation list with this certificate.
    pub(crate) fn revoke(&self, leaf: &Leaf) -> String {
        let params = CertificateRevocationListParams {
            this_update: time_at!(-DAY),
            next_update: time_at!(DAY),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: leaf.params.serial_number.clone().expect("every one has a number"),
                revocation_time: time_at!(-1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("the parameters are fine").pem().expect("text")
    }

    fn sign(&self, params: CertificateParams, key: &KeyPair) -> Leaf {
        let cert = params.signed_by(key, &self.issuer).expect("the parameters are fine");
        Leaf { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec(), params }
    }
}

impl Leaf {
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    pub(crate) fn certificate(&self, name: &str) -> Certificate {
        let pair = Pair::parse(self.cert.as_bytes(), self.key.as_bytes()).expect("a pair");
        Certificate { name: name.into(), pair: Arc::new(pair) }
    }

    /// Signed by itself. `is_ca`: with CA:TRUE, as `openssl req -x509` makes them.
    pub(crate) fn self_signed(name: &str, is_ca: bool) -> Self {
        let key = key();
        let mut params = params(&[name], -DAY, 10 * DAY);
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let cert = params.self_signed(&key).expect("the parameters are fine");
        Self { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec(), params }
    }

    /// A certificate that is no authority, and one that was signed by it nevertheless.
    pub(crate) fn signs(name: &str, victim: &str) -> (Self, Self) {
        let key = key();
        let params = params(&[name], -DAY, 10 * DAY);
        let cert = params.self_signed(&key).expect("the parameters are fine");
        let own = Self { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec(), params: params.clone() };
        let issuer = Issuer::new(params, key);
        let (key, params) = (self::key(), self::params(&[victim], -DAY, 10 * DAY));
        let cert = params.signed_by(&key, &issuer).expect("the parameters are fine");
        (own, Self { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec(), params })
    }
}

/// A client that takes any certificate, so that a test can look at it.
#[derive(Debug)]
pub(crate) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn authority(name: &str) -> CertificateParams {
    let mut params = params(&[], -DAY, 10 * DAY);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages.clear();
    params
}

fn params(names: &[&str], from: i64, to: i64) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names.clone()).expect("host names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(first) = names.first() {
        params.distinguished_name.push(DnType::CommonName, first.as_str());
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = time_at!(from);
    params.not_after = time_at!(to);
    params.serial_number = Some(SerialNumber::from(fastrand::u64(1..)));
    params
}

/// A request as it came, the head in lower case.
pub(crate) struct Request {
    pub(crate) method: String,
    /// With query.
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Status, more header lines, body. `None`: the connection is closed.
pub(crate) type Answer = Option<(u16, String, String)>;

/// An HTTP/1.1 server.
pub(crate) async fn serve(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("in a test");
    let addr = listener.local_addr().expect("in a test");
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("in a test");
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(request) = receive(&mut stream).await {
                    let Some((status, headers, body)) = answer(&request) else { return };
                    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len());
                    if stream.get_mut().write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

async fn receive(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let mut words = head.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut request = Request { method, path, head: head.to_lowercase(), body: String::new() };
    let length = request.header("content-length").map_or(0, |text| text.parse().expect("in a test"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.body = String::from_utf8(body).expect("in a test");
    Some(request)
}

pub(crate) const DAY: i64 = 24 * 60 * 60;

/// The `openssl` program, for what rcgen does not make. Tests do without it where it is not installed.
pub(crate) mod openssl {
    use std::path::Path;
    use std::process::Command;

    /// An own directory; `None`: no such program.
    pub(crate) fn folder() -> Option<tempfile::TempDir> {
        let works = Command::new("openssl").arg("version").output().is_ok_and(|output| output.status.success());
        works.then(|| tempfile::tempdir().expect("a directory"))
    }

    /// Output of a shell line.
    pub(crate) fn run(dir: &Path, line: &str) -> String {
        let output = Command::new("sh").args(["-ec", line]).current_dir(dir).output().expect("a shell");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Certificate and key; `make` writes the key to the file `K`.
    pub(crate) fn self_signed(dir: &Path, make: &str, subject: &str) -> (String, String) {
        run(dir, make);
        let cert = run(dir, &format!("openssl req -x509 -new -key K -days 9 -subj {subject}"));
        (cert, run(dir, "cat K"))
    }
}
