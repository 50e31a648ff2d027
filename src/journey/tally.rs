//! What became of a request, counted once.

use crate::config::Mode;
use crate::record::{Decision, RouteMetrics};
use crate::route::{Class, Match};
use http::HeaderValue;

/// Counts a request once, when it is over, under what became of it by then. A client that leaves
/// before its request was forwarded leaves it unsent.
pub(super) struct Tally<'a> {
    pub(super) metrics: &'a RouteMetrics,
    pub(super) decision: Decision,
    pub(super) observed: bool,
}

impl<'a> Tally<'a> {
    pub(super) fn new(metrics: &'a RouteMetrics) -> Self {
        Self {
            metrics,
            decision: Decision::Unsent,
            observed: false,
        }
    }

    /// The `Fencing-Status` of a forwarded request. Reads and routes that are off have none.
    pub(super) fn status(&self, found: &Match<'_>) -> Option<HeaderValue> {
        if found.class == Class::Read || found.route.mode == Mode::Off {
            return None;
        }
        let word = self.decision.word();
        if !self.observed {
            return Some(HeaderValue::from_static(word));
        }
        HeaderValue::from_str(&format!("{word};observed")).ok()
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.metrics.count(self.decision);
    }
}
