//! What is told of a request to those on call: who it was, on what, and since when it should not have been.
//!
//! Costs a request that there is nothing to tell of a few looks at its headers.

use super::Client;
use super::tally::Tally;
use crate::admit::Denied;
use crate::clock;
use crate::event::{Kind, Sighting, short};
use crate::fence::{Format, ResourceKey, Token};
use crate::record::{entry, trace};
use crate::refusal::Why;
use crate::route::{Class, Keys, Match};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;

pub(super) const HOLDER: HeaderName = HeaderName::from_static("fencing-holder");
const REQUEST: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// How long a name may be that a client gives itself.
pub(super) const LONGEST: usize = 128;
/// How many letters of a resource's name are told.
const LONGEST_KEY: usize = 1024;

/// What a request says of its sender, kept while it travels.
pub(super) struct Witness {
    agent: Option<HeaderValue>,
    request: Option<HeaderValue>,
    holder: Option<HeaderValue>,
    parent: Option<HeaderValue>,
}

/// What has become known of a request.
#[derive(Default)]
pub(super) struct Seen {
    /// What is to be told of it, if anything.
    pub(super) kind: Option<Kind>,
    route: Option<(Arc<str>, Format)>,
    resource: Option<ResourceKey>,
    write: bool,
    /// The token that it shows.
    pub(super) token: Option<Token>,
    /// The fence by which it was judged.
    fence: Option<Token>,
    /// How long ago its token was superseded.
    superseded: Option<Duration>,
    /// Who it is, as it has proved.
    pub(super) name: Option<String>,
}

impl Seen {
    /// Its route was found.
    pub(super) fn on(&mut self, found: &Match<'_>) {
        self.route = Some((Arc::clone(&found.route.name), found.route.format));
        let mut keys = found.keys.iter().flat_map(Keys::iter);
        self.resource = keys.next().map(|key| key.resource.clone());
        self.write = found.class == Class::Write && found.keys.is_some();
    }

    /// This stood against it.
    pub(super) fn stood(&mut self, denied: &Denied) {
        let some = |token: Token| (!token.is_none()).then_some(token);
        self.fence = some(denied.fence);
        self.superseded = denied.age;
        if let Some((resource, token)) = &denied.of {
            self.resource = Some(resource.clone());
            self.token = some(*token);
        }
    }

    /// It ends in this, or would: what was judged of it first counts.
    pub(super) fn ends(&mut self, why: &Why) {
        let kind = match why {
            Why::Stale => Some(Kind::Stale),
            Why::Superseded { .. } => Some(Kind::Superseded),
            Why::Replayed => Some(Kind::Replayed),
            Why::Unverified => Some(Kind::Unverified),
            Why::TooFar => Some(Kind::Jump),
            Why::Conflict => Some(Kind::GuardConflict),
            Why::Draining => Some(Kind::DrainTimeout),
            Why::Store => Some(Kind::Store),
            Why::Broken { sent }
            | Why::Silent { sent }
            | Why::TooLarge { sent }
            | Why::Forged { sent }
            | Why::Body { sent } => (*sent && self.write).then_some(Kind::UnknownOutcome),
            Why::Missing
            | Why::Malformed(_)
            | Why::TooManyHeaders
            | Why::Method
            | Why::TooManyResources
            | Why::Forbidden(_)
            | Why::Stranger
            | Why::Unproven(_)
            | Why::Unsigned(_)
            | Why::NotAsked
            | Why::Unrouted
            | Why::Busy
            | Why::Clash(_)
            | Why::Unguarded(_)
            | Why::Written
            | Why::Unreachable { .. } => None,
        };
        self.kind = self.kind.or(kind);
    }

    /// Its upstream's answer says nothing of what became of it.
    pub(super) fn is_unknown(&mut self) {
        if self.write {
            self.kind = self.kind.or(Some(Kind::UnknownOutcome));
        }
    }
}

impl Witness {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let header = |name: HeaderName| {
            let mut all = headers.get_all(name).iter();
            let first = all.next();
            first.filter(|_| all.next().is_none()).cloned() // of two, nobody knows which is meant
        };
        Self {
            agent: header(USER_AGENT),
            request: header(REQUEST),
            holder: header(HOLDER),
            parent: header(TRACEPARENT),
        }
    }

    /// What there is to tell of its request, if anything.
    pub(super) fn tells(self, client: &Client, tally: &mut Tally<'_>) -> Option<Sighting> {
        let kind = tally.seen.kind.take()?;
        let seen = std::mem::take(&mut tally.seen);
        let (route, format) = seen.route.unzip();
        let spelt = |token: Token| format.map(|format: Format| format.spell(token));
        let text = |value: Option<HeaderValue>| {
            let value = value?;
            let text = value.to_str().ok()?;
            (!text.is_empty()).then(|| short(text))
        };
        // A name that was proved goes before one that is said.
        let proved = seen.name.or_else(|| client.names().first().cloned());
        let said = || text(self.holder).filter(|name| name.len() <= LONGEST);
        let name = |key: ResourceKey| {
            let text = format!("{}:{}", key.namespace(), key.key().escape_ascii());
            (text.chars().take(LONGEST_KEY).collect(), entry::hash(&key))
        };
        let parent = self
            .parent
            .and_then(|value| trace::parent(value.as_bytes()));
        Some(Sighting {
            kind,
            time: clock::time_of_day(),
            route: route.unwrap_or_else(|| Arc::from("")),
            resource: seen.resource.map(name),
            token: seen.token.and_then(spelt),
            fence: seen.fence.and_then(spelt),
            superseded: seen.superseded,
            proved: proved.is_some(),
            holder: proved.map(|name| short(&name)).or_else(said),
            client: short(client.peer.address()),
            agent: text(self.agent),
            request: text(self.request),
            trace: parent.map(|parent| parent.trace.to_string()),
            observed: tally.observed,
        })
    }
}
