//! What was seen once, and what is kept of it.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How many letters of a text from a request are kept.
const LONGEST: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A write below the fence was refused: its sender is a zombie.
    Stale,
    /// A newer holder came while a write waited or was under way.
    Superseded,
    /// A token was shown again where each write needs a new one.
    Replayed,
    /// Whoever is asked did not approve a raise.
    Unverified,
    /// A token jumped further than the route allows.
    Jump,
    /// The resource was not as the gateway had left it.
    GuardConflict,
    /// Older writes were not settled in time.
    DrainTimeout,
    /// Whether a write took effect is not known.
    UnknownOutcome,
    /// The fence store could not answer or commit.
    Store,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Stale,
        Self::Superseded,
        Self::Replayed,
        Self::Unverified,
        Self::Jump,
        Self::GuardConflict,
        Self::DrainTimeout,
        Self::UnknownOutcome,
        Self::Store,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Superseded => "superseded",
            Self::Replayed => "replayed",
            Self::Unverified => "unverified",
            Self::Jump => "jump",
            Self::GuardConflict => "guard-conflict",
            Self::DrainTimeout => "drain-timeout",
            Self::UnknownOutcome => "unknown-outcome",
            Self::Store => "store",
        }
    }

    /// The kind of that word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Something that was seen once.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// What.
    pub kind: Kind,
    /// When.
    pub time: SystemTime,
    /// The route's name.
    pub route: Arc<str>,
    /// The first resource that it is about: its name, which may be cut, and a digest of the whole of it.
    pub resource: Option<(String, String)>,
    /// The token that was shown, as the route spells it.
    pub token: Option<String>,
    /// The fence by which it was judged, as the route spells it.
    pub fence: Option<String>,
    /// How long ago the token was superseded, where that is known.
    pub superseded: Option<Duration>,
    /// Who the client is: by its certificate or signature, else as it says.
    pub holder: Option<String>,
    /// It has proved that.
    pub proved: bool,
    /// The client's address.
    pub client: String,
    /// Its `User-Agent`.
    pub agent: Option<String>,
    /// Its `X-Request-Id`.
    pub request: Option<String>,
    /// The trace that it came with.
    pub trace: Option<String>,
    /// It was not enforced.
    pub observed: bool,
}

/// What is kept of a sighting, and of those like it: the same kind, route, resource, holder and token; of those of the
/// store, the same route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Which one it is.
    pub id: u64,
    /// Its place among all, by when it was last seen: later ones have higher numbers.
    #[serde(default)]
    pub place: u64,
    /// What happened.
    pub kind: Kind,
    /// The route's name.
    pub route: String,
    /// The resource: namespace and key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resource: Option<String>,
    /// A digest of the whole name, as the access log has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resource_id: Option<String>,
    /// The token that was shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<String>,
    /// The fence, at the last time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fence: Option<String>,
    /// How long ago the token was superseded, at the last time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub superseded_ms: Option<u64>,
    /// Who it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub holder: Option<String>,
    /// It has proved that, by a certificate or a signature.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub proved: bool,
    /// From which address, at the last time.
    pub client: String,
    /// Its `User-Agent`, at the last time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    /// Its `X-Request-Id`, at the last time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<String>,
    /// Its trace, at the last time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<String>,
    /// It was not enforced.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub observed: bool,
    /// How often.
    pub count: u64,
    /// When first (RFC 3339).
    pub first: String,
    /// When last (RFC 3339).
    pub last: String,
}

impl Event {
    pub(super) fn of(id: u64, seen: &Sighting) -> Self {
        let (resource, resource_id) = seen.resource.clone().unzip();
        let mut event = Self {
            id,
            place: 0,
            kind: seen.kind,
            route: seen.route.to_string(),
            resource,
            resource_id,
            token: seen.token.clone(),
            fence: None,
            superseded_ms: None,
            holder: seen.holder.clone(),
            proved: seen.proved,
            client: String::new(),
            agent: None,
            request_id: None,
            trace_id: None,
            observed: seen.observed,
            count: 0,
            first: spelt(seen.time),
            last: String::new(),
        };
        event.again(seen);
        event
    }

    /// It was seen once more.
    pub(super) fn again(&mut self, seen: &Sighting) {
        self.count += 1;
        self.last = spelt(seen.time).max(std::mem::take(&mut self.last)); // a clock may go back
        self.fence.clone_from(&seen.fence);
        self.superseded_ms = seen
            .superseded
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self.client.clone_from(&seen.client);
        self.agent.clone_from(&seen.agent);
        self.request_id.clone_from(&seen.request);
        self.trace_id.clone_from(&seen.trace);
    }
}

fn spelt(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// A text from a request, cut where it is long: what waits to be written is bounded.
#[must_use]
pub fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}
