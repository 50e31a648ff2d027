//! A request that may change something and that no gate knows of: a write on a route that is off, or by a
//! method that its route takes for a read. It is remembered until it can take effect no more, for the sake
//! of a configuration that fences what it changes.

use super::{Gates, Policy};
use crate::clock;
use smallvec::SmallVec;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Such a request. Dropped without [`Unseen::settled`], its outcome is unknown, and its settle runs from then.
pub struct Unseen {
    gates: Arc<Gates>,
    /// Those of the routes at its ends; none once it is settled.
    policies: SmallVec<[Arc<Policy>; 1]>,
}

impl Unseen {
    /// `policies`: those of the routes at its ends, at least one.
    pub(super) fn new<'a>(
        gates: &Arc<Gates>,
        policies: impl IntoIterator<Item = &'a Arc<Policy>>,
    ) -> Self {
        gates.unsettled.fetch_add(1, Ordering::AcqRel);
        Self {
            gates: Arc::clone(gates),
            policies: policies.into_iter().cloned().collect(),
        }
    }

    /// It was answered, or nothing of it was sent.
    pub fn settled(mut self) {
        if !mem::take(&mut self.policies).is_empty() {
            self.gates.unsettled.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let policies = mem::take(&mut self.policies);
        if policies.is_empty() {
            return;
        }
        let since = clock::now();
        let gates = Arc::clone(&self.gates);
        let settle = async move {
            let settles = policies.iter().filter_map(|policy| policy.settles.whole);
            let settle = settles.max().unwrap_or_default();
            clock::sleep_until(since.after(settle)).await;
            drop(policies);
            gates.unsettled.fetch_sub(1, Ordering::AcqRel);
        };
        // Without a runtime the process is ending: it stays unsettled, and the stop unclean.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(settle);
        }
    }
}
