//! The htpasswd file: users and their passwords in the forms that Apache and fabio know.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::crypt::{self, Sha};

#[derive(Debug, Default)]
pub(super) struct Users {
    passwords: HashMap<Vec<u8>, Arc<Stored>>,
    /// The first password that takes long to check.
    decoy: Option<Arc<Stored>>,
}

/// A password as it stands in the file.
#[derive(Debug)]
pub(super) struct Stored {
    text: String,
    form: Form,
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    Plain(String),
    Sha1 { hash: [u8; 20], salt: Vec<u8> },
    Md5 { magic: &'static str, salt: String, hash: String },
    Sha { kind: Sha, salt: String, rounds: u32, hash: String },
    Bcrypt,
}

impl Users {
    /// Of several lines for a user the last one counts. A line that cannot be used costs itself only; what it says is not
    /// repeated in the log, since it may be a password.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let mut users = Self::default();
        for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
            if line.len() > LONGEST {
                return Err(format!("line {} is longer than {LONGEST} bytes", number + 1));
            }
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let user = line.iter().position(|b| *b == b':').map(|colon| line.split_at(colon));
            let parsed = match user {
                None => Err("not of the form user:password"),
                Some((_, text)) => std::str::from_utf8(&text[1..]).map_err(|_| "not UTF-8").and_then(Stored::parse),
            };
            match (user, parsed) {
                (Some((user, _)), Ok(stored)) => _ = users.passwords.insert(user.to_owned(), Arc::new(stored)),
                (_, Err(why)) => {
                    tracing::warn!("{}:{}: {why}; the line is ignored", path.display(), number + 1);
                }
                (None, Ok(_)) => {}
            }
        }
        // The slowest of them, so that an unknown user takes no less than a known one.
        users.decoy = users.passwords.values().filter(|stored| !stored.is_quick()).max_by_key(|s| s.cost()).cloned();
        Ok(users)
    }

    pub(super) fn find(&self, user: &[u8]) -> Option<Arc<Stored>> {
        self.passwords.get(user).cloned()
    }

    pub(super) fn decoy(&self) -> Option<Arc<Stored>> {
        self.decoy.clone()
    }
}

impl Stored {
    /// Forms are told apart by how they begin. What looks like a hash of an unknown form is refused: taken for the password
    /// itself, it would let in whoever has seen the file.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let form = if let Some(rest) = text.strip_prefix("$apr1$") {
            md5("$apr1$", rest)?
        } else if let Some(rest) = text.strip_prefix("$1$") {
            md5("$1$", rest)?
        } else if let Some(encoded) = text.strip_prefix("{SHA}") {
            let hash = STANDARD.decode(encoded).ok().and_then(|hash| hash.try_into().ok());
            Form::Sha1 { hash: hash.ok_or("malformed SHA-1 hash")?, salt: Vec::new() }
        } else if ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts = bcrypt::HashParts::from_str(text).map_err(|_| "malformed bcrypt hash")?;
            if !(4..=MOST_BCRYPT).contains(&parts.get_cost()) {
                return Err("bcrypt hash of a cost that is not between 4 and 17");
            }
            Form::Bcrypt
        } else if let Some(encoded) = text.strip_prefix("{SSHA}") {
            let mut hash = STANDARD.decode(encoded).map_err(|_| "malformed salted SHA-1 hash")?;
            let salt = if hash.len() >= 20 { hash.split_off(20) } else { return Err("malformed salted SHA-1 hash") };
            Form::Sha1 { hash: hash.try_into().map_err(|_| "malformed salted SHA-1 hash")?, salt }
        } else if let Some(rest) = text.strip_prefix("$5$") {
            sha(Sha::Sha256, rest)?
        } else if let Some(rest) = text.strip_prefix("$6$") {
            sha(Sha::Sha512, rest)?
        } else if let Some(password) = text.strip_prefix("{PLAIN}") {
            Form::Plain(password.to_owned())
        } else if looks_hashed(text) {
            return Err(
                "a hash of a form that is not supported (a password that looks like one needs {PLAIN} before it)",
            );
        } else {
            Form::Plain(text.to_owned())
        };
        Ok(Self { text: text.to_owned(), form })
    }

    /// As it stands in the file.
    pub(super) fn text(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Cheap enough to be done by a worker itself: some microseconds.
    pub(super) fn is_quick(&self) -> bool {
        matches!(self.form, Form::Plain(_) | Form::Sha1 { .. })
    }

    /// Takes as long whether the password is right or not.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        let same = |a: &[u8], b: &[u8]| verify_slices_are_equal(a, b).is_ok();
        match &self.form {
            // Of equal length, so that the comparison tells nothing about it.
            Form::Plain(plain) => same(digest(&SHA256, plain.as_bytes()).as_ref(), digest(&SHA256, password).as_ref()),
            Form::Sha1 { hash, salt } => {
                same(hash, digest(&SHA1_FOR_LEGACY_USE_ONLY, &[password, salt].concat()).as_ref())
            }
            Form::Md5 { magic, salt, hash } => {
                same(hash.as_bytes(), crypt::md5(password, salt.as_bytes(), magic).as_bytes())
            }
            Form::Sha { kind, salt, rounds, hash } => {
                same(hash.as_bytes(), crypt::sha(*kind, password, salt.as_bytes(), *rounds).as_bytes())
            }
            Form::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
        }
    }

    /// Roughly, in microseconds.
    fn cost(&self) -> u64 {
        match &self.form {
            Form::Plain(_) | Form::Sha1 { .. } => 1,
            Form::Md5 { .. } => 500,
            Form::Sha { rounds, .. } => u64::from(*rounds),
            Form::Bcrypt => 50 << self.text.get(4..6).and_then(|cost| cost.parse().ok()).unwrap_or(4u32).min(31),
        }
    }
}

