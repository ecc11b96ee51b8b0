//! Request paths: decoded once for matching, cleaned of dot segments and double slashes, escapes kept for forwarding.
//!
//! What is matched, checked and forwarded is one and the same cleaned path, so there is no way around a rule: encoded
//! slashes and dots count as slashes and dots. All other escapes go on exactly as they came, and so do encoded slashes.

use std::borrow::Cow;

use super::Options;

#[cfg(test)]
mod tests;

/// A request path in its two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned<'a> {
    /// Cleaned, escapes as they came. This is what is forwarded.
    pub raw: Cow<'a, str>,
    /// Cleaned and decoded once. This is what is matched. Need not be UTF-8.
    pub decoded: Cow<'a, [u8]>,
}

/// Empty becomes `/`. Without escapes, double slashes and dot segments nothing is copied.
pub fn clean(raw: &str) -> Cleaned<'_> {
    if raw.is_empty() {
        return Cleaned { raw: Cow::Borrowed("/"), decoded: Cow::Borrowed(b"/") };
    }
    if !raw.starts_with('/') {
        let rooted = format!("/{raw}");
        let cleaned = clean(&rooted);
        return Cleaned {
            raw: Cow::Owned(cleaned.raw.into_owned()),
            decoded: Cow::Owned(cleaned.decoded.into_owned()),
        };
    }
    let decoded = decode(raw);
    if is_clean(&decoded) { Cleaned { raw: Cow::Borrowed(raw), decoded } } else { rebuild(raw) }
}

impl Cleaned<'_> {
    /// The raw path without a prefix, always with a leading slash; `None` if it is no prefix. The prefix is compared
    /// after decoding both once, byte by byte; it need not end where a segment ends.
    pub fn strip(&self, prefix: &str) -> Option<Cow<'_, str>> {
        let rest = self.without(prefix)?;
        let bytes = rest.as_bytes();
        let mut start = 0;
        let mut before = 0;
        while start < bytes.len() {
            let (byte, width) = byte_at(bytes, start);
            if byte != b'/' {
                break;
            }
            before = start;
            start += width;
        }
        if start > 0 && bytes[before] == b'/' {
            // A run of slashes at the beginning is one slash.
            return Some(Cow::Borrowed(&rest[before..]));
        }
        if start > 0 || rest.is_empty() {
            return Some(Cow::Owned(format!("/{}", &rest[start..])));
        }
        // A prefix that ends inside a segment can leave a dot segment: strip=/foo of /foo../x.
        Some(Cow::Owned(clean(rest).raw.into_owned()))
    }

    /// The path to send: `strip`, `replace`, `rewrite`, then `prepend`.
    pub fn forward(&self, options: &Options) -> Cow<'_, str> {
        let stripped = options.strip.as_deref().and_then(|prefix| self.strip(prefix));
        let mut path = stripped.unwrap_or(Cow::Borrowed(&self.raw));
        if let Some(rewrite) = &options.rewrite {
            path = rewrite.apply(path);
        }
        match options.prepend.as_deref() {
            None | Some("" | "/") => path,
            Some(prefix) => Cow::Owned([prefix, &path].concat()),
        }
    }

    /// What is left of the raw path behind a prefix, as it is.
    pub(super) fn without(&self, prefix: &str) -> Option<&str> {
        if !prefix.contains('%') && !self.raw.contains('%') {
            return self.raw.strip_prefix(prefix);
        }
        let mut decoded = self.decoded.iter();
        let mut at = 0;
        let mut length = 0;
        while at < prefix.len() {
            let (byte, width) = byte_at(prefix.as_bytes(), at);
            if decoded.next() != Some(&byte) {
                return None;
            }
            at += width;
            length += 1;
        }
        // As many decoded bytes of the raw path, of which slashes in a row are one.
        let raw = self.raw.as_bytes();
        let mut at = 0;
        let mut last = 0;
        while length > 0 && at < raw.len() {
            let (byte, width) = byte_at(raw, at);
            if !(byte == b'/' && last == b'/') {
                length -= 1;
            }
            last = byte;
            at += width;
        }
        (length == 0).then(|| &self.raw[at..])
    }
}

/// Percent-escapes decoded once; what is no escape stays.
pub(super) fn decode(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    let Some(first) = bytes.iter().position(|b| *b == b'%') else { return Cow::Borrowed(bytes) };
    let mut decoded = Vec::with_capacity(bytes.len());
    decoded.extend_from_slice(&bytes[..first]);
    let mut at = first;
    while at < bytes.len() {
        let (byte, width) = byte_at(bytes, at);
        decoded.push(byte);
        at += width;
    }
    Cow::Owned(decoded)
}

/// A path of an option as it can stand in a request target: one leading slash, no dot segments, escapes for bytes that
/// would end the path or the line.
pub(super) fn presentable(text: &str) -> String {
    let mut path = String::with_capacity(text.len() + 1);
    path.push('/');
    let text = text.trim_start_matches('/');
    for (at, byte) in text.bytes().enumerate() {
        let kept = match byte {
            b'%' => byte_at(text.as_bytes(), at).1 == 3,
            b'?' | b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            _ => byte.is_ascii_graphic(),
        };
        if kept {
            path.push(char::from(byte));
        } else {
            push_escape(&mut path, byte);
        }
    }
    let decoded = decode(&path);
    let dots = decoded.split(|b| *b == b'/').any(|segment| matches!(segment, b"." | b".."));
    if dots || decoded.starts_with(b"//") { clean(&path).raw.into_owned() } else { path }
}

