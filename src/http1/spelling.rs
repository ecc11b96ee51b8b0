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
    let mut begin = true;
    text.iter().all(|b| {
        let fits = if begin { !b.is_ascii_lowercase() } else { !b.is_ascii_uppercase() };
        begin = *b == b'-';
        fits
    })
}

fn title_case(lower: &[u8], out: &mut Vec<u8>) {
    let mut begin = true;
    let from = out.len();
    out.extend_from_slice(lower);
    for b in &mut out[from..] {
        if begin {
            b.make_ascii_uppercase();
        }
        begin = *b == b'-';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
