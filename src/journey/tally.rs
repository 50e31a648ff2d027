//! What became of a request, counted once.

use super::witness::Seen;
use crate::config::{Kind, Mode, Route};
use crate::record::{Decision, Entry, RouteMetrics};
use crate::refusal::Dialect;
use crate::route::{Class, Match};
use http::{HeaderValue, StatusCode};

/// Counts a request once, when it is over, under what became of it by then. A client that leaves
/// before its request was forwarded leaves it unsent.
pub(super) struct Tally<'a> {
    pub(super) metrics: &'a RouteMetrics,
    pub(super) decision: Decision,
    pub(super) observed: bool,
    /// What the body of a refusal is.
    pub(super) dialect: Dialect,
    /// What is recorded of it.
    pub(super) entry: Option<Box<Entry>>,
    /// What is told of it, if anything.
    pub(super) seen: Seen,
}

impl<'a> Tally<'a> {
    /// Its route is known.
    pub(super) fn is_on(&mut self, route: &Route, metrics: &'a RouteMetrics) {
        self.metrics = metrics;
        self.dialect = match route.upstream.kind {
            Kind::S3 => Dialect::S3,
            Kind::Http => Dialect::Problem,
        };
    }

    pub(super) fn new(
        metrics: &'a RouteMetrics,
        dialect: Dialect,
        entry: Option<Box<Entry>>,
    ) -> Self {
        Self {
            metrics,
            decision: Decision::Unsent,
            observed: false,
            dialect,
            entry,
            seen: Seen::default(),
        }
    }

    /// The head of its response is there. Gives what is left to be said of it at the response's end.
    pub(super) fn end(mut self, status: StatusCode) -> Option<Box<Entry>> {
        let mut entry = self.entry.take()?;
        entry.decision = self.decision;
        entry.observed = self.observed;
        entry.status = status.as_u16();
        Some(entry)
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
        if let Some(entry) = &mut self.entry {
            entry.decision = self.decision; // the client has left
        }
    }
}
