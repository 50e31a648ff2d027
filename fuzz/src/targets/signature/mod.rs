//! Signatures: nobody comes in without the secret, and a signature is good for what it was made for alone.
//!
//! The input has up to five parts, with an empty line between:
//!
//! 1. a request's head as in `head`, to be signed: where it says `Signature=!`, the mark is made the
//!    signature that the model makes of it, with the secret of whose it is said to be;
//! 2. another one, in which the mark is made the same signature;
//! 3. how its body in chunks is sent and changed, and the chunks (see [`bodies`]);
//! 4. the lines that come after the chunks;
//! 5. a body that is sent in the place of that one, with marks for the signatures in it.

mod bodies;
mod changes;

use super::head::request::read;
use crate::models::signature::{self as model, Gate, Signed};
use crate::sign::{Clients, Identity};
use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

/// At noon of a day in May 2013, on which Amazon's examples are.
const GATE: Gate = Gate {
    clients: [
        ("a", "the secret of a, long"),
        ("b", "the secret of b, long"),
    ],
    region: "us-east-1",
    tokens: &["fencing-token"],
    now: 1_369_396_800,
};
const MARK: &str = "Signature=!";

/// Secrets of nobody, and such as are nearly one.
const OTHERS: [&str; 3] = ["", "the secret of c, long", "the secret of a, lon"];

static CLIENTS: LazyLock<Clients> = LazyLock::new(|| {
    let name = format!("fencegate-fuzz-{}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let lines = GATE
        .clients
        .map(|(name, secret)| format!("{name} = \"{secret}\"\n"));
    std::fs::write(&path, lines.concat()).unwrap();
    let clients = Clients::open(path.clone()).unwrap();
    std::fs::remove_file(path).unwrap();
    clients
});

/// A signature that the model made.
struct Made {
    key_id: String,
    secret: &'static str,
    signed: Signed,
    signature: String,
}

/// How a body comes.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Chunks,
    ChunksAndTrailers,
}

/// Checks a request, another one with its signature, and its body.
///
/// # Panics
/// Where a property does not hold.
pub fn check(data: &[u8]) {
    let mut rest = Some(data);
    let parts: [&[u8]; 5] = std::array::from_fn(|index| {
        let (part, left) = match rest {
            Some(rest) if index < 4 => split(rest),
            rest => (rest.unwrap_or_default(), None),
        };
        rest = left;
        part
    });
    let [first, second, ..] = parts;
    for text in [first, second] {
        if let Some(head) = read(text) {
            is_as_expected(&head, None);
        }
    }
    let Some(made) = read(first).and_then(|head| sign(&head)) else {
        return;
    };
    let Some(head) = read(&fill(first, &made.signature)) else {
        return;
    };
    without_the_secret(first, &made);
    if let Some(other) = read(&fill(second, &made.signature)) {
        is_as_expected(&other, Some(&made));
    }
    for changed in changes::of(&head) {
        is_as_expected(&changed, Some(&made));
    }
    if let Some(kind) = is_as_expected(&head, Some(&made))
        && kind != Kind::Plain
    {
        bodies::check(&head, &made, kind == Kind::ChunksAndTrailers, &parts[2..]);
    }
}

/// A request is let in exactly where it bears a secret, or where what the model finds signed in it is
/// what the signature was made of; and as whom the model says. `made`: the one signature there is.
fn is_as_expected(head: &Parts, made: Option<&Made>) -> Option<Kind> {
    let host = host(head)?;
    let proven = prove(head, &host);
    let expected = expected(head, &host, made);
    let known = match &proven {
        Ok(identity) => Ok(&*identity.name),
        Err(why) => Err(why),
    };
    let fits = match (&known, &expected) {
        (Ok(name), Ok((expected, _))) => name == expected,
        (known, expected) => known.is_err() && expected.is_err(),
    };
    assert!(fits, "{known:?}, and should be {expected:?}: {head:#?}");
    let (identity, (_, kind)) = (proven.ok()?, expected.ok()?);
    let chunks = identity.chunks.is_some();
    assert_eq!(chunks, kind != Kind::Plain, "in chunks: {head:#?}");
    Some(kind)
}

