//! What a route waits for when the configuration has changed: writes that were forwarded under the one
//! before, by which the same path may have had another fence, or none.
//!
//! A policy is referred to by every request that goes by it, from the moment it is routed until it can take
//! effect no more. So an earlier configuration is over when nothing refers to its policies.

use super::Policy;
use crate::clock::{self, Time};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(10);

/// What was before.
pub struct Handover {
    before: Vec<Weak<Policy>>,
    /// How long what no gate has seen may still take effect after that.
    then: Duration,
    gone_at: Mutex<Option<Time>>,
    over: AtomicBool,
}

impl Handover {
    /// `before`: the policies of what was before, and what they waited for themselves is waited for too.
    /// `then`: how much longer, for the requests of routes that were off: no gate knows of them. `also`: what
    /// is waited for already. `None` where there is nothing to wait for.
    #[must_use]
    pub fn after<'a>(
        before: impl IntoIterator<Item = &'a Arc<Policy>>,
        then: Duration,
        also: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let (mut all, mut longest) = (Vec::new(), then);
        let mut earlier: Vec<&Arc<Self>> = also.into_iter().collect();
        for policy in before {
            all.push(Arc::downgrade(policy));
            all.extend(policy.ancestors.iter().cloned());
            earlier.extend(&policy.handover);
        }
        for handover in earlier.into_iter().filter(|h| !h.is_over()) {
            all.extend(handover.before.iter().cloned());
            longest = longest.max(handover.then);
        }
        (!all.is_empty()).then(|| {
            Arc::new(Self {
                before: all,
                then: longest,
                gone_at: Mutex::new(None),
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
        let now = clock::now();
        let gone_at = *self.gone_at.lock().get_or_insert(now);
        let over = gone_at.after(self.then) <= now;
        self.over.store(over, Ordering::Release);
        over
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
