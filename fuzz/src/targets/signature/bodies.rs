//! Bodies in signed chunks: what comes out of one is what was signed, from its beginning on, and it is over
//! where all of that came.
//!
//! The third part of the input has a line of numbers: how many bytes come at once, and then places of bytes
//! to be changed. Each line after it is a chunk, decoded. In the fifth part `!0` stands for the first signature
//! of the body, and so on.

use super::{Made, host, prove, replace};
use crate::models::chunks::{Body, read};
use crate::models::decode;
use crate::sign::{Chunks, Forged};
use http::request::Parts;

/// How many chunks and lines after them are signed, and how many places changed.
const MOST: usize = 6;
/// Of a chunk, and of a line with its end.
const LARGEST: usize = 16 << 20;
const LONGEST: usize = 1024;

/// Checks the body of a request that was let in.
pub fn check(head: &Parts, made: &Made, with_trailers: bool, parts: &[&[u8]]) {
    let mut lines = parts[0].split(|&b| b == b'\n');
    let numbers = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let numbers: Vec<usize> = numbers.split(' ').filter_map(|n| n.parse().ok()).collect();
    let step = numbers
        .first()
        .copied()
        .unwrap_or_default()
        .clamp(1, 1 << 16);
    let chunks: Vec<Vec<u8>> = lines
        .map(decode)
        .filter(|chunk| !chunk.is_empty())
        .take(MOST)
        .collect();
    let trailers = with_trailers.then(|| trailers(parts[1]));
    let body =
        |secret: &str, seed: &str| Body::new(&made.signed, secret, seed, &chunks, trailers.clone());
    let begin = || begin(head);
    let own = body(made.secret, &made.signature);
    whole(begin(), &own, step);
    bounds(&begin);

    // Of another request, and by another secret.
    for other in [
        body(made.secret, &"0".repeat(64)),
        body("the secret of c, long", &made.signature),
    ] {
        let nothing = Body {
            content: Vec::new(),
            ..other
        };
        assert!(
            !comes(begin(), &nothing.pieces.concat(), &nothing, step),
            "signed elsewhere"
        );
    }
    let pieces = own.pieces.len().min(MOST);
    for index in 0..pieces {
        for other in index + 1..pieces {
            let mut swapped = own.pieces.clone();
            swapped.swap(index, other);
            comes(begin(), &swapped.concat(), &own, step);
        }
        let mut fewer = own.pieces.clone();
        let piece = fewer.remove(index);
        comes(begin(), &fewer.concat(), &own, step);
        let mut twice = own.pieces.clone();
        twice.insert(index, piece);
        comes(begin(), &twice.concat(), &own, step);
    }
    let bytes = own.pieces.concat();
    for place in numbers.iter().skip(1).take(MOST) {
        let place = place % bytes.len();
        let (before, after) = bytes.split_at(place);
        let other = [after[0] ^ 1];
        for changed in [
            [before, &other, &after[1..]].concat(),
            [before, &after[1..]].concat(),
            [before, &other, after].concat(),
            [before, &after[..1], after].concat(),
            before.to_vec(),
        ] {
            comes(begin(), &changed, &own, step);
        }
    }
    let mut forged = parts[2].to_vec();
    for (index, signature) in own.signatures.iter().enumerate() {
        forged = replace(&forged, format!("!{index}").as_bytes(), signature);
    }
    comes(begin(), &forged, &own, step);
}

fn begin(head: &Parts) -> Chunks {
    let identity = host(head).and_then(|host| prove(head, &host).ok());
    identity.and_then(|identity| identity.chunks).unwrap()
}

/// Names in small letters, and values without blanks around them: so they are sent as they are signed. Longer
/// lines are refused.
fn trailers(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let value = |b: u8| b.is_ascii_graphic() || b == b' ';
    text.split('\n')
        .filter(|line| {
            let (before, after) = line.split_once(':').unwrap_or_default();
            let fits = before.bytes().all(name) && after.bytes().all(value);
            let ends = before == "x-amz-trailer-signature";
            let short = line.len() + 2 <= LONGEST;
            fits && short && !before.is_empty() && after.trim() == after && !ends
        })
        .take(MOST)
        .map(str::to_owned)
        .collect()
}

/// A body comes out as it was signed, each chunk as soon as all of it has come and not before, however it
/// is cut; and nothing may come after it.
fn whole(mut chunks: Chunks, body: &Body, step: usize) {
    let bytes = body.pieces.concat();
    let (mut given, mut came) = (Vec::new(), 0);
    for part in bytes.chunks(step) {
        assert_eq!(chunks.push(part), Ok(()), "after {came} bytes");
        came += part.len();
        given.extend(taken(&mut chunks));
        let checked = &body.content[..body.checked(came)];
        assert_eq!(
            given.escape_ascii().to_string(),
            checked.escape_ascii().to_string()
        );
        // Some leave the last line end out.
        assert_eq!(
            chunks.is_over(),
            came + 2 >= bytes.len(),
            "after {came} bytes"
        );
    }
    assert_eq!(chunks.push(b"\r\n"), Err(Forged), "more than there is");
}

/// Sends another body in the place of one. Says whether it was taken for whole.
fn comes(mut chunks: Chunks, bytes: &[u8], body: &Body, step: usize) -> bool {
    let (mut given, mut came) = (Vec::new(), 0);
    for part in bytes.chunks(step) {
        let end = chunks.push(part);
        came += part.len();
        given.extend(taken(&mut chunks));
        assert!(
            body.content.starts_with(&given),
            "{} comes out of {}",
            given.escape_ascii(),
            bytes.escape_ascii()
        );
        if end.is_err() {
            return false; // and nothing more of it is let through
        }
        if chunks.is_over() {
            let read = read(&bytes[..came]);
            let own = (
                body.content.clone(),
                body.trailers.clone().unwrap_or_default(),
            );
            assert_eq!(given, own.0, "over: {}", bytes.escape_ascii());
            assert_eq!(read, Some(own), "over: {}", bytes.escape_ascii());
        }
    }
    chunks.is_over()
}

fn taken(chunks: &mut Chunks) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(size) = chunks.ready() {
        let part = chunks.pop().unwrap();
        assert_eq!(part.len(), size);
        all.extend(part);
    }
    assert_eq!(chunks.pop(), None);
    all
}

/// What is larger than may be held is refused before it comes.
fn bounds(begin: &dyn Fn() -> Chunks) {
    for (size, fits) in [(LARGEST, true), (LARGEST + 1, false)] {
        let line = format!("{size:x};chunk-signature={}\r\n", "0".repeat(64));
        assert_eq!(begin().push(line.as_bytes()).is_ok(), fits, "{size} bytes");
    }
    for (size, fits) in [(LONGEST, true), (LONGEST + 1, false)] {
        let line = vec![b'0'; size];
        assert_eq!(begin().push(&line).is_ok(), fits, "a line of {size} bytes");
    }
}
