//! The objects in memory. One that leaves it costs a question when it is written again.

use super::honours::{Honours, Known};
use super::pin::Slot;
use crate::config::{Conditions, Upstream};
use crate::sign::Signer;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SHARDS: usize = 64;
/// How many objects a shard keeps, at least those apart that are being written.
const CROWDED: usize = 4096;

/// An object and its line: whoever writes it holds the lock.
#[derive(Default)]
pub(super) struct Cell {
    pub(super) slot: Arc<tokio::sync::Mutex<Slot>>,
    touched: AtomicBool,
    /// It is changed by a write that does not wait for its turn.
    pub(super) changed: AtomicBool,
    /// How many wait for their turn.
    pub(super) waiting: AtomicUsize,
}

/// What is believed of all objects, for all serving threads and over every configuration.
pub struct Guards {
    shards: [Mutex<HashMap<Box<str>, Arc<Cell>>>; SHARDS],
    hasher: RandomState,
    /// For each region, who signs the gateway's own requests there.
    signers: Mutex<HashMap<Box<str>, Arc<Signer>>>,
    /// For each upstream, what is known of the conditions that it honours.
    honours: Mutex<HashMap<String, Arc<Honours>>>,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            signers: Mutex::default(),
            honours: Mutex::default(),
        }
    }
}

impl Guards {
    /// Who signs the gateway's own requests to stores of a region.
    #[must_use]
    pub fn signer(&self, region: &str) -> Arc<Signer> {
        let mut signers = self.signers.lock();
        if let Some(signer) = signers.get(region) {
            return Arc::clone(signer);
        }
        let signer = Arc::new(Signer::of_chain(region));
        signers.insert(region.into(), Arc::clone(&signer));
        signer
    }

    /// What is known of the conditions that an upstream honours. It outlives a configuration, but not what that
    /// says of how to know.
    #[must_use]
    pub fn honours(&self, upstream: &Upstream) -> Arc<Honours> {
        let place = format!(
            "{:?} {:?} {}",
            upstream.kind, upstream.conditions, upstream.authority
        );
        let mut all = self.honours.lock();
        let honours = all.entry(place).or_insert_with(|| {
            let honours = Honours::default();
            if upstream.conditions == Conditions::Trusted {
                honours.learn(Known::all());
            }
            Arc::new(honours)
        });
        Arc::clone(honours)
    }

    /// Lets objects leave memory that nobody has written since the last call.
    pub fn sweep(&self) {
        for shard in &self.shards {
            shard.lock().retain(|_, cell| {
                cell.touched.swap(false, Ordering::Relaxed) || !is_free(cell, true)
            });
        }
    }

    /// How many objects are in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An object: the one in memory, or one of which nothing is believed.
    pub(super) fn cell(&self, object: &str) -> Arc<Cell> {
        let mut cells = self.shard(object).lock();
        if let Some(cell) = cells.get(object) {
            cell.touched.store(true, Ordering::Relaxed);
            return Arc::clone(cell);
        }
        if cells.len() >= CROWDED {
            cells.retain(|_, cell| !is_free(cell, false));
        }
        let cell = Arc::new(Cell {
            touched: AtomicBool::new(true),
            ..Cell::default()
        });
        cells.insert(object.into(), Arc::clone(&cell));
        cell
    }

    fn shard(&self, object: &str) -> &Mutex<HashMap<Box<str>, Arc<Cell>>> {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "only the low bits are used"
        )]
        let hash = self.hasher.hash_one(object) as usize;
        &self.shards[hash % SHARDS]
    }
}

/// Only the table refers to it. References are cloned from the table alone, under the shard's lock. `plain`: and
/// what it knows can be asked for again.
fn is_free(cell: &Arc<Cell>, plain: bool) -> bool {
    Arc::strong_count(cell) == 1
        && Arc::strong_count(&cell.slot) == 1
        && cell
            .slot
            .try_lock()
            .is_ok_and(|slot| !plain || slot.is_plain())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_stays() {
        let guards = Guards::default();
        let held = guards.cell("a");
        guards.cell("b");
        guards.sweep();
        assert_eq!(guards.len(), 2, "both were touched");
        guards.sweep();
        assert_eq!(guards.len(), 1, "one is held");
        let line = Arc::clone(&held.slot);
        drop(held);
        guards.sweep();
        assert_eq!(guards.len(), 1, "its line is held");
        drop(line);
        guards.sweep();
        assert!(guards.is_empty());
    }

    #[test]
    fn a_crowd_is_bounded() {
        let guards = Guards::default();
        for number in 0..SHARDS * CROWDED * 2 {
            guards.cell(&number.to_string());
        }
        assert!(guards.len() <= SHARDS * CROWDED);
    }
}
