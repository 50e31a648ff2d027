//! One request through all the gates that it touches, in one step.
//!
//! The caller holds every gate of the request at once (locked, in key order). With one gate these
//! are the plain steps; with several, nothing is sealed before every gate has passed the request,
//! and nothing is forwarded before every gate agrees.

use super::gate::Gate;
use super::rules::{Kind, Refusal, Rules, WriteId};
use super::token::Token;

/// A gate, and the token that the request shows to it.
pub struct Crossing<'a> {
    /// The gate.
    pub gate: &'a mut Gate,
    /// The token for this gate's resource.
    pub token: Token,
    /// The rules of the route that covers this gate's resource: a request that touches several is
    /// judged at each as a request to it alone would be.
    pub rules: &'a Rules,
}

/// What becomes of a request that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// It is in flight; else it waits in every gate.
    pub forwarded: bool,
    /// It raised a fence.
    pub raised: bool,
}

/// A request arrives.
///
/// # Errors
/// The first refusal; then no gate has changed.
pub fn arrive(crossings: &mut [Crossing<'_>], id: WriteId, kind: Kind) -> Result<Entry, Refusal> {
    for crossing in &*crossings {
        crossing.gate.check(crossing.token, kind, crossing.rules)?;
    }
    if crossings.iter().all(|c| c.gate.admits(c.token)) {
        for crossing in crossings {
            crossing
                .gate
                .launch(id, crossing.token, kind, crossing.rules.preempt);
        }
        return Ok(Entry {
            forwarded: true,
            raised: false,
        });
    }
    for crossing in &*crossings {
        crossing.gate.check_room(crossing.token, crossing.rules)?;
    }
    let mut raised = false;
    for crossing in &mut *crossings {
        raised |= crossing
            .gate
            .reserve(id, crossing.token, kind, crossing.rules);
    }
    for crossing in crossings {
        crossing.gate.advance();
    }
    Ok(Entry {
        forwarded: false,
        raised,
    })
}

/// A request that waits tries to go: it is put in flight if every gate agrees, and stays in line
/// otherwise. Says whether it went.
pub fn proceed(crossings: &mut [Crossing<'_>], id: WriteId) -> bool {
    let agreed = crossings
        .iter()
        .all(|c| c.gate.awaits(id) && c.gate.admits(c.token));
    if agreed {
        for crossing in crossings {
            crossing.gate.depart(id);
        }
    }
    agreed
}

/// A request is forwarded whatever the rules say (`mode = "observe"`). Returns what they say, and
/// whether it raised a fence: it does where every gate accepts it, and nothing else speaks against it
/// (`veto`).
pub fn observe(
    crossings: &mut [Crossing<'_>],
    id: WriteId,
    kind: Kind,
    veto: Option<Refusal>,
) -> (Result<(), Refusal>, bool) {
    let verdict = crossings
        .iter()
        .try_for_each(|c| c.gate.check(c.token, kind, c.rules))
        .and_then(|()| veto.map_or(Ok(()), Err));
    let mut raised = false;
    for crossing in crossings {
        raised |= crossing
            .gate
            .observe(id, crossing.token, kind, verdict.is_ok());
    }
    (verdict, raised)
}
