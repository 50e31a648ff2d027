//! One request in the gates: where it stands, and the signals to the task that owns it.

use super::Policy;
use super::cell::Cell;
use super::reach::Reach;
use crate::clock::Time;
use crate::fence::{Kind, Refusal, Token, WriteId};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A gate that a request touches.
pub(super) struct Stop {
    pub(super) cell: Arc<Cell>,
    /// The token that the request shows to it.
    pub(super) token: Token,
    /// What the route that covers the resource asks.
    pub(super) policy: Arc<Policy>,
}

pub(super) type Stops = SmallVec<[Stop; 1]>;

/// A request that waits or is in flight. Signals may come from any thread.
pub(super) struct Ticket {
    pub(super) id: WriteId,
    pub(super) kind: Kind,
    /// The gates that it touches, in key order.
    pub(super) stops: Stops,
    /// What the request's own route asks.
    pub(super) policy: Arc<Policy>,
    /// What it may change below its own keys, for as long as it may.
    pub(super) _reaches: Vec<Reach>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    verdict: Option<Result<(), Refusal>>,
    cut: bool,
    durable_at: Option<Time>,
    owner: Option<Waker>,
}

impl Ticket {
    pub(super) fn new(
        id: WriteId,
        kind: Kind,
        stops: Stops,
        policy: Arc<Policy>,
        reaches: Vec<Reach>,
    ) -> Self {
        Self {
            id,
            kind,
            stops,
            policy,
            _reaches: reaches,
            state: Mutex::default(),
        }
    }

    /// Gives the verdict on a request that waits. The first one counts.
    pub(super) fn decide(&self, verdict: Result<(), Refusal>) {
        self.signal(|state| {
            state.verdict.get_or_insert(verdict);
        });
    }

    /// Notes when the fence that this request raised became durable.
    pub(super) fn durable(&self, at: Time) {
        self.state.lock().durable_at = Some(at);
    }

    pub(super) fn durable_at(&self) -> Option<Time> {
        self.state.lock().durable_at
    }

    /// Asks the owner to close the connection, unless the write was sent whole.
    pub(super) fn cut(&self) {
        self.signal(|state| state.cut = true);
    }

    pub(super) fn decided(&self) -> Option<Result<(), Refusal>> {
        self.state.lock().verdict
    }

    /// Waits for the verdict. Cancel-safe.
    pub(super) async fn verdict(&self) -> Result<(), Refusal> {
        poll_fn(|cx| self.poll(cx, |state| state.verdict)).await
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state.lock().cut
    }

    pub(super) fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll(cx, |state| state.cut.then_some(()))
    }

    fn signal(&self, change: impl FnOnce(&mut State)) {
        let owner = {
            let mut state = self.state.lock();
            change(&mut state);
            state.owner.take()
        };
        if let Some(owner) = owner {
            owner.wake();
        }
    }

    fn poll<T>(&self, cx: &Context<'_>, look: impl FnOnce(&State) -> Option<T>) -> Poll<T> {
        let mut state = self.state.lock();
        if let Some(value) = look(&state) {
            return Poll::Ready(value);
        }
        if !state
            .owner
            .as_ref()
            .is_some_and(|owner| owner.will_wake(cx.waker()))
        {
            state.owner = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}
