//! A request that may change something and that no gate knows of: a write on a route that is off, or by a
//! method that its route takes for a read. It is remembered until it can take effect no more, for the sake
//! of a configuration that fences what it changes.

use super::{Gates, Policy};
use crate::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Such a request. Dropped without [`Unseen::settled`], its outcome is unknown, and its settle runs from then.
pub struct Unseen {
    gates: Arc<Gates>,
    policy: Option<Arc<Policy>>,
}

impl Unseen {
    pub(super) fn new(gates: &Arc<Gates>, policy: &Arc<Policy>) -> Self {
        gates.unsettled.fetch_add(1, Ordering::AcqRel);
        Self {
            gates: Arc::clone(gates),
            policy: Some(Arc::clone(policy)),
        }
    }

    /// It was answered, or nothing of it was sent.
    pub fn settled(mut self) {
        if self.policy.take().is_some() {
            self.gates.unsettled.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let Some(policy) = self.policy.take() else {
            return;
        };
        let since = clock::now();
        let gates = Arc::clone(&self.gates);
        let settle = async move {
            let settle = policy.settles.whole.unwrap_or_default();
            clock::sleep_until(since.after(settle)).await;
            drop(policy);
            gates.unsettled.fetch_sub(1, Ordering::AcqRel);
        };
        // Without a runtime the process is ending: it stays unsettled, and the stop unclean.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(settle);
        }
    }
}
