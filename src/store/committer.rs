//! The committer: the one thread that writes to the store, and that brings it back after a failure.
//!
//! Knows nothing of gates. It gathers the raises that wait into one synced batch, so that a sync is
//! shared by all of them. After any failed write the engine's own state is not trusted: the database
//! is closed, and opened and checked anew, until that succeeds.

use super::batch::{Changes, Round};
use super::engine::{self, Contents, Engine};
use super::home::{Home, State};
use super::ledger::{Entry, Ledger};
use super::record::{self, Tally};
use super::refusal::OpenError;
use super::shared::Shared;
use super::{Error, Raise, Record};
use crate::fence::{ResourceKey, Token};
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// Jobs that one batch takes up.
const ROUND: usize = 1024;
/// The ledger is written when no job came for so long,
const QUIET: Duration = Duration::from_millis(10);
/// and at the latest when it lags for so long.
const LAG: Duration = Duration::from_millis(200);
/// Pauses between attempts to open the database anew.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// What an opening may need beyond a copy of the logs.
const ROOM: u64 = 512 << 10;

/// Hears what the committer does, on its thread. Must not block.
pub trait Observer: Send + Sync + 'static {
    /// A synced batch with that many raises in it took so long.
    fn committed(&self, took: Duration, raises: usize) {
        let _ = (took, raises);
    }

    /// Something failed: `commit`, `mark`, `read`, `ledger`, `reopen` or `close`.
    fn failed(&self, op: &'static str) {
        let _ = op;
    }
}

/// Listens to nothing.
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
            done(Err(Error::Down("it is closed".into())));
        }
    }
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
    Close {
        clean: bool,
        answer: SyncSender<Result<(), Error>>,
    },
}

impl From<Raise> for Job {
    fn from(raise: Raise) -> Self {
        Self::Raise {
            fences: raise.fences,
            route: raise.counted_for,
            done: Done(Some(raise.done)),
        }
    }
}

/// The thread's own things.
pub(super) struct Committer {
    pub shared: Arc<Shared>,
    pub queue: Receiver<Job>,
    pub home: Home,
    pub engine: Engine,
    pub ledger: Ledger,
    pub observer: Arc<dyn Observer>,
    pub run: u64,
    /// What the database holds.
    pub tally: Tally,
    /// The last batch that is on disk for sure.
    pub synced: u64,
    /// Since when the ledger lags behind `synced`.
    pub lags_since: Option<Instant>,
}

/// What came of waiting.
enum Next {
    Job(Job),
    Nothing,
    /// Nobody can send any more.
    Ended,
}

