//! Patterns of hosts and paths, as fabio has them.
//!
//! `*` and `**` are any run of any characters, also none; `?` one character; `[abc]`, `[a-z]` and their negation with `!`
//! one of a list; `{a,b}` alternatives, which may nest; `\c` the character itself. No character separates anything.
//!
//! Alternatives are multiplied out when the pattern is read, within limits, and what then remains is matched without
//! backtracking: between two stars the first fit is as good as any.

#[cfg(test)]
mod tests;

/// A compiled pattern. It matches whole strings, which need not be UTF-8.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    variants: Box<[Variant]>,
}

/// A pattern without alternatives, cut at its stars: the first piece is at the beginning, the last at the end.
#[derive(Clone, Debug)]
struct Variant {
    pieces: Box<[Piece]>,
}

#[derive(Clone, Debug)]
struct Piece {
    atoms: Box<[Atom]>,
    /// Lengths in bytes of what it can match.
    shortest: usize,
    longest: usize,
}

#[derive(Clone, Debug)]
enum Atom {
    Text(Box<[u8]>),
    /// `?`
    Any,
    List {
        ranges: Box<[(u32, u32)]>,
        negated: bool,
    },
}

impl Glob {
    /// The error says what is wrong with the pattern.
    pub(super) fn parse(pattern: &[u8]) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("a pattern has at most {MAX_PATTERN} bytes, this one has {}", pattern.len()));
        }
        let mut parser = Parser { pattern, at: 0, depth: 0 };
        let tokens = parser.sequence()?;
        let flat = multiply(&tokens)?;
        let variants = flat.into_iter().map(Variant::new).collect();
        Ok(Self { variants })
    }

    /// Does the text mean anything but itself?
    pub(super) fn is_pattern(text: &[u8]) -> bool {
        text.iter().any(|b| is_meta(*b))
    }

    /// The part of a pattern before its first special character.
    pub(super) fn literal_prefix(pattern: &[u8]) -> &[u8] {
        &pattern[..pattern.iter().position(|b| is_meta(*b)).unwrap_or(pattern.len())]
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.variants.iter().any(|variant| variant.matches(text))
    }
}

/// Does the character begin something special? Braces and brackets alone only close what is open.
pub(super) fn is_meta(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'{' | b'\\')
}

impl Variant {
    fn new(flat: Vec<Flat>) -> Self {
        let mut pieces = vec![Vec::new()];
        for token in flat {
            match token {
                Flat::Star => pieces.push(Vec::new()),
                Flat::Atom(Atom::Text(text)) => {
                    let piece = pieces.last_mut().expect("there is a first piece");
                    match piece.last_mut() {
                        Some(Atom::Text(before)) => *before = [&**before, &*text].concat().into(),
                        _ => piece.push(Atom::Text(text)),
                    }
                }
                Flat::Atom(atom) => pieces.last_mut().expect("there is a first piece").push(atom),
            }
        }
        // Stars in a row are one star.
        let last = pieces.len() - 1;
        let mut index = 0;
        pieces.retain(|piece| {
            let keep = index == 0 || index == last || !piece.is_empty();
            index += 1;
            keep
        });
        Self { pieces: pieces.into_iter().map(Piece::new).collect() }
    }

    fn matches(&self, text: &[u8]) -> bool {
        let (first, rest) = self.pieces.split_first().expect("there is a first piece");
        let Some(mut at) = first.fits(text, 0) else { return false };
        let Some((last, middle)) = rest.split_last() else { return at == text.len() };
        for piece in middle {
            match piece.find(text, at) {
                Some(end) => at = end,
                None => return false,
            }
        }
        last.fits_end(text, at)
    }
}

impl Piece {
    fn new(atoms: Vec<Atom>) -> Self {
        let lengths = |atom: &Atom| match atom {
            Atom::Text(text) => (text.len(), text.len()),
            Atom::Any | Atom::List { .. } => (1, 4),
        };
        let (shortest, longest) =
            atoms.iter().map(lengths).fold((0, 0), |(least, most), (from, to)| (least + from, most + to));
        Self { atoms: atoms.into(), shortest, longest }
    }

    /// The place behind this piece if it stands at a place.
    fn fits(&self, text: &[u8], mut at: usize) -> Option<usize> {
        for atom in &self.atoms {
            match atom {
                Atom::Text(literal) => {
                    if !text[at..].starts_with(literal) {
                        return None;
                    }
                    at += literal.len();
                }
                Atom::Any => at += character(text.get(at..)?)?.1,
                Atom::List { ranges, negated } => {
                    let (c, width) = character(text.get(at..)?)?;
                    if ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) == *negated {
                        return None;
                    }
                    at += width;
                }
            }
        }
        Some(at)
    }

    /// The place behind the first fit at or behind a place.
    fn find(&self, text: &[u8], mut at: usize) -> Option<usize> {
        while at + self.shortest <= text.len() {
            if let Some(end) = self.fits(text, at) {
                return Some(end);
            }
            at += character(&text[at..])?.1;
        }
        None
    }

    /// Does it fit so that it ends with the text, and begins at or behind a place?
    fn fits_end(&self, text: &[u8], from: usize) -> bool {
        let Some(latest) = text.len().checked_sub(self.shortest) else { return false };
        let earliest = text.len().saturating_sub(self.longest).max(from);
        (earliest..=latest).any(|at| self.fits(text, at) == Some(text.len()))
    }
}

