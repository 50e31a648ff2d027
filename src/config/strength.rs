//! How strong a route's promise is, as far as the configuration tells.
//!
//! Knows nothing of what the upstream turns out to do: whoever asked it brings that.

use super::settings::{Guard, Missing, Mode, Route};
use std::borrow::Cow;

/// How strong a route's promise is (the protocol's words).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// The resource itself refuses a late write: its requests carry conditions, and it honours them.
    Guarded,
    /// The promise holds given the upstream's settle.
    Drained,
    /// No settle is declared: an unknown outcome is not waited for.
    BestEffort,
    /// Writes without a token are let through, or nothing is enforced.
    None,
}

impl Strength {
    /// The protocol's word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Guarded => "guarded",
            Self::Drained => "drained",
            Self::BestEffort => "best-effort",
            Self::None => "none",
        }
    }
}

impl Route {
    /// What this route promises. `honoured`: its upstream honours the conditions of its guard.
    #[must_use]
    pub fn strength(&self, honoured: bool) -> Strength {
        if self.mode != Mode::Enforce || self.missing == Missing::Allow {
            Strength::None
        } else if self.is_guarded() && honoured && self.unguarded().is_none() {
            Strength::Guarded
        } else if self.upstream.settle.is_none() {
            Strength::BestEffort
        } else {
            Strength::Drained
        }
    }

    /// Whether its writes carry conditions.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard != Guard::None && self.mode == Mode::Enforce
    }

    /// Why its guard cannot close the last window whatever the upstream does. `None`: it can, or there is none.
    #[must_use]
    pub fn unguarded(&self) -> Option<Cow<'static, str>> {
        if self.guard == Guard::None {
            return None;
        }
        if !self.resource.names_one(&self.path) {
            return Some(
                "one resource stands for many objects, and the guard is of each object".into(),
            );
        }
        let hole = self.guard_hole.as_ref()?;
        Some(format!("its objects are written by route {hole} too, without this guard").into())
    }
}