fn md5(magic: &'static str, rest: &str) -> Result<Form, &'static str> {
    match rest.split_once('$') {
        Some((salt, hash)) if hash.len() == 22 => Ok(Form::Md5 { magic, salt: salt.to_owned(), hash: hash.to_owned() }),
        _ => Err("malformed MD5 hash"),
    }
}

fn sha(kind: Sha, rest: &str) -> Result<Form, &'static str> {
    let (rounds, rest) = match rest.strip_prefix("rounds=").and_then(|rest| rest.split_once('$')) {
        None => (crypt::ROUNDS, rest),
        Some((rounds, rest)) => {
            let rounds: u32 = rounds.parse().map_err(|_| "malformed number of rounds")?;
            if rounds > MOST_ROUNDS {
                return Err("more than a million rounds");
            }
            // crypt(3) does not do less.
            (rounds.max(1000), rest)
        }
    };
    let length = if kind == Sha::Sha256 { 43 } else { 86 };
    match rest.split_once('$') {
        Some((salt, hash)) if hash.len() == length => {
            Ok(Form::Sha { kind, salt: salt.to_owned(), rounds, hash: hash.to_owned() })
        }
        _ => Err("malformed SHA-2 hash"),
    }
}

/// `$y$...`, `$argon2id$...`, `{SSHA512}...`, and the thirteen characters of the oldest `crypt(3)`.
fn looks_hashed(text: &str) -> bool {
    let tagged = text.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    text.starts_with('$')
        || tagged.is_some_and(|(tag, _)| !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
        || (text.len() == 13 && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/')))
}

/// Bytes.
const LONGEST: usize = 64 * 1024;
/// Above it a check takes minutes: Apache's own limit.
const MOST_BCRYPT: u32 = 17;
const MOST_ROUNDS: u32 = 1_000_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn users(text: &[u8]) -> Users {
        Users::parse(text, Path::new("f")).unwrap()
    }

    /// Hashes by glibc and OpenSSL.
    #[test]
    fn every_form_knows_its_password() {
        let long = "x".repeat(100);
        for (password, stored) in [
            ("secret", "$5$saltstring$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi."),
            (
                "secret",
                "$6$saltstring$AIsRs/Ee56G/tC8MEHhvReZTfx8u3rXXMl6eYrjCG9ibix19DxoMBLogdTET5Ukw9Sf7eZTITsuk0Ry5qulYz.",
            ),
            ("secret", "$5$rounds=1400$anotherlongsalts$hA9phAhHgeqcKTycY/LRKamQM18d5P2uD0VRrWGWMX6"),
            ("secret", "$5$rounds=1400$anotherlongsaltstring$hA9phAhHgeqcKTycY/LRKamQM18d5P2uD0VRrWGWMX6"),
            (
                "secret",
                "$6$rounds=1400$anotherlongsalts$Twf2eP6WMY29NT9yg1Nff0x6Ul/TWD9vkV2VVPyEX7uifmXI0FHGx3rX27ttfZtfB9phxv3003yyBPq3nGFb8.",
            ),
            ("secret", "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1"),
            ("secret", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"),
            ("", "$5$saltstring$FdNfA4gXqvCeO6iZs7G/.wwwoywYZqo0l1pwmfWaBA7"),
            ("", "$1$abcdefgh$M55TzYaaccxVGbptZWaxX/"),
            ("", "$apr1$abcdefgh$L.PT565ESX4Tp2bqNs7Ie."),
            ("aaaaaaaaaaaaaaaaaaaa", "$5$saltstring$fs96iROyUmCHNwC2oeuDzIhxvh3BGDw6iMKGAV1UNm6"),
            ("aaaaaaaaaaaaaaaaaaaa", "$1$abcdefgh$hYZ73HjV.UtWDf9O8Amoz0"),
            ("aaaaaaaaaaaaaaaaaaaa", "$apr1$abcdefgh$IqrY0sbhwnggE8mh4Qla9."),
            (&long, "$5$saltstring$Oa4FAe3j12NEBjTMwR61FXUth0v2z1HlRVgHK3bteq/"),
            (
                &long,
                "$6$saltstring$MTEOJx1zhJ5109YzqYzCaFk55JWZM1QJeKTBu63saMo0UwwWLpCB56lyhLVgvClgMHXn3tBaHXoSTCac4QqUv0",
            ),
            (&long, "$1$abcdefgh$ax3Kvr/hbxTbyc0QiTLcg/"),
            (&long, "$apr1$abcdefgh$9/cwT0JwksL/fA2yBHBE6/"),
            ("secret", "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
            ("secret", "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"),
            ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
            ("secret", "{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0"),
            ("secret", "secret"),
            ("secret", "{PLAIN}secret"),
            ("{PLAIN}x", "{PLAIN}{PLAIN}x"),
            ("{}x", "{}x"),
        ] {
            let stored = Stored::parse(stored).unwrap();
            assert!(stored.verify(password.as_bytes()), "{stored:?}");
            for wrong in ["Secret", "secret ", "x"] {
                assert!(!stored.verify(wrong.as_bytes()), "{stored:?} {wrong}");
            }
        }
    }

    #[test]
    fn what_looks_like_a_hash_is_no_password() {
        for text in [
            "$y$j9T$abc$def",
            "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$hash",
            "{SSHA512}abc",
            "rqXexS6ZhobKA",
            "$",
            "{SHA}short",
            "{SHA}!!!",
            "{SSHA}YWJj",
            "$apr1$nothing",
            "$apr1$salt$short",
            "$5$salt$short",
            "$5$rounds=x$salt$FdNfA4gXqvCeO6iZs7G/.wwwoywYZqo0l1pwmfWaBA7",
            "$6$rounds=999999999$s$kyGrqt6gmjAdtFLPrflEFifSYLCWWq1pyx95SvqinLDy2UHmj0sTF0MSLMwxPFZc3tu5kQckI8fks0zOPda3n1",
            "$2b$31$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
            "$2b$04$short",
            "$2b$04$ÄÄdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        ] {
            assert!(Stored::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lines() {
        let file = users(
            b"# alice:x\n\n  foo:bar \r\nfoosdlijdgohdgdbar\nfoo2:a:b\nfoo:baz\n:empty\nold:rqXexS6ZhobKA\n\xff:x\n",
        );
        let is = |user: &[u8], password: &[u8]| file.find(user).is_some_and(|stored| stored.verify(password));
        assert!(is(b"foo", b"baz") && !is(b"foo", b"bar"));
        assert!(is(b"foo2", b"a:b") && is(b"", b"empty") && is(b"\xff", b"x"));
        assert!(file.find(b"old").is_none() && file.find(b"# alice").is_none());
        assert!(file.decoy().is_none());
        assert_eq!(file.passwords.len(), 4);
        assert!(Users::parse(&vec![b'x'; LONGEST + 1], Path::new("f")).is_err());
    }

    #[test]
    fn the_decoy_is_the_slowest() {
        let file = users(b"a:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nb:$2b$08$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\nc:x\n");
        assert_eq!(file.decoy().unwrap().form, Form::Bcrypt);
    }
}
