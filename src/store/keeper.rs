//! The keeper of the database: writes batches, notes what must be there, and after any failed write
//! closes the database, opens it anew and checks it.
//!
//! Knows nothing of the queue. The engine's own state after a failure is not trusted, nor is there a
//! way to ask it to resume.

use super::batch::{Changes, Round};
use super::engine::{self, Contents, Engine};
use super::home::{Home, State};
use super::job::{Observer, closed};
use super::ledger::{Entry, Ledger};
use super::record::{self, Tally};
use super::refusal::OpenError;
use super::shared::Shared;
use super::{Error, InForce, Record};
use crate::clock::{self, Time};
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::sync::Arc;
use std::time::Duration;

/// The ledger is synced when no job came for so long,
const QUIET: Duration = Duration::from_millis(10);
/// and at the latest when its sync lags for so long.
const LAG: Duration = Duration::from_millis(200);
/// What an opening may need beyond a copy of the logs.
const ROOM: u64 = 512 << 10;

/// See the module. Dropping it takes the store out of service and lets go of its lock.
pub(super) struct Keeper {
    pub shared: Arc<Shared>,
    pub home: Home,
    pub engine: Engine,
    pub ledger: Ledger,
    pub observer: Arc<dyn Observer>,
    pub run: u64,
    /// What the database holds.
    pub tally: Tally,
    /// The last batch that is on disk for sure. Batches of `drained` marks alone are not synced, and
    /// may be lost without harm: the ledger must not name one.
    pub synced: u64,
    /// Since when the ledger's synced slots lag behind `synced`.
    pub lags_since: Option<Time>,
}

impl Keeper {
    /// Ends a round, on top of what the database holds.
    pub(super) fn finish<R>(&self, round: Round<R>) -> Option<Changes>
    where
        R: Fn(&[u8]) -> Result<Option<Record>, Error>,
    {
        let tally = self.tally;
        self.shared
            .with_created(|created| round.finish(tally, created))
    }

    /// Writes a batch that that many raises wait for. On `Ok` it is durable, if it asked to be.
    pub(super) fn commit(&mut self, changes: Changes, raises: usize) -> Result<(), Error> {
        let start = clock::now();
        let written = match self.shared.db().as_ref() {
            Some(db) => write(db, &changes),
            None => return Err(self.shared.trouble()),
        };
        if let Err(error) = written {
            let op = if changes.sync { "commit" } else { "mark" };
            let error = Error::Down(format!("writing failed: {error}").into());
            self.fall(op, error.clone());
            return Err(error);
        }
        self.tally = changes.tally;
        self.shared.add_created(changes.created);
        if changes.sync {
            self.synced = changes.tally.batch;
            self.lags_since.get_or_insert_with(clock::now);
            self.observer.committed(clock::now().since(start), raises);
            let jotted = self.ledger.jot(self.entry());
            self.ledger_written(jotted);
        }
        Ok(())
    }

    /// When the ledger's next sync is due, if no job comes before; zero: now. `None`: it is up to date.
    pub(super) fn ledger_due(&self) -> Option<Duration> {
        let since = self.lags_since?;
        Some(QUIET.min(since.after(LAG).left()))
    }

    /// Syncs the ledger, where it lags and the store is in service.
    pub(super) fn sync_ledger(&mut self) {
        if self.lags_since.take().is_some() && self.shared.is_up() {
            let noted = self.ledger.note(self.entry());
            self.ledger_written(noted);
        }
    }

    /// One attempt to open the database anew.
    pub(super) fn reopen(&mut self) {
        match self.try_reopen() {
            Ok((db, contents)) => {
                self.tally = contents.tally;
                self.shared.bring_up(db, contents.created);
            }
            Err(error) => {
                self.observer.failed("reopen");
                self.shared.note_trouble(match error {
                    OpenError::Damaged { .. } => Error::Damaged(error.to_string().into()),
                    _ => Error::Down(error.to_string().into()),
                });
            }
        }
    }

    /// Puts more in force in this run. On disk when this returns.
    pub(super) fn enforce(&self, now: InForce) -> Result<(), Error> {
        let down = |why: OpenError| Error::Down(why.to_string().into());
        let state = self.home.state().map_err(down)?;
        let in_force = state.in_force.and(now);
        if in_force == state.in_force {
            return Ok(());
        }
        let written = self.home.begin(State { in_force, ..state });
        written.map_err(down)
    }