/// A raw path without its dot segments, which are not followed.
pub(super) fn without_dots(raw: &str) -> String {
    let bytes = raw.as_bytes();
    let mut kept = String::with_capacity(raw.len() + 1);
    let mut at = 0;
    while at < bytes.len() {
        let slash = kept.len();
        match byte_at(bytes, at) {
            (b'/', width) => {
                kept.push_str(&raw[at..at + width]);
                at += width;
            }
            // The first segment of a path that does not begin with a slash.
            _ => kept.push('/'),
        }
        let start = at;
        while at < bytes.len() && byte_at(bytes, at).0 != b'/' {
            at += byte_at(bytes, at).1;
        }
        match &*decode(&raw[start..at]) {
            b"." | b".." => kept.truncate(slash),
            _ => kept.push_str(&raw[start..at]),
        }
    }
    kept
}

pub(super) fn push_escape(out: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

/// The decoded byte at a place, and how many raw bytes stand for it.
fn byte_at(bytes: &[u8], at: usize) -> (u8, usize) {
    if bytes[at] == b'%'
        && let Some(&[high, low]) = bytes.get(at + 1..at + 3)
        && let (Some(high), Some(low)) = (hex(high), hex(low))
    {
        return (high << 4 | low, 3);
    }
    (bytes[at], 1)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Has it neither double slashes nor dot segments? `decoded` begins with a slash.
fn is_clean(decoded: &[u8]) -> bool {
    let ends = |at: usize| matches!(decoded.get(at), None | Some(b'/'));
    let mut rest = decoded.iter().enumerate();
    rest.all(|(at, byte)| {
        *byte != b'/'
            || match decoded.get(at + 1) {
                Some(b'/') => false,
                Some(b'.') => !(ends(at + 2) || (decoded[at + 2] == b'.' && ends(at + 3))),
                _ => true,
            }
    })
}

fn rebuild(raw: &str) -> Cleaned<'static> {
    let bytes = raw.as_bytes();
    let mut kept = String::with_capacity(raw.len());
    let mut decoded: Vec<u8> = Vec::with_capacity(raw.len());
    let mut at = 0;
    // The slashes since the last segment that stays, and whether a dot segment was among them.
    let mut slashes = Slashes::default();
    while at < bytes.len() {
        let (_, width) = byte_at(bytes, at);
        slashes.push(&raw[at..at + width]);
        at += width;

        let start = at;
        let base = decoded.len();
        decoded.push(b'/');
        while at < bytes.len() {
            let (byte, width) = byte_at(bytes, at);
            if byte == b'/' {
                break;
            }
            decoded.push(byte);
            at += width;
        }
        let last = at == bytes.len();
        match &decoded[base + 1..] {
            b"" if last => slashes.put(&mut kept),
            b"" => decoded.truncate(base),
            b"." => {
                decoded.truncate(base);
                slashes.joined = true;
            }
            b".." => {
                decoded.truncate(base);
                decoded.truncate(decoded.iter().rposition(|b| *b == b'/').unwrap_or(0));
                let cut = last_slashes(&kept);
                slashes.plain |= kept[cut..].contains('/');
                slashes.joined = true;
                kept.truncate(cut);
            }
            _ => {
                slashes.put(&mut kept);
                kept.push_str(&raw[start..at]);
                slashes = Slashes::default();
            }
        }
    }
    if kept.is_empty() {
        kept.push('/');
    }
    if decoded.is_empty() {
        decoded.push(b'/');
    }
    Cleaned { raw: Cow::Owned(kept), decoded: Cow::Owned(decoded) }
}

/// Slashes in a row. To a rule they are one. Sent on, plain ones are one, and encoded ones stay: to many a target they
/// are no slashes at all.
#[derive(Default)]
struct Slashes {
    text: String,
    plain: bool,
    /// Something between them was taken out.
    joined: bool,
}

impl Slashes {
    fn push(&mut self, slash: &str) {
        let plain = slash == "/";
        self.plain |= plain;
        if !(plain && self.text.ends_with('/')) {
            self.text.push_str(slash);
        }
    }

    fn put(&self, kept: &mut String) {
        if kept.is_empty() || (self.joined && self.plain) {
            kept.push('/');
        } else if self.joined {
            kept.push_str(&self.text[..3]);
        } else {
            kept.push_str(&self.text);
        }
    }
}

/// Where the last run of slashes of a raw path begins, plain or encoded. 0 if there is none.
fn last_slashes(raw: &str) -> usize {
    let bytes = raw.as_bytes();
    let slash = |at: usize| byte_at(bytes, at).0 == b'/';
    let mut start = (0..bytes.len()).rev().find(|at| slash(*at)).unwrap_or(0);
    loop {
        start = match start {
            1.. if bytes[start - 1] == b'/' => start - 1,
            3.. if slash(start - 3) && byte_at(bytes, start - 3).1 == 3 => start - 3,
            _ => return start,
        };
    }
}
