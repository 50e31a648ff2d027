//! Why a request gets an answer of the gateway's own, and which failure of which stage that is.

use crate::admit::{Denial, Denied};
use crate::fence;
use crate::forward::{Failed, Failure, Ungathered};
use crate::guard::{Unconditional, Unlearnt};

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
    /// Nothing proves who the client is.
    Unproven(String),
    /// The gateway cannot sign.
    Unsigned(String),
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
    /// Somebody wrote past the gateway, and the resource refused this write.
    Conflict,
    /// The client's own condition and the guard's exclude each other.
    Clash(&'static str),
    /// The object's state cannot be learned.
    Unguarded(String),
    /// An earlier write of the same holder, whose answer was lost, has taken effect.
    Written,
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
    /// The request's body is not what its client signed.
    Forged {
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

impl From<Unconditional> for Why {
    fn from(why: Unconditional) -> Self {
        match why {
            Unconditional::Clash(why) => Self::Clash(why),
            Unconditional::Required(why) => Self::Forbidden(format!(
                "the route requires that the resource itself refuses late writes (guard_required), and {why}"
            )),
            Unconditional::Overwrites => Self::Forbidden(
                "objects of this route are only created (guard = \"create-only\"), and the upstream ignores the condition of a copy, which would write over what is there"
                    .into(),
            ),
            Unconditional::Untried => {
                Self::Unguarded("whether the upstream honours conditions is not known yet".into())
            }
        }
    }
}

impl From<Ungathered> for Why {
    fn from(why: Ungathered) -> Self {
        match why {
            Ungathered::Busy => Self::Busy,
            Ungathered::TooLarge => Self::TooLarge { sent: false },
            Ungathered::Broken => Self::Body { sent: false },
            Ungathered::Trailers => {
                Self::Malformed("trailers after a body that is read before it is forwarded".into())
            }
        }
    }
}

impl From<Unlearnt> for Why {
    fn from(unlearnt: Unlearnt) -> Self {
        Self::Unguarded(match unlearnt {
            Unlearnt::Credentials(why) => why,
            Unlearnt::Silent => {
                "the upstream did not answer when asked for the object's ETag".into()
            }
            Unlearnt::Status(status) => {
                format!(
                    "the upstream answered {status} when asked for the object's ETag, where 200 or 404 was due"
                )
            }
            Unlearnt::Weak => "the upstream names no strong ETag for the object".into(),
        })
    }
}

impl From<&Failed> for Why {
    fn from(failed: &Failed) -> Self {
        let sent = failed.sent;
        let unreachable = |error| Self::Unreachable { error };
        match failed.why {
            Failure::Superseded => Self::Superseded { sent },
            Failure::Forged => Self::Forged { sent },
            Failure::Conflict => Self::Conflict,
            Failure::Written => Self::Written,
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