impl Committer {
    /// Serves the queue until the store is closed or dropped.
    pub(super) fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let next = if self.shared.is_up() {
                pause = FIRST_PAUSE;
                let since = self.lags_since;
                self.wait(since.map(|since| QUIET.min(LAG.saturating_sub(since.elapsed()))))
            } else {
                let next = self.wait_down(pause);
                if matches!(next, Next::Nothing) {
                    pause = (pause * 2).min(LAST_PAUSE);
                    self.reopen();
                }
                next
            };
            match next {
                Next::Job(Job::Close { clean, answer }) => {
                    let outcome = self.close(clean);
                    // The lock goes before the answer: who waits for it may open the store again.
                    drop(self);
                    let _ = answer.send(outcome);
                    return;
                }
                Next::Job(job) => {
                    if let Some((clean, answer)) = self.round(job) {
                        let outcome = self.close(clean);
                        drop(self);
                        let _ = answer.send(outcome);
                        return;
                    }
                    if self.lags_since.is_some_and(|since| since.elapsed() >= LAG) {
                        self.write_ledger();
                    }
                }
                Next::Nothing if self.shared.is_up() => self.write_ledger(),
                Next::Nothing => {}
                Next::Ended => {
                    self.write_ledger();
                    self.shared.take_down(Error::Down("it is closed".into()));
                    return;
                }
            }
        }
    }

    fn wait(&self, limit: Option<Duration>) -> Next {
        let Some(limit) = limit else {
            return self.queue.recv().map_or(Next::Ended, Next::Job);
        };
        match self.queue.recv_timeout(limit) {
            Ok(job) => Next::Job(job),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::Ended,
        }
    }

    /// Refuses what comes, for as long as `pause`. Damage has no next attempt.
    fn wait_down(&self, pause: Duration) -> Next {
        let start = now();
        loop {
            let hopeless = matches!(self.shared.trouble(), Error::Damaged(_));
            let left = pause.saturating_sub(start.elapsed());
            match self.wait((!hopeless).then_some(left)) {
                Next::Job(Job::Raise { done, .. }) => done.call(Err(self.shared.trouble())),
                Next::Job(Job::Drained { .. }) => {}
                other => return other,
            }
            if !hopeless && left.is_zero() {
                return Next::Nothing;
            }
        }
    }

    /// Commits what waits, `first` and on. Gives back a wish to close that stood among it.
    fn round(&mut self, first: Job) -> Option<(bool, SyncSender<Result<(), Error>>)> {
        let (mut jobs, mut close) = (vec![first], None);
        while jobs.len() < ROUND {
            match self.queue.try_recv() {
                Ok(Job::Close { clean, answer }) => {
                    close = Some((clean, answer));
                    break;
                }
                Ok(job) => jobs.push(job),
                Err(_) => break,
            }
        }
        let mut raises = Vec::with_capacity(jobs.len());
        let (written, created) = {
            let db = self.shared.db();
            let Some(db) = db.as_ref() else {
                for job in jobs {
                    if let Job::Raise { done, .. } = job {
                        done.call(Err(self.shared.trouble()));
                    }
                }
                return close;
            };
            let mut round = Round::new(|key: &[u8]| read(db, key));
            for job in jobs {
                match job {
                    Job::Raise {
                        fences,
                        route,
                        done,
                    } => match round.raise(&fences, route.as_ref()) {
                        Ok(()) => raises.push(done),
                        Err(error) => {
                            self.observer.failed("read");
                            done.call(Err(error));
                        }
                    },
                    Job::Drained { key, token } => {
                        if round.drained(&key, token).is_err() {
                            self.observer.failed("read");
                        }
                    }
                    Job::Close { .. } => {}
                }
            }
            let changes = self
                .shared
                .with_created(|created| round.finish(self.tally, created));
            let start = now();
            let written = changes.as_ref().map(|changes| write(db, changes));
            match (written, changes) {
                (None, _) | (_, None) => (Ok(()), None),
                (Some(Ok(())), Some(changes)) => {
                    self.tally = changes.tally;
                    if changes.sync {
                        self.synced = changes.tally.batch;
                        self.lags_since.get_or_insert_with(now);
                        self.observer.committed(start.elapsed(), raises.len());
                    }
                    (Ok(()), Some(changes.created))
                }
                (Some(Err(error)), Some(changes)) => (
                    Err((if changes.sync { "commit" } else { "mark" }, error)),
                    None,
                ),
            }
        };
        if let Some(created) = created {
            self.shared.add_created(created);
        }
        let outcome = written.map_err(|(op, error)| {
            let error = Error::Down(format!("writing failed: {error}").into());
            self.fall(op, error.clone());
            error
        });
        for done in raises {
            done.call(outcome.clone());
        }
        close
    }

    /// Takes the database out of service.
    fn fall(&mut self, op: &'static str, error: Error) {
        self.observer.failed(op);
        self.shared.take_down(error);
    }

    /// Brings the ledger up to the last batch on disk.
    fn write_ledger(&mut self) {
        self.lags_since = None;
        if !self.shared.is_up() || self.ledger.entry.batch == self.synced {
            return;
        }
        if let Err(error) = self.ledger.note(Entry {
            run: self.run,
            batch: self.synced,
        }) {
            self.fall(
                "ledger",
                Error::Down(format!("writing the ledger failed: {error}").into()),
            );
        }
    }

    /// One attempt to open the database anew.
    fn reopen(&mut self) {
        match self.try_reopen() {
            Ok((db, contents)) => {
                self.tally = contents.tally;
                self.synced = contents.tally.batch;
                self.lags_since = Some(now());
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

    fn try_reopen(&self) -> Result<(DB, Contents), OpenError> {
        // First without the engine, which leaves new files behind at each attempt on a full disk.
        self.home.probe(ROOM + self.engine.log_bytes())?;
        let State { run, .. } = self.home.state()?;
        if run != self.run {
            let why = format!("it names run {run}, and this is run {}", self.run);
            return Err(OpenError::damaged(self.home.path(), "state", why));
        }
        let noted = self.home.ledger()?.entry.batch;
        self.engine.open(self.synced.max(noted))
    }

    /// Ends the run. The marker is written only if all went well.
    fn close(&mut self, clean: bool) -> Result<(), Error> {
        let outcome = self.flush(clean);
        if outcome.is_err() {
            self.observer.failed("close");
        }
        outcome
    }

    fn flush(&mut self, clean: bool) -> Result<(), Error> {
        let down = |error: String| Error::Down(error.into());
        {
            let db = self.shared.db();
            let Some(db) = db.as_ref() else {
                return Err(self.shared.trouble());
            };
            db.flush()
                .map_err(|e| down(format!("flushing failed: {e}")))?;
            db.flush_wal(true)
                .map_err(|e| down(format!("syncing failed: {e}")))?;
        }
        self.shared.take_down(Error::Down("it is closed".into()));
        // Both slots: then no single damage to the ledger can hide a loss.
        let entry = Entry {
            run: self.run,
            batch: self.tally.batch,
        };
        let noted = self
            .ledger
            .note(entry)
            .and_then(|()| self.ledger.note(entry));
        noted.map_err(|e| down(format!("writing the ledger failed: {e}")))?;
        if clean {
            self.home
                .leave_clean(self.run)
                .map_err(|e| down(e.to_string()))
        } else {
            Ok(())
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // Also where a callback panicked: nobody would commit any more.
        self.shared.take_down(Error::Down("it is closed".into()));
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

#[allow(
    clippy::disallowed_methods,
    reason = "measures its own thread; no rule of the gate depends on it"
)]
fn now() -> Instant {
    Instant::now()
}
