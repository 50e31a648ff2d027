//! The gate of one resource: a state machine, event in, decision out.
//!
//! Every event is a method; what the gate wants done goes to an outbox, which its owner empties with
//! [`Gate::take_effects`] after each event. It knows nothing of time (its owner says when something
//! is settled), of disks or of requests. Writes that touch several resources are in `crossing`.

use super::rules::{Kind, Refusal, Rules, WriteId};
use super::token::Token;

/// What a gate asks its owner to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Make the fence durable, then report [`Gate::committed`] or [`Gate::commit_failed`].
    Commit {
        /// The new fence.
        token: Token,
        /// Whether every lower write is already settled.
        drained: bool,
    },
    /// Refuse a write that waits. It has left this gate; it must also leave its other gates.
    Refuse(WriteId, Refusal),
    /// A write that waits may go as far as this gate is concerned: try `crossing::proceed`.
    Ready(WriteId),
    /// Cut a write in flight, unless it was sent whole.
    Cut(WriteId),
    /// Note beside the fence on disk that every write below this token is settled.
    MarkDrained(Token),
}

/// A write that was forwarded and is not settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    id: WriteId,
    token: Token,
    /// May a higher token cut it? Its own route says so.
    preempt: bool,
    cut: bool,
}

/// A write that waits for the commit or the drain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    id: WriteId,
    token: Token,
    kind: Kind,
    preempt: bool,
}

/// The record with which a gate begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The fence on disk; [`Token::NONE`] where there is no record.
    pub fence: Token,
    /// Whether the record says that every write below the fence was settled.
    pub drained: bool,
    /// Whether writes of whoever held this resource before may still take effect. Ends with
    /// [`Gate::taken_over`].
    pub predecessor: bool,
}

/// The state machine of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate {
    /// The highest token that was accepted. Every lower one is refused.
    sealed: Token,
    /// The highest token that is known to be on disk.
    durable: Token,
    /// The highest token for which a commit is under way; NONE where none is.
    committing: Token,
    /// Every write below `sealed` is settled, and stays so: none can start after the seal.
    drained: bool,
    /// The disk says `drained` of `durable`.
    marked: bool,
    /// A write with `sealed` is settled and may have had an effect (for `accept = "newer"`).
    used: bool,
    /// Set while a predecessor's writes may be in flight: the fence then, and whether it was drained.
    predecessor: Option<(Token, bool)>,
    flights: Vec<Flight>,
    /// All of them carry `sealed`, or no token: a raise refuses the lower ones.
    waiters: Vec<Waiter>,
    effects: Vec<Effect>,
}

impl Gate {
    /// Opens the gate of a resource as its store record and its history say.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self {
            sealed: origin.fence,
            durable: origin.fence,
            committing: Token::NONE,
            drained: false,
            marked: origin.drained,
            used: !origin.fence.is_none(),
            predecessor: origin.predecessor.then_some((origin.fence, origin.drained)),
            flights: Vec::new(),
            waiters: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// The fence: no write below it is admitted any more. It may be ahead of the disk.
    #[must_use]
    pub const fn fence(&self) -> Token {
        self.sealed
    }

    /// The fence as far as it is known to be on disk.
    #[must_use]
    pub const fn durable(&self) -> Token {
        self.durable
    }

