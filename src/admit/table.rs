//! The gates in memory, by key, in shards.
//!
//! Two gates for one key are impossible: a cell is made and removed under its shard's lock, and
//! removed only when no one but the table refers to it and its gate is idle.

use super::cell::Cell;
use super::tenure::Tenure;
use crate::fence::ResourceKey;
use crate::store::{Error, FenceStore, Peek};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;

const SHARDS: usize = 64;

/// A shard with more cells than this lets go of idle ones at once, touched or not.
const CROWDED: usize = 4096;

type Shard = Mutex<Cells>;

#[derive(Default)]
struct Cells {
    /// Ordered, so that what lies under a prefix is found without a walk.
    by_key: BTreeMap<ResourceKey, Arc<Cell>>,
    /// The next size at which a crowded shard is cleared.
    limit: usize,
}

pub(super) struct Table {
    shards: [Shard; SHARDS],
    hasher: RandomState,
}

impl Default for Table {
    fn default() -> Self {
        let shard = || {
            Mutex::new(Cells {
                by_key: BTreeMap::new(),
                limit: CROWDED,
            })
        };
        Self {
            shards: std::array::from_fn(|_| shard()),
            hasher: RandomState::new(),
        }
    }
}

impl Table {
    /// The cell of a key: the one in memory, or a new one. A new one is loaded where the store can
    /// answer without the disk; else the caller loads it.
    pub(super) fn find(
        &self,
        key: &ResourceKey,
        store: &dyn FenceStore,
        tenure: &Tenure,
    ) -> Result<Arc<Cell>, Error> {
        let mut cells = self.shard(key).lock();
        if let Some(cell) = cells.by_key.get(key) {
            cell.touch();
            return Ok(Arc::clone(cell));
        }
        let cell = Arc::new(match store.peek(key.as_bytes())? {
            Peek::Known(record) => Cell::loaded(key.clone(), record, tenure),
            Peek::OnDisk => Cell::unloaded(key.clone()),
        });
        if cells.by_key.len() >= cells.limit {
            cells.by_key.retain(|_, cell| !is_free(cell));
            cells.limit = CROWDED.max(cells.by_key.len() * 2);
        }
        cells.by_key.insert(key.clone(), Arc::clone(&cell));
        Ok(cell)
    }

    /// Whether a gate under this prefix has a fence or a write that is not settled.
    pub(super) fn any_engaged_under(&self, prefix: &[u8]) -> bool {
        self.shards.iter().any(|shard| {
            let cells = shard.lock();
            let under = cells
                .by_key
                .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
            under
                .take_while(|(key, _)| key.as_bytes().starts_with(prefix))
                .any(|(_, cell)| cell.lock().is_none_or(|core| core.gate.is_engaged()))
        })
    }

    pub(super) fn sweep(&self) {
        for shard in &self.shards {
            shard
                .lock()
                .by_key
                .retain(|_, cell| cell.untouch() || !is_free(cell) || !is_spent(cell));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().by_key.len())
            .sum()
    }

    fn shard(&self, key: &ResourceKey) -> &Shard {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "only the low bits are used"
        )]
        let hash = self.hasher.hash_one(key.as_bytes()) as usize;
        &self.shards[hash % SHARDS]
    }
}

/// Only the table refers to it, and its gate holds nothing that the disk does not know. A reference
/// is only ever cloned from the table, under the shard's lock, or from another live one.
fn is_free(cell: &Arc<Cell>) -> bool {
    Arc::strong_count(cell) == 1 && cell.lock().is_none_or(|core| core.gate.is_idle())
}

/// It may be made anew from its record without a difference.
fn is_spent(cell: &Cell) -> bool {
    cell.lock().is_none_or(|core| core.gate.is_spent())
}
