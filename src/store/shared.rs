//! What the committer's thread and all readers share: the database while it is in service, and why
//! it is not.
//!
//! Knows nothing of what is written.

use super::Error;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rocksdb::DB;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub(super) struct Shared {
    db: RwLock<Option<DB>>,
    up: AtomicBool,
    trouble: Mutex<Option<Error>>,
    created: RwLock<HashMap<Arc<str>, u64>>,
}

impl Shared {
    /// In service from the start.
    pub(super) fn new(db: DB, created: HashMap<Arc<str>, u64>) -> Self {
        let (db, created) = (RwLock::new(Some(db)), RwLock::new(created));
        Self {
            db,
            up: AtomicBool::new(true),
            trouble: Mutex::new(None),
            created,
        }
    }

    /// Whether it is in service.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// The database. Waits while it is exchanged, which is never long.
    pub(super) fn db(&self) -> RwLockReadGuard<'_, Option<DB>> {
        self.db.read()
    }

    /// The database, without waiting. `None`: it is being exchanged.
    pub(super) fn try_db(&self) -> Option<RwLockReadGuard<'_, Option<DB>>> {
        self.db.try_read()
    }

    /// Why it is out of service.
    pub(super) fn trouble(&self) -> Error {
        self.trouble
            .lock()
            .clone()
            .unwrap_or_else(|| Error::Down("it is being closed".into()))
    }

    /// Why it is out of service; `None` where it is in service.
    pub(super) fn reason(&self) -> Option<Error> {
        self.trouble.lock().clone()
    }

    /// Refuses all that comes from now on, but leaves the database open. A first reason stays.
    pub(super) fn refuse(&self, error: Error) {
        self.trouble.lock().get_or_insert(error);
        self.up.store(false, Ordering::Relaxed);
    }

    /// Takes the database out of service and closes it. A first reason stays.
    pub(super) fn take_down(&self, error: Error) {
        self.refuse(error);
        // Closed outside of the lock: readers get their refusal meanwhile.
        let db = self.db.write().take();
        drop(db);
    }

    /// Says anew why it is out of service.
    pub(super) fn note_trouble(&self, error: Error) {
        *self.trouble.lock() = Some(error);
    }

    /// Puts a database into service.
    pub(super) fn bring_up(&self, db: DB, created: HashMap<Arc<str>, u64>) {
        *self.created.write() = created;
        *self.db.write() = Some(db);
        *self.trouble.lock() = None;
        self.up.store(true, Ordering::Relaxed);
    }

    /// Resources created, by route.
    pub(super) fn with_created<T>(&self, read: impl FnOnce(&HashMap<Arc<str>, u64>) -> T) -> T {
        read(&self.created.read())
    }

    /// Takes new counts in.
    pub(super) fn add_created(&self, counts: HashMap<Arc<str>, u64>) {
        if !counts.is_empty() {
            self.created.write().extend(counts);
        }
    }
}
