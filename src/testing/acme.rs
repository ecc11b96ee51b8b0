//! A small certificate authority that speaks ACME (RFC 8555) over TLS and believes nothing: it checks signatures, nonces
//! and URLs of what it is sent, does the challenges over the network, and issues real certificates.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::certs::Ca;
use super::client;

/// A running one. Ends when dropped.
pub(crate) struct Acme {
    shared: Arc<Shared>,
    addr: SocketAddr,
    server: tokio::task::JoinHandle<()>,
    tls: Ca,
    issuer: String,
}

/// Where names lead to: all of these are asked for each challenge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) http: Option<SocketAddr>,
    pub(crate) tls: Option<SocketAddr>,
}

/// What a test may change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) places: Vec<Place>,
    /// Seconds that certificates are valid.
    pub(crate) lifetime: i64,
    /// Orders are refused; seconds of `Retry-After`.
    pub(crate) rate_limit: Option<u64>,
    /// Nothing but errors.
    pub(crate) down: bool,
    /// Challenges on offer.
    pub(crate) kinds: Vec<&'static str>,
    /// Accounts need this key id and key.
    pub(crate) external: Option<(String, Vec<u8>)>,
    /// Every other nonce is refused, which clients have to bear.
    pub(crate) bad_nonces: bool,
    /// Challenges that are begun now are never looked at.
    pub(crate) stalled: bool,
    /// Seconds from now to the window of renewal.
    pub(crate) renewal: Option<i64>,
}

/// What it has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) accounts: usize,
    /// Names of orders that were taken.
    pub(crate) orders: Vec<String>,
    /// Those that were refused by the rate limit.
    pub(crate) limited: usize,
    pub(crate) issued: usize,
    /// Orders that replace another certificate.
    pub(crate) replaced: usize,
    /// Kinds of challenges that were passed.
    pub(crate) passed: Vec<String>,
    pub(crate) requests: usize,
    /// What was wrong with requests: empty, unless a client breaks the protocol.
    pub(crate) faults: Vec<String>,
}

struct Shared {
    base: String,
    issuer: Issuer<'static, KeyPair>,
    issuer_pem: String,
    rules: Mutex<Rules>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Log,
    nonces: HashSet<String>,
    /// By number: public key and thumbprint.
    accounts: Vec<(Value, String)>,
    orders: Vec<Order>,
}

#[derive(Clone)]
struct Order {
    name: String,
    account: usize,
    token: String,
    status: &'static str,
    authorization: &'static str,
    error: Option<Value>,
    certificate: Option<String>,
    replaces: Option<Value>,
}

