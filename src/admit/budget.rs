//! `max_new_resources`: how many resources a route's clients may create.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bound on the resources that a route creates, over all runs.
pub struct Budget {
    route: Arc<str>,
    max: u64,
    left: AtomicU64,
}

impl Budget {
    /// `max`: the bound. `created`: how many the store counts already.
    #[must_use]
    pub fn new(route: Arc<str>, max: u64, created: u64) -> Self {
        Self {
            route,
            max,
            left: AtomicU64::new(max.saturating_sub(created)),
        }
    }

    /// Whether it bounds the same: then it goes on counting what has not been committed yet.
    #[must_use]
    pub fn is_for(&self, route: &str, max: u64) -> bool {
        *self.route == *route && self.max == max
    }

    /// The route, under whose name the store counts.
    #[must_use]
    pub const fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// Takes room for a new resource; false where there is none.
    pub(super) fn take(&self) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    }

    /// Gives room back that was taken for a request which sealed nothing.
    pub(super) fn give_back(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}
