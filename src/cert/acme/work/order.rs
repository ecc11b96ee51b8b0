//! One account, and one order at a time: from a name to a certificate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{GeneralPurposeConfig, STANDARD, STANDARD_NO_PAD};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::super::{Challenge, Config, Pending};
use super::http::Http;
use super::record::{self, ACCOUNT, CHALLENGES, Open, Stored};
use super::seal::Seal;
use super::storage::{Contents, Storage};
use crate::cert::certificate::Pair;
use crate::cert::store::now;

/// Why there is no certificate.
#[derive(Debug)]
pub(super) enum Error {
    /// The CA refuses, with its reason.
    Refused(Box<instant_acme::Problem>),
    /// The CA cannot be reached, or does not answer as it should.
    Ca(String),
    Storage(crate::cert::Error),
    /// What we have does not do: the account, or the certificate that came.
    Own(String),
}

impl Error {
    /// Not this name's fault: the next one would fail as well.
    pub(super) fn is_general(&self) -> bool {
        match self {
            Error::Refused(problem) => {
                let kind = problem.r#type.as_deref().unwrap_or_default();
                GENERAL.iter().any(|general| kind.strip_prefix(PREFIX) == Some(general))
            }
            Error::Ca(_) | Error::Storage(_) => true,
            Error::Own(_) => false,
        }
    }

    pub(super) fn is_rate_limit(&self) -> bool {
        matches!(self, Error::Refused(problem) if problem.status == Some(429)
            || problem.r#type.as_deref().and_then(|kind| kind.strip_prefix(PREFIX)) == Some("rateLimited"))
    }

    /// The CA does not take it that the order replaces another certificate (RFC 9773 section 5).
    pub(super) fn is_about_replacing(&self) -> bool {
        match self {
            Error::Refused(problem) => {
                problem.status == Some(409)
                    || problem.r#type.as_deref().and_then(|kind| kind.strip_prefix(PREFIX)) == Some("alreadyReplaced")
            }
            Error::Ca(text) => text.contains("replaces"),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(problem) => write!(f, "{problem}"),
            Error::Ca(text) | Error::Own(text) => f.write_str(text),
            Error::Storage(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<instant_acme::Error> for Error {
    fn from(error: instant_acme::Error) -> Self {
        match error {
            instant_acme::Error::Api(problem) => Error::Refused(Box::new(problem)),
            // One order that does not get on, and what cannot be had for it, is no reason to give up the others.
            error @ (instant_acme::Error::Timeout(_)
            | instant_acme::Error::Unsupported(_)
            | instant_acme::Error::Str(_)) => Error::Own(error.to_string()),
            other => Error::Ca(other.to_string()),
        }
    }
}

impl From<crate::cert::Error> for Error {
    fn from(error: crate::cert::Error) -> Self {
        Error::Storage(error)
    }
}

/// What orders have in common.
pub(super) struct Desk {
    pub(super) config: Config,
    pub(super) storage: Storage,
    pub(super) seal: Arc<Seal>,
    pub(super) http: Http,
    pub(super) external_account: Option<(String, Vec<u8>)>,
    /// HTTP-01 comes first.
    pub(super) plain: bool,
    /// What this process has seen of the storage, and serves.
    pub(super) contents: watch::Receiver<Option<Arc<Contents>>>,
}

impl Desk {
    /// The stored account, or a new one, which is stored before it is used.
    pub(super) async fn account(&self, contents: &Contents) -> Result<Account, Error> {
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        if let Some(text) = contents.get(ACCOUNT) {
            let opened = self.seal.open(ACCOUNT, text);
            let text = opened.map_err(|why| Error::Own(format!("the account cannot be read: {why}")))?;
            let credentials: AccountCredentials = serde_json::from_str(&text)
                .map_err(|error| Error::Own(format!("the stored account cannot be read: {error}")))?;
            return Ok(builder.from_credentials(credentials).await?);
        }
        let mail = self.config.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = mail.as_deref().into_iter().collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.external_account.as_ref().map(|(id, key)| ExternalAccountKey::new(id.clone(), key));
        let (account, credentials) = builder.create(&new, self.config.directory.clone(), external.as_ref()).await?;
        let text = record::text(&credentials);
        let sealed = self.seal.seal(ACCOUNT, &text).map_err(|why| Error::Own(why.into()))?;
        self.storage.write(ACCOUNT, &sealed).await?;
        tracing::info!("acme: new account {} at {}", account.id(), self.config.directory);
        Ok(account)
    }

    /// A certificate for this name. `attempt` counts from 0 and chooses the challenge where several would do.
    pub(super) async fn order(
        &self,
        account: &Account,
        name: &str,
        replaces: Option<CertificateIdentifier<'_>>,
        attempt: u32,
    ) -> Result<Stored, Error> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let mut new = NewOrder::new(&identifiers);
        if let Some(replaces) = replaces {
            new = new.replaces(replaces);
        }
        if let Some(profile) = &self.config.profile {
            new = new.profile(profile);
        }
        let mut order = account.new_order(&new).await?;
        let mut tokens = Vec::new();
        let proved = self.prove(&mut order, name, attempt, &mut tokens).await;
        for token in tokens {
            // If not, it is ignored when its time is up.
            let _ = self.storage.delete(&record::key(CHALLENGES, &token)).await;
        }
        proved?;
        let key = KeyPair::generate().map_err(own)?;
        let mut params = CertificateParams::new([name.to_owned()]).map_err(own)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(own)?;
        order.finalize_csr(request.der()).await?;
        let certificate = order.poll_certificate(&patience()).await?;
        let key = key.serialize_pem();
        let pair = Pair::parse(certificate.as_bytes(), key.as_bytes()).map_err(own)?;
        if !pair.facts.names.iter().any(|covered| covered == name) {
            return Err(Error::Own(format!("the CA issued a certificate for {:?}", pair.facts.names)));
        }
        Ok(Stored { certificate, key })
    }

    /// Shows the CA that the name leads to us.
    async fn prove(&self, order: &mut Order, name: &str, attempt: u32, tokens: &mut Vec<String>) -> Result<(), Error> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                other => return Err(Error::Own(format!("the authorization is {other:?}"))),
            }
            let kinds = self.kinds(attempt);
            let offered = |kind: &&ChallengeType| authorization.challenges.iter().any(|offer| offer.r#type == **kind);
            let Some(kind) = kinds.iter().find(offered).cloned() else {
                return Err(Error::Own("the CA offers no challenge that can be answered here".into()));
            };
            let mut challenge = authorization.challenge(kind.clone()).expect("it was found a moment ago");
            let open = Open {
                name: name.to_owned(),
                kind: word(&kind).to_owned(),
                answer: challenge.key_authorization().as_str().to_owned(),
                until: now() + CHALLENGE,
            };
            let token = challenge.token.clone();
            if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
                return Err(Error::Own("the CA's token is none (RFC 8555 section 8.1)".into()));
            }
            let key = record::key(CHALLENGES, &token);
            tokens.push(token);
            self.storage.write(&key, &record::text(&open)).await?;
            // The CA may ask any process, and asks once: all of them need a moment to hear of it, this one surely.
            let mut contents = self.contents.clone();
            let seen = contents.wait_for(|contents| contents.as_ref().is_some_and(|all| all.contains_key(&key)));
            let _ = tokio::time::timeout(SEEN, seen).await;
            tokio::time::sleep(self.storage.spread()).await;
            challenge.set_ready().await?;
        }
        match order.poll_ready(&patience()).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(status) => Err(refusal(order).await.unwrap_or_else(|| Error::Own(format!("the order is {status:?}")))),
            Err(error) => Err(refusal(order).await.unwrap_or_else(|| error.into())),
        }
    }

