//! The chunked transfer coding (RFC 9112, section 7.1), read to the letter.
//!
//! Where the grammar ends, so does the body: lenient readers are what smuggling lives on. Extensions are checked and
//! dropped.

use bytes::{Buf, Bytes, BytesMut};

use super::body::Step;
use super::head::fields;
use super::{Flaw, Limits, Scan};

/// A body under way.
#[derive(Clone, Debug)]
pub struct Chunks {
    state: State,
    /// Bytes of extensions so far: they could go on for ever.
    extensions: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Size {
        digits: u8,
        size: u64,
    },
    Extension(Place, u64),
    /// The LF behind a size line.
    Begin(u64),
    Data(u64),
    /// CR LF behind the data of a chunk.
    Cr,
    Lf,
    Trailers(Scan),
    Over,
}

/// Where in `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Blanks that only another `;` may follow.
    Blank,
    /// Blanks behind a name: `=` may follow, too.
    BlankName,
    BeforeName,
    Name,
    BeforeValue,
    Value,
    Quoted,
    Escaped,
    BehindQuoted,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { state: State::Size { digits: 0, size: 0 }, extensions: 0 }
    }
}

impl Chunks {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    pub(super) fn step(&mut self, read: &mut BytesMut) -> Result<Step, Flaw> {
        loop {
            match self.state {
                State::Data(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(read.len());
                    if length == 0 {
                        return Ok(Step::Wait);
                    }
                    let left = left - length as u64;
                    self.state = if left == 0 { State::Cr } else { State::Data(left) };
                    let data = read.split_to(length).freeze();
                    if left == 0 {
                        // The end of the body is mostly there already, and is better known with its last bytes.
                        self.pass_line_end(read)?;
                    }
                    return Ok(Step::Data(data));
                }
                State::Trailers(mut scan) => {
                    let found = scan.find(read, TRAILERS)?;
                    let Some(length) = found else {
                        self.state = State::Trailers(scan);
                        return Ok(Step::Wait);
                    };
                    self.state = State::Over;
                    if length == 2 {
                        read.advance(2);
                        return Ok(Step::End);
                    }
                    let section: Bytes = read.split_to(length).freeze();
                    let mut trailers = fields(&section, TRAILERS.lines)?;
                    super::trailers::retain(&mut trailers);
                    return Ok(if trailers.is_empty() { Step::End } else { Step::Trailers(trailers) });
                }
                State::Over => return Ok(Step::End),
                _ => {
                    if !self.pass_bytes(read)? {
                        return Ok(Step::Wait);
                    }
                }
            }
        }
    }

    /// Takes what is not data. False when there is nothing more to take.
    fn pass_bytes(&mut self, read: &mut BytesMut) -> Result<bool, Flaw> {
        let mut taken = 0;
        for &byte in read.iter() {
            if matches!(self.state, State::Data(_) | State::Trailers(_)) {
                break;
            }
            self.byte(byte)?;
            taken += 1;
        }
        read.advance(taken);
        Ok(matches!(self.state, State::Data(_) | State::Trailers(_)))
    }

    /// Behind the data of a chunk; and if the last chunk without trailers is there as well, the body is over.
    fn pass_line_end(&mut self, read: &mut BytesMut) -> Result<(), Flaw> {
        if read.starts_with(b"\r\n0\r\n\r\n") {
            read.advance(7);
            self.state = State::Over;
            return Ok(());
        }
        for expected in *b"\r\n" {
            let Some(&byte) = read.first() else { break };
            if byte != expected {
                return Err(Flaw::Malformed("a chunk that is longer than its size"));
            }
            self.byte(byte)?;
            read.advance(1);
        }
        Ok(())
    }

