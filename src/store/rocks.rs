//! The store on local disk: making it, opening it, looking fences up, closing it.
//!
//! Knows nothing of how raises are gathered (committer.rs) or of what the files hold (home.rs,
//! engine.rs): here they are put together behind [`FenceStore`].

use super::committer;
use super::engine::{Engine, checked};
use super::home::{Home, Init, State};
use super::job::{Close, Enforce, Job, Observer, closed};
use super::keeper::{Keeper, failed, read};
use super::ledger::{Entry, Ledger};
use super::refusal::OpenError;
use super::shared::Shared;
use super::{Error, FenceStore, Peek, Raise, Record, record};
use crate::fence::{ResourceKey, Token};
use parking_lot::Mutex;
use rocksdb::{DBRawIterator, ErrorKind, ReadOptions, ReadTier};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Jobs that may wait for the committer.
const QUEUE: usize = 65_536;

/// In what state the run before left the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Whether it was left clean: nothing of an earlier run can still take effect.
    pub clean: bool,
    /// What was in force in any run since the last clean state; nothing where `clean`.
    pub before: InForce,
}

/// What the configuration of a run means for the start after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// How long what was in flight may still take effect.
    pub settle: Duration,
    /// Whether writes below a fence may have been forwarded, so that `drained` in a record does not
    /// hold.
    pub lax: bool,
}

impl InForce {
    /// What both mean together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            settle: self.settle.max(other.settle),
            lax: self.lax || other.lax,
        }
    }
}

/// A [`FenceStore`] in a local folder, held by one process at a time.
///
/// Dropping it is like a crash that loses nothing: every commit that was reported stays, and the next
/// start is unclean. [`RocksStore::close`] ends a run properly.
pub struct RocksStore {
    shared: Arc<Shared>,
    /// `None`: opened to look only.
    queue: Option<SyncSender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the run before left.
    left: Mutex<Option<String>>,
    peeks: ReadOptions,
    /// Held by the committer where there is one.
    _home: Option<Home>,
}

impl RocksStore {
    /// Makes a store in a folder that does not exist or is empty (`lost+found` aside). A store that is
    /// there already is not changed. What it made is on disk when it returns; one that was cut off is
    /// taken up by the next.
    ///
    /// # Errors
    /// [`OpenError`]: the folder holds something else or cannot be written.
    pub fn init(path: &Path) -> Result<Init, OpenError> {
        Home::create(path, |db, store| Engine::create(path, db, store))
    }

