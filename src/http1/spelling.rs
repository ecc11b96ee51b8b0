//! How the names of fields are written.
//!
//! HTTP does not care, but people and some old programs do. Names in `Title-Case`, which most are, need no memory.

use bytes::Bytes;
use http::HeaderName;

/// Names of one head that came in another form than `Title-Case`, in their order, and what else is not in its types.
#[derive(Clone, Debug, Default)]
pub struct Spelling {
    names: Vec<(HeaderName, Bytes)>,
    /// A reason phrase other than the usual one.
    pub reason: Option<Bytes>,
}

impl Spelling {
    /// `text` is how `name` came.
    pub fn note(&mut self, name: &HeaderName, text: &[u8], head: &Bytes) {
        if !is_title_case(text) {
            self.names.push((name.clone(), head.slice_ref(text)));
        }
    }

    /// Writes names in the order in which they are asked for.
    pub(super) fn writer(&self) -> Writer<'_> {
        Writer { names: &self.names, next: 0 }
    }
}

pub(super) struct Writer<'a> {
    names: &'a [(HeaderName, Bytes)],
    /// Maps keep nearly the order in which the names came, so the search begins behind the last find.
    next: usize,
}

impl Writer<'_> {
    pub(super) fn write(&mut self, name: &HeaderName, out: &mut Vec<u8>) {
        if !self.names.is_empty() {
            let (before, behind) = self.names.split_at(self.next);
            let found = behind
                .iter()
                .position(|(other, _)| other == name)
                .map(|place| self.next + place)
                .or_else(|| before.iter().position(|(other, _)| other == name));
            if let Some(place) = found {
                out.extend_from_slice(&self.names[place].1);
                self.next = (place + 1).min(self.names.len());
                return;
            }
        }
        title_case(name.as_str().as_bytes(), out);
    }
}

fn is_title_case(text: &[u8]) -> bool {
    let mut before = b'-';
    if let Some(last) = text.len().checked_sub(WORD) {
        let mut at = 0;
        loop {
            let word = word_at(text, at);
            let begin = begins(word, before);
            if (begin & between(word, b'a', b'z')) | (!begin & between(word, b'A', b'Z')) != 0 {
                return false;
            }
            if at == last {
                return true;
            }
            at = (at + WORD).min(last);
            before = text[at - 1];
        }
    }
    text.iter().all(|b| {
        let fits = if before == b'-' { !b.is_ascii_lowercase() } else { !b.is_ascii_uppercase() };
        before = *b;
        fits
    })
}

fn title_case(lower: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(lower);
    let text = &mut out[from..];
    let mut before = b'-';
    if let Some(last) = text.len().checked_sub(WORD) {
        let mut at = 0;
        loop {
            let word = word_at(text, at);
            // The bit that tells a small letter from a capital.
            let small = (begins(word, before) & between(word, b'a', b'z')) >> 2;
            text[at..at + WORD].copy_from_slice(&(word ^ small).to_le_bytes());
            if at == last {
                return;
            }
            at = (at + WORD).min(last);
            before = text[at - 1];
        }
    }
    for b in text {
        if before == b'-' {
            b.make_ascii_uppercase();
        }
        before = *b;
    }
}

// Eight letters of a name at a time; of the last two words that are looked at, the second overlaps the first unless they
// fit. Names are ASCII.

const WORD: usize = size_of::<u64>();
const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

fn word_at(text: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(text[at..at + WORD].try_into().expect("a word"))
}

/// The high bit of each letter that stands behind a hyphen. `before`: the letter before the first one.
fn begins(word: u64, before: u8) -> u64 {
    let differs = ((word << 8) | u64::from(before)) ^ (ONES * u64::from(b'-'));
    // Of letters that do not differ, none carries into the high bit.
    !((differs & !HIGH) + !HIGH) & !differs & HIGH
}

/// The high bit of each letter from `first` to `last`.
fn between(word: u64, first: u8, last: u8) -> u64 {
    let low = word & !HIGH;
    let from_first = low + ONES * u64::from(0x80 - first);
    let behind_last = low + ONES * u64::from(0x80 - last - 1);
    from_first & !behind_last & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_the_same_as_letters() {
        let names = [
            "a",
            "te",
            "x-a",
            "dnt",
            "age-b-c",
            "expect-a",
            "-",
            "--",
            "x--y",
            "a-b-c-d-e-f-g-h-i-j",
            "x-1a-_b-{c",
            "user-agent",
            "content-type",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-prefix-",
            "strict-transport-security",
            "-a--bcdefghijklmnop-q",
            "abcdefgh",
            "abcdefgh-",
            "abcdefg-i",
        ];
        for name in names {
            let mut title = String::new();
            for letter in name.chars() {
                let begin = title.is_empty() || title.ends_with('-');
                title.push(if begin { letter.to_ascii_uppercase() } else { letter });
            }
            let mut out = b"before".to_vec();
            title_case(name.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).expect("ASCII"), format!("before{title}"));
            assert!(is_title_case(title.as_bytes()), "{title}");
            for at in (0..title.len()).filter(|at| title.as_bytes()[*at].is_ascii_alphabetic()) {
                let mut other = title.clone().into_bytes();
                other[at] ^= 0x20;
                assert!(!is_title_case(&other), "{}", String::from_utf8_lossy(&other));
            }
        }
    }

    #[test]
    fn names_come_out_as_they_came_in() {
        let head = Bytes::from_static(b"ETag x-oDD-name Host host X-Plain");
        let names: Vec<&[u8]> = head.split(|b| *b == b' ').collect();
        let mut spelling = Spelling::default();
        for text in &names {
            spelling.note(&HeaderName::from_bytes(text).expect("a name"), text, &head);
        }
        let mut out = Vec::new();
        let mut writer = spelling.writer();
        for name in ["x-oDD-name", "etag", "host", "x-plain", "x-new", "www-authenticate"] {
            writer.write(&HeaderName::from_bytes(name.as_bytes()).expect("a name"), &mut out);
            out.push(b' ');
        }
        assert_eq!(out, b"x-oDD-name ETag host X-Plain X-New Www-Authenticate ");
        assert_eq!(spelling.names.len(), 3);
    }
}
