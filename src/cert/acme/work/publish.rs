//! From what is stored to what is served.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::Challenges;
use super::super::challenges::Pending;
use super::order;
use super::record::{self, CERTIFICATES, CHALLENGES, Open, Stored};
use super::seal::Seal;
use super::storage::Contents;
use crate::cert::PairError;
use crate::cert::blobs::{Blobs, Maker};
use crate::cert::certificate::{Facts, Pair};
use crate::cert::report::Shared;
use crate::cert::store::now;

pub(super) struct Publisher {
    shared: Arc<Shared>,
    seal: Arc<Seal>,
    challenges: Arc<Challenges>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    maker: Maker,
    /// By token: keys are not made again with each change.
    pending: HashMap<String, Pending>,
}

impl Publisher {
    pub(super) fn new(shared: Arc<Shared>, seal: Arc<Seal>, challenges: Arc<Challenges>) -> Self {
        Self { shared, seal, challenges, known: Mutex::default() }
    }

    /// Takes certificates and challenges into service.
    pub(super) async fn publish(self: &Arc<Self>, contents: Arc<Contents>) {
        let this = self.clone();
        // Many keys take a moment to parse. A panic there would have been logged, and what is served stays.
        let _ = tokio::task::spawn_blocking(move || this.take(&contents)).await;
    }

    fn take(&self, contents: &Contents) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_challenges(&mut known, contents);
        let mut blobs = Blobs::new();
        let mut pairs = BTreeMap::new();
        for name in record::names(contents, CERTIFICATES) {
            let place = record::key(CERTIFICATES, name);
            let broken = |why: &str| PairError::Unreadable(format!("stored certificate: {why}"));
            let stored: Option<Stored> = record::read(contents, &place);
            let (certificate, key) = match stored {
                None => (Err(broken("it is damaged")), Err(broken("it is damaged"))),
                Some(stored) => {
                    let key = self.seal.open(&place, &stored.key);
                    (
                        Ok(stored.certificate.into()),
                        key.map(Into::into).map_err(|why| PairError::Unreadable(format!("private key: {why}"))),
                    )
                }
            };
            blobs.insert(name.to_owned(), certificate);
            blobs.insert(place.clone(), key);
            pairs.insert(name.to_owned(), place);
        }
        let set = known.maker.make(&blobs, &pairs);
        self.shared.publish(set);
        self.shared.observe();
    }

    fn take_challenges(&self, known: &mut MutexGuard<'_, Known>, contents: &Contents) {
        let mut pending = HashMap::new();
        for token in record::names(contents, CHALLENGES) {
            let open: Option<Open> = record::read(contents, &record::key(CHALLENGES, token));
            let Some(open) = open.filter(|open| open.until > now()) else { continue };
            if let Some(answer) = known.pending.remove(token).or_else(|| order::pending(token, &open)) {
                pending.insert(token.to_owned(), answer);
            }
        }
        self.challenges.set(&self.shared.name, pending.values().cloned().collect());
        known.pending = pending;
    }

    /// By name of the order.
    pub(super) fn served(&self) -> HashMap<String, Facts> {
        let certificates = self.shared.store.certificates();
        certificates.iter().map(|certificate| (certificate.name.clone(), certificate.pair.facts.clone())).collect()
    }

    pub(super) fn pair(&self, name: &str) -> Option<Arc<Pair>> {
        let certificates = self.shared.store.certificates();
        certificates.iter().find(|certificate| certificate.name == name).map(|certificate| certificate.pair.clone())
    }
}