type Answer = Result<(StatusCode, Option<String>, Value), (u16, &'static str, String)>;

impl Acme {
    pub(crate) async fn start() -> Acme {
        let tls = Ca::new();
        let leaf = tls.leaf(&["127.0.0.1"]);
        let config = tls.server(&leaf, &[]);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "small authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let issuer_pem = params.self_signed(&key).unwrap().pem();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let rules = Rules {
            places: vec![],
            lifetime: 90 * 24 * 3600,
            rate_limit: None,
            down: false,
            kinds: vec!["http-01", "tls-alpn-01"],
            external: None,
            bad_nonces: false,
            stalled: false,
            renewal: None,
        };
        let shared = Arc::new(Shared {
            base: format!("https://{addr}"),
            issuer: Issuer::new(params, key),
            issuer_pem: issuer_pem.clone(),
            rules: Mutex::new(rules),
            state: Mutex::default(),
        });
        let serving = shared.clone();
        let server = tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (acceptor, shared) = (acceptor.clone(), serving.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| {
                        let shared = shared.clone();
                        async move { Ok::<_, Infallible>(shared.serve(request).await) }
                    });
                    let io = hyper_util::rt::TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                });
            }
        });
        Acme { shared, addr, server, tls, issuer: issuer_pem }
    }

    pub(crate) fn directory(&self) -> String {
        format!("https://{}/directory", self.addr)
    }

    /// Root of the directory's own certificate.
    pub(crate) fn root(&self) -> PathBuf {
        self.tls.path()
    }

    /// PEM of the authority that issues.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(crate) fn rules(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.shared.rules.lock().unwrap());
    }

    pub(crate) fn log(&self) -> Log {
        self.shared.state().log.clone()
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn rules(&self) -> Rules {
        self.rules.lock().unwrap().clone()
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let rules = self.rules();
        self.state().log.requests += 1;
        if rules.down {
            let mut response = Response::new(Full::from("<html>bad gateway</html>"));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            return response;
        }
        let answer = match path.as_str() {
            "/directory" => Ok((StatusCode::OK, None, self.links(&rules))),
            "/nonce" => Ok((StatusCode::OK, None, json!({}))),
            path if path.starts_with("/renewal/") => self.renewal(&rules),
            path => self.signed(path, &body, &rules),
        };
        let (status, location, value) = answer.unwrap_or_else(|(status, kind, detail)| {
            if !matches!(kind, "badNonce" | "rateLimited") {
                self.state().log.faults.push(format!("{path}: {kind}: {detail}"));
            }
            let problem =
                json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail, "status": status });
            (StatusCode::from_u16(status).unwrap(), None, problem)
        });
        let text = match &value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let mut response = Response::builder().status(status).header("Replay-Nonce", self.nonce());
        if let Some(location) = location {
            response = response.header("Location", location);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            response = response.header("Retry-After", rules.rate_limit.unwrap_or(1).to_string());
        }
        if path.starts_with("/renewal/") {
            response = response.header("Retry-After", "60");
        }
        response.body(Full::from(text)).unwrap()
    }

    fn links(&self, rules: &Rules) -> Value {
        let url = |path: &str| format!("{}/{path}", self.base);
        let mut links = json!({
            "newNonce": url("nonce"), "newAccount": url("account"), "newOrder": url("order"),
            "revokeCert": url("revoke"), "keyChange": url("key"),
            "meta": { "externalAccountRequired": rules.external.is_some() },
        });
        if rules.renewal.is_some() {
            links["renewalInfo"] = url("renewal").into();
        }
        links
    }

    fn renewal(&self, rules: &Rules) -> Answer {
        let Some(seconds) = rules.renewal else { return Err((404, "malformed", "no such page".into())) };
        let at = |seconds: i64| {
            let (year, month, day, of_day) = date(now() + seconds);
            format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
        };
        let window = json!({ "suggestedWindow": { "start": at(seconds), "end": at(seconds + 1) } });
        Ok((StatusCode::OK, None, window))
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; 16];
        aws_lc_rs::rand::fill(&mut bytes).unwrap();
        let nonce = URL_SAFE_NO_PAD.encode(bytes);
        self.state().nonces.insert(nonce.clone());
        nonce
    }

    fn signed(self: &Arc<Self>, path: &str, body: &[u8], rules: &Rules) -> Answer {
        let malformed = |what: &str| (400, "malformed", what.to_owned());
        let jws: Value = serde_json::from_slice(body).map_err(|_| malformed("no JSON"))?;
        let part = |name: &str| jws[name].as_str().ok_or_else(|| malformed(name));
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed("no base64"));
        let (protected, payload) = (part("protected")?, part("payload")?);
        let header: Value = serde_json::from_slice(&decode(protected)?).map_err(|_| malformed("header"))?;
        let mut state = self.state();
        let fresh = header["nonce"].as_str().is_some_and(|nonce| state.nonces.remove(nonce));
        if !fresh || (rules.bad_nonces && state.log.requests.is_multiple_of(2)) {
            return Err((400, "badNonce", "not one of ours".into()));
        }
        if header["url"] != format!("{}{path}", self.base) {
            return Err((401, "unauthorized", format!("signed for {}", header["url"])));
        }
        let account = header["kid"].as_str().map(|kid| {
            let number = kid.strip_prefix(&format!("{}/account/", self.base)).and_then(|n| n.parse::<usize>().ok());
            number.filter(|n| *n < state.accounts.len()).ok_or((400, "accountDoesNotExist", kid.to_owned()))
        });
        let account = account.transpose()?;
        let key = match account {
            Some(account) => state.accounts[account].0.clone(),
            None if path == "/account" => header["jwk"].clone(),
            None => return Err(malformed("no kid")),
        };
        let point =
            [vec![4], decode(key["x"].as_str().unwrap_or_default())?, decode(key["y"].as_str().unwrap_or_default())?];
        let signature = decode(part("signature")?)?;
        if header["alg"] != "ES256" {
            return Err((400, "badSignatureAlgorithm", header["alg"].to_string()));
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point.concat())
            .verify(format!("{protected}.{payload}").as_bytes(), &signature)
            .map_err(|_| (401, "unauthorized", "the signature is not that of the key".to_owned()))?;
        let payload = decode(payload)?;
        let payload: Value = if payload.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&payload).map_err(|_| malformed("payload"))?
        };
        if path == "/account" {
            return self.account(&mut state, key, &payload, rules);
        }
        let account = account.ok_or_else(|| malformed("no kid"))?;
        if path == "/order" {
            return self.order(&mut state, account, &payload, rules);
        }
        let mut words = path.trim_start_matches('/').split('/');
        let (word, number, more) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next());
        let at = number.parse::<usize>().map_err(|_| malformed("no such page"))?;
        if state.orders.get(at).is_none_or(|order| order.account != account) {
            return Err((403, "unauthorized", "somebody else's".into()));
        }
        match (word, more) {
            ("order", None) => {}
            ("order", Some("finalize")) => self.finalize(&mut state, at, &payload, rules)?,
            ("authorization", None) => {
                return Ok((StatusCode::OK, None, self.authorization(&state.orders[at], at, rules)));
            }
            ("challenge", Some(kind)) => {
                let order = &mut state.orders[at];
                if order.authorization == "pending" {
                    order.authorization = "processing";
                    let (shared, kind) = (self.clone(), kind.to_owned());
                    tokio::spawn(async move { shared.validate(at, kind).await });
                }
                return Ok((StatusCode::OK, None, self.challenge(&state.orders[at], at, kind)));
            }
            ("certificate", None) => {
                let certificate = state.orders[at].certificate.clone().ok_or_else(|| malformed("not issued"))?;
                return Ok((StatusCode::OK, None, Value::String(certificate)));
            }
            _ => return Err(malformed("no such page")),
        }
        Ok((StatusCode::OK, None, self.show(&state.orders[at], at)))
    }

    fn account(&self, state: &mut State, key: Value, payload: &Value, rules: &Rules) -> Answer {
        if let Some((id, secret)) = &rules.external {
            let binding = &payload["externalAccountBinding"];
            let text = |name: &str| binding[name].as_str().unwrap_or_default().to_owned();
            let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text("protected")).unwrap_or_default())
                .unwrap_or_default();
            let bound: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text("payload")).unwrap_or_default())
                .unwrap_or_default();
            let hmac = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
            let tag = URL_SAFE_NO_PAD.decode(text("signature")).unwrap_or_default();
            let signed = format!("{}.{}", text("protected"), text("payload"));
            let good = aws_lc_rs::hmac::verify(&hmac, signed.as_bytes(), &tag).is_ok();
            if !good || header["kid"] != *id || bound != key {
                return Err((403, "externalAccountRequired", "not bound to an account here".into()));
            }
        }
        if payload["termsOfServiceAgreed"] != true {
            return Err((403, "userActionRequired", "terms of service".into()));
        }
        let thumb = format!(r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#, key["x"], key["y"]);
        let thumb = URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, thumb.as_bytes()));
        state.log.accounts += 1;
        state.accounts.push((key, thumb));
        let location = format!("{}/account/{}", self.base, state.accounts.len() - 1);
        Ok((StatusCode::CREATED, Some(location), json!({ "status": "valid" })))
    }

    fn order(&self, state: &mut State, account: usize, payload: &Value, rules: &Rules) -> Answer {
        if rules.rate_limit.is_some() {
            state.log.limited += 1;
            return Err((429, "rateLimited", "too many certificates already issued".into()));
        }
        let name = payload["identifiers"][0]["value"].as_str().unwrap_or_default().to_owned();
        let token = URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(
            &aws_lc_rs::digest::SHA256,
            format!("{name} {} {}", state.orders.len(), self.base).as_bytes(),
        ));
        let replaces = payload.get("replaces").cloned();
        state.log.replaced += usize::from(replaces.is_some());
        state.log.orders.push(name.clone());
        state.orders.push(Order {
            name,
            account,
            token,
            status: "pending",
            authorization: "pending",
            error: None,
            certificate: None,
            replaces,
        });
        let at = state.orders.len() - 1;
        let location = format!("{}/order/{at}", self.base);
        Ok((StatusCode::CREATED, Some(location), self.show(&state.orders[at], at)))
    }

    fn show(&self, order: &Order, at: usize) -> Value {
        let url = |path: &str| format!("{}/{path}", self.base);
        let mut shown = json!({
            "status": order.status,
            "identifiers": [{ "type": "dns", "value": order.name }],
            "authorizations": [url(&format!("authorization/{at}"))],
            "finalize": url(&format!("order/{at}/finalize")),
        });
        if order.certificate.is_some() {
            shown["certificate"] = url(&format!("certificate/{at}")).into();
        }
        if let Some(replaces) = &order.replaces {
            shown["replaces"] = replaces.clone();
        }
        shown
    }

    fn authorization(&self, order: &Order, at: usize, rules: &Rules) -> Value {
        let challenges: Vec<Value> = rules.kinds.iter().map(|kind| self.challenge(order, at, kind)).collect();
        // An authorization has no state of its own for being looked at (RFC 8555 section 7.1.6).
        let status = if order.authorization == "processing" { "pending" } else { order.authorization };
        json!({ "status": status, "identifier": { "type": "dns", "value": order.name }, "challenges": challenges })
    }

    fn challenge(&self, order: &Order, at: usize, kind: &str) -> Value {
        let url = format!("{}/challenge/{at}/{kind}", self.base);
        let mut challenge = json!({ "type": kind, "url": url, "token": order.token, "status": order.authorization });
        if let Some(error) = &order.error {
            challenge["error"] = error.clone();
        }
        challenge
    }

    /// From everywhere: each place has to answer.
    async fn validate(self: Arc<Self>, at: usize, kind: String) {
        if self.rules().stalled {
            return;
        }
        let (order, thumb) = {
            let state = self.state();
            let order = state.orders[at].clone();
            let thumb = state.accounts[order.account].1.clone();
            (order, thumb)
        };
        let want = format!("{}.{thumb}", order.token);
        let mut result = Ok(());
        for place in self.rules().places {
            let answer = match kind.as_str() {
                "http-01" => http(place.http, &order, &want).await,
                "tls-alpn-01" => tls_alpn(place.tls, &order, &want).await,
                other => Err(format!("no such challenge: {other}")),
            };
            result = result.and(answer);
        }
        let mut state = self.state();
        let passed = match result {
            Ok(()) => {
                state.log.passed.push(kind);
                true
            }
            Err(detail) => {
                let error = json!({ "type": "urn:ietf:params:acme:error:incorrectResponse", "detail": detail });
                state.orders[at].error = Some(error);
                false
            }
        };
        let order = &mut state.orders[at];
        order.authorization = if passed { "valid" } else { "invalid" };
        order.status = if passed { "ready" } else { "invalid" };
    }

    fn finalize(
        &self,
        state: &mut State,
        at: usize,
        payload: &Value,
        rules: &Rules,
    ) -> Result<(), (u16, &'static str, String)> {
        let bad = |what: String| (400, "badCSR", what);
        if state.orders[at].status != "ready" {
            return Err((403, "orderNotReady", state.orders[at].status.into()));
        }
        let der = URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap_or_default()).unwrap_or_default();
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der));
        let mut request = request.map_err(|error| bad(error.to_string()))?;
        let names: Vec<String> = request.params.subject_alt_names.iter().map(|name| format!("{name:?}")).collect();
        if names != [format!("DnsName({:?})", state.orders[at].name)]
            && !names.iter().all(|name| name.contains(&state.orders[at].name))
        {
            return Err(bad(format!("names {names:?}")));
        }
        let second = |seconds: i64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs((now() + seconds) as u64);
        request.params.not_before = second(-1);
        request.params.not_after = second(rules.lifetime);
        request.params.use_authority_key_identifier_extension = true;
        let certificate = request.signed_by(&self.issuer).map_err(|error| bad(error.to_string()))?;
        state.log.issued += 1;
        let order = &mut state.orders[at];
        order.certificate = Some(format!("{}{}", certificate.pem(), self.issuer_pem));
        order.status = "valid";
        Ok(())
    }
}