    /// Opens the store for a run, and reads and checks all of it. Never makes one.
    ///
    /// `now` is in force in this run. When this returns, it is on disk, the clean marker is gone, and
    /// the run has a number of its own.
    ///
    /// # Errors
    /// [`OpenError`]. On [`OpenError::Damaged`] nothing was written but the engine's log of events.
    pub fn open(
        path: &Path,
        cache_bytes: usize,
        now: InForce,
        observer: Arc<dyn Observer>,
    ) -> Result<(Self, Handover), OpenError> {
        let (home, state, mut ledger) = enter(path)?;
        let clean = home.is_clean(state.run);
        let left = clean.then(|| home.left(state.run)).flatten();
        if home.probe(1).is_err() {
            home.make_room();
            home.probe(1)?;
        }
        let engine = Engine::new(path, home.db(), &home.store, cache_bytes);
        let (db, contents) = engine.open(ledger.entry.batch)?;

        let before = if clean {
            InForce::default()
        } else {
            state.in_force
        };
        let handover = Handover { clean, before };
        let run = state.run + 1;
        home.begin(State {
            run,
            in_force: before.and(now),
        })?;
        let synced = contents.tally.batch;
        let entry = Entry { run, batch: synced };
        ledger
            .note(entry)
            .map_err(|e| OpenError::io(path, "writing the ledger", &e))?;

        let shared = Arc::new(Shared::new(db, contents.created));
        let (queue, jobs) = sync_channel(QUEUE);
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            home,
            engine,
            ledger,
            observer,
            run,
            tally: contents.tally,
            synced,
            lags_since: None,
        };
        let thread = thread::Builder::new()
            .name("committer".into())
            .spawn(move || committer::run(keeper, &jobs));
        let thread = thread.map_err(|e| OpenError::io(path, "starting the committer", &e))?;
        let store = Self::over(shared, Some(queue), Some(thread), None);
        *store.left.lock() = left;
        Ok((store, handover))
    }

    /// Opens the store to look at it while no gateway runs. Takes its lock and checks all of it, but
    /// changes neither run nor marker; commits are refused.
    ///
    /// # Errors
    /// [`OpenError`], as for [`RocksStore::open`].
    pub fn open_to_look(path: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        let (home, _, ledger) = enter(path)?;
        let engine = Engine::new(path, home.db(), &home.store, cache_bytes);
        let (db, contents) = engine.look(ledger.entry.batch)?;
        Ok(Self::over(
            Arc::new(Shared::new(db, contents.created)),
            None,
            None,
            Some(home),
        ))
    }

    /// Puts more in force in this run, beside what is: a start after a crash waits for the larger settle. On
    /// disk when this returns; blocks for that.
    ///
    /// # Errors
    /// [`Error`], and then it may not be used.
    pub fn enforce(&self, now: InForce) -> Result<(), Error> {
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        let (answer, outcome) = sync_channel(1);
        let job = Job::Enforce(Enforce { now, answer });
        queue.send(job).map_err(|_| closed())?;
        outcome.recv().map_err(|_| closed())?
    }

    /// Takes what the run before left beside its clean marker: `None` where it ended without one, and at the next
    /// call.
    #[must_use]
    pub fn take_left(&self) -> Option<String> {
        self.left.lock().take()
    }

    /// Ends the run: commits what waits, puts all in order on disk, and lets go of the store. With
    /// `clean`, the clean marker is left; say so only where nothing is unsettled. Later calls of any
    /// kind are refused.
    ///
    /// # Errors
    /// [`Error`] where that failed: then there is no marker, and what was committed stays committed.
    pub fn close(&self, clean: bool) -> Result<(), Error> {
        self.end(clean, None)
    }

    /// Ends the run clean, as [`RocksStore::close`] does, and leaves a text without a line end for the next one,
    /// that it can do without: on disk when this returns, if there is room.
    ///
    /// # Errors
    /// As [`RocksStore::close`]. Where it is only the text that cannot be left, nobody but the observer hears of it.
    pub fn close_leaving(&self, text: String) -> Result<(), Error> {
        self.end(true, Some(text))
    }

    fn end(&self, clean: bool, leaving: Option<String>) -> Result<(), Error> {
        let Some(queue) = &self.queue else {
            self.shared.take_down(closed());
            return Ok(());
        };
        let (answer, outcome) = sync_channel(1);
        queue
            .send(Job::Close(Close {
                clean,
                leaving,
                answer,
            }))
            .map_err(|_| closed())?;
        let outcome = outcome.recv().map_err(|_| closed())?;
        self.join();
        outcome
    }

    fn over(
        shared: Arc<Shared>,
        queue: Option<SyncSender<Job>>,
        thread: Option<JoinHandle<()>>,
        home: Option<Home>,
    ) -> Self {
        let mut peeks = checked();
        peeks.set_read_tier(ReadTier::BlockCache);
        Self {
            shared,
            queue,
            thread: Mutex::new(thread),
            left: Mutex::default(),
            peeks,
            _home: home,
        }
    }

    fn join(&self) {
        let thread = self.thread.lock().take();
        // The last owner may be a callback on the committer's own thread.
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    /// Walks over resources in key order, from `start` on, while `take` asks for more.
    fn walk(
        &self,
        prefix: &[u8],
        start: &[u8],
        mut take: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        if !self.shared.is_up() {
            return Err(self.shared.trouble());
        }
        let db = self.shared.db();
        let db = db.as_ref().ok_or_else(|| self.shared.trouble())?;
        let mut options = checked();
        options.set_iterate_upper_bound(record::NOTES);
        let mut entries: DBRawIterator = db.raw_iterator_opt(options);
        entries.seek(start);
        while let Some((key, value)) = entries.item() {
            if !key.starts_with(prefix) || !take(key, value)? {
                return Ok(());
            }
            entries.next();
        }
        entries.status().map_err(failed)
    }
}