    fn byte(&mut self, byte: u8) -> Result<(), Flaw> {
        self.state = match (self.state, byte) {
            (State::Size { digits, size }, _) => match (char::from(byte).to_digit(16), byte) {
                (Some(digit), _) => {
                    let size = size.checked_mul(16).ok_or(Flaw::Malformed("a chunk size that is too large"))?;
                    State::Size { digits: digits.saturating_add(1), size: size + u64::from(digit) }
                }
                _ if digits == 0 => return Err(Flaw::Malformed("a chunk without a size")),
                (None, b'\r') => State::Begin(size),
                (None, b';') => State::Extension(Place::BeforeName, size),
                (None, b' ' | b'\t') => State::Extension(Place::Blank, size),
                (None, _) => return Err(Flaw::Malformed("a chunk size that is no number")),
            },
            (State::Extension(place, size), _) => {
                self.extensions += 1;
                if self.extensions > EXTENSIONS {
                    return Err(Flaw::Malformed("too many chunk extensions"));
                }
                match next(place, byte) {
                    Some(place) => State::Extension(place, size),
                    None if byte == b'\r' && matches!(place, Place::Name | Place::Value | Place::BehindQuoted) => {
                        State::Begin(size)
                    }
                    None => return Err(Flaw::Malformed("a malformed chunk extension")),
                }
            }
            (State::Begin(0), b'\n') => State::Trailers(Scan::default()),
            (State::Begin(size), b'\n') => State::Data(size),
            (State::Cr, b'\r') => State::Lf,
            (State::Lf, b'\n') => State::Size { digits: 0, size: 0 },
            _ => return Err(Flaw::Malformed("a malformed chunk")),
        };
        Ok(())
    }
}

