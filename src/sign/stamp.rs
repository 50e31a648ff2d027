//! What the gateway writes into the metadata of an object that it signs for: which token wrote it, and which write
//! it was. So a lost outcome can be told, and lost fences be found again.

use crate::fence::ResourceKey;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The token, as its route spells it.
pub const TOKEN: HeaderName = HeaderName::from_static("x-amz-meta-fencing-token");
/// The write: a digest of the resource that it was for, and a name of its own. A copy of the object carries it on:
/// by the digest it is told that it was not written there.
pub const WRITE: HeaderName = HeaderName::from_static("x-amz-meta-fencing-write");

/// Takes off what a client says in its place.
pub fn take_off(headers: &mut HeaderMap) {
    headers.remove(TOKEN);
    headers.remove(WRITE);
}

/// Puts it on a write, in place of what may be there.
pub fn put(headers: &mut HeaderMap, resource: &ResourceKey, token: &str) {
    take_off(headers);
    let value = |text: &str| HeaderValue::from_str(text).ok();
    let write = format!("{}-{}", digest(resource), Uuid::new_v4());
    if let Some((token, write)) = value(token).zip(value(&write)) {
        headers.insert(TOKEN, token);
        headers.insert(WRITE, write);
    }
}

/// The token in the metadata of an object, where a write of this resource put it there.
#[must_use]
pub fn token<'a>(headers: &'a HeaderMap, resource: &ResourceKey) -> Option<&'a str> {
    let text = |name| headers.get(name)?.to_str().ok();
    let (of, _) = text(WRITE)?.split_once('-')?;
    text(TOKEN).filter(|_| of == digest(resource))
}

/// The first 64 bits are enough: nobody gains by two resources that share them.
fn digest(resource: &ResourceKey) -> String {
    super::claim::hex(&Sha256::digest(resource.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_where_it_was_written_alone() {
        let key = |name: &str| ResourceKey::new("n", name.as_bytes()).unwrap();
        let mut headers = HeaderMap::new();
        headers.append(TOKEN, HeaderValue::from_static("99"));
        headers.append(TOKEN, HeaderValue::from_static("98"));
        put(&mut headers, &key("a"), "34");
        assert_eq!(headers.get_all(TOKEN).iter().count(), 1);
        assert_eq!(token(&headers, &key("a")), Some("34"));
        assert_eq!(token(&headers, &key("b")), None, "a copy");
        let first = headers[WRITE].clone();
        put(&mut headers, &key("a"), "34");
        assert_ne!(headers[WRITE], first, "each write has its own");
        take_off(&mut headers);
        assert!(headers.is_empty());
    }
}