/// Takes the lock and reads the store's own files, which must agree.
fn enter(path: &Path) -> Result<(Home, State, Ledger), OpenError> {
    let home = Home::open(path)?;
    let (state, ledger) = (home.state()?, home.ledger()?);
    let (run, noted) = (state.run, ledger.entry.run);
    if noted > run {
        let why =
            format!("it names run {run}, and the ledger run {noted}: it is older than the rest");
        return Err(OpenError::damaged(path, "state", why));
    }
    Ok((home, state, ledger))
}

impl FenceStore for RocksStore {
    fn peek(&self, key: &[u8]) -> Result<Peek, Error> {
        if !self.shared.is_up() {
            return Err(self.shared.trouble());
        }
        let db = self.shared.try_db();
        let db = db.as_deref().and_then(Option::as_ref);
        let db = db.ok_or_else(|| self.shared.trouble())?;
        match db.get_pinned_opt(key, &self.peeks) {
            Ok(value) => {
                let record = value.map(|value| record::decode(&value)).transpose()?;
                Ok(Peek::Known(record))
            }
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(Peek::OnDisk),
            Err(error) => Err(failed(error)),
        }
    }

    fn read(&self, key: &[u8]) -> Result<Option<Record>, Error> {
        if !self.shared.is_up() {
            return Err(self.shared.trouble());
        }
        let db = self.shared.db();
        read(db.as_ref().ok_or_else(|| self.shared.trouble())?, key)
    }

    fn commit(&self, raise: Raise) {
        let job = Job::raise(raise);
        let Some(queue) = &self.queue else {
            return job.refuse(Error::Down("it was opened to look only".into()));
        };
        if !self.shared.is_up() {
            return job.refuse(self.shared.trouble());
        }
        match queue.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => job.refuse(Error::Busy),
            Err(TrySendError::Disconnected(job)) => job.refuse(self.shared.trouble()),
        }
    }

    fn mark_drained(&self, key: ResourceKey, token: Token) {
        if let Some(queue) = &self.queue
            && self.shared.is_up()
        {
            let _ = queue.try_send(Job::Drained { key, token });
        }
    }

    fn any_under(&self, prefix: &[u8]) -> Result<bool, Error> {
        let mut any = false;
        self.walk(prefix, prefix, |_, _| {
            any = true;
            Ok(false)
        })?;
        Ok(any)
    }

    fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(ResourceKey, Record)>, Error> {
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        let start = after
            .map(|after| [after, &[0]].concat())
            .unwrap_or_default();
        self.walk(prefix, start.as_slice().max(prefix), |key, value| {
            let unreadable = || Error::Damaged("a key is not readable".into());
            let key = ResourceKey::from_bytes(key).ok_or_else(unreadable)?;
            found.push((key, record::decode(value)?));
            Ok(found.len() < limit)
        })?;
        Ok(found)
    }

    fn created_by(&self, route: &str) -> u64 {
        self.shared
            .with_created(|created| created.get(route).copied().unwrap_or(0))
    }

    fn is_ready(&self) -> bool {
        self.queue.is_some() && self.shared.is_up()
    }

    fn trouble(&self) -> Option<Arc<str>> {
        let reason = self.shared.reason().map(|error| error.to_string().into());
        reason.or_else(|| {
            self.queue
                .is_none()
                .then(|| "it was opened to look only".into())
        })
    }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        self.queue = None;
        self.join();
    }
}