fn prove(head: &Parts, host: &str) -> Result<Identity, String> {
    let now = Duration::from_secs(GATE.now.unsigned_abs());
    let now = SystemTime::UNIX_EPOCH + now;
    CLIENTS.prove(head, host, GATE.tokens, GATE.region, now)
}

fn expected(head: &Parts, host: &str, made: Option<&Made>) -> Result<(String, Kind), &'static str> {
    if let Some(secret) = model::bearer(&head.headers) {
        let found = GATE.clients.iter().find(|(_, own)| **own == *secret);
        let (name, _) = found.ok_or("nobody's secret")?;
        return Ok(((*name).to_owned(), Kind::Plain));
    }
    let claim = model::claim(&GATE, head, host).ok_or("no signature")?;
    let made = made.ok_or("signed by nobody")?;
    if claim.key_id != made.key_id || !claim.signature.eq_ignore_ascii_case(&made.signature) {
        return Err("not the signature that was made");
    }
    if claim.signed != made.signed {
        return Err("not what was signed");
    }
    if let Some(fault) = claim.fault {
        return Err(fault);
    }
    let kind = match &*claim.signed.payload {
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Kind::Chunks,
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Kind::ChunksAndTrailers,
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Kind::Plain,
        other if other.starts_with("STREAMING-") => return Err("chunks of another kind"),
        _ => Kind::Plain,
    };
    Ok((claim.key_id, kind))
}

/// By another secret, and by a part of its signature or another one, the request stays out.
fn without_the_secret(text: &[u8], made: &Made) {
    let secrets = OTHERS.iter().copied();
    let secrets = secrets.chain(GATE.clients.iter().map(|(_, secret)| *secret));
    let forged = secrets
        .filter(|secret| *secret != made.secret)
        .map(|secret| made.signed.signature(secret));
    let (begin, end) = made.signature.split_at(62);
    let next = if end == "00" { "01" } else { "00" };
    let spoilt = [begin.to_owned(), begin.to_owned() + next, String::new()];
    for signature in forged.chain(spoilt) {
        if let Some(head) = read(&fill(text, &signature)) {
            is_as_expected(&head, None);
        }
    }
    // In capitals it is the same number.
    if let Some(head) = read(&fill(text, &made.signature.to_ascii_uppercase())) {
        is_as_expected(&head, Some(made));
    }
}

/// Signs a request in whose place for it stands a mark.
fn sign(head: &Parts) -> Option<Made> {
    let claim = model::claim(&GATE, head, &host(head)?)?;
    let (_, secret) = GATE
        .clients
        .iter()
        .find(|(name, _)| *name == claim.key_id)?;
    Some(Made {
        signature: claim.signed.signature(secret),
        key_id: claim.key_id,
        secret,
        signed: claim.signed,
    })
}

/// What a request names as its host; `None` where the routes refuse it before.
fn host(head: &Parts) -> Option<String> {
    let headers: Vec<_> = head.headers.get_all(HOST).iter().collect();
    let host = match headers[..] {
        [] => head.uri.authority().map_or("", Authority::as_str),
        [header] => header.to_str().ok()?,
        _ => return None,
    };
    (!host.contains([' ', '\t'])).then(|| host.to_owned())
}

fn fill(text: &[u8], signature: &str) -> Vec<u8> {
    replace(text, MARK.as_bytes(), &format!("Signature={signature}"))
}

fn replace(mut text: &[u8], mark: &[u8], by: &str) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        if let Some(rest) = text.strip_prefix(mark) {
            out.extend(by.bytes());
            text = rest;
        } else {
            out.push(*first);
            text = rest;
        }
    }
    out
}

/// The text before the first empty line, and what comes after that.
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.windows(2).position(|two| two == b"\n\n") {
        Some(end) => (&text[..end], Some(&text[end + 2..])),
        None => (text, None),
    }
}