    /// In order of preference.
    fn kinds(&self, attempt: u32) -> Vec<ChallengeType> {
        let (http, alpn) = (ChallengeType::Http01, ChallengeType::TlsAlpn01);
        match self.config.challenge {
            Challenge::Http => vec![http],
            Challenge::TlsAlpn => vec![alpn],
            Challenge::Any if self.plain == attempt.is_multiple_of(2) => vec![http, alpn],
            Challenge::Any => vec![alpn, http],
        }
    }
}

/// What the CA holds against a challenge, which says more than that the order is invalid.
async fn refusal(order: &mut Order) -> Option<Error> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.clone()) {
            return Some(Error::Refused(Box::new(problem)));
        }
    }
    None
}

/// How a challenge is answered; `None`: by nobody here.
pub(super) fn pending(token: &str, open: &Open) -> Option<Pending> {
    if open.kind == word(&ChallengeType::Http01) {
        return Some(Pending::Http { token: token.to_owned(), answer: open.answer.as_str().into() });
    }
    if open.kind != word(&ChallengeType::TlsAlpn01) {
        return None;
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, open.answer.as_bytes());
    let key = KeyPair::generate().ok()?;
    let mut params = CertificateParams::new([open.name.clone()]).ok()?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let certificate = params.self_signed(&key).ok()?;
    let der = PrivateKeyDer::try_from(key.serialize_der()).ok()?;
    let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der).ok()?;
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    Some(Pending::TlsAlpn { name: open.name.clone(), key: Arc::new(CertifiedKey::new(chain, signing)) })
}

/// The key of an external account, in whichever base64 it was handed out.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    const URL: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, GeneralPurposeConfig::new());
    const URL_NO_PAD: GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    [&URL_NO_PAD, &URL, &STANDARD, &STANDARD_NO_PAD].iter().find_map(|engine| engine.decode(text).ok())
}

fn word(kind: &ChallengeType) -> &'static str {
    match kind {
        ChallengeType::Http01 => "http-01",
        ChallengeType::TlsAlpn01 => "tls-alpn-01",
        _ => "",
    }
}

fn own(error: impl fmt::Display) -> Error {
    Error::Own(error.to_string())
}

fn patience() -> RetryPolicy {
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(PATIENCE)
}

/// How long this process may take to see what it has stored itself.
const SEEN: Duration = Duration::from_secs(10);
const PREFIX: &str = "urn:ietf:params:acme:error:";
/// RFC 8555 section 6.7.
const GENERAL: &[&str] = &[
    "accountDoesNotExist",
    "externalAccountRequired",
    "invalidContact",
    "serverInternal",
    "unsupportedContact",
    "userActionRequired",
];
/// CAs check within seconds, and issue within a minute.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seconds that a challenge is answered at most.
const CHALLENGE: i64 = 600;
