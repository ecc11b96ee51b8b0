//! What can be wrong with a source and with one pair of it.

use std::fmt;
use std::io;

/// Why a source could not be read.
#[derive(Debug)]
pub enum Error {
    /// A file or directory.
    Read { what: String, cause: io::Error },
    /// A pair of a source that has only one.
    Pair { what: String, cause: PairError },
    /// The configured place cannot be a place.
    Place(String),
    /// Nothing was found where certificates should be.
    Nothing { what: String },
    /// More than we are willing to read.
    TooMuch { what: String },
    /// A server did not answer as it should. The text holds no secrets.
    Fetch(String),
    /// The authorities of clients cannot be used.
    Authorities { what: String, cause: PairError },
    /// As above, at the start.
    ClientCa { source: String, cause: Box<Error> },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read { what, cause } => match cause.kind() {
                io::ErrorKind::PermissionDenied => {
                    write!(f, "open {what}: permission denied (the process must be able to read it)")
                }
                io::ErrorKind::NotFound => write!(f, "open {what}: no such file or directory"),
                _ => write!(f, "open {what}: {cause}"),
            },
            Error::Pair { what, cause } | Error::Authorities { what, cause } => write!(f, "{what}: {cause}"),
            Error::Place(text) | Error::Fetch(text) => f.write_str(text),
            Error::Nothing { what } => write!(f, "{what} holds no certificates"),
            Error::TooMuch { what } => write!(f, "{what} is larger than a set of certificates can be"),
            Error::ClientCa { source, cause } => write!(f, "clientca of certificate source {source}: {cause}"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a certificate and its key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The other half of the pair is not there.
    Half { missing: String },
    /// One half is there but could not be read.
    Unreadable(String),
    /// No block with a certificate.
    NoCertificate,
    /// No block with a private key.
    NoKey,
    /// The key needs a passphrase.
    Encrypted,
    /// Broken PEM.
    Pem(String),
    /// No X.509 certificate inside the block.
    Certificate(String),
    /// Neither RSA nor ECDSA nor Ed25519, or broken.
    Key(String),
    /// The key belongs to another certificate.
    Mismatch,
}

impl fmt::Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairError::Half { missing } => write!(f, "{missing} is missing"),
            PairError::Unreadable(text) => f.write_str(text),
            PairError::NoCertificate => f.write_str("no CERTIFICATE block"),
            PairError::NoKey => f.write_str("no PRIVATE KEY block"),
            PairError::Encrypted => f.write_str(
                "the private key is encrypted; store it without a passphrase (openssl pkey -in KEY -out KEY)",
            ),
            PairError::Pem(text) => write!(f, "broken PEM: {text}"),
            PairError::Certificate(text) => write!(f, "unreadable certificate: {text}"),
            PairError::Key(text) => write!(f, "unusable private key: {text}"),
            PairError::Mismatch => f.write_str("the private key does not belong to the certificate"),
        }
    }
}

impl std::error::Error for PairError {}
