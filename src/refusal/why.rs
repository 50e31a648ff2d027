//! Why a request gets an answer of the gateway's own, and which failure of which stage that is.

use crate::admit::{Denial, Denied};
use crate::fence;
use crate::forward::{Failed, Failure};

/// Why a request gets an answer of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The token is below the fence.
    Stale,
    /// A higher token came; `sent`: part of this write may have reached the upstream.
    Superseded {
        /// Whether a byte of it reached the upstream.
        sent: bool,
    },
    /// The token equals the fence where a newer one is asked.
    Replayed,
    /// There is no token.
    Missing,
    /// Something can be read in more than one way, or in none.
    Malformed(String),
    /// It has more headers than a request may have.
    TooManyHeaders,
    /// The gateway does not serve this method.
    Method,
    /// The raise jumps too far.
    TooFar,
    /// The route may not create another resource.
    TooManyResources,
    /// The route does not allow it.
    Forbidden(String),
    /// The client is none of those who may write.
    Stranger,
    /// Whoever is asked says no to the raise.
    Unverified,
    /// Whoever is asked does not answer.
    NotAsked,
    /// No route matches.
    Unrouted,
    /// Older writes were not settled in time.
    Draining,
    /// The fence store cannot answer or commit.
    Store,
    /// Too many wait already.
    Busy,
    /// No connection to the upstream.
    Unreachable {
        /// What went wrong, in the words of RFC 9209.
        error: &'static str,
    },
    /// The upstream broke the connection off.
    Broken {
        /// Whether a byte of the request reached it.
        sent: bool,
    },
    /// The upstream did not answer in time.
    Silent {
        /// Whether a byte of the request reached it.
        sent: bool,
    },
    /// The request's body is larger than the route allows.
    TooLarge {
        /// Whether a byte of the request reached the upstream.
        sent: bool,
    },
    /// The request's body stalled or broke off.
    Body {
        /// Whether a byte of the request reached the upstream.
        sent: bool,
    },
}

impl From<&Denied> for Why {
    fn from(denied: &Denied) -> Self {
        match denied.why {
            Denial::DrainTimeout => Self::Draining,
            Denial::TooManyResources => Self::TooManyResources,
            Denial::Refused(why) => why.into(),
        }
    }
}

impl From<fence::Refusal> for Why {
    fn from(why: fence::Refusal) -> Self {
        match why {
            fence::Refusal::Stale => Self::Stale,
            fence::Refusal::Superseded => Self::Superseded { sent: false },
            fence::Refusal::Replayed => Self::Replayed,
            fence::Refusal::Missing => Self::Missing,
            fence::Refusal::TooFar => Self::TooFar,
            fence::Refusal::Busy => Self::Busy,
            fence::Refusal::Store => Self::Store,
        }
    }
}

impl From<&Failed> for Why {
    fn from(failed: &Failed) -> Self {
        let sent = failed.sent;
        let unreachable = |error| Self::Unreachable { error };
        match failed.why {
            Failure::Superseded => Self::Superseded { sent },
            Failure::Connect(_) => unreachable("connection_refused"),
            Failure::Tls(_) => unreachable("tls_protocol_error"),
            Failure::ConnectTimeout => unreachable("connection_timeout"),
            Failure::NoConnectionFree => Self::Busy,
            Failure::Broken => Self::Broken { sent },
            Failure::Silent => Self::Silent { sent },
            Failure::BodyTooLarge => Self::TooLarge { sent },
            Failure::BodyStalled | Failure::BodyBroken => Self::Body { sent },
        }
    }
}
