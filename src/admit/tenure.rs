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
    trusts_drained: bool,
}

impl Tenure {
    /// `since`: when the resources became this process's. `clean`: the predecessor left nothing
    /// unsettled. `settle`: the largest settle that was in force under it. `lax`: it may have forwarded
    /// writes below a fence that it had noted as drained.
    #[must_use]
    pub fn new(since: Time, clean: bool, settle: Duration, lax: bool) -> Self {
        Self {
            until: (!clean).then(|| since.after(settle)),
            trusts_drained: !lax,
        }
    }

    /// The moment at which a predecessor's writes are settled; `None` where it left none.
    #[must_use]
    pub const fn until(&self) -> Option<Time> {
        self.until
    }

    /// Whether a predecessor's writes may still take effect.
    #[must_use]
    pub fn has_predecessor(&self) -> bool {
        self.until.is_some_and(|until| !until.has_passed())
    }

    /// Whether `drained` in a record holds for what the predecessor left.
    #[must_use]
    pub const fn trusts_drained(&self) -> bool {
        self.trusts_drained
    }
}
