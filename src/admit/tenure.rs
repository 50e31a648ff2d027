//! Since when the resources are this process's, and whether they were handed over clean.

use crate::clock::Time;
use std::time::Duration;

/// How long raises must wait for the writes of whoever held the resources before.
///
/// Raises wait until `since + settle`, and so do writes with the fence's own token unless the record
/// says that it was drained; not at all where the handover was clean.
#[derive(Clone, Copy, Debug)]
pub struct Tenure {
    until: Option<Time>,
}

impl Tenure {
    /// `since`: when the resources became this process's. `clean`: the predecessor left nothing
    /// unsettled. `settle`: the largest settle that was in force under it.
    #[must_use]
    pub fn new(since: Time, clean: bool, settle: Duration) -> Self {
        Self {
            until: (!clean).then(|| since.after(settle)),
        }
    }

    /// The moment at which a predecessor's writes are settled; `None` once it has passed.
    #[must_use]
    pub fn waits_until(&self) -> Option<Time> {
        self.until.filter(|until| !until.has_passed())
    }
}
