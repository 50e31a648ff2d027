//! The resource key: what one lock protects, as bytes.
//!
//! Knows nothing of paths or routes: a route's template makes the key bytes.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest namespace, in bytes: its length is stored in one byte.
pub const MAX_NAMESPACE: usize = 255;

/// A namespace and a key within it. Clones are cheap.
///
/// Held as one byte string, `length of the namespace, namespace, key`, which is also the key on
/// disk: keys of one namespace stand together and sort by their bytes, and `key + '/'` is a prefix
/// of all that lies below it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey(Arc<[u8]>);

impl ResourceKey {
    /// Joins a namespace and a key. `None` where the namespace is longer than [`MAX_NAMESPACE`].
    #[must_use]
    pub fn new(namespace: &str, key: &[u8]) -> Option<Self> {
        let length = u8::try_from(namespace.len()).ok()?;
        let mut bytes = Vec::with_capacity(1 + namespace.len() + key.len());
        bytes.push(length);
        bytes.extend_from_slice(namespace.as_bytes());
        bytes.extend_from_slice(key);
        Some(Self(bytes.into()))
    }

    /// Reads back what [`ResourceKey::as_bytes`] gave. `None` where the bytes are not such a key.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&length, rest) = bytes.split_first()?;
        let namespace = rest.get(..usize::from(length))?;
        if !namespace.is_ascii() {
            std::str::from_utf8(namespace).ok()?;
        }
        Some(Self(bytes.into()))
    }

    /// The namespace and key as one byte string; see [`ResourceKey`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        std::str::from_utf8(&self.0[1..=self.split()]).unwrap_or_default()
    }

    /// The key within the namespace.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.0[1 + self.split()..]
    }

    fn split(&self) -> usize {
        usize::from(self.0[0])
    }
}

impl Borrow<[u8]> for ResourceKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.namespace(), self.key().escape_ascii())
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_bytes_that_are_no_key() {
        assert_eq!(ResourceKey::from_bytes(b""), None);
        assert_eq!(ResourceKey::from_bytes(b"\x05abc"), None);
        assert_eq!(ResourceKey::from_bytes(b"\x01\xff"), None);
        assert_eq!(ResourceKey::new(&"n".repeat(256), b""), None);
    }

    proptest! {
        #[test]
        fn parts_come_back(namespace in "\\PC{0,20}", key: Vec<u8>) {
            let made = ResourceKey::new(&namespace, &key).unwrap();
            prop_assert_eq!(made.namespace(), namespace);
            prop_assert_eq!(made.key(), &key[..]);
            prop_assert_eq!(ResourceKey::from_bytes(made.as_bytes()), Some(made));
        }

        #[test]
        fn different_parts_make_different_keys(a: (String, Vec<u8>), b: (String, Vec<u8>)) {
            let (x, y) = (ResourceKey::new(&a.0, &a.1), ResourceKey::new(&b.0, &b.1));
            prop_assume!(x.is_some() && y.is_some());
            prop_assert_eq!(x == y, a == b);
        }
    }
}
