//! The objects in memory, by the digests of their names: clients choose how long those are. One that leaves it costs a
//! question when it is written again.

use super::honours::{Honours, Known};
use super::pin::Slot;
use super::probe::Probe;
use crate::config::{Conditions, Kind, Upstream};
use crate::sign::Signer;
use http::HeaderValue;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uuid::Uuid;

const SHARDS: usize = 64;
/// An object's name, digested.
pub(super) type Id = [u8; 32];

/// How many objects a shard keeps, those apart that are being written. Beyond that, those leave first that were not
/// written of late.
const CROWDED: usize = 2048;

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
    shards: [Mutex<HashMap<Id, Arc<Cell>>>; SHARDS],
    /// For each region, who signs the gateway's own requests there.
    signers: Mutex<HashMap<Box<str>, Arc<Signer>>>,
    /// For each upstream, what is known of the conditions that it honours.
    honours: Mutex<HashMap<String, Arc<Honours>>>,
    /// Names what this process tries upstreams with.
    id: Uuid,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            signers: Mutex::default(),
            honours: Mutex::default(),
            id: Uuid::new_v4(),
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

    /// A probe of an upstream, with objects whose paths begin with `base`, the same ones each time. `host`: what its
    /// requests name.
    #[must_use]
    pub fn probe<'a>(&self, upstream: &'a Upstream, base: &str, host: HeaderValue) -> Probe<'a> {
        let signer = (upstream.kind == Kind::S3).then(|| self.signer(&upstream.region));
        Probe::new(upstream, format!("{base}-{}", self.id), host, signer)
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

    /// Lets objects leave memory of which nothing is known. To be called now and then: what was not touched between
    /// two calls leaves first where there is no room.
    pub fn sweep(&self) {
        for shard in &self.shards {
            shard.lock().retain(|_, cell| {
                cell.touched.swap(false, Ordering::Relaxed) || !is_free(cell, Slot::is_blank)
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
        self.cell_at(Sha256::digest(object).into())
    }

    /// The same, by its digest.
    pub(super) fn cell_at(&self, id: Id) -> Arc<Cell> {
        let mut cells = self.shard(id).lock();
        if let Some(cell) = cells.get(&id) {
            cell.touched.store(true, Ordering::Relaxed);
            return Arc::clone(cell);
        }
        if cells.len() >= CROWDED {
            cells
                .retain(|_, cell| cell.touched.load(Ordering::Relaxed) || !is_free(cell, |_| true));
        }
        if cells.len() >= CROWDED {
            // Half of them will do.
            let mut stay = CROWDED / 2;
            cells.retain(|_, cell| {
                stay = stay.saturating_sub(1);
                stay > 0 || !is_free(cell, |_| true)
            });
        }
        let cell = Arc::new(Cell {
            touched: AtomicBool::new(true),
            ..Cell::default()
        });
        cells.insert(id, Arc::clone(&cell));
        cell
    }

    /// Shows each object that nobody writes.
    pub(super) fn each(&self, mut does: impl FnMut(Id, &Slot)) {
        for shard in &self.shards {
            for (id, cell) in &*shard.lock() {
                if let Ok(mut slot) = cell.slot.try_lock() {
                    if cell.changed.swap(false, Ordering::AcqRel) {
                        slot.forget();
                    }
                    does(*id, &slot);
                }
            }
        }
    }

    /// Forgets what is believed of all objects, of those too that are being written, once they are.
    pub(super) fn forget(&self) {
        for shard in &self.shards {
            for cell in shard.lock().values() {
                cell.changed.store(true, Ordering::Release);
            }
        }
    }

    fn shard(&self, id: Id) -> &Mutex<HashMap<Id, Arc<Cell>>> {
        &self.shards[usize::from(id[0]) % SHARDS]
    }
}

/// Only the table refers to it, and what it knows is of no more use. References are cloned from the table alone,
/// under the shard's lock.
fn is_free(cell: &Arc<Cell>, useless: impl FnOnce(&Slot) -> bool) -> bool {
    Arc::strong_count(cell) == 1
        && Arc::strong_count(&cell.slot) == 1
        && cell.slot.try_lock().is_ok_and(|slot| useless(&slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::pin::Pin;

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
    fn what_is_known_stays_as_long_as_there_is_room() {
        let guards = Guards::default();
        let token = crate::fence::Token::new(0, 1);
        let slot = Arc::clone(&guards.cell("known").slot);
        slot.try_lock().unwrap().learned(Pin::Absent, token);
        drop(slot);
        for _ in 0..3 {
            guards.sweep();
        }
        assert_eq!(guards.len(), 1);
        assert_eq!(
            *guards.cell("known").slot.try_lock().unwrap().pin(token),
            Pin::Absent
        );
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
