//! A gate in memory: loaded once, then locked for each event.

use super::tenure::Tenure;
use super::ticket::Ticket;
use crate::clock::Time;
use crate::fence::{Gate, Origin, ResourceKey, Token, WriteId};
use crate::store::{Error, FenceStore, Record};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OnceCell;

/// The gate of one resource, and the requests in it.
pub(super) struct Cell {
    pub(super) key: ResourceKey,
    core: OnceCell<Mutex<Core>>,
    touched: AtomicBool,
}

/// What the lock of a cell guards.
pub(super) struct Core {
    pub(super) gate: Gate,
    /// The requests that wait or are in flight here.
    pub(super) tickets: Vec<Arc<Ticket>>,
    /// When the last raise came, and the fence before it.
    pub(super) last_raise: Option<(Token, Time)>,
}

impl Core {
    fn new(record: Option<Record>, tenure: &Tenure) -> Self {
        let predecessor = tenure.has_predecessor();
        let trusted = !predecessor || tenure.trusts_drained();
        let origin = Origin {
            fence: record.map_or(Token::NONE, |r| r.token),
            drained: record.is_some_and(|r| r.drained) && trusted,
            predecessor,
        };
        Self {
            gate: Gate::new(origin),
            tickets: Vec::new(),
            last_raise: None,
        }
    }

    pub(super) fn ticket(&self, id: WriteId) -> Option<&Arc<Ticket>> {
        self.tickets.iter().find(|t| t.id == id)
    }

    pub(super) fn remove(&mut self, id: WriteId) -> Option<Arc<Ticket>> {
        let at = self.tickets.iter().position(|t| t.id == id)?;
        Some(self.tickets.swap_remove(at))
    }
}

impl Cell {
    /// A cell whose record only the disk knows.
    pub(super) fn unloaded(key: ResourceKey) -> Self {
        Self {
            key,
            core: OnceCell::new(),
            touched: AtomicBool::new(true),
        }
    }

    pub(super) fn loaded(key: ResourceKey, record: Option<Record>, tenure: &Tenure) -> Self {
        let core = OnceCell::new_with(Some(Mutex::new(Core::new(record, tenure))));
        Self {
            key,
            core,
            touched: AtomicBool::new(true),
        }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.core.initialized()
    }

    /// Reads the record from the disk, off this thread. Of several callers one reads and the others
    /// wait for it; one that is dropped hands over to the next.
    pub(super) async fn load(
        &self,
        store: &Arc<dyn FenceStore>,
        tenure: &Tenure,
    ) -> Result<(), Error> {
        let read = || async {
            let (store, key) = (Arc::clone(store), self.key.clone());
            let record = tokio::task::spawn_blocking(move || store.read(key.as_bytes()))
                .await
                .map_err(|e| Error::Down(e.to_string().into()))??;
            Ok(Mutex::new(Core::new(record, tenure)))
        };
        self.core.get_or_try_init(read).await.map(|_| ())
    }

    /// Locks the gate. `None` only before it was loaded.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, Core>> {
        self.core.get().map(Mutex::lock)
    }

    pub(super) fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn untouch(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }
}