/// The first character and its width. A byte that is not UTF-8 is a character of its own.
fn character(text: &[u8]) -> Option<(u32, usize)> {
    let first = *text.first()?;
    let width = match first {
        0..0x80 => return Some((u32::from(first), 1)),
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => 1,
    };
    let c = text.get(..width).and_then(|bytes| std::str::from_utf8(bytes).ok()).and_then(|s| s.chars().next());
    Some(c.map_or((NOT_UTF8 + u32::from(first), 1), |c| (c.into(), width)))
}

enum Token {
    Star,
    Atom(Atom),
    Either(Vec<Vec<Token>>),
}

#[derive(Clone)]
enum Flat {
    Star,
    Atom(Atom),
}

struct Parser<'a> {
    pattern: &'a [u8],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Up to the end, or up to the comma or brace that ends an alternative.
    fn sequence(&mut self) -> Result<Vec<Token>, String> {
        let mut tokens = Vec::new();
        while let Some(&byte) = self.pattern.get(self.at) {
            match byte {
                b',' | b'}' if self.depth > 0 => break,
                b'*' => {
                    self.at += 1;
                    tokens.push(Token::Star);
                }
                b'?' => {
                    self.at += 1;
                    tokens.push(Token::Atom(Atom::Any));
                }
                b'[' => tokens.push(Token::Atom(self.list()?)),
                b'{' => tokens.push(self.alternatives()?),
                b'\\' => {
                    self.at += 1;
                    tokens
                        .push(Token::Atom(self.literal().ok_or("nothing follows the last backslash of the pattern")?));
                }
                _ => tokens.push(Token::Atom(self.literal().expect("there is a byte"))),
            }
        }
        Ok(tokens)
    }

    fn literal(&mut self) -> Option<Atom> {
        let byte = *self.pattern.get(self.at)?;
        self.at += 1;
        Some(Atom::Text([byte].into()))
    }

    /// An unclosed brace closes at the end of the pattern, as in fabio.
    fn alternatives(&mut self) -> Result<Token, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("alternatives of a pattern nest at most {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let mut alternatives = Vec::new();
        loop {
            self.at += 1;
            alternatives.push(self.sequence()?);
            if self.pattern.get(self.at) != Some(&b',') {
                break;
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Token::Either(alternatives))
    }

    fn list(&mut self) -> Result<Atom, String> {
        self.at += 1;
        let negated = self.pattern.get(self.at) == Some(&b'!');
        self.at += usize::from(negated);
        let mut ranges = Vec::new();
        loop {
            match self.pattern.get(self.at) {
                None => return Err("a [ of the pattern has no ]; write \\[ for the character itself".to_owned()),
                Some(b']') => break,
                Some(_) => {}
            }
            let from = self.list_character()?;
            let to = match self.pattern.get(self.at..self.at + 2) {
                Some([b'-', end]) if *end != b']' => {
                    self.at += 1;
                    self.list_character()?
                }
                _ => from,
            };
            if from > to {
                return Err("a range in [] of the pattern runs backwards".to_owned());
            }
            ranges.push((from, to));
        }
        self.at += 1;
        if ranges.is_empty() {
            return Err("[] of the pattern is empty".to_owned());
        }
        Ok(Atom::List { ranges: ranges.into(), negated })
    }

    fn list_character(&mut self) -> Result<u32, String> {
        if self.pattern.get(self.at) == Some(&b'\\') {
            self.at += 1;
        }
        let rest = self.pattern.get(self.at..).unwrap_or_default();
        let (c, width) = character(rest).ok_or("nothing follows the last backslash of the pattern")?;
        self.at += width;
        Ok(c)
    }
}

/// All combinations of alternatives.
fn multiply(tokens: &[Token]) -> Result<Vec<Vec<Flat>>, String> {
    let mut variants: Vec<Vec<Flat>> = vec![Vec::new()];
    for token in tokens {
        let single = match token {
            Token::Star => Flat::Star,
            Token::Atom(atom) => Flat::Atom(atom.clone()),
            Token::Either(alternatives) => {
                let mut ends = Vec::new();
                for alternative in alternatives {
                    ends.extend(multiply(alternative)?);
                }
                if variants.len() * ends.len() > MAX_VARIANTS {
                    return Err(format!("the alternatives of a pattern make at most {MAX_VARIANTS} combinations"));
                }
                variants = variants.iter().flat_map(|start| ends.iter().map(|end| [&**start, end].concat())).collect();
                continue;
            }
        };
        for variant in &mut variants {
            variant.push(single.clone());
        }
    }
    Ok(variants)
}

/// Hosts have 255 characters at most; for paths it is plenty.
const MAX_PATTERN: usize = 1024;
/// Each one costs a comparison per request.
const MAX_VARIANTS: usize = 64;
const MAX_DEPTH: usize = 16;
/// Beyond what Unicode has.
const NOT_UTF8: u32 = 0x11_0000;
