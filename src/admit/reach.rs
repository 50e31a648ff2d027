//! Requests that reach below their own resource: a DELETE of a folder changes what other fences
//! protect.
//!
//! Such a request is let through only where nothing below it is fenced or in flight, and what comes
//! below while it is under way is turned back. Each side first says that it is there and then looks
//! for the other, so that of two that meet at least one sees the other.

use crate::fence::ResourceKey;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The prefixes that requests under way reach below.
#[derive(Default)]
pub(super) struct Reaches {
    /// How many there are: what the hot path looks at.
    count: AtomicUsize,
    prefixes: Mutex<Vec<Vec<u8>>>,
}

/// A request's claim on all keys that begin with a prefix, until it is dropped.
pub struct Reach {
    all: Arc<Reaches>,
    prefix: Vec<u8>,
}

impl Reaches {
    pub(super) fn claim(self: &Arc<Self>, prefix: Vec<u8>) -> Reach {
        self.prefixes.lock().push(prefix.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
        Reach {
            all: Arc::clone(self),
            prefix,
        }
    }

    /// Whether a key lies below a request that is under way. To be asked once the key's own gate shows
    /// that it is engaged.
    pub(super) fn cover(&self, key: &[u8]) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && self
                .prefixes
                .lock()
                .iter()
                .any(|prefix| key.starts_with(prefix))
    }
}

impl Reach {
    /// Whether a key lies below what the request reaches.
    #[must_use]
    pub fn covers(&self, key: &ResourceKey) -> bool {
        key.as_bytes().starts_with(&self.prefix)
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        let mut prefixes = self.all.prefixes.lock();
        if let Some(at) = prefixes.iter().position(|prefix| *prefix == self.prefix) {
            prefixes.swap_remove(at);
            self.all.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
