//! As much of the encoding of protocol buffers as spans need.

/// A message behind its number and length.
pub(super) fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, LENGTH);
    let begin = out.len();
    write(out);
    let (length, room) = varint_of((out.len() - begin) as u64);
    let end = out.len();
    out.resize(end + room, 0);
    out.copy_within(begin..end, begin + room);
    out[begin..begin + room].copy_from_slice(&length[..room]);
}

/// Bytes, a text, or a message that is encoded already.
pub(super) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    head(out, field, value.len());
    out.extend_from_slice(value);
}

/// What comes before so many bytes.
pub(super) fn head(out: &mut Vec<u8>, field: u32, length: usize) {
    key(out, field, LENGTH);
    varint(out, length as u64);
}

/// How much [`head`] takes.
pub(super) fn head_length(field: u32, length: usize) -> usize {
    varint_of(u64::from(field << 3)).1 + varint_of(length as u64).1
}

/// Any whole number, a truth value or a choice.
pub(super) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    key(out, field, VARINT);
    varint(out, value);
}

pub(super) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    key(out, field, EIGHT);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    key(out, field, FOUR);
    out.extend_from_slice(&value.to_le_bytes());
}

fn key(out: &mut Vec<u8>, field: u32, wire: u32) {
    varint(out, u64::from(field << 3 | wire));
}

fn varint(out: &mut Vec<u8>, value: u64) {
    let (text, length) = varint_of(value);
    out.extend_from_slice(&text[..length]);
}

fn varint_of(mut value: u64) -> ([u8; 10], usize) {
    let (mut text, mut length) = ([0; 10], 0);
    loop {
        text[length] = value as u8 & 0x7f | if value > 0x7f { 0x80 } else { 0 };
        length += 1;
        value >>= 7;
        if value == 0 {
            return (text, length);
        }
    }
}

/// A field as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a kind that nobody here looks at.
    Other,
}

/// The next field of a message, with its number. `None` at its end, or where it cannot be understood.
pub(super) fn next<'a>(message: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = read_varint(message)?;
    let field = match key as u32 & 7 {
        VARINT => Field::Number(read_varint(message)?),
        LENGTH => {
            let length = usize::try_from(read_varint(message)?).ok()?;
            Field::Bytes(take(message, length)?)
        }
        EIGHT => take(message, 8).map(|_| Field::Other)?,
        FOUR => take(message, 4).map(|_| Field::Other)?,
        _ => return None,
    };
    Some((key >> 3, field))
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(taken)
}

const VARINT: u32 = 0;
const EIGHT: u32 = 1;
const LENGTH: u32 = 2;
const FOUR: u32 = 5;