/// RFC 8555 section 8.3.
async fn http(place: Option<SocketAddr>, order: &Order, want: &str) -> Result<(), String> {
    let place = place.ok_or("connection refused")?;
    if TcpStream::connect(place).await.is_err() {
        return Err("connection refused".into());
    }
    let answer = client::get(place, &order.name, &format!("/.well-known/acme-challenge/{}", order.token)).await;
    match (answer.status, answer.text()) {
        (200, text) if text.trim_end() == want => Ok(()),
        (status, text) => Err(format!("{place} answered {status} {text:?}")),
    }
}

/// RFC 8737 section 3.
async fn tls_alpn(place: Option<SocketAddr>, order: &Order, want: &str) -> Result<(), String> {
    let place = place.ok_or("connection refused")?;
    let stream = TcpStream::connect(place).await.map_err(|error| error.to_string())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let name = ServerName::try_from(order.name.clone()).map_err(|error| error.to_string())?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| format!("{place}: {error}"))?;
    let connection = stream.get_ref().1;
    if connection.alpn_protocol() != Some(b"acme-tls/1") {
        return Err(format!("{place} negotiated {:?}", connection.alpn_protocol()));
    }
    let leaf = connection.peer_certificates().and_then(|chain| chain.first()).ok_or("no certificate")?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|error| error.to_string())?;
    let names: Vec<String> = parsed
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| names.value.general_names.iter().map(ToString::to_string).collect())
        .unwrap_or_default();
    if names.len() != 1 || !names[0].contains(&order.name) {
        return Err(format!("{place} shows a certificate for {names:?}"));
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, want.as_bytes());
    let proof = parsed.extensions().iter().find(|extension| extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
    match proof {
        Some(proof) if proof.critical && proof.value == [&[4, 32], digest.as_ref()].concat() => Ok(()),
        Some(_) => Err(format!("{place} shows another proof")),
        None => Err(format!("{place} shows a certificate without a proof")),
    }
}

/// A CA takes any certificate here, and looks into it.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
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
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Trusts what this authority has issued.
pub(crate) fn trusting(issuer: &str, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(issuer.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Year, month, day and second of the day (after Howard Hinnant's days-to-civil).
fn date(at: i64) -> (i64, i64, i64, i64) {
    let (days, of_day) = (at.div_euclid(86400), at.rem_euclid(86400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1, of_day)
}
