//! From named blobs to pairs: the naming rules of directories, lists, KV trees and secrets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::certificate::{Certificate, Pair, sha256};
use super::error::PairError;

/// What a source holds: name (path, URL, key) to content, or why that one could not be read.
pub(super) type Blobs = BTreeMap<String, Result<Bytes, PairError>>;

/// A pair that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub name: String,
    pub error: PairError,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.error)
    }
}

/// Makes sets out of blobs, and remembers the previous set: what did not change is not parsed again.
#[derive(Default)]
pub(super) struct Maker {
    parsed: HashMap<[u8; 32], Arc<Pair>>,
    last: Vec<Certificate>,
}

/// A set of certificates, and what could not become part of it.
pub(super) struct Set {
    pub(super) certificates: Vec<Certificate>,
    pub(super) problems: Vec<Problem>,
}

impl Maker {
    /// A pair that has become unusable keeps its previous certificate as long as something is there under its name: files
    /// are replaced one after the other.
    pub(super) fn make(&mut self, blobs: &Blobs, pairs: &BTreeMap<String, String>) -> Set {
        let mut parsed = HashMap::new();
        let mut certificates = Vec::new();
        let mut problems = Vec::new();
        for (cert, key) in pairs {
            let (pair, error) = match self.pair(blobs, cert, key) {
                Ok((hash, pair)) => {
                    parsed.insert(hash, pair.clone());
                    (Some(pair), None)
                }
                Err(error) => (self.previous(cert), Some(error)),
            };
            problems.extend(error.map(|error| Problem { name: cert.clone(), error }));
            certificates.extend(pair.map(|pair| Certificate { name: cert.clone(), pair }));
        }
        self.parsed = parsed;
        // An empty set is not put in service; what comes after it is compared with what is.
        if !certificates.is_empty() {
            self.last.clone_from(&certificates);
        }
        Set { certificates, problems }
    }

    fn pair(&self, blobs: &Blobs, cert: &str, key: &str) -> Result<([u8; 32], Arc<Pair>), PairError> {
        let blob = |name: &str| match blobs.get(name) {
            Some(blob) => blob.as_ref().map_err(Clone::clone),
            None => Err(PairError::Half { missing: name.to_owned() }),
        };
        let (cert, key) = (blob(cert)?, blob(key)?);
        let hash = sha256(&[sha256(cert), sha256(key)].concat());
        let pair = match self.parsed.get(&hash) {
            Some(pair) => pair.clone(),
            None => Arc::new(Pair::parse(cert, key)?),
        };
        Ok((hash, pair))
    }

    fn previous(&self, name: &str) -> Option<Arc<Pair>> {
        self.last.iter().find(|certificate| certificate.name == name).map(|certificate| certificate.pair.clone())
    }
}

