//! What became of a request, in one word: the `Fencing-Status`, and the label of the metrics.

use http::HeaderName;

/// The response header that says what the gateway decided.
pub const FENCING_STATUS: HeaderName = HeaderName::from_static("fencing-status");

/// What became of a request. Each request has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forwarded: its token equals the fence, or it needs none.
    Admitted,
    /// Forwarded, and it raised the fence.
    Raised,
    /// A read, or a request on a route with `mode = "off"`.
    Passed,
    /// Refused: the token is below the fence.
    Stale,
    /// Refused or cut: a higher token came.
    Superseded,
    /// Refused: the token equals the fence where a newer one is asked.
    Replayed,
    /// Refused: there is no token.
    Missing,
    /// Refused: the token, the path or the framing can be read in more than one way, or in none.
    Malformed,
    /// Refused: the raise goes too far.
    Unverified,
    /// Refused: not allowed on this route.
    Forbidden,
    /// Refused: no route.
    Unrouted,
    /// Refused: the drain took too long.
    Draining,
    /// Refused: the fence store cannot answer or commit.
    Store,
    /// Refused: too many wait already.
    Busy,
    /// Refused: somebody wrote past the gateway, or a client's condition and the guard's exclude each other.
    Conflict,
    /// Refused: the object's state cannot be learned.
    Unguarded,
    /// Refused by the resource: a write of this holder, whose answer was lost, has taken effect.
    Written,
    /// Failed: nothing of it reached the upstream.
    Unsent,
    /// Failed: it may or may not have taken effect.
    OutcomeUnknown,
}

impl Decision {
    /// Every decision.
    pub const ALL: [Self; 19] = [
        Self::Admitted,
        Self::Raised,
        Self::Passed,
        Self::Stale,
        Self::Superseded,
        Self::Replayed,
        Self::Missing,
        Self::Malformed,
        Self::Unverified,
        Self::Forbidden,
        Self::Unrouted,
        Self::Draining,
        Self::Store,
        Self::Busy,
        Self::Conflict,
        Self::Unguarded,
        Self::Written,
        Self::Unsent,
        Self::OutcomeUnknown,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Raised => "raised",
            Self::Passed => "passed",
            Self::Stale => "stale",
            Self::Superseded => "superseded",
            Self::Replayed => "replayed",
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unverified => "unverified",
            Self::Forbidden => "forbidden",
            Self::Unrouted => "unrouted",
            Self::Draining => "draining",
            Self::Store => "store",
            Self::Busy => "busy",
            Self::Conflict => "conflict",
            Self::Unguarded => "unguarded",
            Self::Written => "written",
            Self::Unsent => "unsent",
            Self::OutcomeUnknown => "outcome-unknown",
        }
    }

    /// Whether the gateway refused it, for a reason of its own.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        !matches!(
            self,
            Self::Admitted | Self::Raised | Self::Passed | Self::Unsent | Self::OutcomeUnknown
        )
    }
}
