//! What waits for the committer, and who hears of what became of it.
//!
//! Knows nothing of how a job is done.

use super::{Error, InForce, Raise, Record};
use crate::fence::{ResourceKey, Token};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Hears what the committer does, on its thread. Must not block. `()` listens to nothing.
pub trait Observer: Send + Sync + 'static {
    /// A batch with that many raises in it was written and synced, which took so long.
    fn committed(&self, took: Duration, raises: usize) {
        let _ = (took, raises);
    }

    /// Something failed: `commit`, `mark`, `read`, `ledger`, `reopen` or `close`.
    fn failed(&self, op: &'static str) {
        let _ = op;
    }
}

impl Observer for () {}

type Answer = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A [`Raise::done`] that is called exactly once, whatever happens to its job.
pub(super) struct Done(Option<Answer>);

impl Done {
    pub(super) fn call(mut self, outcome: Result<(), Error>) {
        if let Some(done) = self.0.take() {
            done(outcome);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(closed()));
        }
    }
}

/// A wish to end the run.
pub(super) struct Close {
    pub clean: bool,
    /// What is left for the next run, where this one ends clean.
    pub leaving: Option<String>,
    pub answer: SyncSender<Result<(), Error>>,
}

/// A wish that more be in force in this run.
pub(super) struct Enforce {
    pub now: InForce,
    pub answer: SyncSender<Result<(), Error>>,
}

/// What waits in the queue.
pub(super) enum Job {
    Raise {
        fences: Vec<(ResourceKey, Record)>,
        route: Option<Arc<str>>,
        done: Done,
    },
    Drained {
        key: ResourceKey,
        token: Token,
    },
    Enforce(Enforce),
    Close(Close),
}

impl Job {
    pub(super) fn raise(raise: Raise) -> Self {
        Self::Raise {
            fences: raise.fences,
            route: raise.counted_for,
            done: Done(Some(raise.done)),
        }
    }

    /// Answers it without doing it.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Raise { done, .. } => done.call(Err(error)),
            Self::Drained { .. } => {}
            Self::Enforce(enforce) => drop(enforce.answer.send(Err(error))),
            Self::Close(close) => drop(close.answer.send(Err(error))),
        }
    }
}

/// The answer to whoever comes after the end.
pub(super) fn closed() -> Error {
    Error::Down("it is closed".into())
}
