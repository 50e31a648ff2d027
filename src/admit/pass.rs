//! The pass: the permission to forward one request. It lives as long as the write may take effect.

use super::ticket::Ticket;
use super::{Gates, Policy, Unseen, steps};
use crate::clock::{self, Time};
use crate::config::is_safe;
use crate::fence::crossing::Entry;
use crate::fence::{Kind, Refusal, Token};
use crate::route::{Class, Match};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long an unknown outcome may still take effect, as its upstream declares. `None`: no bound.
#[derive(Clone, Copy, Debug)]
pub struct Settles {
    /// For a request that was sent whole.
    pub whole: Option<Duration>,
    /// For one that was not.
    pub incomplete: Option<Duration>,
}

/// How an exchange with the upstream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Sent whole, and answered with a status that says something.
    Answered,
    /// No byte reached the upstream connection.
    Unsent,
    /// Anything else. It may take effect until its settle has passed.
    Unknown {
        /// Whether the last byte of the request was handed to the HTTP library.
        whole: bool,
        /// When the gateway let go of it.
        since: Time,
    },
}

/// The permission to forward one request, made by [`Gates::admit`] only.
///
/// The task that owns the exchange owns the pass, and ends it with [`Pass::finish`]. Dropped without
/// that, the outcome counts as unknown from that moment.
pub struct Pass {
    gates: Arc<Gates>,
    ticket: Arc<Ticket>,
    entry: Entry,
    /// It had to wait for what was before its configuration.
    late: bool,
    observed: Option<Refusal>,
    finished: bool,
}

/// The right to forward a request that no gate has to pass: it cannot change a fenced resource, or
/// its route is off.
pub struct Exempt(Option<Unseen>);

impl Exempt {
    /// `None` for a request that a gate has to pass. `token`: what it shows; a read without one
    /// passes where reads with one are judged (`raise_on_read`). `policies`: those of all routes, in their order.
    #[must_use]
    pub fn of(
        found: &Match<'_>,
        token: Option<Token>,
        gates: &Arc<Gates>,
        policies: &[Arc<Policy>],
    ) -> Option<Self> {
        let read = found.class == Class::Read;
        if found.keys.is_some() && !(read && token.is_none()) {
            return None;
        }
        Some(Self::remembering(found, gates, policies))
    }

    /// Its method may be one that its route takes for a read, and others do not.
    fn remembering(found: &Match<'_>, gates: &Arc<Gates>, policies: &[Arc<Policy>]) -> Self {
        let changes = found.class == Class::Write || !is_safe(&found.method);
        let other = found.destination.as_ref().map(|end| end.route.index);
        let ends = [Some(found.route.index), other].into_iter().flatten();
        Self(changes.then(|| Unseen::new(gates, ends.map(|index| &policies[index]))))
    }

    /// What is to be remembered of the request while it may take effect.
    #[must_use]
    pub fn unseen(self) -> Option<Unseen> {
        self.0
    }
}

impl Pass {
    pub(super) fn new(
        gates: &Arc<Gates>,
        ticket: Arc<Ticket>,
        entry: Entry,
        observed: Option<Refusal>,
    ) -> Self {
        let finished = ticket.kind == Kind::Read;
        if !finished {
            gates.unsettled.fetch_add(1, Ordering::AcqRel);
            ticket.policy.metrics.inflight.inc();
        }
        Self {
            gates: Arc::clone(gates),
            ticket,
            entry,
            late: false,
            observed,
            finished,
        }
    }

    /// The right to forward a read that was admitted; a write keeps its pass. `found` and `policies`: as in
    /// [`Exempt::of`].
    ///
    /// # Errors
    /// The pass, where it is a write's.
    pub fn into_exempt(self, found: &Match<'_>, policies: &[Arc<Policy>]) -> Result<Exempt, Self> {
        if self.ticket.kind == Kind::Read {
            Ok(Exempt::remembering(found, &self.gates, policies))
        } else {
            Err(self)
        }
    }

    /// Whether this request raised a fence.
    #[must_use]
    pub const fn raised(&self) -> bool {
        self.entry.raised
    }

    /// Whether the request had to wait for its pass.
    #[must_use]
    pub const fn waited(&self) -> bool {
        !self.entry.forwarded || self.late
    }

    /// Notes that it had to wait before its gates were asked.
    pub(super) const fn came_late(&mut self, late: bool) {
        self.late = late;
    }

    /// What would have refused the request, had its route enforced (`mode = "observe"`).
    #[must_use]
    pub const fn observed(&self) -> Option<Refusal> {
        self.observed
    }

    /// Whether the gates still stand as they did when the pass was made. To be asked before an
    /// unsent request is tried again (I6).
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.observed.is_some() || self.ticket.policy.observe || steps::is_current(&self.ticket)
    }

    /// Ready once a higher token asks that this write be cut. Wakes the task that polled last.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.ticket.poll_cut(cx)
    }

    /// Whether a higher token asks that this write be cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.ticket.is_cut()
    }

    /// Ends the exchange. An unknown outcome holds its gates until its settle has passed; where no
    /// settle is declared it holds nothing, and is counted as best-effort.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let (gates, ticket) = (&self.gates, &self.ticket);
        let metrics = &ticket.policy.metrics;
        metrics.inflight.dec();
        let (whole, since) = match outcome {
            Outcome::Answered => return release(gates, ticket, false),
            Outcome::Unsent => return release(gates, ticket, true),
            Outcome::Unknown { whole, since } => (whole, since),
        };
        let settles = ticket.policy.settles;
        let Some(settle) = (if whole {
            settles.whole
        } else {
            settles.incomplete
        }) else {
            metrics.best_effort.inc();
            return release(gates, ticket, false);
        };
        metrics.unsettled.inc();
        let (gates, ticket) = (Arc::clone(gates), Arc::clone(ticket));
        let settle = async move {
            clock::sleep_until(since.after(settle)).await;
            ticket.policy.metrics.unsettled.dec();
            release(&gates, &ticket, false);
        };
        // Without a runtime the process is ending: the write stays unsettled, and the stop unclean.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(settle);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.finished {
            self.end(Outcome::Unknown {
                whole: true,
                since: clock::now(),
            });
        }
    }
}

fn release(gates: &Arc<Gates>, ticket: &Arc<Ticket>, unsent: bool) {
    steps::settled(gates, ticket, unsent);
    gates.unsettled.fetch_sub(1, Ordering::AcqRel);
}
