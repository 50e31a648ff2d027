//! The worst of all servers: what any one of several does to a path, done by one.
//!
//! It decodes twice (a proxy before it did already), knows `%u002e`, folds overlong UTF-8, takes a
//! backslash for a slash, drops path parameters (`;x`), ends a name at NUL, and drops dots and spaces at
//! a name's end.

use super::{AboveRoot, File, decode, walk};

/// See [`super::Server`].
#[must_use]
pub fn file(path: &[u8]) -> Option<File> {
    let once = decode(&wide(path));
    let twice = decode(&wide(&once));
    let mut plain = fold(&twice);
    for byte in &mut plain {
        if *byte == b'\\' {
            *byte = b'/';
        }
    }
    let names = plain.split(|&b| b == b'/').map(name);
    walk(&names.collect::<Vec<_>>().join(&b'/'), AboveRoot::Ignored)
}

/// A segment as the file system takes it.
fn name(segment: &[u8]) -> &[u8] {
    let end = segment.iter().position(|b| matches!(b, b';' | 0));
    let segment = &segment[..end.unwrap_or(segment.len())];
    if matches!(segment, b"." | b"..") {
        return segment;
    }
    let end = segment.iter().rposition(|b| !matches!(b, b'.' | b' '));
    &segment[..end.map_or(0, |last| last + 1)]
}

/// Turns `%u00XX` into `%XX`.
fn wide(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&first, rest)) = text.split_first() {
        out.push(first);
        text = rest;
        if let (b'%', [b'u' | b'U', b'0', b'0', narrow @ ..]) = (first, text) {
            text = narrow;
        }
    }
    out
}

/// Decodes what UTF-8 of more bytes than it needs stands for, up to the six bytes of old.
fn fold(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&first, rest)) = text.split_first() {
        if let Some((plain, length)) = overlong(text) {
            out.push(plain);
            text = &text[length..];
        } else {
            out.push(first);
            text = rest;
        }
    }
    out
}

/// The ASCII byte that an overlong sequence at the start stands for, and the sequence's length.
fn overlong(text: &[u8]) -> Option<(u8, usize)> {
    let (length, high) = match text.first()? {
        byte @ 0xC0..=0xC1 => (2, byte & 1),
        0xE0 => (3, 0),
        0xF0 => (4, 0),
        0xF8 => (5, 0),
        0xFC => (6, 0),
        _ => return None,
    };
    let tail = text.get(1..length)?;
    if tail.iter().any(|b| b & 0xC0 != 0x80) {
        return None;
    }
    let value = tail
        .iter()
        .fold(u64::from(high), |value, b| value << 6 | u64::from(b & 0x3F));
    u8::try_from(value)
        .ok()
        .filter(u8::is_ascii)
        .map(|b| (b, length))
}