    /// Ends the run. The marker is written only if all went well.
    pub(super) fn close(&mut self, clean: bool, leaving: Option<&str>) -> Result<(), Error> {
        let outcome = self.put_in_order(clean, leaving);
        if outcome.is_err() {
            self.observer.failed("close");
        }
        outcome
    }

    fn put_in_order(&mut self, clean: bool, leaving: Option<&str>) -> Result<(), Error> {
        let down = |doing: &str, why: String| Error::Down(format!("{doing} failed: {why}").into());
        {
            let db = self.shared.db();
            let Some(db) = db.as_ref() else {
                return Err(self.shared.trouble());
            };
            db.flush().map_err(|e| down("flushing", e.into_string()))?;
            db.flush_wal(true)
                .map_err(|e| down("syncing", e.into_string()))?;
        }
        self.shared.take_down(closed());
        self.synced = self.tally.batch;
        // Every slot: then no single damage to the ledger can hide a loss.
        let entry = self.entry();
        let noted = self
            .ledger
            .jot(entry)
            .and_then(|()| self.ledger.note(entry));
        let noted = noted.and_then(|()| self.ledger.note(entry));
        noted.map_err(|e| down("writing the ledger", e.to_string()))?;
        if clean {
            self.home
                .leave_clean(self.run)
                .map_err(|e| Error::Down(e.to_string().into()))?;
            // After the marker, to which it must not take the room: the next run can do without it.
            let left = leaving.map(|text| self.home.leave(self.run, text));
            if left.is_some_and(|left| left.is_err()) {
                self.observer.failed("close");
            }
        }
        Ok(())
    }

    fn try_reopen(&mut self) -> Result<(DB, Contents), OpenError> {
        // First without the engine, which leaves new files behind at each attempt on a full disk.
        self.home.probe(ROOM + self.engine.log_bytes())?;
        let State { run, .. } = self.home.state()?;
        if run != self.run {
            let why = format!("it names run {run}, and this is run {}", self.run);
            return Err(OpenError::damaged(self.home.path(), "state", why));
        }
        self.ledger = self.home.ledger()?;
        let (db, contents) = self.engine.open(self.synced.max(self.ledger.entry.batch))?;
        // All of it is on disk now, what a failed commit left included.
        self.synced = contents.tally.batch;
        let noted = self.ledger.note(self.entry());
        noted.map_err(|e| OpenError::io(self.home.path(), "writing the ledger", &e))?;
        self.lags_since = None;
        Ok((db, contents))
    }

    /// Takes the database out of service.
    fn fall(&mut self, op: &'static str, error: Error) {
        self.observer.failed(op);
        self.shared.take_down(error);
    }

    fn ledger_written(&mut self, outcome: std::io::Result<()>) {
        if let Err(error) = outcome {
            self.fall(
                "ledger",
                Error::Down(format!("writing the ledger failed: {error}").into()),
            );
        }
    }

    fn entry(&self) -> Entry {
        Entry {
            run: self.run,
            batch: self.synced,
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Also where a callback panicked: nobody would commit any more.
        self.shared.take_down(closed());
    }
}

fn write(db: &DB, changes: &Changes) -> Result<(), rocksdb::Error> {
    let mut batch = WriteBatch::default();
    for (key, value) in &changes.puts {
        batch.put(key, value);
    }
    let options = if changes.sync {
        engine::synced()
    } else {
        WriteOptions::default()
    };
    db.write_opt(batch, &options)
}

/// Reads a fence, from the disk if need be.
pub(super) fn read(db: &DB, key: &[u8]) -> Result<Option<Record>, Error> {
    let value = db.get_pinned_opt(key, &engine::checked()).map_err(failed)?;
    value.map(|value| record::decode(&value)).transpose()
}

/// Sorts an error of the engine in service.
pub(super) fn failed(error: rocksdb::Error) -> Error {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => Error::Damaged(error.into_string().into()),
        _ => Error::Down(error.into_string().into()),
    }
}