/// `None`: the grammar does not go on with this byte.
fn next(place: Place, byte: u8) -> Option<Place> {
    use Place::{BeforeName, BeforeValue, BehindQuoted, Blank, BlankName, Escaped, Name, Quoted, Value};
    let blank = matches!(byte, b' ' | b'\t');
    Some(match place {
        Blank | BehindQuoted if blank => Blank,
        Value if blank => Blank,
        Name | BlankName if blank => BlankName,
        BeforeName | BeforeValue if blank => place,
        Blank | BlankName | Name | Value | BehindQuoted if byte == b';' => BeforeName,
        Name | BlankName if byte == b'=' => BeforeValue,
        BeforeName | Name if is_token(byte) => Name,
        BeforeValue if byte == b'"' => Quoted,
        BeforeValue | Value if is_token(byte) => Value,
        Quoted if byte == b'"' => BehindQuoted,
        Quoted if byte == b'\\' => Escaped,
        Quoted | Escaped if blank || byte > b' ' && byte != 0x7f => Quoted,
        _ => return None,
    })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const EXTENSIONS: usize = 16 * 1024;
const TRAILERS: Limits = Limits { lines: 128, bytes: 16 * 1024 };

#[cfg(test)]
mod tests {
    use super::*;

    /// Data, names of trailers, and what is left; `None`: refused. In pieces of `size`.
    fn decode(bytes: &[u8], size: usize) -> Option<(Vec<u8>, Vec<String>, usize)> {
        let (mut chunks, mut read) = (Chunks::default(), BytesMut::new());
        let (mut data, mut names) = (Vec::new(), Vec::new());
        let mut pieces = bytes.chunks(size);
        loop {
            match chunks.step(&mut read).ok()? {
                Step::Data(more) => data.extend_from_slice(&more),
                Step::Wait => read.extend_from_slice(pieces.next()?),
                Step::Trailers(trailers) => names.extend(trailers.keys().map(|name| name.as_str().to_owned())),
                Step::End => break,
            }
        }
        Some((data, names, read.len() + pieces.map(<[u8]>::len).sum::<usize>()))
    }

    #[test]
    fn bodies() {
        for (bytes, expected) in [
            ("5\r\nabcde\r\n0\r\n\r\n", Some("abcde")),
            ("5\r\nabcde\r\n3\r\nfgh\r\n0\r\n\r\n", Some("abcdefgh")),
            ("0\r\n\r\n", Some("")),
            ("00\r\n\r\n", Some("")),
            ("A\r\n0123456789\r\n0\r\n\r\n", Some("0123456789")),
            ("5;ext\r\nabcde\r\n0\r\n\r\n", Some("abcde")),
            ("5;a=b;c=\"d\\\"\te\"\r\nabcde\r\n0;x\r\n\r\n", Some("abcde")),
            ("5 ; a = b ;c\r\nabcde\r\n0\r\n\r\n", Some("abcde")),
            ("5 ;a\r\nabcde\r\n0\r\n\r\n", Some("abcde")),
            ("5;a=\"x\";b\r\nabcde\r\n0\r\n\r\n", Some("abcde")),
            ("0000000000000000000005\r\nabcde\r\n0\r\n\r\n", Some("abcde")),
            ("5 \r\nabcde\r\n0\r\n\r\n", None),
            ("5\t\r\nabcde\r\n0\r\n\r\n", None),
            (" 5\r\nabcde\r\n0\r\n\r\n", None),
            ("5;\r\nabcde\r\n0\r\n\r\n", None),
            ("5;;\r\nabcde\r\n0\r\n\r\n", None),
            ("5;;a\r\nabcde\r\n0\r\n\r\n", None),
            ("5;a=\r\nabcde\r\n0\r\n\r\n", None),
            ("5;=b\r\nabcde\r\n0\r\n\r\n", None),
            ("5;a=\"b\r\nabcde\r\n0\r\n\r\n", None),
            ("5;a=\"b\"c\r\nabcde\r\n0\r\n\r\n", None),
            ("5;a b\r\nabcde\r\n0\r\n\r\n", None),
            ("5;a\nb\r\nabcde\r\n0\r\n\r\n", None),
            ("5;a \r\nabcde\r\n0\r\n\r\n", None),
            ("5\nabcde\r\n0\r\n\r\n", None),
            ("5\r\nabcde\n0\r\n\r\n", None),
            ("5\r\nabcdef\r\n0\r\n\r\n", None),
            ("4\r\nabcde\r\n0\r\n\r\n", None),
            ("\r\nabcde\r\n0\r\n\r\n", None),
            ("0x5\r\nabcde\r\n0\r\n\r\n", None),
            ("+5\r\nabcde\r\n0\r\n\r\n", None),
            ("-5\r\nabcde\r\n0\r\n\r\n", None),
            ("5g\r\nabcde\r\n0\r\n\r\n", None),
            ("10000000000000000\r\nabcde\r\n0\r\n\r\n", None),
            ("fffffffffffffffff\r\nabcde\r\n0\r\n\r\n", None),
            ("5\r\nabcde\r\n0\r\nBad Name: x\r\n\r\n", None),
            ("5\r\nabcde\r\n0\r\nX: a\0b\r\n\r\n", None),
            ("5\r\nabcde\r\n0\r\n x\r\n\r\n", None),
            ("5\r\nabcde\r\n0\r\nx: y\n\r\n", None),
            ("5\r\nabcde\r\n0\r\n", None),
        ] {
            let whole = decode(bytes.as_bytes(), bytes.len());
            assert_eq!(whole.as_ref().map(|found| found.0.as_slice()), expected.map(str::as_bytes), "{bytes:?}");
            assert!(whole.as_ref().is_none_or(|found| found.2 == 0), "{bytes:?}");
            for size in 1..4 {
                assert_eq!(decode(bytes.as_bytes(), size), whole, "{bytes:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn trailers_and_what_follows() {
        let body =
            b"1\r\na\r\n0\r\nX-Sum: 1\r\nHost: evil\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nGET";
        for size in [1, 2, 7, body.len()] {
            assert_eq!(decode(body, size), Some((b"a".to_vec(), vec!["x-sum".to_owned()], 3)), "{size}");
        }
    }

    #[test]
    fn endless_parts() {
        let extension = format!("5;{}\r\nabcde\r\n0\r\n\r\n", "a".repeat(EXTENSIONS + 1));
        assert_eq!(decode(extension.as_bytes(), 1000), None);
        let many = format!("{}0\r\n\r\n", "1;abcdefgh\r\na\r\n".repeat(3000));
        assert_eq!(decode(many.as_bytes(), 1000), None);
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(200));
        assert_eq!(decode(trailers.as_bytes(), 1000), None);
        let long = format!("0\r\na: {}\r\n\r\n", "b".repeat(20_000));
        assert_eq!(decode(long.as_bytes(), 1000), None);
    }
}