    /// Whether a predecessor's writes may still take effect.
    #[must_use]
    pub const fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Whether the gate may leave memory: nothing in flight, unsettled or waiting, and nothing that
    /// the disk does not know.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.flights.is_empty()
            && self.waiters.is_empty()
            && self.committing.is_none()
            && self.sealed.eq_const(self.durable)
    }

    /// Whether leaving memory would make the gate refuse more: with `accept = "newer"`, a token that
    /// no write has used yet would count as used.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.used || self.sealed.is_none()
    }

    /// Whether the resource has a fence, or a write that is not settled.
    #[must_use]
    pub const fn is_engaged(&self) -> bool {
        !self.sealed.is_none() || !self.flights.is_empty() || !self.waiters.is_empty()
    }

    /// Empties the outbox.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether the outbox holds anything.
    #[must_use]
    pub const fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Judges a request without changing anything. Where it would have to wait,
    /// [`Gate::check_room`] has a say too.
    ///
    /// # Errors
    /// The refusal, where the rules refuse it.
    pub fn check(&self, token: Token, kind: Kind, rules: &Rules) -> Result<(), Refusal> {
        if token.is_none() {
            return rules.missing.judge(!self.sealed.is_none());
        }
        if token < self.sealed {
            return Err(Refusal::Stale);
        }
        if token > self.sealed {
            return rules.judge_raise(self.sealed, token);
        }
        if rules.asks_newer() && kind == Kind::Write && (self.used || self.expects_write()) {
            return Err(Refusal::Replayed);
        }
        Ok(())
    }

    /// Judges whether one more request may wait. A raise always may: it supersedes who waits.
    ///
    /// # Errors
    /// [`Refusal::Busy`] where too many wait already.
    pub fn check_room(&self, token: Token, rules: &Rules) -> Result<(), Refusal> {
        if token > self.sealed || self.waiters.len() < rules.max_waiting {
            Ok(())
        } else {
            Err(Refusal::Busy)
        }
    }

    /// Lets in a request that [`Gate::check`] and [`Gate::check_room`] have passed: seals where its
    /// token is a raise (which refuses the lower ones that wait), asks for the commit where it is
    /// due, and makes it wait. Says whether it was a raise.
    pub fn reserve(&mut self, id: WriteId, token: Token, kind: Kind, rules: &Rules) -> bool {
        let raises = token > self.sealed;
        if raises {
            self.seal(token);
        }
        self.waiters.push(Waiter {
            id,
            token,
            kind,
            preempt: rules.preempt,
        });
        self.ask_commit(self.nothing_below());
        raises
    }

    /// Records a request that is forwarded at once whatever the rules say (`mode = "observe"`).
    /// A raise seals and asks for its commit, and claims no drain: a lower write may be forwarded at
    /// any time. Says whether it was a raise.
    pub fn observe(&mut self, id: WriteId, token: Token, kind: Kind, accepted: bool) -> bool {
        let raises = accepted && token > self.sealed;
        if raises {
            self.seal(token);
        }
        self.track(id, token, kind, false);
        self.ask_commit(false);
        raises
    }

    /// Whether a request with this token that [`Gate::check`] has passed may go at once.
    #[must_use]
    pub fn admits(&self, token: Token) -> bool {
        token.is_none()
            || (token == self.sealed
                && self.durable == self.sealed
                && (self.drained || self.nothing_below()))
    }

    /// Puts a request in flight. Only after [`Gate::admits`] said yes in every gate that it touches.
    pub fn launch(&mut self, id: WriteId, token: Token, kind: Kind, preempt: bool) {
        if token == self.sealed {
            self.note_drained();
        }
        self.track(id, token, kind, preempt);
    }

    /// Takes a write out of the line, to forward it. `None` where it does not wait here (any more).
    pub fn depart(&mut self, id: WriteId) -> Option<Kind> {
        let at = self.waiters.iter().position(|w| w.id == id)?;
        let waiter = self.waiters.swap_remove(at);
        self.launch(id, waiter.token, waiter.kind, waiter.preempt);
        Some(waiter.kind)
    }

    /// Whether a write waits here.
    #[must_use]
    pub fn awaits(&self, id: WriteId) -> bool {
        self.waiters.iter().any(|w| w.id == id)
    }

    /// A write stops waiting: its client left, its time is up, or another of its gates refused it.
    /// The fence stays.
    pub fn abandon(&mut self, id: WriteId) {
        self.waiters.retain(|w| w.id != id);
    }

    /// A commit has reached the disk.
    pub fn committed(&mut self, token: Token, drained: bool) {
        if token > self.durable {
            self.durable = token;
            self.marked = drained;
        }
        if token >= self.committing {
            self.committing = Token::NONE;
        }
        self.advance();
    }

    /// A commit has failed. The seal stays (refusing more is safe); whoever waits for this commit is
    /// refused, and the next write with the token asks for it again.
    pub fn commit_failed(&mut self, token: Token) {
        if token >= self.committing {
            self.committing = Token::NONE;
        }
        if self.durable < self.sealed && token >= self.sealed {
            let waiters = std::mem::take(&mut self.waiters);
            self.effects
                .extend(waiters.iter().map(|w| Effect::Refuse(w.id, Refusal::Store)));
        }
    }

    /// A write in flight can no longer change the resource. `unsent`: it never could.
    pub fn settled(&mut self, id: WriteId, unsent: bool) {
        let Some(at) = self.flights.iter().position(|f| f.id == id) else {
            return;
        };
        let flight = self.flights.swap_remove(at);
        if !unsent && flight.token == self.sealed {
            self.used = true;
        }
        self.advance();
    }

    /// What a predecessor left in flight is settled.
    pub fn taken_over(&mut self) {
        self.predecessor = None;
        self.advance();
    }

    /// Asks for the next step of the drain, if one is due: go, or cut who is in the way.
    pub fn advance(&mut self) {
        if self.waiters.is_empty() || self.durable != self.sealed {
            return;
        }
        if self.admits(self.sealed) {
            self.note_drained();
            self.effects
                .extend(self.waiters.iter().map(|w| Effect::Ready(w.id)));
            return;
        }
        for flight in &mut self.flights {
            if flight.token < self.sealed && flight.preempt && !flight.cut {
                flight.cut = true;
                self.effects.push(Effect::Cut(flight.id));
            }
        }
    }

    fn seal(&mut self, token: Token) {
        self.sealed = token;
        self.drained = false;
        self.used = false;
        let overtaken = std::mem::take(&mut self.waiters);
        self.effects.extend(
            overtaken
                .iter()
                .map(|w| Effect::Refuse(w.id, Refusal::Superseded)),
        );
    }

    fn track(&mut self, id: WriteId, token: Token, kind: Kind, preempt: bool) {
        if kind == Kind::Read {
            return; // it cannot change the resource, so nothing need wait for it
        }
        self.flights.push(Flight {
            id,
            token,
            preempt,
            cut: false,
        });
    }

    fn ask_commit(&mut self, drained: bool) {
        if self.durable < self.sealed && self.committing < self.sealed {
            self.committing = self.sealed;
            self.effects.push(Effect::Commit {
                token: self.sealed,
                drained,
            });
        }
    }

    /// The drain has ended.
    fn note_drained(&mut self) {
        if self.sealed.is_none() {
            return; // there is no record to mark
        }
        self.drained = true;
        if !self.marked {
            self.marked = true;
            self.effects.push(Effect::MarkDrained(self.sealed));
        }
    }

    fn nothing_below(&self) -> bool {
        let predecessor_may_write = self.predecessor.is_some_and(|(fence, drained)| {
            self.sealed > fence || (self.sealed == fence && !drained)
        });
        !predecessor_may_write && self.flights.iter().all(|f| f.token >= self.sealed)
    }

    /// A write with the fence's token waits, or is in flight.
    fn expects_write(&self) -> bool {
        self.waiters
            .iter()
            .any(|w| w.kind == Kind::Write && w.token == self.sealed)
            || self.flights.iter().any(|f| f.token == self.sealed)
    }
}
