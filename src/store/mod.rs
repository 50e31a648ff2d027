//! Where fences are kept: what every store must promise. Engines are in the files beside this one.
//!
//! Knows nothing of HTTP or of the gate: it keeps the highest token of a key, durably.
//!
//! # How a loss is noticed
//! A fence that is forgotten lets a zombie write, so [`RocksStore::open`] would rather refuse. It does
//! not rely on the engine to notice a lost or damaged file:
//! - A *tally* of all entries (their number, and the sum of their fingerprints) is part of every batch.
//!   Opening reads all entries, with checksums, and compares: a store that lost anything but its newest
//!   batches as a whole contradicts its tally.
//! - The *ledger*, a file beside the engine, names the last batch on disk. A store that ends before it
//!   lost its newest batches.
//! - Identity, state, ledger and marker carry checksums and the store's identity, which the engine's
//!   folder holds too: parts of another day or another store do not fit together.
//!
//! All this is done on a read-only opening. A damaged store is refused as it was found.
//!
//! What remains: after a loss of *power* (not after a kill), batches since the ledger's last sync, at
//! most about 0.2 s under load and 0.01 s at rest, cannot be told from a torn write if their end of the
//! live log is damaged. And a whole folder that was put back to an earlier day agrees with itself
//! and is not noticed.

mod batch;
mod committer;
mod engine;
mod home;
mod job;
mod keeper;
mod ledger;
mod record;
mod refusal;
mod rocks;
mod sealed;
mod shared;

pub use home::Init;
pub use job::Observer;
pub use refusal::OpenError;
pub use rocks::{Handover, InForce, RocksStore};

use crate::fence::{ResourceKey, Token};
use std::sync::Arc;

/// What the store holds for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The fence: the highest token that was admitted.
    pub token: Token,
    /// Whether every write below `token` was known to be settled. Written without a sync after a
    /// raise's drain has ended; losing it costs one wait after an unclean start.
    pub drained: bool,
}

/// The answer of a look-up that may not touch the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// What the store holds; `None`: no record, known for sure.
    Known(Option<Record>),
    /// Only the disk knows: ask [`FenceStore::read`], off the serving thread.
    OnDisk,
}

/// Raises that become durable together.
pub struct Raise {
    /// The new fences. A key whose fence on disk is higher keeps that one.
    pub fences: Vec<(ResourceKey, Record)>,
    /// The route whose count of new resources grows by the keys that had no record
    /// (`max_new_resources`). `None`: not counted.
    pub counted_for: Option<Arc<str>>,
    /// Called once, on the committer's thread, after the sync or after the failure. Must not block.
    pub done: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

/// Why the store could not do something. All of them mean: forward nothing that needs it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The store is closed after a write error, and is being opened anew. It may come back.
    #[error("the fence store is not available: {0}")]
    Down(Arc<str>),
    /// More raises wait for the disk than the queue holds.
    #[error("too many raises wait for the fence store")]
    Busy,
    /// A record or a file is damaged.
    #[error("the fence store is damaged: {0}")]
    Damaged(Arc<str>),
}

/// Keeps the highest token of each resource.
///
/// A fence that [`Raise::done`] reported as durable is never lost or lowered.
pub trait FenceStore: Send + Sync + 'static {
    /// Looks a fence up without touching the disk. Safe on a serving thread.
    ///
    /// # Errors
    /// [`Error`] where the store cannot answer.
    fn peek(&self, key: &[u8]) -> Result<Peek, Error>;

    /// Looks a fence up. May block on the disk.
    ///
    /// # Errors
    /// [`Error`] where the store cannot answer.
    fn read(&self, key: &[u8]) -> Result<Option<Record>, Error>;

    /// Queues a raise; never blocks. The outcome comes through [`Raise::done`], which is called
    /// exactly once, also where the queue is full or the store is down (then at once, on this thread).
    fn commit(&self, raise: Raise);

    /// Queues a note that all writes below `token` are settled. Without a sync, and best effort.
    /// Does nothing unless the fence on disk is still `token`.
    fn mark_drained(&self, key: ResourceKey, token: Token);

    /// Whether a record's key begins with `prefix`. May block on the disk.
    ///
    /// # Errors
    /// [`Error`] where the store cannot answer.
    fn any_under(&self, prefix: &[u8]) -> Result<bool, Error>;

    /// Up to `limit` records in key order whose key begins with `prefix`, those after `after` where
    /// it is given. May block on the disk.
    ///
    /// # Errors
    /// [`Error`] where the store cannot answer.
    fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, Record)>, Error>;

    /// How many resources the route of that name has created, over all runs.
    fn created_by(&self, route: &str) -> u64;

    /// Whether the store can commit, as far as it knows. One relaxed load: for the hot path.
    fn is_ready(&self) -> bool;

    /// Why the store cannot commit; `None` where it can.
    fn trouble(&self) -> Option<Arc<str>>;
}