/// Names of certificate and key blobs, one entry per pair, sorted by certificate.
pub(super) fn pairs(blobs: &Blobs) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::new();
    for name in blobs.keys() {
        if let Some(stem) = name.strip_suffix("-cert.pem") {
            pairs.insert(name.clone(), format!("{stem}-key.pem"));
        } else if let Some(stem) = name.strip_suffix("-key.pem") {
            pairs.insert(format!("{stem}-cert.pem"), name.clone());
        } else if name.ends_with(".pem") {
            pairs.insert(name.clone(), name.clone());
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cert::testing::Authority;

    fn blobs(all: &[(&str, &str)]) -> Blobs {
        all.iter().map(|(name, text)| ((*name).to_owned(), Ok(Bytes::copy_from_slice(text.as_bytes())))).collect()
    }

    fn make(maker: &mut Maker, blobs: &Blobs) -> Set {
        maker.make(blobs, &pairs(blobs))
    }

    fn names(set: &Set) -> Vec<&str> {
        set.certificates.iter().map(|certificate| certificate.name.as_str()).collect()
    }

    #[test]
    fn a_moment_without_anything_is_not_remembered() {
        let authority = Authority::new("ca");
        let (a, b) = (authority.leaf(&["a.com"]), authority.leaf(&["b.com"]));
        let mut maker = Maker::default();
        let whole =
            [("a-cert.pem", &*a.cert), ("a-key.pem", &*a.key), ("b-cert.pem", &*b.cert), ("b-key.pem", &*b.key)];
        make(&mut maker, &blobs(&whole));
        assert!(make(&mut maker, &blobs(&[])).certificates.is_empty());
        // Being filled again, one after the other: the key is still to come.
        let half = make(&mut maker, &blobs(&[whole[0], whole[2], whole[3]]));
        assert_eq!(names(&half), ["a-cert.pem", "b-cert.pem"]);
    }

    #[test]
    fn names_make_pairs() {
        let authority = Authority::new("ca");
        let (a, b) = (authority.leaf(&["a.com"]), authority.leaf(&["b.com"]));
        let both = format!("{}{}", b.cert, b.key);
        let set = make(
            &mut Maker::default(),
            &blobs(&[
                ("z-cert.pem", &a.cert),
                ("z-key.pem", &a.key),
                ("b.pem", &both),
                ("half-cert.pem", &a.cert),
                ("lost-key.pem", &a.key),
                ("broken-cert.pem", "not a certificate\n"),
                ("broken-key.pem", "not a key\n"),
                ("README", "x"),
                ("c.crt", &a.cert),
            ]),
        );
        assert_eq!(names(&set), ["b.pem", "z-cert.pem"]);
        let problems: Vec<_> = set.problems.iter().map(|problem| problem.to_string()).collect();
        assert_eq!(
            problems,
            [
                "broken-cert.pem: no CERTIFICATE block",
                "half-cert.pem: half-key.pem is missing",
                "lost-cert.pem: lost-cert.pem is missing",
            ]
        );
    }

    #[test]
    fn a_pair_that_is_being_replaced_keeps_its_certificate() {
        let authority = Authority::new("ca");
        let (old, new) = (authority.leaf(&["a.com"]), authority.leaf(&["a.com"]));
        let mut maker = Maker::default();
        let first = make(&mut maker, &blobs(&[("a-cert.pem", &old.cert), ("a-key.pem", &old.key)]));
        for (name, half) in [
            ("certificate replaced, key not yet", blobs(&[("a-cert.pem", &new.cert), ("a-key.pem", &old.key)])),
            ("key half written", blobs(&[("a-cert.pem", &new.cert), ("a-key.pem", &new.key[..60])])),
            ("key away", blobs(&[("a-cert.pem", &new.cert)])),
            ("certificate away", blobs(&[("a-key.pem", &new.key)])),
            ("unreadable", BTreeMap::from([("a-cert.pem".into(), Err(PairError::Unreadable("503".into())))])),
        ] {
            let set = make(&mut maker, &half);
            assert_eq!(set.problems.len(), 1, "{name}");
            assert!(Arc::ptr_eq(&set.certificates[0].pair, &first.certificates[0].pair), "{name}");
        }
        let set = make(&mut maker, &blobs(&[("a-cert.pem", &new.cert), ("a-key.pem", &new.key)]));
        assert_eq!((set.problems.len(), set.certificates[0].pair.key.cert[0].as_ref()), (0, new.der()));
        assert!(make(&mut maker, &Blobs::new()).certificates.is_empty());
    }

    #[test]
    fn unchanged_pairs_are_not_parsed_again() {
        let authority = Authority::new("ca");
        let (a, b) = (authority.leaf(&["a.com"]), authority.leaf(&["b.com"]));
        let mut maker = Maker::default();
        let first = make(&mut maker, &blobs(&[("a-cert.pem", &a.cert), ("a-key.pem", &a.key)]));
        let second = make(
            &mut maker,
            &blobs(&[
                ("0-cert.pem", &b.cert),
                ("0-key.pem", &b.key),
                ("renamed-cert.pem", &a.cert),
                ("renamed-key.pem", &a.key),
            ]),
        );
        assert_eq!(names(&second), ["0-cert.pem", "renamed-cert.pem"]);
        assert!(Arc::ptr_eq(&first.certificates[0].pair, &second.certificates[1].pair));
    }
}
