//! What a route asks of the gate, and the words in which the gate refuses.
//!
//! Knows nothing of the configuration's text or of HTTP.

use super::token::{Format, Token};

/// Names one request in the gates that it touches. Unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Whether a request may change the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It cannot; it passes the gate only where `raise_on_read` asks for it.
    Read,
    /// It may.
    Write,
}

/// `accept`: what becomes of a token that equals the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accept {
    /// It is admitted.
    SameOrNewer,
    /// Each write needs a token above the last.
    Newer,
}

/// `missing`: what becomes of a write without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// It is refused.
    Reject,
    /// It is admitted always, which voids the promise.
    Allow,
    /// It is admitted until the resource has a fence.
    AllowUntilFenced,
}

impl Missing {
    /// Judges a write without a token.
    ///
    /// # Errors
    /// [`Refusal::Missing`] where it needs one.
    pub fn judge(self, fenced: bool) -> Result<(), Refusal> {
        match self {
            Self::Allow => Ok(()),
            Self::AllowUntilFenced if !fenced => Ok(()),
            Self::Reject | Self::AllowUntilFenced => Err(Refusal::Missing),
        }
    }
}

/// What one route asks of the gates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Are equal tokens admitted?
    pub accept: Accept,
    /// Are writes without a token admitted?
    pub missing: Missing,
    /// May a higher token cut this route's writes?
    pub preempt: bool,
    /// How many writes may wait at one gate.
    pub max_waiting: usize,
    /// How far one raise may go, as [`Format::advance`] counts.
    pub max_advance: Option<u64>,
    /// How high the first token may be, as [`Format::advance`] counts.
    pub first_max: Option<u64>,
    /// The format, for those two bounds.
    pub format: Format,
}

impl Rules {
    pub(super) fn asks_newer(&self) -> bool {
        self.accept == Accept::Newer
    }

    pub(super) fn judge_raise(&self, fence: Token, token: Token) -> Result<(), Refusal> {
        let bound = if fence.is_none() {
            self.first_max
        } else {
            self.max_advance
        };
        match bound {
            Some(bound) if self.format.advance(fence, token) > bound => Err(Refusal::TooFar),
            _ => Ok(()),
        }
    }
}

/// Why the gate refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The token is below the fence: its sender is a zombie.
    Stale,
    /// A higher token came while this write waited.
    Superseded,
    /// The token equals the fence where a newer one is asked.
    Replayed,
    /// There is no token.
    Missing,
    /// The raise jumps further than its route allows.
    TooFar,
    /// Too many writes wait for this resource.
    Busy,
    /// The fence could not be made durable.
    Store,
}
