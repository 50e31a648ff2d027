//! The tokens that a request shows to its gates.

use crate::config::{Mode, Route};
use crate::extract;
use crate::fence::Token;
use crate::refusal::{Refusal, Why};
use crate::route::{End, Match};
use http::request::Parts;

/// The tokens that a request shows, and what is needed to spell them.
pub(super) struct Claims<'a> {
    pub(super) route: &'a Route,
    pub(super) own: Option<Token>,
    /// The `Destination`'s, where it has its own; else the same.
    pub(super) other: Option<Token>,
    /// Why they cannot be read, where the route only observes.
    pub(super) bad: Option<Why>,
}

impl<'a> Claims<'a> {
    /// Reads the tokens of a request that has gates.
    ///
    /// # Errors
    /// Where one cannot be read, unless the route only observes.
    pub(super) fn of_request(found: &Match<'a>, head: &Parts) -> Result<Self, Refusal> {
        let none = Self {
            route: found.route,
            own: None,
            other: None,
            bad: None,
        };
        if found.keys.is_none() {
            return Ok(none);
        }
        let own = extract::claim(
            found.route,
            &head.headers,
            found.marks,
            found.token.as_deref(),
        );
        let other = match &found.destination {
            Some(end) if end.own_token => {
                extract::destination_claim(end.route, &head.headers, found.marks)
            }
            _ => own,
        };
        match (own, other) {
            (Ok(own), Ok(other)) => Ok(Self { own, other, ..none }),
            (Err(bad), _) | (_, Err(bad)) => {
                let why = Why::Malformed(bad.to_string());
                if found.route.mode == Mode::Observe {
                    return Ok(Self {
                        bad: Some(why),
                        ..none
                    });
                }
                Err(why.into())
            }
        }
    }

    /// For a request that raises nothing, since it may not.
    pub(super) fn without_tokens(self, why: Why) -> Self {
        Self {
            own: None,
            other: None,
            bad: self.bad.or(Some(why)),
            ..self
        }
    }

    pub(super) const fn of(&self, end: End) -> Option<Token> {
        match end {
            End::Request => self.own,
            End::Destination => self.other,
        }
    }

    pub(super) fn refusal(&self, why: Why) -> Refusal {
        let token = self.own.map(|token| self.route.format.spell(token));
        Refusal {
            why,
            token,
            fence: None,
        }
    }

    pub(super) fn disclosed(&self, fence: Token) -> Option<String> {
        (self.route.disclose_fence && !fence.is_none()).then(|| self.route.format.spell(fence))
    }
}
