//! Password hashes of `crypt(3)` that no crate of ours computes: MD5 as BSD and Apache do it, SHA-256 and SHA-512.

use aws_lc_rs::digest::{self, Context};
use md5::{Digest as _, Md5};

/// `magic` is `$1$` or `$apr1$`; of the salt eight bytes count. 22 characters.
pub(super) fn md5(password: &[u8], salt: &[u8], magic: &str) -> String {
    let salt = &salt[..salt.len().min(8)];
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut outer = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for part in password.chunks(16) {
        outer.update(&inner[..part.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        // Where the original meant the inner hash, it takes a zero byte of a buffer that was cleared before.
        outer.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut hash = outer.finalize();
    for round in 0..1000 {
        let mut context = Md5::new();
        let odd = round & 1 == 1;
        context.update(if odd { password } else { &hash[..] });
        if round % 3 != 0 {
            context.update(salt);
        }
        if round % 7 != 0 {
            context.update(password);
        }
        context.update(if odd { &hash[..] } else { password });
        hash = context.finalize();
    }
    let mut text = String::with_capacity(22);
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        letters(&mut text, [hash[a], hash[b], hash[c]], 4);
    }
    letters(&mut text, [0, 0, hash[11]], 2);
    text
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sha {
    /// `$5$`, 43 characters.
    Sha256,
    /// `$6$`, 86 characters.
    Sha512,
}

/// Of the salt sixteen bytes count.
pub(super) fn sha(kind: Sha, password: &[u8], salt: &[u8], rounds: u32) -> String {
    let salt = &salt[..salt.len().min(16)];
    let algorithm = match kind {
        Sha::Sha256 => &digest::SHA256,
        Sha::Sha512 => &digest::SHA512,
    };
    let hash = |parts: &[&[u8]]| {
        let mut context = Context::new(algorithm);
        for part in parts {
            context.update(part);
        }
        context.finish()
    };
    let inner = hash(&[password, salt, password]);
    let mut outer = Context::new(algorithm);
    outer.update(password);
    outer.update(salt);
    outer.update(&stretched(inner.as_ref(), password.len()));
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { inner.as_ref() } else { password });
        bits >>= 1;
    }
    let mut result = outer.finish();
    let password_part = {
        let mut context = Context::new(algorithm);
        for _ in 0..password.len() {
            context.update(password);
        }
        stretched(context.finish().as_ref(), password.len())
    };
    let salt_part = {
        let mut context = Context::new(algorithm);
        for _ in 0..16 + usize::from(result.as_ref()[0]) {
            context.update(salt);
        }
        stretched(context.finish().as_ref(), salt.len())
    };
    for round in 0..rounds {
        let odd = round & 1 == 1;
        let mut context = Context::new(algorithm);
        context.update(if odd { &password_part } else { result.as_ref() });
        if round % 3 != 0 {
            context.update(&salt_part);
        }
        if round % 7 != 0 {
            context.update(&password_part);
        }
        context.update(if odd { result.as_ref() } else { &password_part });
        result = context.finish();
    }
    encode(kind, result.as_ref())
}

/// Three bytes at a time, taken a third of the hash apart, each triple turned once more than the one before.
fn encode(kind: Sha, hash: &[u8]) -> String {
    let (third, backwards) = match kind {
        Sha::Sha256 => (10, true),
        Sha::Sha512 => (21, false),
    };
    let mut text = String::with_capacity(86);
    for n in 0..third {
        let triple = [n, n + third, n + 2 * third];
        let turn = if backwards { (3 - n % 3) % 3 } else { n % 3 };
        letters(&mut text, [0, 1, 2].map(|place| hash[triple[(place + turn) % 3]]), 4);
    }
    match kind {
        Sha::Sha256 => letters(&mut text, [0, hash[31], hash[30]], 3),
        Sha::Sha512 => letters(&mut text, [0, 0, hash[63]], 2),
    }
    text
}

fn stretched(hash: &[u8], length: usize) -> Vec<u8> {
    hash.iter().copied().cycle().take(length).collect()
}

/// The alphabet of `crypt(3)`, lowest six bits first.
fn letters(text: &mut String, [a, b, c]: [u8; 3], count: usize) {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bits = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
    for _ in 0..count {
        text.push(char::from(ALPHABET[(bits & 63) as usize]));
        bits >>= 6;
    }
}

/// Rounds without `rounds=`.
pub(super) const ROUNDS: u32 = 5000;
