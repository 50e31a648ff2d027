//! What a route waits for when the configuration has changed: writes that were forwarded under the one
//! before, by which the same path may have had another fence, or none.
//!
//! All policies are referred to by every request until it is admitted; from there on those of its ends by what may
//! change something, until it can take effect no more. So an earlier configuration is over when nothing refers to its policies.

use super::{Denial, Denied, Gates, Policy};
use crate::clock;
use crate::fence::Refusal;
use crate::record::RouteMetrics;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(20);

/// What was before.
pub struct Handover {
    before: Vec<Weak<Policy>>,
    over: AtomicBool,
}

impl Handover {
    /// `before`: the policies of what was before, and what they waited for themselves is waited for too.
    /// `also`: what is waited for already. `None` where there is nothing to wait for.
    #[must_use]
    pub fn after<'a>(
        before: impl IntoIterator<Item = &'a Arc<Policy>>,
        also: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let mut all: Vec<Weak<Policy>> = Vec::new();
        // Each once, and none that is gone: else the list would grow with each reload.
        let mut add = |policy: &Weak<Policy>| {
            if policy.strong_count() > 0 && !all.iter().any(|known| known.ptr_eq(policy)) {
                all.push(policy.clone());
            }
        };
        for policy in before {
            add(&Arc::downgrade(policy));
            policy.ancestors.iter().for_each(&mut add);
            let earlier = policy.handover.iter().flat_map(|earlier| &earlier.before);
            earlier.for_each(&mut add);
        }
        also.into_iter()
            .flat_map(|also| &also.before)
            .for_each(&mut add);
        (!all.is_empty()).then(|| {
            Arc::new(Self {
                before: all,
                over: AtomicBool::new(false),
            })
        })
    }

    /// The policies of earlier configurations by which requests still go, for one that takes this one's place
    /// unchanged.
    #[must_use]
    pub fn ancestors(policy: &Arc<Policy>) -> Vec<Weak<Policy>> {
        let earlier = policy.ancestors.iter().cloned();
        let all = earlier.chain([Arc::downgrade(policy)]);
        all.filter(|policy| policy.strong_count() > 0).collect()
    }

    /// Whether nothing of it can take effect any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return true;
        }
        if self.before.iter().any(|policy| policy.strong_count() > 0) {
            return false;
        }
        self.over.store(true, Ordering::Release);
        true
    }

    /// Waits until it is over; false where that took longer than `patience`. Cancel-safe.
    pub(super) async fn wait(&self, patience: Duration) -> bool {
        let end = clock::now().after(patience);
        while !self.is_over() {
            if end.has_passed() {
                return false;
            }
            tokio::time::sleep(LOOK.min(end.left())).await;
        }
        true
    }
}

impl Gates {
    /// Waits for what was forwarded under an earlier configuration. Nothing is sealed meanwhile.
    pub(super) async fn take_over(&self, before: &Handover, policy: &Policy) -> Result<(), Denied> {
        policy.metrics.waiting.inc();
        let _waits = Waits(&policy.metrics);
        if before.wait(policy.drain_timeout).await {
            return Ok(());
        }
        Err(Denied {
            why: Denial::DrainTimeout,
            ..Refusal::Busy.into()
        })
    }
}

/// That a request is counted among those that wait, until dropped.
struct Waits<'a>(&'a RouteMetrics);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.dec();
    }
}
