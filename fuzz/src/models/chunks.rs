//! A body in signed chunks, written from Amazon's description: how a client makes it, and what stands in one.

use super::signature::{Signed, hex};
use sha2::{Digest, Sha256};

/// A body as its client signed it.
pub struct Body {
    /// What it is, without the chunks.
    pub content: Vec<u8>,
    /// The lines after it that are signed too; `None` where none may come.
    pub trailers: Option<Vec<String>>,
    /// What is sent, a chunk or the trailers each: the last of no bytes, and what comes after it.
    pub pieces: Vec<Vec<u8>>,
    /// The signatures in it, in their order.
    pub signatures: Vec<String>,
}

impl Body {
    /// Signs chunks of a request that `secret` signed with `seed`.
    #[must_use]
    pub fn new(
        signed: &Signed,
        secret: &str,
        seed: &str,
        chunks: &[Vec<u8>],
        trailers: Option<Vec<String>>,
    ) -> Self {
        let mut body = Self {
            content: chunks.concat(),
            trailers,
            pieces: Vec::new(),
            signatures: Vec::new(),
        };
        let digest = |bytes: &[u8]| hex(Sha256::digest(bytes).as_slice());
        let mut last = seed.to_owned();
        let mut sign = |kind: &str, digest: &str| {
            let Signed { date, scope, .. } = signed;
            let text = [kind, date, scope, &last, digest].join("\n");
            last = signed.mac(secret, &text);
            last.clone()
        };
        for chunk in chunks.iter().chain([&Vec::new()]) {
            let both = format!("{}\n{}", digest(b""), digest(chunk));
            let signature = sign("AWS4-HMAC-SHA256-PAYLOAD", &both);
            let line = format!("{:x};chunk-signature={signature}\r\n", chunk.len());
            let mut piece = [line.as_bytes(), chunk].concat();
            if !chunk.is_empty() || body.trailers.is_none() {
                piece.extend(b"\r\n");
            }
            body.pieces.push(piece);
            body.signatures.push(signature);
        }
        if let Some(trailers) = &body.trailers {
            let canonical: Vec<String> = trailers.iter().map(|line| format!("{line}\n")).collect();
            let all = digest(canonical.concat().as_bytes());
            let signature = sign("AWS4-HMAC-SHA256-TRAILER", &all);
            let lines: Vec<String> = trailers.iter().map(|line| format!("{line}\r\n")).collect();
            let end = format!("x-amz-trailer-signature:{signature}\r\n\r\n");
            body.pieces.push((lines.concat() + &end).into_bytes());
            body.signatures.push(signature);
        }
        body
    }

    /// How much of the content may be given out when so much of the body has come: whole chunks alone.
    #[must_use]
    pub fn checked(&self, came: usize) -> usize {
        let (mut sent, mut checked) = (0, 0);
        for piece in &self.pieces {
            let size = chunk(piece).map_or(0, |(content, _)| content.len());
            let line = piece.iter().position(|b| *b == b'\n').unwrap_or_default() + 1;
            if sent + line + size <= came {
                checked += size;
            }
            sent += piece.len();
        }
        checked
    }
}

/// What stands in a body, and the lines after it, by its sizes alone. `None` where it does not end.
#[must_use]
pub fn read(mut body: &[u8]) -> Option<(Vec<u8>, Vec<String>)> {
    let mut content = Vec::new();
    loop {
        let (chunk, rest) = chunk(body)?;
        if chunk.is_empty() {
            return Some((content, trailers(rest)));
        }
        content.extend(chunk);
        body = rest.strip_prefix(b"\r\n")?;
    }
}

/// The content of the chunk that a text begins with, and what comes after that.
fn chunk(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|b| *b == b'\n')?;
    let size = text[..end].split(|b| *b == b';').next()?;
    let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
    text[end + 1..].split_at_checked(size)
}

/// The lines before their signature. Line ends, and lines of nothing else, are no part of them.
fn trailers(text: &[u8]) -> Vec<String> {
    let lines = String::from_utf8_lossy(text).into_owned();
    lines
        .split('\n')
        .map(|line| line.trim_end_matches('\r'))
        .take_while(|line| !line.starts_with("x-amz-trailer-signature:"))
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}
